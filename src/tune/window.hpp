// How many work requests of a channel are under way, where that is not bound to the signal period (PT2P_TUNE=free). A pure
// function of observations, beside period.hpp, whose N and L these are.
//
// What is under way beyond what keeps the device busy only waits there, and takes a place in its cache of entries. When all
// queues of a device together have more under way than that cache holds, entries are read a second time, and a queue whose
// entries have been thrown out is slow, has older ones, and stays slow: the WQE cache misses of the TPL paper.
//
//   L > 2.5 N       less is under way: in proportion to what L is above the middle of the band, but no less than half as much
//   L < 1.8 N       half as much again, and no less than `step`
//   in between      it stays
//
// By Little's law as many as are under way, divided by L, are completed in a time, while the queue is full. So L tells whether
// a cut has cost anything: where the rate is lower by more than a twentieth after it, as where L is long because the device
// works for others, it is taken back, and tried again after 1, 2, 4, ... `most_rests` windows only.
//
// It begins with three quarters of what there is room for: with less, a device that acknowledges late may rest in the band
// without having enough to do. How soon, after the window under way: while L is in proportion to what is under way, the band is
// entered within ceil(log2(L / 2.5 N)) * (window + 1) observations from above and ceil(log1.5(1.8 N / L)) * (window + 1) from
// below; far outside of the band, `few` stands for `window`. Where cuts cost, one window in most_rests + 1 is spent on one in
// the end.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

namespace pt2p::tune {

struct WindowLaw {
	double raise_below = 1.8, cut_above = 2.5; // times N
	uint32_t least = 16, most = 64, step = 4;  // work requests
	double kept = 0.95;                        // of the rate, after a cut
	uint32_t window = 8, few = 3;              // observations
	uint32_t most_rests = 16;                  // windows
};

// The longest signal period while no more than `window` are under way. What is done, but not told yet, keeps others out, and
// those that are told of together are posted together: the longer the period, the more of the window is idle, and the less
// evenly the device is given work, and answers. Looks at completions part what would share a doorbell; where doorbells are
// shared, fewer are asked for.
constexpr uint32_t most_period(uint32_t window, bool doorbells_shared)
{
	return std::max(window / (doorbells_shared ? 4 : 10), 1u);
}

class WindowTuner {
public:
	explicit WindowTuner(const WindowLaw &law) : law_(law), size_(std::max(law.most * 3 / 4, law.least)) {}

	// L/N was seen while so many could be under way. How many may be from now on.
	uint32_t see(double ratio)
	{
		if (std::exchange(stale_, false)) // it was posted before the last change
			return size_;
		sum_ += ratio;
		const double mean = sum_ / ++count_;
		const bool far = mean < 0.75 * law_.raise_below || mean > 1.5 * law_.cut_above;
		if (count_ < (far ? law_.few : law_.window))
			return size_;
		sum_ = 0;
		count_ = 0;
		const uint32_t next = judge(mean);
		stale_ = next != size_;
		return size_ = next;
	}
	uint32_t size() const { return size_; }

private:
	uint32_t judge(double ratio)
	{
		const double rate = size_ / ratio;
		if (const uint32_t from = std::exchange(from_, 0)) {
			if (rate < law_.kept * before_) {
				resting_ = rests_ = std::clamp(2 * rests_, 1u, law_.most_rests);
				return from;
			}
			rests_ = 0;
		}
		if (ratio < law_.raise_below)
			return std::min(size_ + std::max(size_ / 2, law_.step), law_.most);
		if (resting_) {
			--resting_;
			return size_;
		}
		if (ratio <= law_.cut_above || size_ <= law_.least)
			return size_;
		from_ = size_;
		before_ = rate;
		const double share = std::max((law_.raise_below + law_.cut_above) / 2 / ratio, 0.5);
		return std::max(static_cast<uint32_t>(size_ * share), law_.least);
	}

	const WindowLaw law_;
	uint32_t size_;
	double sum_ = 0; // of L/N since the last decision
	uint32_t count_ = 0;
	bool stale_ = false;
	uint32_t from_ = 0;                // before a cut that has to prove itself; 0: there is none
	double before_ = 0;                // the rate then
	uint32_t rests_ = 0, resting_ = 0; // windows until the next cut
};

} // namespace pt2p::tune
