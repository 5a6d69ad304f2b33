// The law of PT2P_TUNE=on for the window W of a send queue, how many work requests may be in flight, and for the signal
// period that follows from it. A pure function of observations.
//
// Work requests beyond those that keep the device busy only wait in it, and take space in its WQE cache. If all queues
// of a device together have more in flight than the cache holds, the device reads WQEs a second time, becomes slower,
// and has yet more waiting: the WQE cache misses of the TPL paper (section 4.1). The paper's signal is r = L/N, the
// last-operation latency over the normal latency (period.hpp). What is done with it is delay-based congestion control.
//
//   target(W) = t (1 + c/W)        the r that a queue wants; t = 1.8, the lower border of the paper's band
//
//   r < target(W), twice           W grows half way towards W target(W)/r, at most to twice W
//   r > target(W) 2.5/1.8, twice   W becomes W target(W)/r at once, at least W/4
//   in between                     W goes an eighth of the way towards W target(W)/r
//
// Fixed point. Let n queues share a device that serves B work requests in a time N, whatever waits. If S are in flight,
// r = S/B once the device is busy. W stays where r = target(W). All queues see the same r, and target falls with W, so
// there is one such W, the same for all: shares are fair. Then S = nW and S = B t (1 + c/W): t times what keeps the
// device busy, and t c for each W that a queue is short of. The factor is Swift's (Kumar et al., SIGCOMM 2020): the
// more queues, the smaller W, and the longer a delay each must tolerate to know its share.
//
// Convergence. One step takes S to (1 - g) S + g h(S) with h(S) = B t (1 + nc/S) and g at most 1. h falls, and h(h(S))
// = S has the fixed point as its only solution, so that h swings towards it from any start, and a mean of S and h(S)
// does so sooner. Meanwhile the quotient of two windows Wi > Wj changes by (target(Wi) g/r + 1 - g) / (target(Wj) g/r +
// 1 - g), which is below 1: they become equal. In TCP's terms: multiplicative towards the target, additive by c (FAST
// TCP, Wei et al., ToN 2006, is the same step with W N/L + c).
//
// What the proof does not cover: queues whose N differ by an error e want windows that differ, as Vegas's do with wrong
// base round-trip times; c bounds it, since target(W) has to differ by the same e.
//
// Start. The first window is small where many ranks share the device, and doubles until r reaches the target once (slow
// start): N is seen before the device is full.
//
// Running empty. N is only seen on an idle queue. And one window can have two rates: if messages are answered one by
// one, the answers can slow the device so much that the receiver keeps pace and goes on answering one by one; if
// messages once came faster, one answer covers many, and this lasts, too. A queue gets into the fast state only if it
// is filled in one go while it is empty. So a queue that is always full runs empty now and then, and is refilled in one
// go: after each cut, and after 8, 16, ... 64 windows. This costs about N each time. BBR does the same for its
// round-trip time. Ablation: softhca/studies/RESULTS.md.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "transports/verbs/tuning/period.hpp"

namespace pt2p::tune {

struct WindowLaw {
	Band band{};
	double flows = 2;                                  // c, work requests
	uint32_t min = 2, max = 64, first = 64;            // work requests
	uint32_t first_calm = 8, max_calm = 64;            // windows from one refill to the next
	static constexpr double grow = 0.5, drift = 0.125; // parts of the way
	static constexpr uint32_t saturated = 16;          // windows for which a busy queue counts as saturated
};

// What a queue begins with if `ranks` share the device. Up to 64 ranks then hold 128 work requests together, half of
// the smallest WQE cache that the model of softhca knows; more ranks hold 2 each.
constexpr uint32_t first_window(uint64_t ranks)
{
	return static_cast<uint32_t>(std::clamp<uint64_t>(128 / std::max<uint64_t>(ranks, 1), 2, 64));
}

class WindowTuner {
public:
	explicit WindowTuner(const WindowLaw &law)
	    : law_(law), size_(std::clamp(law.first, std::min(law.min, law.max), law.max)), calm_(law.first_calm)
	{
	}

	// L/N was seen. `alone`: nothing else was in flight, so it tells of growth only while the queue starts.
	void see(double ratio, bool alone)
	{
		if (starting_)
			return start(ratio);
		if (alone || std::exchange(stale_, false)) // or it was posted before the last change
			return;
		const double wanted = law_.band.raise_below * scale();
		const int side = ratio > law_.band.cut_above * scale() ? 1 : ratio < wanted ? -1 : 0;
		const double last = std::exchange(last_, ratio);
		if (std::min(last, ratio) >= wanted)
			saturated_ = std::max(saturated_, WindowLaw::saturated * size());
		if (std::exchange(side_, side) != side)
			return;
		if (side == 0)
			return become(size_ + WindowLaw::drift * size_ * (wanted / ratio - 1));
		side_ = 0;
		stale_ = true;
		if (side < 0)
			return become(std::min(
			    size_ + std::max(WindowLaw::grow * size_ * (wanted / std::max(ratio, last) - 1), 1.0), 2 * size_));
		become(std::max(size_ * wanted / std::min(ratio, last), size_ / 4));
		empties_ = true;
	}
	// `count` work requests have completed. `full`: until then no more could be posted.
	void completed(uint32_t count, bool full)
	{
		saturated_ = full ? WindowLaw::saturated * size() : saturated_ - std::min(count, saturated_);
		since_ += count;
		if (starting_ || !full || since_ < calm_ * size())
			return;
		empties_ = true;
		since_ = 0;
		calm_ = std::min(2 * calm_, law_.max_calm);
	}
	// The queue should run empty before the next work request is posted, until emptied(), which says whether it should.
	void run_empty() { empties_ = true; }
	bool empties() const { return empties_; }
	bool emptied() { return std::exchange(empties_, false); }

	// Within the last windows the queue was full, or L/N was at its target or above twice in a row, as where a device
	// works for many queues that are not full. The program waits for the device, so throughput counts, not latency.
	bool saturated() const { return saturated_ != 0; }

	uint32_t size() const { return static_cast<uint32_t>(size_); }
	// The band of L/N at this window is the law's times this.
	double scale() const { return 1 + law_.flows / size_; }
	// The signal period: an eighth of the window. Work requests that are done but not yet completed keep others out,
	// and those that complete together are posted together: with a longer period, more of the window is idle. If
	// doorbells are shared for good, the processor is the bottleneck, and polling splits up work requests that would
	// share a doorbell: the period is then a quarter.
	uint32_t period(bool doorbells_shared) const { return std::max(size() / (doorbells_shared ? 4 : 8), 1u); }
	// From one observation to the next, so that each sees the window as it is now: work requests.
	uint32_t distance() const { return starting_ ? size() : size() * 3 / 2; }

private:
	void start(double ratio)
	{
		if (ratio < law_.band.raise_below * scale() && size_ < law_.max)
			return become(2 * size_);
		starting_ = false;
		empties_ = true;
		since_ = 0;
	}
	void become(double size) { size_ = std::clamp<double>(size, std::min(law_.min, law_.max), law_.max); }

	const WindowLaw law_;
	double size_;
	bool starting_ = true, stale_ = false, empties_ = false;
	int side_ = 0;              // of the band: of the last observation, 0 after a decision
	double last_ = 0;           // L/N of the last observation
	uint32_t since_ = 0, calm_; // work requests since the queue ran empty; windows until it does again
	uint32_t saturated_ = 0;    // work requests until the queue no longer counts as saturated
};

} // namespace pt2p::tune
