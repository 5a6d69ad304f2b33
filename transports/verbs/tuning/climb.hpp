// A hill climber. It chooses a setting whose effect shows only in the rate of work: queue pairs of a busy destination,
// work requests per doorbell. It is a pure function of observations: the work done in an interval in which the channel
// was busy, and how long the interval took. Clock, channel and units are the caller's.
//
//   rest     the accepted setting stays, and its rate is measured
//   trial    another setting is in force for one window of intervals; it fails unless its rate is higher than
//            that of each of the last two windows by more than the margin
//   again    the accepted setting is in force for one window, in case not the setting but the load has changed
//   repeat   the other setting is in force for one window; it is accepted if it beats all three windows
//
// The rate of a window is the median of its intervals, so an interval in which the process did not run does not count.
// The first interval after a change of setting does not count either.
//
// Trials take turns: the largest setting if the law leaps, one step up, one step down, two up, two down. Two steps
// cross a valley of one setting; only a leap crosses a wider one. After a setting is accepted, the next trial goes on
// in the same direction. Each failed trial doubles the rest. An accepted setting or a change of load makes the rest
// short again. On a steady load, one window in max_rest + 1 is a trial in the end.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <iterator>

namespace pt2p::tune {

struct ClimbLaw {
	uint32_t min = 1, max = 4;            // bounds of the setting
	bool doubles = true;                  // a step goes to the next power of two; else by one
	double margin = 0.1;                  // by which part the rate has to be higher
	double changed = 1.5;                 // the load has changed if the rate grows or falls by this factor
	bool leaps = false;                   // whether `max` is tried, beginning with it
	uint32_t window = 5;                  // intervals, at most max_window
	uint32_t min_rest = 2, max_rest = 64; // windows between two trials
	static constexpr uint32_t max_window = 16;
};

class Climber {
public:
	explicit Climber(const ClimbLaw &law, uint32_t first = 0)
	    : law_(law), setting_(std::clamp(first, law.min, law.max)), home_(setting_), rests_(law.min_rest),
	      resting_(rests_)
	{
	}

	// `work` was done in `time`, while the channel was busy. Returns the setting from now on.
	uint32_t see(double work, double time)
	{
		if (time <= 0 || law_.min >= law_.max)
			return setting_;
		if (stale_) { // work that was in flight when the setting changed
			stale_ = false;
			return setting_;
		}
		rates_[count_++] = work / time;
		if (count_ < std::clamp(law_.window, 1u, ClimbLaw::max_window))
			return setting_;
		const auto middle = rates_.begin() + count_ / 2;
		std::nth_element(rates_.begin(), middle, rates_.begin() + count_);
		count_ = 0;
		judge(*middle);
		return setting_;
	}

	uint32_t setting() const { return setting_; }
	// Whether the setting in force is not accepted yet.
	bool trying() const { return setting_ != home_; }
	// The rate of the accepted setting in the last window; 0: unknown.
	double rate() const { return rate_; }
	uint64_t trials() const { return trials_; }
	uint64_t changes() const { return changes_; } // accepted

private:
	enum class Phase : uint8_t { rest, trial, again, repeat };
	static constexpr int leap = 0, steps[] = {leap, 1, -1, 2, -2};

	bool better(double rate) const { return rate > (1 + law_.margin) * best_; }

	void judge(double rate)
	{
		switch (phase_) {
		case Phase::rest: return rest(rate);
		case Phase::trial: return better(rate) ? go(Phase::again, home_, rate) : fail();
		case Phase::again:
			rate_ = rate;
			best_ = std::max(best_, rate);
			return better(tried_) ? go(Phase::repeat, other_, tried_) : fail();
		case Phase::repeat: return better(rate) ? accept(rate) : fail();
		}
	}
	void rest(double rate)
	{
		best_ = std::max(rate_, rate);
		rate_ = rate;
		if (judged_ > 0 && (rate > law_.changed * judged_ || law_.changed * rate < judged_)) {
			rests_ = law_.min_rest;
			resting_ = std::min(resting_, rests_ + 1); // this window may have seen both loads
			judged_ = rate;
		}
		if (resting_ > 1) {
			--resting_;
			return;
		}
		for (size_t i = 0; i < std::size(steps); ++i, next_ = (next_ + 1) % std::size(steps)) {
			other_ = stepped(home_, steps[next_]);
			if (other_ == home_)
				continue;
			++trials_;
			judged_ = rate;
			return go(Phase::trial, other_, 0);
		}
	}
	void go(Phase phase, uint32_t setting, double tried)
	{
		phase_ = phase;
		tried_ = tried;
		stale_ = setting != setting_;
		setting_ = setting;
	}
	void fail()
	{
		next_ = (next_ + 1) % std::size(steps);
		rests_ = std::min(2 * rests_, std::max(law_.max_rest, law_.min_rest));
		resting_ = rests_;
		go(Phase::rest, home_, 0);
	}
	void accept(double rate)
	{
		++changes_;
		next_ = steps[next_] < 0 ? 2 : 1; // one more step in the same direction
		rests_ = resting_ = law_.min_rest;
		home_ = other_;
		rate_ = judged_ = rate;
		go(Phase::rest, home_, 0);
	}
	// The setting `count` steps away; `from` if that is out of bounds.
	uint32_t stepped(uint32_t from, int count) const
	{
		if (count == leap)
			return law_.leaps ? law_.max : from;
		uint32_t to = from;
		for (; count > 0; --count) {
			if (to == law_.max)
				return from;
			to = std::min(law_.doubles ? std::bit_floor(to) * 2 : to + 1, law_.max);
		}
		for (; count < 0; ++count) {
			if (to == law_.min)
				return from;
			to = std::max(law_.doubles ? std::bit_floor(to - 1) : to - 1, law_.min);
		}
		return to;
	}

	const ClimbLaw law_;
	uint32_t setting_, home_, other_ = 0; // in force; accepted; under trial
	Phase phase_ = Phase::rest;
	bool stale_ = false;
	uint32_t rests_, resting_;   // windows of a rest; what is left of it
	size_t next_ = 0;            // index of the step to try next
	double rate_ = 0, best_ = 0; // of the accepted setting: in the last window; that a trial has to beat
	double tried_ = 0;           // of the setting under trial
	double judged_ = 0;          // rate_ when the last trial began or the load changed
	uint64_t trials_ = 0, changes_ = 0;
	uint32_t count_ = 0;
	std::array<double, ClimbLaw::max_window> rates_{};
};

} // namespace pt2p::tune
