// The law of the TPL paper (section 4.1, Fig. 9) for the signal period, how many work requests share one completion:
// PT2P_TUNE=paper. At most one period is in flight. A pure function of observations.
//
//   N  normal latency: normal.hpp
//   L  last-operation latency: from posting the signalled work request that ends a period to its completion
//
//   L < 1.8 N       the device keeps up: the period grows by a step
//   L > 2.5 N       work piles up: the period is halved
//   in between      the period stays
//
// The paper says that the period grows conservatively and shrinks radically. The step of 4 and the half are libpt2p's,
// and so are the bounds, 1 and the depth of the queue. Each period is judged by itself, but for the one that began
// before the last change.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

namespace pt2p::tune {

// The band of L/N in which nothing changes.
struct Band {
	double raise_below = 1.8, cut_above = 2.5;
};

struct PeriodLaw {
	Band band{};
	uint32_t step = 4, max = 64; // work requests
};

class PeriodTuner {
public:
	explicit PeriodTuner(const PeriodLaw &law) : law_(law) {}

	// L/N was seen. Returns the period from now on.
	uint32_t see(double ratio)
	{
		if (std::exchange(stale_, false))
			return period_;
		const uint32_t before = period_;
		if (ratio > law_.band.cut_above)
			period_ = std::max(period_ / 2, 1u);
		else if (ratio < law_.band.raise_below)
			period_ = std::min(period_ + law_.step, law_.max);
		stale_ = period_ != before;
		return period_;
	}
	uint32_t period() const { return period_; }

private:
	const PeriodLaw law_;
	uint32_t period_ = 1;
	bool stale_ = false;
};

} // namespace pt2p::tune
