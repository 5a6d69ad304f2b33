// The signal period: how many work requests share one completion. This is the law of the TPL paper (section 4), as a
// pure function of observations. Clock, channel, size class and the unit of latencies are the caller's.
//
//   N  normal latency: of a signalled work request on an idle channel
//   L  last-operation latency: from posting the signalled work request that ends a period to its completion
//
//   L < 1.8 N       the device keeps up: the period grows by a step
//   L > 2.5 N       work piles up: the period is halved
//   in between      the period stays
//
// With PT2P_TUNE=free, a period does not wait for the previous one. L then says little about the period, because all
// that is in flight in the device contributes to it. In this mode min = max, the part of the queue that window.hpp
// names, and this class only keeps N and L/N.
//
// The period goes from min to max in (max - min) / step decisions, and back in log2(max / min). On a channel so steep
// that one step leads from below the band to above it, the period oscillates for ever.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

namespace pt2p::tune {

struct PeriodLaw {
	double raise_below = 1.8, cut_above = 2.5; // times N
	uint32_t step = 4;                         // work requests
	uint32_t min = 1, max = 64;                // bounds of the period; max is at most the queue's depth
	// Observations whose mean is judged, so that noise does not count: `window`, or `few` if the mean is far outside
	// the band. One observation of more than twice the upper border is enough: the payload has changed. The paper
	// judges each period by itself: 1 and 1.
	uint32_t window = 8, few = 3;
};

class PeriodTuner {
public:
	explicit PeriodTuner(const PeriodLaw &law) : law_(law), period_(law.min) {}

	// N was seen. The median of the last five counts, so that N follows a drift but no outlier.
	void see_normal(int64_t latency)
	{
		normals_[seen_++ % normals_.size()] = latency;
		if (seen_ == 1) // what was seen before was compared with a guess
			sum_ = count_ = 0;
		auto sorted = normals_;
		const auto n = std::min<size_t>(seen_, normals_.size());
		std::nth_element(sorted.begin(), sorted.begin() + n / 2, sorted.begin() + n);
		normal_ = sorted[n / 2];
	}
	// The shortest N of any channel of the device replaces an N that is more than 1.5 times as long. Such an N was seen
	// while the device worked for others: the first messages of all ranks come at the same time.
	void see_min_normal(int64_t latency) { min_normal_ = latency; }
	// L was seen. Returns the period from now on.
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
	// 0: unknown
	int64_t normal() const { return min_normal_ && normal_ > min_normal_ + min_normal_ / 2 ? min_normal_ : normal_; }
	// Recent L/N; 0: not seen yet.
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
	// A channel that is never idle shows no N. Until it does, the shortest of the first latencies stands for N: they
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
