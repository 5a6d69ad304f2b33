// How many work requests share one completion: the law of the TPL paper (section 4), as a pure function of
// observations. The clock, the channel and the size class that they come from are the caller's; latencies are in
// whatever unit.
//
//   N  normal latency: of a signalled operation on an idle channel
//   L  last-operation latency: from posting the signalled operation that ends a period to seeing its completion
//
//   L < 1.8 N       the device keeps up: the period is raised by a step
//   L > 2.5 N       work is piling up: it is cut in half
//   in between      it stays
//
// Where what is under way does not wait for a period to end (PT2P_TUNE=free), L says little of the period, as it is
// that of all that is under way, and of all the others that the device works for. There the bounds are the same, least
// = most, the share of the queue that window.hpp names, and what is left here is N and L/N.
//
// How soon, after the window under way: while L/N stays below the band at every period, the longest period is reached
// within ceil((most - least) / step) * (window + 1) observations, in less than half of that when L/N stays below three
// quarters of the band; above the band at every period, the shortest within ceil(log2(most / least)) * (window + 1),
// and within 2 for each halving when L is more than twice above it. Where the band lies in between, it is entered
// within the sum of both; on a channel so steep that one step leads from below the band to above it, the law goes to
// and fro for ever.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

namespace pt2p::tune {

struct PeriodLaw {
	double raise_below = 1.8, cut_above = 2.5; // times N
	uint32_t step = 4;                         // work requests
	uint32_t min = 1, max = 64;             // bounds of the period: the queue's depth is one
	// These are ours, not the paper's, which judges each period: 1 and 1. The mean of so many observations is judged,
	// or noise would be followed; of a few, when it is far outside of the band; and one alone that is twice above it:
	// the payload has jumped.
	uint32_t window = 8, few = 3;
};

class PeriodTuner {
public:
	explicit PeriodTuner(const PeriodLaw &law) : law_(law), period_(law.min) {}

	// N was seen: the median of the last ones counts, so that it follows a drift and not an outlier.
	void see_normal(int64_t latency)
	{
		normals_[seen_++ % normals_.size()] = latency;
		if (seen_ == 1) // what was seen before is no comparison
			sum_ = count_ = 0;
		auto sorted = normals_;
		const auto n = std::min<size_t>(seen_, normals_.size());
		std::nth_element(sorted.begin(), sorted.begin() + n / 2, sorted.begin() + n);
		normal_ = sorted[n / 2];
	}
	// The shortest N of any channel of the device. One that is half as much again was seen while the device worked for
	// others: the first messages of all ranks come at once.
	void see_min_normal(int64_t latency) { min_normal_ = latency; }
	// L was seen. The period from now on.
	uint32_t see_last(int64_t latency)
	{
		if (!normal_)
			return guess_normal(latency);
		// It ended a period that began before the last change.
		if (std::exchange(stale_, false))
			return period_;
		const double ratio = static_cast<double>(latency) / static_cast<double>(normal());
		sum_ += ratio;
		const double mean = ratio_ = sum_ / ++count_;
		const bool jumped = ratio > 2 * law_.cut_above;
		const bool far = mean < 0.75 * law_.raise_below || mean > 1.5 * law_.cut_above;
		if (!jumped && count_ < (far ? law_.few : law_.window))
			return period_;
		sum_ = 0;
		count_ = 0;
		if (mean > law_.cut_above)
			return become(std::max(period_ / 2, law_.min));
		return become(mean < law_.raise_below ? std::min(period_ + law_.step, law_.max) : period_);
	}

	uint32_t period() const { return period_; }
	bool normal_is_measured() const { return seen_ != 0; }
	// 0: not known yet
	int64_t normal() const
	{
		return min_normal_ && normal_ > min_normal_ + min_normal_ / 2 ? min_normal_ : normal_;
	}
	// L/N lately; 0: not seen yet.
	double ratio() const { return ratio_; }
	uint64_t raises() const { return raises_; }
	uint64_t cuts() const { return cuts_; }

private:
	uint32_t become(uint32_t next)
	{
		if (next == period_)
			return period_;
		(next > period_ ? raises_ : cuts_)++;
		stale_ = true;
		return period_ = next;
	}
	// A channel that is never idle shows no N. Until it does, the shortest of the first latencies stands for it: they
	// are those of a period of one.
	uint32_t guess_normal(int64_t latency)
	{
		guess_ = count_++ ? std::min(guess_, latency) : latency;
		if (count_ == law_.window) {
			normal_ = guess_;
			count_ = 0;
		}
		return period_;
	}

	const PeriodLaw law_;
	uint32_t period_;
	std::array<int64_t, 5> normals_{};
	size_t seen_ = 0;
	int64_t normal_ = 0, min_normal_ = 0, guess_ = 0;
	double sum_ = 0, ratio_ = 0; // of L/N since the last decision; its mean
	uint32_t count_ = 0;
	bool stale_ = false;
	uint64_t raises_ = 0, cuts_ = 0;
};

} // namespace pt2p::tune
