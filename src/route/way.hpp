// Which way small messages to far ranks take (PT2P_ROUTE=auto): all directly, or all by way of neighbours. Pure functions of
// what is observed; route/relay.hpp observes and obeys.
//
// A DC initiator works for one target at a time, and a rank that talks with many in turn pays for another connection again and
// again. By way of a neighbour a message makes another hop instead. What either costs depends on what everybody else does:
// while others go by way of neighbours, one that goes directly finds the initiators idle, and while others go directly, one by
// way of a neighbour waits behind them. What is quicker for one rank, or one destination, is not what is quicker for all. So
// one choice is made for all ranks and destinations, and what is compared is the pace of the whole job.
//
// Where targets would change often a trial is held, by all ranks together. It consists of steps, and in each all go the same
// way. There is no clock that all agree on: where in a trial a rank is, its moment, goes along with its messages. Whoever has
// sent the messages of a step goes on to the next, and whoever hears of a later moment goes there at once. A comparison:
//
//   chosen way, timed      that of the comparison before; the first has one of its own
//   other way, settling    until nearly all messages go that way
//   other way, timed
//   chosen way, settling
//   chosen way, timed      so a drift of load weighs on both ways
//   chosen way, comparing
//
// A message for a rank that others are under way to the way before has to keep to that. With many peers that is most of them
// for long, and not for the ranks that send most. So each rank tells what share of its own goes the way of the step, and a
// step has settled when the mean of what is heard says so. Even then a rank may have a burst or a pause behind it: so the first
// messages of a step that is timed are not timed.
//
// Each rank has a pace of its own: its messages in a timed step, however many, divided by the time that it saw that take. Its
// opinion is (other - chosen) / (other + chosen), at most 1 whatever disturbs a step. While ranks compare, each tells its own
// with its messages, and takes the mean of what it hears: who sends more is heard more often. (Means are not told: the first
// rank that compares, the one that sends most, would be in all of them.) The first rank that has heard enough of them decides
// for all.
//
// Only ranks that send about as much as the one that sends most have an opinion. Where load is even, these are all. Where it is
// not, most requests wait for the busiest ranks (Denning and Buzen, The Operational Analysis of Queueing Network Models, 1978:
// the throughput of a closed network is that of its bottleneck). Their pace shows at once what the other way is worth; that of
// the others only when the queue there, in which nearly all that is under way is, has become another one: after milliseconds
// with 256 ranks, as the model of studies/RESULTS.md has it.
//
// The other way is chosen when it has won `wins` comparisons in a row, each over twice as many messages as the one before; the
// first that it does not win ends the trial. A job begins directly, because neighbours gain little where they do and may cost
// half of the pace where they do not. They win the last by `margin` or not at all; where queues are slow to follow, 128 ranks
// in the model, a seventh of the pace shows as a fiftieth in the first. Steps are long: a way that holds messages up at one
// rank does well until all that others may have under way waits there. In the model, with 64 ranks and a hot key, steps of 256
// messages found the way by neighbours quicker by a seventh, those of 1024 slower, which it is.
//
// What it costs: no trial begins before a job's rank has sent `first` messages. The first comparison sends a sixth of them the
// other way; more, but never most of them, where a rank has so many peers that its messages are long in settling. The
// next comparison sends more only where that was not slower. Then no rank calls for another trial for so long that the way
// that was not chosen had 1 % of its messages, and for twice as long each time that the answer was the same, up to 64 times.
// When its targets begin to change often, or no longer do, it is once again 1 %.
//
// How soon: a way by neighbours that is always quicker is chosen some 8400 messages after the first trial began, those of the
// rank that sends most; more where messages are long in settling.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace pt2p::tune {

enum class Way : uint8_t { direct, by_neighbour };

struct WayLaw {
	uint32_t first = 8192; // messages before a job's first trial
	// Messages of steps; of those that go the other way, in the first comparison.
	uint32_t settling = 64, timed = 1024;
	uint32_t lead = 256;    // before what is timed
	double settled = 0.9;   // share of messages that go the way of a step, before it is timed
	double busy = 0.75;     // who sends less in a step, of what the rank sends that sends most, has no opinion
	uint32_t opinions = 64; // to be heard
	uint32_t told = 16;     // of a direct step that is timed, those that tell of it
	uint32_t wins = 2;
	double margin = 0.03;              // of the pace
	uint32_t look = 512;               // messages between two looks at how often targets would change
	uint32_t rest = 100;               // messages for each that a trial may send the way that was not chosen
	uint32_t most_rests = 64;          // times that
	double often = 0.25, rarely = 0.1; // changes of target for each message
};

// How often a pool of DC initiators would change its targets if all messages went directly, whichever way they go: the
// initiator that has been idle for longest is taken for a target that has none.
class TargetChanges {
public:
	explicit TargetChanges(size_t initiators) : last_(initiators, -1) {}

	void sent_to(int rank)
	{
		auto place = std::find(last_.begin(), last_.end(), rank);
		const bool change = place == last_.end();
		if (change)
			--place;
		std::rotate(last_.begin(), place, place + 1);
		last_.front() = rank;
		rate_ += ((change ? 1.0 : 0.0) - rate_) / averaged;
	}
	// For each message, lately.
	double rate() const { return rate_; }

private:
	static constexpr double averaged = 64; // messages
	std::vector<int> last_;                // targets, the latest first
	double rate_ = 0;
};

// Clock: a function without arguments that gives the time, ns; called a few times in a trial.
class WayTuner {
public:
	explicit WayTuner(const WayLaw &law = {}) : law_(law), rest_(law.first) {}

	// Of the next message.
	Way way() const { return in_trial() && tries_other() ? other(chosen()) : chosen(); }
	bool in_trial() const { return step() != over; }
	// To go along with messages while tells(): so that the direct way is timed as it is without trials.
	uint32_t moment() const { return moment_; }
	int16_t told() const { return settling() ? static_cast<int16_t>(share_ * INT16_MAX) : opinion_; }
	bool tells() const { return in_trial() && !(timed() && way() == Way::direct && in_step_ >= law_.told); }

	// A message has been sent, and targets would change so often if all went directly; `settled`: it went as way() said, and
	// none to the same rank is under way that did not. True when another way is chosen.
	template <class Clock>
	bool sent(double changes, bool settled, Clock &&clock)
	{
		++sent_;
		++in_step_;
		share_ += ((settled ? 1.0 : 0.0) - share_) / averaged;
		return (in_trial() || in_step_ >= law_.look) && turn(changes, clock);
	}
	// A message has come from a rank that was there when it sent it, and told this; as sent().
	template <class Clock>
	bool heard(uint32_t moment, int16_t told, Clock &&clock)
	{
		const bool changed = static_cast<int32_t>(moment - moment_) > 0 && go(moment, clock());
		if (told == nothing || moment != moment_)
			return changed;
		if (settling()) {
			heard_ = true;
			heard_share_ += (std::max<double>(told, 0) / INT16_MAX - heard_share_) / averaged;
		} else if (in_trial() && part() == comparing)
			count(told);
		return changed;
	}

	// For the report.
	Way chosen() const { return static_cast<Way>(moment_ & 1); }
	uint32_t trials() const { return trial(); } // of the job
	// How many times as quick the job was by way of neighbours as directly, in the last comparison that this rank knows of; 0:
	// none.
	double gain() const { return gain_; }
	// Messages of this rank until it may call for a trial.
	uint64_t rest() const
	{
		const uint64_t end = rest_since_ + rests_ * rest_;
		return in_trial() || sent_ >= end ? 0 : end - sent_;
	}

	static constexpr int16_t nothing = INT16_MIN;

private:
	// A moment: number of the trial, step, the way that is chosen. What comes later is a larger number. A comparison is five
	// steps; number 0 has only those of the chosen way, and is not judged. After all comes `over`.
	static constexpr uint32_t over = 0x7f, parts = 5;
	enum Part : uint32_t { other_settling, other_timed, chosen_settling, chosen_timed, comparing };
	static uint32_t at(uint32_t trial, uint32_t step, Way chosen)
	{
		return trial << 8 | step << 1 | static_cast<uint32_t>(chosen);
	}
	uint32_t trial() const { return moment_ >> 8; }
	uint32_t step() const { return moment_ >> 1 & over; }
	uint32_t part() const { return step() % parts; }
	uint32_t comparison() const { return step() / parts; }
	bool tries_other() const { return part() <= other_timed; }
	bool timed() const { return part() == other_timed || part() == chosen_timed; }
	bool settling() const { return in_trial() && (part() == other_settling || part() == chosen_settling); }
	static Way other(Way way) { return way == Way::direct ? Way::by_neighbour : Way::direct; }

	// So many comparisons' messages the other way are 2^n - 1 times those of the first.
	uint32_t comparisons() const { return std::clamp(comparison(), 1u, law_.wins); }

	// What sent() has to do now and then.
	template <class Clock>
	bool turn(double changes, Clock &&clock)
	{
		if (in_trial()) {
			if (timed() && in_step_ == law_.lead)
				since_ = clock();
			return step_ends() && go(next(), clock());
		}
		in_step_ = 0;
		if (changes > law_.often ? !often_ : changes < law_.rarely && often_) {
			often_ = !often_;
			rests_ = 1;
		}
		if ((often_ || chosen() == Way::by_neighbour) && !rest())
			go(at(trial() + 1, chosen_settling, chosen()), clock());
		return false;
	}
	bool step_ends() const
	{
		if (timed())
			return in_step_ >= law_.lead + doubled(law_.timed);
		if (part() == comparing)
			return in_step_ >= law_.opinions && (opinions_ >= law_.opinions || in_step_ >= most_comparing * law_.opinions);
		uint32_t enough = doubled(law_.settling);
		if (trial() == 1 && step() == parts) // the first use of connections
			enough *= 2;
		return in_step_ >= enough && ((heard_ ? heard_share_ : share_) >= law_.settled || in_step_ >= most_settling * enough);
	}
	uint32_t doubled(uint32_t messages) const { return tries_other() ? messages << (comparisons() - 1) : messages; }
	uint32_t next() const
	{
		if (part() != comparing)
			return at(trial(), step() + (step() == chosen_timed ? 2 : 1), chosen()); // the first has nothing to compare
		if (!won())
			return at(trial(), over, chosen());
		return comparison() >= law_.wins ? at(trial(), over, other(chosen())) : moment_ + 2;
	}
	bool won() const
	{
		return opinions_ && ratio() > (chosen() == Way::direct && comparison() >= law_.wins ? 1 + law_.margin : 1);
	}
	// Of the pace the other way to that the chosen one.
	double ratio() const { return (1 + mean()) / (1 - mean()); }
	double mean() const { return static_cast<double>(sum_) / opinions_ / INT16_MAX; }
	void count(int16_t opinion)
	{
		sum_ += opinion;
		++opinions_;
	}

	bool go(uint32_t moment, int64_t now)
	{
		const WayTuner before = *this;
		moment_ = moment;
		since_ = now;
		if (before.in_trial() && before.tries_other())
			tried_ += before.in_step_;
		in_step_ = opinions_ = 0;
		share_ = heard_share_ = 0;
		heard_ = false;
		sum_ = 0;
		opinion_ = nothing;
		if (before.in_trial() && before.part() == comparing && before.opinions_)
			gain_ = before.chosen() == Way::direct ? before.ratio() : 1 / before.ratio();
		if (trial() != before.trial())
			chosen_pace_ = other_pace_ = unknown;
		else if (before.in_trial() && before.timed()) // who leaps over a step knows nothing of its time
			see(before.part(), moment == before.next() ? before.pace(now) : unknown);
		return !in_trial() && end(before);
	}
	// Of the timed step that ends now; unknown where this rank has no opinion.
	double pace(int64_t now) const
	{
		const bool busy = in_step_ >= law_.busy * (law_.lead + doubled(law_.timed));
		return busy && now > since_ ? (in_step_ - law_.lead) / static_cast<double>(now - since_) : unknown;
	}
	void see(uint32_t part, double pace)
	{
		if (part == other_timed) {
			other_pace_ = pace;
			return;
		}
		const double mean = (chosen_pace_ + pace) / 2;
		if (chosen_pace_ != unknown && other_pace_ != unknown && pace != unknown && mean + other_pace_ > 0) {
			opinion_ = static_cast<int16_t>((other_pace_ - mean) / (other_pace_ + mean) * INT16_MAX);
			count(opinion_);
		}
		chosen_pace_ = pace;
		other_pace_ = unknown;
	}
	bool end(const WayTuner &before)
	{
		const bool changed = chosen() != before.chosen();
		rests_ = changed || trial() == 1 ? 1 : std::min(2 * rests_, law_.most_rests);
		const uint32_t tried = (1u << (before.in_trial() ? before.comparisons() : 1)) - 1;
		rest_ = law_.rest * std::max<uint64_t>(tried * (law_.settling + law_.lead + law_.timed), std::exchange(tried_, 0));
		rest_since_ = sent_;
		return changed;
	}

	static constexpr uint32_t most_settling = 32, most_comparing = 4; // times the messages that are enough
	static constexpr double averaged = 24;                            // shares
	static constexpr double unknown = -1;

	const WayLaw law_;
	uint32_t moment_ = at(0, over, Way::direct);
	uint64_t sent_ = 0;
	uint32_t in_step_ = 0; // messages of the step
	bool often_ = false;   // targets would change
	// Of the trial.
	int64_t since_ = 0;                                   // the step, ns
	double chosen_pace_ = unknown, other_pace_ = unknown; // the last of each in this comparison, messages per ns
	int16_t opinion_ = nothing;
	int64_t sum_ = 0; // of opinions, this rank's own among them
	uint32_t opinions_ = 0;
	double share_ = 0, heard_share_ = 0; // of messages that go the way of the step, lately: this rank's; mean of those heard
	bool heard_ = false;                 // any
	uint64_t tried_ = 0;                 // messages of this rank the other way
	double gain_ = 0;
	// After it.
	uint64_t rest_, rest_since_ = 0;
	uint32_t rests_ = 1;
};

} // namespace pt2p::tune
