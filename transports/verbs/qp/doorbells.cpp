#include "transports/verbs/qp/doorbells.hpp"

#include "transports/verbs/qp/send_queue.hpp"

namespace pt2p::verbs {

void Doorbells::ring(SendQueue &queue) { queue.ring(); }

void Doorbells::list(SendQueue &queue)
{
	if (queue.listed)
		return;
	queue.listed = true;
	waiting_.push_back(&queue);
}

void Doorbells::rung(SendQueue &queue)
{
	if (!queue.listed)
		return;
	queue.listed = false;
	std::erase(waiting_, &queue);
}

void Doorbells::ring_all()
{
	while (!waiting_.empty())
		waiting_.back()->ring(); // takes itself off the list
}

void Doorbells::cork(bool corked, bool bundles)
{
	corked_ = corked;
	bundles_ = corked && bundles;
	batch_ = corked ? std::max(max_batch, usual_) : usual_;
	if (!corked)
		ring_all();
}

void Doorbells::use_batch(uint32_t work_requests)
{
	usual_ = work_requests;
	batch_ = corked_ ? std::max(max_batch, work_requests) : work_requests;
	ring_all(); // the short path requires that no WQE waits for a doorbell
}

} // namespace pt2p::verbs
