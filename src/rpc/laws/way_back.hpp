// How the results of calls get back to all callers of a server that leave it to the library: they are sent over the
// connection, fetched (results.hpp), or sent by datagram (datagrams.hpp). A pure function of what is observed.
//
// The server decides, by its own pace: calls that it replies to, or leaves results of, in a time. What limits it shows
// in nothing that one caller sees: a reply that is sent may wait for an initiator that serves other callers, and for
// the processor that posts for all of them. Where callers have all the calls under way that they want, the pace is that
// of the callers as well, so the quicker way back for them is what wins with a few callers. There is one judge, and
// calls show their way themselves. So this is not the trial of forwarding (RouteTrial), in which ranks agree and vote,
// nor Either, which compares the latencies of single messages.
//
// Whether a trial is worth it. The server watches a few calls first. A way is a candidate if most of them could take
// it. They could be fetched over a device that reads, without forwarding, with replies that fit in a slot; and go by
// datagram where both ranks have them, and the call and its reply fit in one each. If the callers or the services have
// chosen, or there is no candidate, as within a node, there is no trial. Nothing else is ruled out: one caller alone
// may gain a tenth by fetching, as no work request of the server is in its way.
//
// A trial compares the chosen way with each candidate in turn. It consists of steps, and all calls of a step are to
// take the same way back. Callers learn of it from what comes back to them, so a caller follows with its next call but
// one. A comparison is:
//
//   chosen way, timed       that of the comparison before; the first has one of its own, and so has one after a change
//   candidate, settling     until nearly all calls take it, and the pace grows no more: callers learn when to fetch.
//                           One that fewer than half take for long is given up
//   candidate, timed
//   chosen way, settling
//   chosen way, timed       so a drift of load affects both
//
// A candidate has up to `max_comparisons`. Each is over twice as many calls and twice the time of the one before, and
// callers know better when to fetch. One in which a way is quicker by the factor `clear` decides, and the last in any
// case. So a short comparison says nothing about ways that differ less than the pace does from one moment to the next.
// The candidate is chosen when it is quicker by `margin`, which keeps ways that are about as good from taking turns. A
// step in which it is slower by the factor `clear` decides at once.
//
// A step lasts so many calls and so long, as pace comes in bursts, and what the way before has left behind lasts for a
// while: in the model, 64 callers over rc are replied to half as quickly again as in the mean for a thousand calls, and
// then some wait; and 16 callers over dct with 4 calls each are replied to a sixth more quickly for half a millisecond
// after they have fetched.
//
// Cost. After a trial there is a rest: `rest` calls for each that has taken the way of a candidate. It doubles each
// time that the answer is the same, up to `max_rests` times. If the pace stays above or below the usual one by a factor
// `other_load` for two looks, the load is another one, and the next trial begins at once, but not sooner than `least`
// calls for each that took the way of a candidate in the last.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace pt2p::rpc::laws {

enum class Way : uint8_t { reply, fetch, datagram };
constexpr unsigned ways = 3;

// A set of ways.
class Ways {
public:
	constexpr void add(Way way) { bits_ |= bit(way); }
	constexpr void remove(Way way) { bits_ &= ~bit(way); }
	constexpr bool has(Way way) const { return bits_ & bit(way); }
	constexpr bool empty() const { return !bits_; }
	constexpr Way first() const { return static_cast<Way>(std::countr_zero(bits_)); } // not of an empty set

private:
	static constexpr unsigned bit(Way way) { return 1u << static_cast<unsigned>(way); }
	unsigned bits_ = 0;
};

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
	uint32_t max_comparisons = 3; // with a candidate
	double margin = 0.02;         // of the pace
	double clear = 1.2;           // the pace of one way divided by that of the other
	uint32_t rest = 100;          // calls for each that has taken the way of a candidate
	uint32_t max_rests = 64;      // times that
	double other_load = 1.5;      // of the usual pace
	uint32_t least = 20;          // the same, between two trials
};

// When a trial begins: after the first calls, after a rest, or because the load has become another one.
class Rest {
public:
	explicit Rest(const WayLaw &law) : law_(law), due_(law.first), calls_(law.first) {}

	// look() is due when so many calls have been served.
	uint64_t due() const { return due_; }
	// `resting`: no trial is under way. True: one begins.
	bool look(uint64_t served, int64_t now, bool resting)
	{
		if (served < due_)
			return false;
		const double pace =
		    static_cast<double>(served - looked_) / static_cast<double>(std::max<int64_t>(now - since_look_, 1));
		const bool first = !since_look_;
		looked_ = served;
		since_look_ = now;
		due_ = served + law_.look;
		if (!resting) {
			looks_ = 0;
			return false;
		}
		if (++looks_ == 1) { // of a time in which the trial may have been
			ended_ = served;
			if (first)
				return true;
		} else if (looks_ == 2) {
			usual_ = pace;
		} else {
			const bool differs = pace > usual_ * law_.other_load || pace * law_.other_load < usual_;
			different_ = differs ? different_ + 1 : 0;
			if (!differs)
				usual_ += (pace - usual_) / averaged;
		}
		if (different_ >= 2 && served - ended_ >= uint64_t{law_.least} * tried_) {
			times_ = 1;
			return true;
		}
		return served - ended_ >= times_ * calls_;
	}
	// A trial has ended, in which so many calls have taken the way of a candidate. `same`: as the one before.
	void begin(uint32_t tried, bool same)
	{
		tried_ = tried;
		times_ = same ? std::min(2 * times_, law_.max_rests) : 1;
		calls_ = law_.rest * std::max<uint64_t>(tried, law_.look / law_.rest);
		looks_ = different_ = 0;
	}

private:
	static constexpr double averaged = 8; // looks

	WayLaw law_;
	uint64_t due_, looked_ = 0, ended_ = 0; // calls
	uint64_t calls_;                        // of a rest
	uint32_t times_ = 1;                    // that
	int64_t since_look_ = 0;                // ns
	uint32_t looks_ = 0, different_ = 0;    // since the trial; that found another load, in a row
	double usual_ = 0;                      // pace, calls per ns
	uint32_t tried_ = 0;
};

class WayBack {
public:
	explicit WayBack(const WayLaw &law = {}) : law_(law), rest_(law) {}

	// Of the next call.
	Way way() const { return tries_candidate() ? candidate_ : chosen_; }
	Way chosen() const { return chosen_; }
	bool in_trial() const { return step_ > watching; }
	// saw() needs to be told of calls.
	bool watches() const { return step_ != resting; }
	// look() is due when so many calls have been served.
	uint64_t due() const { return rest_.due(); }
	void look(uint64_t served, int64_t now)
	{
		if (rest_.look(served, now, !watches()))
			begin();
	}
	// A call gets its reply or its result. `can`: the ways that it could have taken; empty where the library does not
	// choose. `callers`: so many could take another way than the reply. True: the choice has changed. `clock` returns
	// the time, ns.
	template <class Clock>
	bool saw(Ways can, Way took, size_t callers, Clock &&clock)
	{
		if (step_ == watching) {
			watch(can, clock);
			return false;
		}
		if (!in_trial() || !can.has(chosen_) || !can.has(candidate_))
			return false;
		++in_step_;
		tried_ += tries_candidate();
		followed_ += took == way();
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
	// The pace of the candidate divided by that of the way chosen until then, in the last comparison; 0: there was
	// none.
	double gain() const { return gain_; }

private:
	enum Step : uint8_t {
		resting,
		watching,
		chosen_settling_first, // after a change
		chosen_timed_first,
		candidate_settling,
		candidate_timed,
		chosen_settling,
		chosen_timed,
	};
	static constexpr double needed = 0.75;       // share of the watched calls to which a way is open
	static constexpr uint32_t clocked = 16;      // calls of a step, each time before it looks at the clock
	static constexpr uint32_t max_settling = 32; // times the calls that suffice
	static constexpr double still_grows = 1.05;  // pace of a part that has not settled, divided by that before
	static constexpr double settled = 0.9;       // share of the calls of a part that take the way of the step
	static constexpr double follow = 0.5; // the same, of a step that does not settle; if fewer do, it is given up

	bool tries_candidate() const { return step_ == candidate_settling || step_ == candidate_timed; }
	bool timed() const { return step_ == chosen_timed_first || step_ == candidate_timed || step_ == chosen_timed; }

	void begin()
	{
		step_ = watching;
		in_step_ = compared_ = tried_ = 0;
		could_ = {};
		changed_ = false;
	}
	// A call before the trial.
	template <class Clock>
	void watch(Ways can, Clock &clock)
	{
		if (!can.empty())
			for (unsigned way = 0; way < ways; ++way)
				could_[way] += can.has(static_cast<Way>(way));
		if (++in_step_ < law_.watched)
			return;
		left_ = {};
		for (unsigned way = 0; way < ways; ++way)
			if (could_[way] >= needed * law_.watched)
				left_.add(static_cast<Way>(way));
		if (!left_.has(chosen_))
			left_ = {}; // nothing to compare with
		left_.remove(chosen_);
		if (left_.empty())
			return end();
		candidate_ = left_.first();
		go(chosen_timed_first, clock());
	}
	// Nothing more is to be found out about the candidate.
	void next_candidate(bool changes, int64_t now)
	{
		left_.remove(candidate_);
		if (changes)
			chosen_ = candidate_;
		changed_ |= changes;
		if (left_.empty())
			return end();
		candidate_ = left_.first();
		compared_ = 0;
		go(changes ? chosen_settling_first : candidate_settling, now);
	}
	void go(Step step, int64_t now)
	{
		step_ = step;
		in_step_ = followed_ = 0;
		begun_ = now;
		part_ = {.since = now};
	}
	// A call of a step that settles.
	template <class Clock>
	void settle(size_t callers, Clock &clock)
	{
		const uint64_t few = std::max<uint64_t>(law_.settling, uint64_t{law_.each} * callers);
		const uint64_t enough = way() == Way::fetch ? few * law_.learning : few;
		const uint32_t in_part = in_step_ - part_.before;
		if (in_part < enough)
			return;
		const int64_t now = clock();
		const double pace = in_part / static_cast<double>(std::max<int64_t>(now - part_.since, 1));
		const bool grows = way() == Way::fetch && pace > part_.pace_before * still_grows;
		const bool learns = way() == Way::fetch && ++part_.number < (learnt_ ? 2 : law_.learning);
		const bool early = now - begun_ < law_.lasts / 2;
		const bool for_ever = in_step_ >= max_settling * enough && !early;
		const bool all = followed_ - part_.followed_before >= settled * in_part;
		if (for_ever ? followed_ >= follow * in_step_ : all && !grows && !learns && !early) {
			learnt_ |= way() == Way::fetch;
			go(static_cast<Step>(step_ + 1), now);
		} else if (for_ever) { // they do not follow
			if (tries_candidate())
				next_candidate(false, now);
			else
				end();
		} else {
			part_ = {now, part_.number, in_step_, followed_, pace};
		}
	}
	// Of a timed step.
	bool end_step(int64_t now)
	{
		const double pace = in_step_ / static_cast<double>(std::max<int64_t>(now - begun_, 1));
		switch (step_) {
		case chosen_timed_first:
			chosen_pace_ = pace;
			go(candidate_settling, now);
			return false;
		case candidate_timed:
			candidate_pace_ = pace;
			if (pace * law_.clear < chosen_pace_) {
				gain_ = pace / chosen_pace_;
				next_candidate(false, now);
				return false;
			}
			go(chosen_settling, now);
			return false;
		default: break;
		}
		gain_ = 2 * candidate_pace_ / (chosen_pace_ + pace);
		chosen_pace_ = pace;
		if (++compared_ < law_.max_comparisons && gain_ < law_.clear && gain_ * law_.clear > 1) {
			go(candidate_settling, now);
			return false;
		}
		const bool changes = gain_ >= 1 + law_.margin;
		next_candidate(changes, now);
		return changes;
	}
	void end()
	{
		trials_ += in_trial();
		rest_.begin(tried_, !changed_ && trials_ > 1);
		step_ = resting;
	}

	WayLaw law_;
	Rest rest_;
	Way chosen_ = Way::reply, candidate_ = Way::fetch;
	Step step_ = resting;
	uint32_t trials_ = 0;
	bool learnt_ = false;
	double gain_ = 0;
	// Of the trial.
	std::array<uint32_t, ways> could_{}; // calls before it, by way
	Ways left_;                          // candidates, with the one of now
	uint32_t compared_ = 0, tried_ = 0;
	bool changed_ = false;
	double chosen_pace_ = 0, candidate_pace_ = 0; // calls per ns
	// Of the step.
	int64_t begun_ = 0;                   // ns
	uint32_t in_step_ = 0, followed_ = 0; // calls; of these, those that took its way
	// A step that settles is looked at part by part.
	struct Part {
		int64_t since = 0; // ns
		uint32_t number = 0;
		uint32_t before = 0, followed_before = 0; // of the step's calls
		double pace_before = 0;
	} part_;
};

} // namespace pt2p::rpc::laws
