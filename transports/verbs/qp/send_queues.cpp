#include "transports/verbs/qp/send_queues.hpp"

#include <algorithm>
#include <utility>

#include "transports/verbs/qp/send_queue.hpp"

namespace pt2p::verbs {

void SendQueues::add(SendQueue &queue)
{
	completions_.add(queue.qp()->send_cq);
	const auto free = std::find(queues_.begin(), queues_.end(), nullptr);
	queue.index = static_cast<uint32_t>(free - queues_.begin());
	if (free == queues_.end())
		queues_.push_back(&queue);
	else
		*free = &queue;
	make_hash();
}

void SendQueues::remove(SendQueue &queue, const ibv_cq *cq, uint32_t number)
{
	completions_.forget(cq, number);
	completions_.remove(cq);
	queues_[queue.index] = nullptr;
	make_hash();
	std::erase_if(broken_, [&](const Broken &b) { return b.queue == &queue; });
}

void SendQueues::make_hash()
{
	size_t size = 8;
	while (size < 2 * queues_.size())
		size *= 2;
	hash_.assign(size, nullptr);
	for (SendQueue *queue : queues_) {
		if (!queue)
			continue;
		size_t at = queue->number();
		while (hash_[at & (size - 1)])
			++at;
		hash_[at & (size - 1)] = queue;
	}
}

bool SendQueues::works(const SendQueue &queue) { return !queue.broken(); }

bool SendQueues::busy() const
{
	return std::any_of(queues_.begin(), queues_.end(),
	                   [](const SendQueue *q) { return q && !q->idle() && !q->broken() && !q->owner.left(); });
}

void SendQueues::report_broken(SendQueue &queue, ibv_wc_status status)
{
	if (queue.broken())
		return;
	queue.set_broken();
	broken_.push_back({&queue, status});
}

void SendQueues::handle_broken()
{
	const std::vector<Broken> now = std::exchange(broken_, {});
	for (const Broken &b : now)
		b.queue->owner.on_broken(*b.queue, b.status);
}

} // namespace pt2p::verbs
