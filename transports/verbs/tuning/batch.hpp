// How many work requests share a doorbell when a program posts many in one go. One tuner serves all queues of a
// process. It is a pure function of observations, made in intervals of 128 completed work requests.
//
// A larger batch saves the processor doorbell writes, and the device reads several WQEs at once. In return the device
// has to read WQEs that BlueFlame would have brought along, and the first WQE of a batch waits for the others. The rate
// at which work requests complete shows which weighs more. climb.hpp is the law, with batches of 1, 2, 4, ..., `max`;
// it tries `max` first and accepts a batch that is better by a tenth in two trials. There are two exceptions:
//
//   L/N above the band    A larger batch is not better, whatever its rate: it pays in latency, as L counts
//   (period.hpp)          from posting, not from the doorbell. This does not hold if L/N was above the band
//                         without the larger batch.
//   hardly any doorbell   A larger batch is not better: it only keeps short messages off the short path.
//   is shared             If this lasts, the batch returns to one.
#pragma once

#include <optional>
#include <utility>

#include "transports/verbs/tuning/climb.hpp"

namespace pt2p::tune {

struct BatchLaw {
	uint32_t max = 16;
	double cut_above = 2.5;                   // L/N, as in Band
	double shared = 1.5;                      // work requests per doorbell
	uint32_t lasts = 5;                       // intervals
	static constexpr uint32_t interval = 128; // work requests
};

class BatchTuner {
public:
	struct Interval {
		double work, time;          // work requests completed; duration
		uint64_t posted, doorbells; // ignored while the batch is one
		double ratio;               // mean of L/N; 0: not observed
	};
	explicit BatchTuner(const BatchLaw &law = {}) : law_(law), climber_(std::in_place, climb(law)) {}

	// Returns the batch from now on.
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
	// The batch that is accepted. A trial does not change it.
	uint32_t accepted() const { return accepted_; }
	// Work requests per unit of time with the accepted batch; 0: unknown.
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
	double ratio_ = 0;     // recent L/N with the accepted batch or a smaller one; 0: not observed
	uint32_t alone_ = 0;   // consecutive intervals in which doorbells were hardly shared
	uint64_t changes_ = 0; // of the climber, as last seen
	uint64_t earlier_trials_ = 0, earlier_changes_ = 0;
};

} // namespace pt2p::tune
