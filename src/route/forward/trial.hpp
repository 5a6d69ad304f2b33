// The trial of PT2P_ROUTE=auto: whether small messages to far ranks go directly or are forwarded. Pure functions of
// what is observed; route_choice.hpp observes and obeys.
//
// Why all ranks choose together. A DC initiator serves one target at a time, so a rank that talks with many targets in
// turn pays for reconnections. A forwarded message makes another hop instead. Both costs depend on what the other ranks
// do: while they forward, a direct message finds the initiators idle; while they go directly, a forwarded message waits
// behind theirs. The quicker path for one rank is not the quicker path for all. So there is one choice for all ranks
// and destinations, and the trial compares the pace of the whole job.
//
// A trial begins where targets would change often. It consists of steps, and all messages of a step take the same path.
// There is no common clock: the epoch (trial, step, choice) goes along with the messages. A rank that has sent the
// messages of a step goes on to the next step, and a rank that hears of a later epoch goes there at once. A comparison
// is:
//
//   chosen path, timed      that of the comparison before; the first comparison has one of its own
//   other path, settling    until nearly all messages take that path
//   other path, timed
//   chosen path, settling
//   chosen path, timed      so a drift of load affects both paths
//   chosen path, voting
//
// Settling. A message follows earlier ones to the same rank that are still in flight on the old path. With many peers
// these are most messages for a long time, and not those of the ranks that send most. So each rank reports the share of
// its messages that takes the path of the step, and a step has settled when the mean of the reports says so. A burst or
// a pause may still be behind: the first messages of a timed step are not timed.
//
// Voting. A rank's pace is the number of its messages in a timed step divided by their time. Its vote is (other -
// chosen) / (other + chosen), at most 1 whatever disturbs a step. While ranks vote, each sends its vote with its
// messages and averages the votes that it hears: a rank that sends more counts more. (A rank does not send its average:
// the first rank that votes, the busiest, would be in all of them.) The first rank that has heard enough votes decides
// for all.
//
// Only ranks that send about as much as the busiest one vote. With an even load these are all ranks. With an uneven
// load most requests wait for the busiest ranks (Denning and Buzen, The Operational Analysis of Queueing Network
// Models, 1978: the throughput of a closed network is that of its bottleneck). Their pace shows at once what the other
// path is worth. The pace of the others shows it only when the queue at the busiest rank has changed: after
// milliseconds with 256 ranks, as the model of studies/RESULTS.md has it.
//
// Decision. The other path is chosen when it has won `wins` comparisons in a row, each over twice as many messages as
// the one before; the first that it does not win ends the trial. A job begins with the direct path, because forwarding
// gains little where it gains and may cost half of the pace where it does not. To be chosen, forwarding has to win the
// last comparison by `margin`: where queues follow slowly, with 128 ranks in the model, a seventh of the pace shows as
// a fiftieth in the first comparison. Steps are long, because a path that holds messages up at one rank does well until
// all that others may have in flight waits there. In the model, with 64 ranks and a hot key, steps of 256 messages
// found forwarding quicker by a seventh; steps of 1024 messages found it slower, which it is.
//
// Cost. No trial begins before a rank of the job has sent `first` messages. The first comparison sends a sixth of them
// the other path, more where a rank has so many peers that it settles slowly, but never most of them. The next
// comparison sends more only where that was not slower. After a trial no rank calls for another until the path that was
// not chosen has had 1 % of the messages. The rest doubles each time that the answer is the same, up to 64 times, and
// is 1 % again when targets begin or cease to change often.
//
// Speed. Forwarding that is always quicker is chosen some 8400 messages of the busiest rank after the first trial
// began; later where messages settle slowly.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace pt2p::tune {

// How a small message to a far rank goes.
enum class Path : uint8_t { direct, forwarded };

struct TrialLaw {
	uint32_t first = 8192;                // messages before the first trial of a job
	uint32_t settling = 64, timed = 1024; // messages of a step; on the other path, of the first comparison
	uint32_t lead = 256;                  // messages at the start of a timed step that are not timed
	double settled = 0.9;                 // share of messages on the path of the step before a step is timed
	double busy = 0.75;                   // of what the busiest rank sends: a rank that sends less does not vote
	uint32_t votes = 64;                  // to be heard before the decision
	uint32_t announced = 16;              // messages of a timed direct step that carry its epoch
	uint32_t wins = 2;
	double margin = 0.03;              // of the pace
	uint32_t look = 512;               // messages between two looks at how often targets would change
	uint32_t rest = 100;               // messages for each that a trial may send on the path that was not chosen
	uint32_t max_rests = 64;           // times that
	double often = 0.25, rarely = 0.1; // changes of target for each message
};

// How often a pool of DC initiators would change targets if all messages went directly, whichever path they take. A
// target without an initiator gets the one that has been idle for longest.
class TargetChanges {
public:
	explicit TargetChanges(size_t initiators) : last_(initiators, -1) {}

	void sent_to(int rank)
	{
		auto found = std::find(last_.begin(), last_.end(), rank);
		const bool change = found == last_.end();
		if (change)
			--found;
		std::rotate(last_.begin(), found, found + 1);
		last_.front() = rank;
		rate_ += ((change ? 1.0 : 0.0) - rate_) / averaged;
	}
	// Changes for each message, a moving average.
	double rate() const { return rate_; }

private:
	static constexpr double averaged = 64; // messages
	std::vector<int> last_;                // targets, the most recent first
	double rate_ = 0;
};

// Clock: a function without arguments that returns the time, ns. A trial calls it a few times.
class RouteTrial {
public:
	explicit RouteTrial(const TrialLaw &law = {}) : law_(law), rest_(law.first) {}

	// Of the next message.
	Path path() const { return in_trial() && tries_other() ? other(chosen()) : chosen(); }
	bool in_trial() const { return step() != over; }
	// What messages carry while announces(). Most messages of a timed direct step carry nothing, so that the direct
	// path is timed as it is without trials.
	uint32_t epoch() const { return epoch_; }
	int16_t report() const { return settling() ? static_cast<int16_t>(share_ * INT16_MAX) : vote_; }
	bool announces() const { return in_trial() && !(timed() && path() == Path::direct && in_step_ >= law_.announced); }

	// A message has been sent. `changes`: how often targets would change if all went directly. `settled`: the message
	// took path(), and none to the same rank is in flight on the other. True when the choice changes.
	template <class Clock>
	bool sent(double changes, bool settled, Clock &&clock)
	{
		++sent_;
		++in_step_;
		share_ += ((settled ? 1.0 : 0.0) - share_) / averaged;
		return (in_trial() || in_step_ >= law_.look) && turn(changes, clock);
	}
	// A message has come with the epoch and the report of its sender. True as in sent().
	template <class Clock>
	bool heard(uint32_t epoch, int16_t report, Clock &&clock)
	{
		const bool changed = static_cast<int32_t>(epoch - epoch_) > 0 && go(epoch, clock());
		if (report == nothing || epoch != epoch_)
			return changed;
		if (settling()) {
			heard_ = true;
			heard_share_ += (std::max<double>(report, 0) / INT16_MAX - heard_share_) / averaged;
		} else if (in_trial() && part() == voting)
			count(report);
		return changed;
	}

	// For the report.
	Path chosen() const { return static_cast<Path>(epoch_ & 1); }
	uint32_t trials() const { return trial(); } // of the job
	// The pace of forwarding divided by that of the direct path, in the last comparison that this rank knows of; 0:
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
	// An epoch: number of the trial, step, chosen path. A later epoch is a larger number. A comparison is five steps;
	// number 0 has only those of the chosen path, and is not judged. The last step is `over`.
	static constexpr uint32_t over = 0x7f, parts = 5;
	enum Part : uint32_t { other_settling, other_timed, chosen_settling, chosen_timed, voting };
	static uint32_t at(uint32_t trial, uint32_t step, Path chosen)
	{
		return trial << 8 | step << 1 | static_cast<uint32_t>(chosen);
	}
	uint32_t trial() const { return epoch_ >> 8; }
	uint32_t step() const { return epoch_ >> 1 & over; }
	uint32_t part() const { return step() % parts; }
	uint32_t comparison() const { return step() / parts; }
	bool tries_other() const { return part() <= other_timed; }
	bool timed() const { return part() == other_timed || part() == chosen_timed; }
	bool settling() const { return in_trial() && (part() == other_settling || part() == chosen_settling); }
	static Path other(Path path) { return path == Path::direct ? Path::forwarded : Path::direct; }

	// So many comparisons send 2^n - 1 times the messages of the first on the other path.
	uint32_t comparisons() const { return std::clamp(comparison(), 1u, law_.wins); }

	// The rare part of sent().
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
		if ((often_ || chosen() == Path::forwarded) && !rest())
			go(at(trial() + 1, chosen_settling, chosen()), clock());
		return false;
	}
	bool step_ends() const
	{
		if (timed())
			return in_step_ >= law_.lead + doubled(law_.timed);
		if (part() == voting)
			return in_step_ >= law_.votes && (votes_ >= law_.votes || in_step_ >= max_voting * law_.votes);
		uint32_t enough = doubled(law_.settling);
		if (trial() == 1 && step() == parts) // the first use of connections
			enough *= 2;
		const bool settled = (heard_ ? heard_share_ : share_) >= law_.settled;
		return in_step_ >= enough && (settled || in_step_ >= max_settling * enough);
	}
	uint32_t doubled(uint32_t messages) const { return tries_other() ? messages << (comparisons() - 1) : messages; }
	uint32_t next() const
	{
		if (part() != voting)
			return at(trial(), step() + (step() == chosen_timed ? 2 : 1), chosen()); // the first has nothing to compare
		if (!won())
			return at(trial(), over, chosen());
		return comparison() >= law_.wins ? at(trial(), over, other(chosen())) : epoch_ + 2;
	}
	bool won() const
	{
		return votes_ && ratio() > (chosen() == Path::direct && comparison() >= law_.wins ? 1 + law_.margin : 1);
	}
	// The pace of the other path divided by that of the chosen one.
	double ratio() const { return (1 + mean()) / (1 - mean()); }
	double mean() const { return static_cast<double>(sum_) / votes_ / INT16_MAX; }
	void count(int16_t vote)
	{
		sum_ += vote;
		++votes_;
	}

	bool go(uint32_t epoch, int64_t now)
	{
		const RouteTrial before = *this;
		epoch_ = epoch;
		since_ = now;
		if (before.in_trial() && before.tries_other())
			tried_ += before.in_step_;
		in_step_ = votes_ = 0;
		share_ = heard_share_ = 0;
		heard_ = false;
		sum_ = 0;
		vote_ = nothing;
		if (before.in_trial() && before.part() == voting && before.votes_)
			gain_ = before.chosen() == Path::direct ? before.ratio() : 1 / before.ratio();
		if (trial() != before.trial())
			chosen_pace_ = other_pace_ = unknown;
		else if (before.in_trial() && before.timed()) // a rank that skips a step knows nothing of its time
			see(before.part(), epoch == before.next() ? before.pace(now) : unknown);
		return !in_trial() && end(before);
	}
	// Of the timed step that ends now; unknown where this rank does not vote.
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
			vote_ = static_cast<int16_t>((other_pace_ - mean) / (other_pace_ + mean) * INT16_MAX);
			count(vote_);
		}
		chosen_pace_ = pace;
		other_pace_ = unknown;
	}
	bool end(const RouteTrial &before)
	{
		const bool changed = chosen() != before.chosen();
		rests_ = changed || trial() == 1 ? 1 : std::min(2 * rests_, law_.max_rests);
		const uint32_t tried = (1u << (before.in_trial() ? before.comparisons() : 1)) - 1;
		const uint32_t comparison = law_.settling + law_.lead + law_.timed;
		rest_ = law_.rest * std::max<uint64_t>(tried * comparison, std::exchange(tried_, 0));
		rest_since_ = sent_;
		return changed;
	}

	static constexpr uint32_t max_settling = 32, max_voting = 4; // times the messages that suffice
	static constexpr double averaged = 24;                       // shares
	static constexpr double unknown = -1;

	const TrialLaw law_;
	uint32_t epoch_ = at(0, over, Path::direct);
	uint64_t sent_ = 0;
	uint32_t in_step_ = 0; // messages of the step
	bool often_ = false;   // targets would change often
	// Of the trial.
	int64_t since_ = 0;                                   // the step, ns
	double chosen_pace_ = unknown, other_pace_ = unknown; // the last of each in this comparison, messages per ns
	int16_t vote_ = nothing;
	int64_t sum_ = 0; // of votes, this rank's own included
	uint32_t votes_ = 0;
	double share_ = 0, heard_share_ = 0; // of messages on the path of the step: of this rank; mean of the reports
	bool heard_ = false;                 // any report
	uint64_t tried_ = 0;                 // messages of this rank on the other path
	double gain_ = 0;
	// After it.
	uint64_t rest_, rest_since_ = 0;
	uint32_t rests_ = 1;
};

} // namespace pt2p::tune
