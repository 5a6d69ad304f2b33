// What is tuned for a whole device: the laws, the shortest normal latency, and how many work requests share a doorbell.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>

#include "transports/transport.hpp"
#include "transports/verbs/tuning/batch.hpp"
#include "transports/verbs/tuning/channel.hpp"

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
	bool tied() const { return mode_ == Mode::tied; }
	// Whether measurements decide between device memory and a buffer.
	bool tunes_staging() const { return tunes_staging_; }
	// For a queue of this depth.
	PeriodLaw law(uint32_t depth) const;
	// For a channel whose queue has this depth. Null: nothing is tuned.
	std::unique_ptr<ChannelTuner> make_channel(uint32_t depth) const;

	// A queue begins, or ends, to observe the latency of a work request.
	void begin_watch()
	{
		++watching_;
		look_soon();
	}
	void end_watch() { --watching_; }
	bool watches() const { return watching_ != 0; }
	// Completions should be read soon, although no call waits for them.
	void look_soon() { environment_.events.pacing.look_soon(); }

	// A channel has seen this N. Returns it.
	int64_t saw_normal(int64_t latency)
	{
		min_normal_ = min_normal_ ? std::min(min_normal_, latency) : latency;
		return latency;
	}
	int64_t min_normal() const { return min_normal_; } // 0: not seen yet

	// Whether work requests share doorbells for good. A trial does not count, as it must change nothing else.
	bool shares_doorbells() const { return (batch_tuner_ ? batch_tuner_->accepted() : fixed_batch_) != 1; }
	// Null: the batch is fixed.
	const BatchTuner *batch_tuner() const { return batch_tuner_ ? &*batch_tuner_ : nullptr; }
	// The batch is judged by these: doorbells rung, work requests completed, and L/N at the ends of periods.
	void rang(uint32_t work_requests)
	{
		interval_.posted += work_requests;
		++interval_.doorbells;
	}
	void completed(uint32_t work_requests)
	{
		if ((interval_.work += work_requests) >= BatchLaw::interval)
			tune_batch();
	}
	void saw(double ratio)
	{
		interval_.ratios += ratio;
		++interval_.observed;
	}

	// Writes L or N of a work request to `peer` to the file of PT2P_TUNE_TRACE.
	bool traces() const { return trace_ != nullptr; }
	void trace(int peer, const ChannelTuner &channel, SizeClass kind, int64_t latency, bool normal);

	double ticks_in_a_ns() const;
	int64_t ticks_at_start() const { return ticks_at_start_; }

private:
	void open_trace();
	void tune_batch();

	const TransportEnvironment environment_;
	Batching &batching_;
	const Mode mode_;
	const bool tunes_staging_;
	const uint32_t fixed_batch_; // work requests
	int watching_ = 0;           // queues
	int64_t min_normal_ = 0;     // ticks
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
