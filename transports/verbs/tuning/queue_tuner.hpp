// The tuner of one send queue. The queue tells it what was posted and what has completed. It observes latencies, and
// returns how many work requests may be in flight and the signal period.
//
// TPL paper, section 4.1: the latency of a work request that was posted on an idle channel is N. The latency of the
// last one of a period is L.
#pragma once

#include <array>
#include <optional>

#include "base/clock.hpp"
#include "transports/verbs/tuning/device_tuner.hpp"
#include "transports/verbs/tuning/window.hpp"

namespace pt2p::tune {

// A completed work request.
struct Observed {
	ChannelTuner &channel;
	SizeClass kind;
	int peer;
};

class QueueTuner {
public:
	// For a queue of this depth.
	QueueTuner(DeviceTuner &device, uint32_t depth);
	~QueueTuner() { stop(); }
	QueueTuner(const QueueTuner &) = delete;
	QueueTuner &operator=(const QueueTuner &) = delete;

	void rang(uint32_t work_requests) { device_.rang(work_requests); }

	// Work request `number` is posted next, and signalled because it ends a period. `alone`: nothing else is in flight;
	// `early`: the period is cut short.
	void posted(uint32_t number, bool alone, bool early) // inline because the short path calls no function
	{
		// With a window, not each period is observed, because observing costs extra polls, and it does not matter
		// whether periods are cut short. With the paper's law, such a period can show N, but not L.
		if (watching_ || (window_ ? static_cast<int32_t>(number - next_) < 0 : early && !alone))
			return;
		watching_ = true;
		watched_ = {number, alone, emptied_ && alone, now_ticks()};
		emptied_ = false;
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
	void see_watched(const Observed &watched);
	struct Limits {
		uint32_t period, window; // work requests
		bool signal_next;        // request a completion of the next one, to see N
	};
	// `count` work requests up to number `upto` have completed, `latest` is the last of them, and `left` are in flight.
	Limits completed(const Observed &latest, uint32_t upto, uint32_t count, uint32_t left);
	bool saturated() const { return window_ && window_->saturated(); }
	// Stops observing.
	void stop();

private:
	uint32_t period(SizeClass kind) const;

	DeviceTuner &device_;
	// One of the two, the latter for each class.
	std::optional<WindowTuner> window_;
	std::array<PeriodTuner, size_classes> periods_;
	// The signalled work request whose latency is observed, if watching_.
	struct {
		uint32_t number;
		bool alone;    // the channel was idle before it
		bool emptied;  // the channel was made idle for it
		int64_t since; // ticks
	} watched_{};
	bool watching_ = false;
	struct {
		uint32_t number;
		int64_t since;
	} sample_{};
	bool sampling_ = false;
	bool emptied_ = false; // the queue has run empty by request
	uint32_t next_ = 0;    // the first work request that may be observed next
	uint32_t times_idle_ = 0;
};

} // namespace pt2p::tune
