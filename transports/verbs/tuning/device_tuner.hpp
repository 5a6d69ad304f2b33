// What is tuned for a whole device: the laws, and how many work requests share a doorbell.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>

#include "base/clock.hpp"
#include "transports/transport.hpp"
#include "transports/verbs/tuning/batch.hpp"
#include "transports/verbs/tuning/channel.hpp"
#include "transports/verbs/tuning/window.hpp"

namespace pt2p::tune {

// Posts work requests in batches.
class Batching {
public:
	// Up to so many work requests share a doorbell from now on when they are posted in one go.
	virtual void use_batch(uint32_t work_requests) = 0;

protected:
	~Batching() = default;
};

class DeviceTuner {
public:
	// `max_batch`: work requests.
	DeviceTuner(const TransportEnvironment &environment, Batching &batching, uint32_t max_batch);

	Mode mode() const { return mode_; }
	bool on() const { return mode_ != Mode::off; }
	bool is_paper() const { return mode_ == Mode::paper; }
	// Whether measurements decide between device memory and a buffer.
	bool tunes_staging() const { return tunes_staging_; }
	Band band() const;
	// For a queue of this depth, work requests.
	PeriodLaw period_law(uint32_t depth) const;
	WindowLaw window_law(uint32_t depth) const;

	// A queue begins, or ends, to observe the latency of a work request.
	void begin_watch()
	{
		if (!watching_++)
			last_poll_ = now_ticks();
		look_soon();
	}
	void end_watch() { --watching_; }
	bool watches() const { return watching_ != 0; }
	// Completions should be read soon, although no call waits for them.
	void look_soon() { environment_.events.pacing.look_soon(); }
	// While a queue observes: before completion queues are polled, and when they are empty.
	void before_poll() { unpolled_ = now_ticks() - last_poll_; }
	void after_poll()
	{
		last_poll_ = now_ticks();
		look_soon();
	}
	// For how long nobody had polled before this poll: ticks.
	int64_t unpolled() const { return unpolled_; }

	// Whether work requests share doorbells for good. A trial does not count, as it must change nothing else.
	bool shares_doorbells() const { return (batch_tuner_ ? batch_tuner_->accepted() : fixed_batch_) != 1; }
	// Null: the batch is fixed.
	const BatchTuner *batch_tuner() const { return batch_tuner_ ? &*batch_tuner_ : nullptr; }
	// The batch, unless it is fixed, is judged by these: doorbells rung, work requests completed, and L/N at the ends
	// of periods.
	void rang(uint32_t work_requests)
	{
		if (!batch_tuner_)
			return;
		interval_.posted += work_requests;
		++interval_.doorbells;
	}
	void completed(uint32_t work_requests)
	{
		if (batch_tuner_ && (interval_.work += work_requests) >= BatchLaw::interval)
			tune_batch();
	}
	void saw(double ratio)
	{
		interval_.ratios += ratio;
		++interval_.observed;
	}

	// Writes an observation of a work request to `peer` to the file of PT2P_TUNE_TRACE.
	struct Trace {
		int64_t normal, latency; // ticks
		uint32_t period;
		bool idle; // the latency is one of an idle channel
	};
	bool traces() const { return trace_ != nullptr; }
	void trace(int peer, SizeClass kind, const Trace &seen);

	double ticks_in_a_ns() const;
	int64_t ticks_at_start() const { return ticks_at_start_; }

private:
	void open_trace();
	void tune_batch();

	const TransportEnvironment environment_;
	Batching &batching_;
	const Mode mode_;
	const bool tunes_staging_;
	const uint32_t fixed_batch_;           // work requests
	int watching_ = 0;                     // queues
	int64_t last_poll_ = 0, unpolled_ = 0; // ticks
	std::optional<BatchTuner> batch_tuner_;
	struct {
		uint64_t work = 0, posted = 0, doorbells = 0;
		double ratios = 0;
		uint32_t observed = 0;
		int64_t since = 0; // ticks
	} interval_;
	const int64_t ticks_at_start_, ns_at_start_;
	struct Close {
		void operator()(FILE *file) const { fclose(file); }
	};
	std::unique_ptr<FILE, Close> trace_;
};

} // namespace pt2p::tune
