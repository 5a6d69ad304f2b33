// The window of a channel (how many work requests may be in flight), and the signal period that follows from it, with
// PT2P_TUNE=free. A pure function of observations. N and L are those of period.hpp.
//
// Work requests beyond those that keep the device busy only wait in it, and take space in its WQE cache. If all queues
// of a device together have more in flight than the cache holds, the device reads WQEs a second time. A queue whose
// WQEs were evicted is slow, its WQEs become older, and it stays slow: the WQE cache misses of the TPL paper.
//
//   L > 2.5 N       the window shrinks in proportion to L over the middle of the band, at most to half
//   L < 1.8 N       it grows by half, and at least by `step`
//   in between      it stays
//
// One window can have two rates. If messages are answered one by one, the answers can slow the device so much that the
// receiver keeps pace and goes on answering one by one. If messages once came faster than the receiver took them, one
// answer covers many, and this lasts, too. A queue gets into the fast state only if it is filled in one go while both
// sides are idle. A window that only shrinks leads back to the slow state: while nothing is sent, the receiver catches
// up and answers one by one again. So a queue that is never empty may stay slow, whatever its window.
//
// Therefore the queue runs empty and is refilled in one go, which costs about N:
//   - with each cut of the window;
//   - with the same window when L was first seen, and again after 4, 16, ..., `max_calm` windows;
//   - at once if the rate has fallen by the factor `changed` since the window before.
//
// By Little's law, the rate of a full queue is the window divided by L, so L shows whether a cut has cost anything. A
// cut is reverted if the rate afterwards is lower by more than a twentieth, as it is when L is long because the device
// works for others. If the rate is lower by the factor `changed`, the queue also runs empty again. The next cut waits
// until the queue would run empty anyway, unless the last cut was kept and L is still above the band.
//
// A rank that cuts alone only leaves the device to the others. If the ranks of a node together exceed the device's
// cache, the rank that reverts its cut has the advantage, and all are slow. Hence `share`: a window above it is halved
// for good if L is above `contended` times the upper border, and it grows beyond `share` only while L is below `alone`
// times the lower border, as it is when few of the ranks send.
//
// The first window is three quarters of `max`. With less, a device that acknowledges late may stay in the band without
// enough work. Far outside the band, and until the queue has run empty once, `few` observations decide instead of
// `window`.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

namespace pt2p::tune {

struct WindowLaw {
	double raise_below = 1.8, cut_above = 2.5; // times N
	uint32_t min = 16, max = 64, step = 4;     // work requests
	uint32_t share = UINT32_MAX;               // work requests: share_of_device()
	double contended = 1.5, alone = 2.0 / 3;   // times a border of the band
	double kept = 0.95;                        // part of the rate that a cut has to keep
	uint32_t window = 8, few = 3;              // observations
	double changed = 1.2;   // the rate is lower by this factor: another state of the device, or another load
	uint32_t max_calm = 64; // windows
};

// What each of `ranks` that share a device may have in flight, whatever the others do: its whole depth if the device
// can hold that of all ranks. ConnectX-6 holds 1440 work requests (SMART), more than any other device is known to hold.
constexpr uint32_t share_of_device(uint64_t ranks, uint32_t depth)
{
	return ranks * depth <= 1440 ? depth : std::min(depth, WindowLaw{}.min);
}

// The signal period for a window: a tenth of it. Work requests that are done but not yet completed keep others out, and
// those that complete together are posted together. A longer period leaves more of the window idle and loads the device
// less evenly. If doorbells are shared for good, the processor is the bottleneck, and polling splits up work requests
// that would share a doorbell: the period is then a quarter.
constexpr uint32_t period_of(uint32_t window, bool doorbells_shared)
{
	return std::max(window / (doorbells_shared ? 4 : 10), 1u);
}

class WindowTuner {
public:
	explicit WindowTuner(const WindowLaw &law) : law_(law), size_(std::max(law.max * 3 / 4, law.min)) {}

	// L/N was seen with the current window. Returns the window from now on.
	uint32_t see(double ratio)
	{
		if (std::exchange(stale_, false)) // that was posted before the last change
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
	// Whether the queue runs empty: nothing is posted while anything is in flight. emptied(): nothing is.
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
	// Halves the window for good, whatever that costs.
	uint32_t yield()
	{
		watch_closely();
		empties_ = true;
		from_ = 0;
		return std::max({size_ / 2, law_.share, law_.min});
	}
	// Lets the queue run empty and refills it with `next`, which has to keep the rate.
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
	// Until the effect of running empty is seen: the window before, or the refill if that is more; and the rate.
	uint32_t from_ = 0; // 0: the effect has been seen
	double before_ = 0;
	double rate_ = 0;               // in the last window
	uint32_t calms_ = 0, calm_ = 0; // windows from one refill to the next; what is left of them
};

} // namespace pt2p::tune
