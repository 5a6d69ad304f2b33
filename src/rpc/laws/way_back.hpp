// Whether the results of calls are sent or fetched, for all callers of a server that leave it to the library. A pure
// function of what is observed.
//
// The server decides, by its own pace: calls that it replies to, or leaves results of, in a time. What limits it shows
// in nothing that one caller sees: a reply that is sent may wait for an initiator that serves other callers, and for
// the processor that posts for all of them. Where callers have all the calls under way that they want, the pace is that
// of the callers as well, so the quicker way back for them is what wins with a few callers. There is one judge, and
// calls show their way themselves. So this is not the trial of forwarding (RouteTrial), in which ranks agree and vote,
// nor Either, which compares the latencies of single messages.
//
// Whether a trial is worth it. The server watches a few calls first. Most of them must be calls whose results could be
// fetched: over a device that reads, without forwarding, with replies that fit in a slot, and of callers and services
// that leave the choice. Else there is nothing to gain, as within a node, and no trial. Nothing else is ruled out: one
// caller alone may gain a tenth by fetching, as no work request of the server is in its way.
//
// A trial consists of steps, and all calls of a step are to take the same way back. Callers learn of it from what comes
// back to them, so a caller follows with its next call but one. A comparison is:
//
//   chosen way, timed       that of the comparison before; the first comparison has one of its own
//   other way, settling     until nearly all calls take it, and the pace grows no more: callers learn when to fetch
//   other way, timed
//   chosen way, settling
//   chosen way, timed       so a drift of load affects both
//
// A trial has up to `most` comparisons. Each is over twice as many calls and twice the time of the one before, and
// callers know better when to fetch. One in which a way is quicker by the factor `clear` decides, and the last in any
// case. So a short comparison says nothing about ways that differ less than the pace does from one moment to the next.
// The other way is chosen when it is quicker by `margin`, which keeps ways that are about as good from taking turns. A
// step in which it is slower by the factor `clear` ends the trial at once.
//
// A step lasts so many calls and so long, as pace comes in bursts, and what the other way has left behind lasts for a
// while: in the model, 64 callers over rc are replied to half as quickly again as in the mean for a thousand calls, and
// then some wait; and 16 callers over dct with 4 calls each are replied to a sixth more quickly for half a millisecond
// after they have fetched.
//
// Cost. After a trial there is a rest: `rest` calls for each that the trial has sent the other way. It doubles each
// time that the answer is the same, up to `max_rests` times. If the pace stays above or below the usual one by a factor
// `other_load` for two looks, the load is another one, and the next trial begins at once, but not sooner than `least`
// calls for each that the last has sent the other way.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace pt2p::rpc::laws {

enum class Way : uint8_t { reply, fetch };

struct WayLaw {
	uint32_t first = 4096;        // calls before the first trial
	uint32_t look = 4096;         // calls between two looks at the pace
	uint32_t watched = 64;        // calls before a trial
	uint32_t settling = 64;       // calls of a step, at least
	uint32_t each = 2;            // the same, for each caller
	uint32_t learning = 4;        // times that, where fetching settles
	uint32_t timed = 1024;        // calls of a step, at least
	uint32_t each_timed = 16;     // the same, for each caller
	int64_t lasts = 1000000;      // the same, ns, and half as long while it settles
	uint32_t max_comparisons = 3; // of a trial
	double margin = 0.02;         // of the pace
	double clear = 1.2;           // the pace of one way divided by that of the other
	uint32_t rest = 100;          // calls for each that a trial has sent the other way
	uint32_t max_rests = 64;      // times that
	double other_load = 1.5;      // of the usual pace
	uint32_t least = 20;          // calls for each that a trial has sent the other way, between two trials
};

class WayBack {
public:
	explicit WayBack(const WayLaw &law = {}) : law_(law), due_(law.first), rest_(law.first) {}

	// Of the next call.
	Way way() const { return tries_other() ? other(chosen_) : chosen_; }
	Way chosen() const { return chosen_; }
	bool in_trial() const { return step_ >= chosen_timed_first; }
	// saw() needs to be told of calls.
	bool watches() const { return step_ != resting; }
	// look() is due when so many calls have been served.
	uint64_t due() const { return due_; }

	void look(uint64_t served, int64_t now)
	{
		if (served < due_)
			return;
		const double pace =
		    static_cast<double>(served - looked_) / static_cast<double>(std::max<int64_t>(now - since_look_, 1));
		const bool first = !since_look_;
		looked_ = served;
		since_look_ = now;
		due_ = served + law_.look;
		if (watches()) {
			looks_ = 0;
			return;
		}
		if (++looks_ == 1) { // of a time in which the trial may have been
			ended_ = served;
			if (first)
				return begin();
		} else if (looks_ == 2) {
			usual_ = pace;
		} else {
			const bool differs = pace > usual_ * law_.other_load || pace * law_.other_load < usual_;
			different_ = differs ? different_ + 1 : 0;
			if (!differs)
				usual_ += (pace - usual_) / averaged;
		}
		if (different_ >= 2 && served - ended_ >= uint64_t{law_.least} * tried_) {
			rests_ = 1;
			begin();
		} else if (served - ended_ >= rests_ * rest_) {
			begin();
		}
	}
	// A call gets its reply or its result. `can`: its result could be fetched, and the library chooses. `callers`: so
	// many could fetch. True: the choice has changed. `clock` returns the time, ns.
	template <class Clock>
	bool saw(bool can, bool fetched, size_t callers, Clock &&clock)
	{
		if (step_ == watching) {
			can_ += can;
			if (++in_step_ < law_.watched)
				return false;
			if (can_ < can_be_fetched * law_.watched) {
				end(false);
			} else {
				go(chosen_timed_first, clock());
			}
			return false;
		}
		if (!in_trial() || !can)
			return false;
		++in_step_;
		tried_ += tries_other();
		share_ += ((fetched == (way() == Way::fetch) ? 1.0 : 0.0) - share_) / averaged_shares;
		if (in_step_ % clocked)
			return false;
		if (timed()) {
			const uint64_t enough = std::max<uint64_t>(law_.timed, uint64_t{law_.each_timed} * callers);
			if (in_step_ < enough << compared_)
				return false;
			const int64_t now = clock();
			return now - begun_ >= law_.lasts << compared_ && end_step(now);
		}
		settle(callers, clock);
		return false;
	}

	// For the report.
	uint32_t trials() const { return trials_; }
	// The pace with results that are fetched divided by that with replies, in the last comparison; 0: there was none.
	double gain() const { return gain_; }

private:
	enum Step : uint8_t {
		resting,
		watching,
		chosen_timed_first,
		other_settling,
		other_timed,
		chosen_settling,
		chosen_timed,
	};
	static constexpr double can_be_fetched = 0.75; // share of the calls before a trial
	static constexpr uint32_t clocked = 16;        // calls of a step, each time before it looks at the clock
	static constexpr uint32_t max_settling = 32;   // times the calls that suffice
	static constexpr double still_grows = 1.05;    // pace of a step that has not settled, divided by that before
	static constexpr double settled = 0.9;         // share of calls on the way of the step before it is timed
	static constexpr double averaged = 8;          // looks
	static constexpr double averaged_shares = 24;

	static Way other(Way way) { return way == Way::reply ? Way::fetch : Way::reply; }
	bool tries_other() const { return step_ == other_settling || step_ == other_timed; }
	bool timed() const { return step_ == chosen_timed_first || step_ == other_timed || step_ == chosen_timed; }

	void begin()
	{
		step_ = watching;
		in_step_ = can_ = compared_ = tried_ = 0;
	}
	void go(Step step, int64_t now)
	{
		step_ = step;
		in_step_ = before_part_ = parts_ = 0;
		share_ = settling_pace_ = 0;
		begun_ = since_ = now;
	}
	// A call of a step that settles.
	template <class Clock>
	void settle(size_t callers, Clock &clock)
	{
		const uint64_t few = std::max<uint64_t>(law_.settling, uint64_t{law_.each} * callers);
		const uint64_t enough = way() == Way::fetch ? few * law_.learning : few;
		const uint32_t in_part = in_step_ - before_part_;
		if (in_part < enough)
			return;
		const int64_t now = clock();
		const double pace = in_part / static_cast<double>(std::max<int64_t>(now - since_, 1));
		const bool grows = way() == Way::fetch && pace > settling_pace_ * still_grows;
		const bool learns = way() == Way::fetch && ++parts_ < (learnt_ ? 2 : law_.learning);
		const bool early = now - begun_ < law_.lasts / 2;
		const bool for_ever = in_step_ >= max_settling * enough && !early;
		if (share_ >= settled && ((!grows && !learns && !early) || for_ever)) {
			learnt_ |= way() == Way::fetch;
			go(static_cast<Step>(step_ + 1), now);
		} else if (for_ever) {
			end(false); // they do not follow
		} else {
			settling_pace_ = pace;
			since_ = now;
			before_part_ = in_step_;
		}
	}
	// Of a timed step.
	bool end_step(int64_t now)
	{
		const double pace = in_step_ / static_cast<double>(std::max<int64_t>(now - begun_, 1));
		switch (step_) {
		case chosen_timed_first:
			chosen_pace_ = pace;
			go(other_settling, now);
			return false;
		case other_timed:
			other_pace_ = pace;
			if (pace * law_.clear < chosen_pace_) {
				remember(pace / chosen_pace_);
				end(false);
				return false;
			}
			go(chosen_settling, now);
			return false;
		default: break;
		}
		const double ratio = 2 * other_pace_ / (chosen_pace_ + pace);
		remember(ratio);
		chosen_pace_ = pace;
		if (++compared_ < law_.max_comparisons && ratio < law_.clear && ratio * law_.clear > 1) {
			go(other_settling, now);
			return false;
		}
		const bool changes = ratio >= 1 + law_.margin;
		if (changes)
			chosen_ = other(chosen_);
		end(changes);
		return changes;
	}
	// The pace of the other way is so many times that of the chosen one.
	void remember(double ratio) { gain_ = chosen_ == Way::reply ? ratio : 1 / ratio; }
	void end(bool changed)
	{
		trials_ += in_trial();
		rests_ = changed || !rest_ ? 1 : std::min(rests_ * (trials_ > 1 ? 2 : 1), law_.max_rests);
		rest_ = law_.rest * std::max<uint64_t>(tried_, law_.look / law_.rest);
		step_ = resting;
		looks_ = different_ = 0;
	}

	WayLaw law_;
	Way chosen_ = Way::reply;
	Step step_ = resting;
	uint64_t due_, looked_ = 0, ended_ = 0; // calls
	int64_t since_look_ = 0;                // ns
	uint32_t looks_ = 0, different_ = 0;    // since the trial; that found another load, in a row
	double usual_ = 0;                      // pace, calls per ns
	uint64_t rest_;
	uint32_t rests_ = 1, trials_ = 0;
	// Of the trial.
	int64_t begun_ = 0, since_ = 0; // the step, and a part of it, ns
	uint32_t in_step_ = 0, before_part_ = 0, parts_ = 0, can_ = 0, compared_ = 0, tried_ = 0;
	bool learnt_ = false;
	double share_ = 0, settling_pace_ = 0, chosen_pace_ = 0, other_pace_ = 0, gain_ = 0;
};

} // namespace pt2p::rpc::laws
