// The tuner's eyes at one send queue. The queue tells it what was posted and what was completed; it observes latencies,
// shows them to the tuner of the channel, and answers how many work requests may be in flight and how long the signal
// period is.
//
// TPL paper, section 4.1: the latency of what was posted to an idle channel is the normal one (N); that of the last of
// a period (L) is compared with it.
#pragma once

#include "base/clock.hpp"
#include "transports/verbs/tuning/device_tuner.hpp"

namespace pt2p::tune {

// A work request that was completed.
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

	// This work request is posted next and signalled, as a period is over. `alone`: nothing else is in flight; `each`:
	// every one is signalled for now, whatever the period.
	void posted(uint32_t number, bool alone, bool each) // inline: the short path of a message calls nothing
	{
		// Now and then is enough, as it costs more looks at the completions; and not in step with them.
		constexpr uint32_t periods_between = 13;
		// A period that was cut short tells what is normal, not what is last.
		if (watching_ || (each && !alone) || (!tied_ && periods_++ % periods_between != 0))
			return;
		watching_ = true;
		watched_ = {number, alone, now_ticks()};
		device_.begin_watch();
	}
	// The last that was posted is a sample of where it is staged; its staging began at `since`, ticks. One at a time.
	void sample_posted(uint32_t number, int64_t since);
	bool samples() const { return sampling_; }

	// All up to `upto` is complete: whether the one that is observed is among it, and which that is.
	bool sees_sample(uint32_t upto) const { return sampling_ && static_cast<int32_t>(upto - sample_.number) >= 0; }
	bool sees_watched(uint32_t upto) const { return watching_ && static_cast<int32_t>(upto - watched_.number) >= 0; }
	uint32_t sample() const { return sample_.number; }
	uint32_t watched() const { return watched_.number; }
	// Then it is shown. `bytes`: of the sample.
	void see_sample(const Observed &sample, size_t bytes);
	// `idle`: nothing is in flight. True: the next work request should be signalled, as it will show N anew.
	bool see_watched(const Observed &watched, bool idle);
	struct Limits {
		uint32_t period, window; // work requests; the window is 0 where that is the period
	};
	// So many were completed, the latest of which is this.
	Limits completed(const Observed &latest, uint32_t count, bool idle);
	// Nothing is observed any more.
	void stop();

private:
	DeviceTuner &device_;
	const bool tied_;
	// The signalled work request whose latency is being observed, if watching_.
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
	bool measure_normal_ = false; // anew, with the next that is posted to an idle channel
};

} // namespace pt2p::tune
