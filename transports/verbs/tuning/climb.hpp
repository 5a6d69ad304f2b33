// How large a setting should be of which nothing is known but that what it does shows in the rate of work: queue pairs
// of a busy destination, messages for a doorbell. A hill climber, as a pure function of observations: the work done in
// intervals in which the channel was busy, and the time they took. Clock, channel and units are the caller's.
//
//   rest       the setting stays, and its rate is known
//   trial      another is in force for one window of intervals; unless it is better by more than the margin than each
//              of the last two windows, it is given up
//   again      the one before once more: was it the setting, or has the load changed?
//   repeat     the other once more; better than all three: it stays
//
// The rate of a window is the median of its intervals, so that one in which the process did not run counts for nothing.
// Tried in turn: the largest, where the law leaps, a step up, a step down, two up, two down; thus a valley of one
// setting is crossed, a wider one is not, unless by a leap. What has proved better is followed in its direction. After
// each failure the rest is twice as long, and short again when a setting is accepted or the load changes.
//
// How soon, with w = window + 1 intervals, the first after a change of setting being left out: while each step in a
// direction is better by more than the margin, k steps from the start take at most (5 k + 5) w, `least_rest` being 2,
// and a leap 5 w. On a steady load in the end one window in most_rest + 1 is a trial, and whatever the load does no
// more than two w in each 3 w + least_rest * window intervals. A change of load that shows in the rate is followed
// within (5 k + 40) w, one that does not within (5 k + 4 (most_rest + 1)) w.
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
	bool doubles = true;                     // steps: to the next power of two, or by one
	double margin = 0.1;                     // by how much the rate has to be better
	double changed = 1.5;                    // so many times the rate, or one part in so many: another load
	bool leaps = false;                      // whether `most` is tried first, and in its turn
	uint32_t window = 5;                     // intervals, up to most_window
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

	// So much was done in so long, while the channel was busy. The setting from now on.
	uint32_t see(double work, double time)
	{
		if (time <= 0 || law_.min >= law_.max)
			return setting_;
		if (stale_) { // what was under way when the setting changed
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
	// Whether the setting is one that has not been accepted yet.
	bool trying() const { return setting_ != home_; }
	// Of the setting that is accepted, in the last window; 0: not known yet.
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
			resting_ = std::min(resting_, rests_ + 1); // this window may have been half of one load, half of the other
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
		next_ = steps[next_] < 0 ? 2 : 1; // on in the same direction, by one
		rests_ = resting_ = law_.min_rest;
		home_ = other_;
		rate_ = judged_ = rate;
		go(Phase::rest, home_, 0);
	}
	// The setting so many steps away; the same when that is out of bounds.
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
	uint32_t rests_, resting_;   // windows of a rest; left of it
	size_t next_ = 0;            // step to be tried
	double rate_ = 0, best_ = 0; // of what is accepted, in the last window; in those that a trial is compared with
	double tried_ = 0;           // of what is under trial
	double judged_ = 0;          // rate_ when the last trial began, or the load changed
	uint64_t trials_ = 0, changes_ = 0;
	uint32_t count_ = 0;
	std::array<double, ClimbLaw::max_window> rates_{};
};

} // namespace pt2p::tune
