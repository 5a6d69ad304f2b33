// The tuner of one send queue. The queue tells it what was posted and what has completed. It observes latencies, passes
// them to the tuner of the channel, and returns the window and the signal period.
//
// TPL paper, section 4.1: the latency of a work request that was posted on an idle channel is N. The latency of the
// last one of a period is L.
#pragma once

#include "base/clock.hpp"
#include "transports/verbs/tuning/device_tuner.hpp"

namespace pt2p::tune {

// A completed work request.
struct Observed {
	ChannelTuner &channel;
	SizeClass kind;
	int peer;
};

class QueueTuner {
public:
	explicit QueueTuner(DeviceTuner &device) : device_(device), tied_(device.tied()) {}
	~QueueTuner() { stop(); }
	QueueTuner(const QueueTuner &) = delete;
	QueueTuner &operator=(const QueueTuner &) = delete;

	bool tied() const { return tied_; }
	void rang(uint32_t work_requests) { device_.rang(work_requests); }

	// Work request `number` is posted next, and signalled because it ends a period. `alone`: nothing else is in flight;
	// `each`: every work request is signalled for now, whatever the period.
	void posted(uint32_t number, bool alone, bool each) // inline because the short path calls no function
	{
		// With `free`, one period in 13 is observed, because observing costs extra polls. The number is prime, so that
		// the observations do not keep in step with the polls.
		constexpr uint32_t periods_between = 13;
		// A period that was cut short can show N, but not L.
		if (watching_ || (each && !alone) || (!tied_ && periods_++ % periods_between != 0))
			return;
		watching_ = true;
		watched_ = {number, alone, now_ticks()};
		device_.begin_watch();
	}
	// The last work request is a sample of its staging, which began at `since` (ticks). One sample at a time.
	void sample_posted(uint32_t number, int64_t since);
	bool samples() const { return sampling_; }

	// All up to `upto` have completed. Is the observed one among them, and which one is it?
	bool sees_sample(uint32_t upto) const { return sampling_ && static_cast<int32_t>(upto - sample_.number) >= 0; }
	bool sees_watched(uint32_t upto) const { return watching_ && static_cast<int32_t>(upto - watched_.number) >= 0; }
	uint32_t sample() const { return sample_.number; }
	uint32_t watched() const { return watched_.number; }
	// The observed one has completed. `bytes`: length of the sample.
	void see_sample(const Observed &sample, size_t bytes);
	// `idle`: nothing is in flight. Returns true if the next work request should be signalled to measure N again.
	bool see_watched(const Observed &watched, bool idle);
	struct Limits {
		uint32_t period, window; // work requests; window 0: the period is the window
	};
	// `count` work requests have completed; `latest` is the last of them.
	Limits completed(const Observed &latest, uint32_t count, bool idle);
	// Stops observing.
	void stop();

private:
	DeviceTuner &device_;
	const bool tied_;
	// The signalled work request whose latency is observed, if watching_.
	struct {
		uint32_t number;
		bool alone;    // the channel was idle before it
		int64_t since; // ticks
	} watched_{};
	bool watching_ = false;
	struct {
		uint32_t number;
		int64_t since;
	} sample_{};
	bool sampling_ = false;
	uint32_t times_idle_ = 0, periods_ = 0;
	bool measure_normal_ = false; // again, with the next one that is posted on an idle channel
};

} // namespace pt2p::tune
