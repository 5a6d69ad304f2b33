// Decides when doorbells are rung. Work requests that are posted in one go may share a doorbell. A queue with work
// requests that wait for a doorbell is listed here.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/config/choices.hpp"
#include "transports/verbs/tuning/device_tuner.hpp"

namespace pt2p::verbs {

class SendQueue;

class Doorbells final : public tune::Batching {
public:
	// `batch`: how many work requests share a doorbell, at most. `shared`: what they may share while corked.
	Doorbells(uint32_t batch, choice::net_batching shared) : shared_(shared), usual_(batch), batch_(batch) {}

	// `unrung` work requests of a queue wait for a doorbell.
	void posted(SendQueue &queue, uint32_t unrung)
	{
		if (__builtin_expect(unrung >= batch_, 1))
			ring(queue);
		else
			list(queue);
	}
	// None waits any more.
	void rung(SendQueue &queue);
	void ring_all();
	bool any_waits() const { return !waiting_.empty(); }
	// While corked, work requests wait for a doorbell until max_batch have come or ring_all() is called. `bundles`:
	// until then, the last one of a queue may be open.
	void cork(bool corked, bool bundles = false);
	void use_batch(uint32_t work_requests) override;
	uint32_t batch() const { return usual_; }
	// Whether work requests may wait for a doorbell.
	bool batches() const { return batch_ != 1; }
	bool bundles() const { return bundles_; }
	// A work request of the queue is open.
	void opened(SendQueue &queue) { list(queue); }

	static constexpr uint32_t max_batch = 16; // work requests

private:
	static void ring(SendQueue &queue);
	void list(SendQueue &queue);
	uint32_t batch_corked() const
	{
		return shared_ == choice::net_batching::off ? usual_ : std::max(max_batch, usual_);
	}

	const choice::net_batching shared_;
	uint32_t usual_, batch_; // as tuned; in force now
	bool corked_ = false, bundles_ = false;
	std::vector<SendQueue *> waiting_;
};

} // namespace pt2p::verbs
