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
// What a device does with as many is not always the same: it depends on how they came. Where messages are answered one by one,
// the answers can cost it so much time that the other side keeps up with it and goes on to answer one by one; where they have
// once come faster than the other side could take them, one answer speaks for many, and that remains so, too. A queue that has
// got into the one state does not leave it by itself, nor by another window, as it is never empty. Therefore it is run empty
// and filled again in one go: when L has first been seen, and at rest, in the band or where cuts cost, after 2, 8, 32,
// `most_calm` windows, and as soon as cuts allow when the rate is `changed` times lower than in the window before. That costs
// about N, and there is nothing to take back.
//
// It begins with three quarters of what there is room for: with less, a device that acknowledges late may rest in the band
// without having enough to do. How soon, after the window under way: while L is in proportion to what is under way, the band is
// entered within ceil(log2(L / 2.5 N)) * (window + 1) observations from above and ceil(log1.5(1.8 N / L)) * (window + 1) from
// below; far outside of the band, and until it has been run empty once, `few` stands for `window`. Where cuts cost, one window
// in most_rests + 1 is spent on one in the end.
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
	double changed = 1.2;                      // so many times lower: another state of the device, or another load
	uint32_t most_calm = 64;                   // windows
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
		if (count_ < (far || !calms_ ? law_.few : law_.window))
			return size_;
		sum_ = 0;
		count_ = 0;
		const uint32_t next = judge(mean);
		stale_ = empties_ || next != size_;
		return size_ = next;
	}
	uint32_t size() const { return size_; }
	// Whether nothing more is to be posted until nothing is under way; nothing is.
	bool empties() const { return empties_; }
	void emptied() { empties_ = false; }

private:
	uint32_t judge(double ratio)
	{
		const double rate = size_ / ratio;
		if (const uint32_t from = std::exchange(from_, 0)) {
			if (rate < law_.kept * before_) {
				resting_ = rests_ = std::clamp(2 * rests_, 1u, law_.most_rests);
				if (law_.changed * rate < before_)
					refill(before_);
				return from;
			}
			rests_ = 0;
		}
		const double last = std::exchange(rate_, rate), before = std::exchange(refilled_, 0);
		if (ratio < law_.raise_below)
			return std::min(size_ + std::max(size_ / 2, law_.step), law_.most);
		if (before > 0) {
			calms_ = std::clamp(4 * calms_, 2u, law_.most_calm);
			calm_ = law_.changed * rate < before ? 0 : calms_;
		} else if (law_.changed * rate < last) {
			calm_ = 0;
			calms_ = 1;
		}
		if (!calms_)
			return refill(rate);
		if (resting_)
			--resting_;
		else if (ratio > law_.cut_above && size_ > law_.least) {
			from_ = size_;
			before_ = rate;
			const double share = std::max((law_.raise_below + law_.cut_above) / 2 / ratio, 0.5);
			return std::max(static_cast<uint32_t>(size_ * share), law_.least);
		}
		if (!calm_)
			return refill(rate);
		--calm_;
		return size_;
	}
	uint32_t refill(double rate)
	{
		refilled_ = rate;
		empties_ = true;
		return size_;
	}

	const WindowLaw law_;
	uint32_t size_;
	double sum_ = 0; // of L/N since the last decision
	uint32_t count_ = 0;
	bool stale_ = false;
	uint32_t from_ = 0;                // before a cut that has to prove itself; 0: there is none
	double before_ = 0;                // the rate then
	uint32_t rests_ = 0, resting_ = 0; // windows until the next cut
	double rate_ = 0;                  // in the last window
	bool empties_ = false;
	double refilled_ = 0;           // the rate before it was emptied, until what that has done is seen; 0: it was not
	uint32_t calms_ = 0, calm_ = 0; // windows until it is emptied again
};

} // namespace pt2p::tune
