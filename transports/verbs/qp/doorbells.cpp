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
	bundles_ = corked && bundles && shared_ == choice::net_batching::bundles;
	batch_ = corked ? batch_corked() : usual_;
	if (!corked)
		ring_all();
}

void Doorbells::use_batch(uint32_t work_requests)
{
	usual_ = work_requests;
	batch_ = corked_ ? batch_corked() : usual_;
	ring_all(); // the short path requires that no WQE waits for a doorbell
}

} // namespace pt2p::verbs
