// How many work requests share a doorbell, when many are posted in one go. A pure function of observations, made for a
// process over all its queues: each interval is of so many work requests that were completed.
//
// A doorbell is a write over PCIe that the processor waits for to leave, and many entries are read by the device at
// once; but an entry that does not go along with its doorbell has to be read, and the first of a batch waits for the
// others. What that comes to shows in the rate at which work requests are completed. climb.hpp is the law for that:
// batches of 1, 2, 4, ... `most`, and `most` first; another one has to be quicker by a tenth, twice. On top of it:
//
//   L/N above the band    a larger batch is not better, whatever its rate. It is paid for in latency: L counts from
//   (period.hpp)          the posting of a work request, not from its doorbell. Where L/N was above the band without
//                         it, L is long for other reasons.
//   hardly any doorbell   the batch does nothing but cost the short path of short messages: it is not better, and the
//   is shared             batch is one again when that lasts.
//
// How soon, in work requests, with windows of (3 + 1) intervals: while 16 is better than one by more than a tenth, it
// is reached within 5 windows = 2'560. When doorbells are not shared any more, the batch is one within 12 intervals =
// 1'536, the window of a trial that is going on included, and no larger one is accepted for the 14 after that. Of a
// steady load one window in 65 at most is spent on trying another batch.
#pragma once

#include <optional>
#include <utility>

#include "transports/verbs/tuning/climb.hpp"

namespace pt2p::tune {

struct BatchLaw {
	uint32_t max = 16;
	double cut_above = 2.5;                   // L/N, as PeriodLaw's
	double shared = 1.5;                      // work requests for a doorbell
	uint32_t lasts = 5;                       // intervals
	static constexpr uint32_t interval = 128; // work requests
};

class BatchTuner {
public:
	struct Interval {
		double work, time;          // work requests completed, in so long
		uint64_t posted, doorbells; // work requests, by so many doorbells; while the batch is one, not looked at
		double ratio;               // mean of L/N; 0: not observed
	};
	explicit BatchTuner(const BatchLaw &law = {}) : law_(law), climber_(std::in_place, climb(law)) {}

	// The batch from now on.
	uint32_t see(const Interval &i)
	{
		const bool together =
		    batch() == 1 || static_cast<double>(i.posted) >= law_.shared * static_cast<double>(i.doorbells);
		const bool larger = batch() > accepted_;
		alone_ = together || larger ? 0 : alone_ + 1;
		if (alone_ >= law_.lasts)
			return give_up();
		const bool late = i.ratio > law_.cut_above && ratio_ <= law_.cut_above;
		if (!larger && i.ratio > 0)
			ratio_ = ratio_ ? (3 * ratio_ + i.ratio) / 4 : i.ratio;
		climber_->see(larger && (!together || late) ? 0 : i.work, i.time);
		if (std::exchange(changes_, climber_->changes()) != climber_->changes())
			accepted_ = batch();
		return batch();
	}

	uint32_t batch() const { return climber_->setting(); }
	// The same but for a trial that is going on.
	uint32_t accepted() const { return accepted_; }
	// Work requests in a unit of time, with the batch that is accepted; 0: not known yet.
	double rate() const { return climber_->rate(); }
	uint64_t trials() const { return earlier_trials_ + climber_->trials(); }
	uint64_t changes() const { return earlier_changes_ + climber_->changes(); }

private:
	static ClimbLaw climb(const BatchLaw &law)
	{
		return {.min = 1, .max = law.max, .leaps = true, .window = 3, .min_rest = 1};
	}
	uint32_t give_up()
	{
		earlier_trials_ += climber_->trials();
		earlier_changes_ += climber_->changes() + 1;
		climber_.emplace(climb(law_));
		alone_ = 0;
		accepted_ = 1;
		changes_ = 0;
		return batch();
	}

	const BatchLaw law_;
	std::optional<Climber> climber_;
	uint32_t accepted_ = 1;
	double ratio_ = 0;     // L/N of late with what is accepted, or with less; 0: not observed
	uint32_t alone_ = 0;   // intervals, in which doorbells were hardly shared
	uint64_t changes_ = 0; // of the climber, seen
	uint64_t earlier_trials_ = 0, earlier_changes_ = 0;
};

} // namespace pt2p::tune
