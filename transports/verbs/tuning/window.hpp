// How many work requests of a channel are under way, where that is not bound to the signal period (PT2P_TUNE=free), and
// the signal period then. A pure function of observations, beside period.hpp, whose N and L these are.
//
// What is under way beyond what keeps the device busy only waits there, and takes a place in its cache of entries. When
// all queues of a device together have more under way than that cache holds, entries are read a second time, and a
// queue whose entries have been thrown out is slow, has older ones, and stays slow: the WQE cache misses of the TPL
// paper.
//
//   L > 2.5 N       the window shrinks in proportion to what L is above the middle of the band, to half at most
//   L < 1.8 N       it grows by half, and by `step` at least
//   in between      it stays
//
// What a device does with as many is not always the same: it depends on how they came. Where messages are answered one
// by one, the answers can cost it so much time that the other side keeps up with it and goes on to answer one by one;
// where they have once come faster than the other side could take them, one answer speaks for many, and that remains
// so, too. A queue that has got into the one state does not leave it by itself, nor by another window, as it is never
// empty. Into the other it gets when it is filled in one go while neither side has anything left to do: then as many
// are sent as go within a round trip before the first answer. A window that becomes smaller without that is the way out
// of it: nothing is sent until the rest is done, the other side catches up, and its last answers, one for each, meet
// what is sent next.
//
// So the queue is run empty and filled again in one go whenever the window becomes smaller; and with the same window
// when L has first been seen, and after 4, 16, `most_calm` windows, at once when the rate is `changed` times lower than
// in the window before. By Little's law as many as are under way, divided by L, are completed in a time, while the
// queue is full. So L tells the rate, and whether a cut has cost anything: where the rate is lower by more than a
// twentieth after it, as where L is long because the device works for others, it is taken back; where it is `changed`
// times lower, by filling the queue anew. The next cut waits for the time when the queue would be run empty anyway,
// unless the last one was kept and L is still above the band. Running empty costs about N.
//
// A cut costs the one that cuts alone: the device works for the others instead. So where ranks of a node have more
// under way together than their device keeps, the one that takes its cut back has the advantage, and all are slow.
// Hence `share`: of more than that, half is given up for good when L is `crowded` times above the band; and more than
// that is only added while L is `alone` times below it, as it is when few of the ranks send.
//
// It begins with three quarters of what there is room for: with less, a device that acknowledges late may rest in the
// band without having enough to do. How soon, after the window under way: while L is in proportion to what is under
// way, the band is entered within ceil(log2(L / 2.5 N)) * (window + 1) observations from above, when L has first been
// seen or the rate is `changed` times lower, else after the `most_calm` windows of rest at most; and within
// ceil(log1.5(1.8 N / L)) * (window + 1) from below. Far outside of the band, and until it has been run empty once,
// `few` stands for `window`. In the end one window in most_calm + 1 is spent on a cut that costs.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

namespace pt2p::tune {

struct WindowLaw {
	double raise_below = 1.8, cut_above = 2.5; // times N
	uint32_t min = 16, max = 64, step = 4;  // work requests
	uint32_t share = UINT32_MAX;               // work requests: share_of_device()
	double contended = 1.5, alone = 2.0 / 3;     // times a bound of the band
	double kept = 0.95;                        // of the rate, after a cut
	uint32_t window = 8, few = 3;              // observations
	double changed = 1.2;                      // so many times lower: another state of the device, or another load
	uint32_t max_calm = 64;                   // windows
};

// What each of `ranks` that share a device may have under way whatever the others do, work requests: all of its depth,
// if the device has room for that of all; ConnectX-6 for 1440 (SMART), which is the most that is known of any.
constexpr uint32_t share_of_device(uint64_t ranks, uint32_t depth)
{
	return ranks * depth <= 1440 ? depth : std::min(depth, WindowLaw{}.min);
}

// The signal period while `window` may be under way: a tenth. What is done, but not told yet, keeps others out, and
// those that are told of together are posted together: the longer the period, the more of the window is idle, and the
// less evenly the device is given work, and answers. Where doorbells are shared for good, the processor is what is
// scarce, and a look at a completion parts what would share a doorbell: a quarter.
constexpr uint32_t period_of(uint32_t window, bool doorbells_shared)
{
	return std::max(window / (doorbells_shared ? 4 : 10), 1u);
}

class WindowTuner {
public:
	explicit WindowTuner(const WindowLaw &law) : law_(law), size_(std::max(law.max * 3 / 4, law.min)) {}

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
		const double rate = size_ / ratio, last = std::exchange(rate_, rate);
		const bool above = ratio > law_.cut_above && size_ > law_.min;
		if (above && size_ > law_.share && ratio > law_.contended * law_.cut_above)
			return yield();
		if (const uint32_t from = std::exchange(from_, 0)) {
			const bool cut = from != size_, lost = rate < law_.kept * before_;
			calm_ = calms_ = std::clamp(4 * calms_, 4u, law_.max_calm);
			if (law_.changed * rate < before_)
				return run_empty(from, cut ? before_ : rate);
			if (cut && lost)
				return from;
			if (cut && above)
				watch_closely();
		} else if (law_.changed * rate < last) {
			watch_closely();
		}
		if (ratio < law_.raise_below * (size_ < law_.share ? 1 : law_.alone))
			return std::min(size_ + std::max(size_ / 2, law_.step), law_.max);
		if (calm_) {
			--calm_;
			return size_;
		}
		const double part = above ? std::max((law_.raise_below + law_.cut_above) / 2 / ratio, 0.5) : 1;
		return run_empty(std::max(static_cast<uint32_t>(size_ * part), law_.min), rate);
	}
	void watch_closely()
	{
		calm_ = 0;
		calms_ = 1;
	}
	// Whatever it costs.
	uint32_t yield()
	{
		watch_closely();
		empties_ = true;
		from_ = 0;
		return std::max({size_ / 2, law_.share, law_.min});
	}
	// It is filled again in one go, with `next`, which has to do as well as `rate`.
	uint32_t run_empty(uint32_t next, double rate)
	{
		empties_ = true;
		from_ = std::max(size_, next);
		before_ = rate;
		return next;
	}

	const WindowLaw law_;
	uint32_t size_;
	double sum_ = 0; // of L/N since the last decision
	uint32_t count_ = 0;
	bool stale_ = false;
	bool empties_ = false;
	// Until it is seen what running empty has done: the size before, or what it is filled with where that is more; and
	// the rate.
	uint32_t from_ = 0; // 0: that has been seen
	double before_ = 0;
	double rate_ = 0;               // in the last window
	uint32_t calms_ = 0, calm_ = 0; // windows until it is run empty again
};

} // namespace pt2p::tune
