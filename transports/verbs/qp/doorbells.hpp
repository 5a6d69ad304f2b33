// When doorbells are rung. Work requests that are posted in one go may share one: a queue whose doorbell waits is
// listed here.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "transports/verbs/tuning/device_tuner.hpp"

namespace pt2p::verbs {

class SendQueue;

class Doorbells final : public tune::Batching {
public:
	// `batch`: how many work requests share a doorbell, at most.
	explicit Doorbells(uint32_t batch) : usual_(batch), batch_(batch) {}

	// A queue has so many work requests that no doorbell was rung for.
	void posted(SendQueue &queue, uint32_t unrung)
	{
		if (__builtin_expect(unrung >= batch_, 1))
			ring(queue);
		else
			list(queue);
	}
	// It has none any more.
	void rung(SendQueue &queue);
	void ring_all();
	bool any_waits() const { return !waiting_.empty(); }
	// While corked, work requests wait for others until ring_all() or the end of it.
	void cork(bool corked);
	void use_batch(uint32_t work_requests) override;
	uint32_t batch() const { return usual_; }
	// Whether work requests wait for others before a doorbell is rung.
	bool batches() const { return batch_ != 1; }

	static constexpr uint32_t max_batch = 16; // work requests: then the device may as well begin

private:
	static void ring(SendQueue &queue);
	void list(SendQueue &queue);

	uint32_t usual_, batch_; // the latter: at present
	bool corked_ = false;
	std::vector<SendQueue *> waiting_;
};

} // namespace pt2p::verbs
