// Which way small messages to far ranks take (PT2P_ROUTE=auto): all directly, or all by way of neighbours. Pure functions of
// what is observed; route/relay.hpp observes and obeys.
//
// A DC initiator works for one target at a time, and a rank that talks with many in turn pays for another connection again and
// again. By way of a neighbour a message makes another hop instead. What either costs depends on what everybody else does:
// while others go by way of neighbours, one that goes directly finds the initiators idle, and while others go directly, one by
// way of a neighbour waits behind them. What is quicker for one rank, or one destination, is not what is quicker for all. So
// one choice is made for all ranks and destinations, and what is compared is the pace of the whole job.
//
// Where targets would change often a trial is held, by all ranks together. It consists of epochs, each of so many messages of
// the rank that sends most, and in each all go the same way. The first messages of an epoch are not timed: what is under way
// yet went the other way. There is no clock that all agree on: where in a trial a rank is, its moment, goes along with its
// messages. Whoever has sent the messages of an epoch goes on to the next, and whoever hears of a later moment goes there at
// once.
//
// Epochs make pairs, one of either way. The shorter one has won: either took as many messages of the busiest rank. What
// disturbs one epoch, however long, costs one pair. As pairs go on direct, neighbour; neighbour, direct; and so on, a drift of
// load weighs on both.
//
//   one way has won `lead` pairs more than the other     it is chosen
//   `pairs` are over                                     what was chosen stays
//
// All ranks see nearly the same times; what the first says that can tell is what all do. Then no rank calls for another trial
// for so long that the way that was not chosen had 1 % of its messages, and for twice as long each time that the answer was the
// same, up to 64 times. When its targets begin to change often, or no longer do, it is once again 1 %.
//
// How soon: a way that is always quicker is chosen after 2 * lead epochs, and one epoch more in a job's first trial, whose
// first use of connections counts for nobody. Where both are alike, no more than `pairs` epochs go another way than before.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <utility>
#include <vector>

namespace pt2p::tune {

enum class Way : uint8_t { direct, by_neighbour };

struct WayLaw {
	uint32_t epoch = 512, settling = 128; // messages; of them, those that are not timed
	int lead = 3;
	uint32_t pairs = 8;
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
	explicit WayTuner(const WayLaw &law = {}) : law_(law) {}

	// Of the next message.
	Way way() const { return in_trial() ? way_of(epoch()) : chosen_; }
	bool in_trial() const { return step() != over; }
	// To go along with messages while tells(): so that the direct way is timed as it is without trials.
	uint32_t moment() const { return moment_; }
	bool tells() const { return in_trial() && !(timed() && way() == Way::direct); }

	// A message has been sent, and targets would change so often if all went directly; true when another way is chosen.
	template <class Clock>
	bool sent(double changes, Clock &&clock)
	{
		++sent_;
		++in_step_;
		if (in_trial())
			return in_step_ >= (timed() ? law_.epoch - law_.settling : law_.settling) && go(next(), clock());
		if (in_step_ < law_.epoch)
			return false;
		in_step_ = 0;
		if (changes > law_.often ? !often_ : changes < law_.rarely && often_) {
			often_ = !often_;
			rests_ = 1;
		}
		// The first trial has an epoch more than others, in front.
		if ((often_ || chosen_ == Way::by_neighbour) && !rest())
			go(at(trial() + 1, trial() ? 2 : 0), clock());
		return false;
	}
	// A message has come from a rank that was there when it sent it; as sent().
	template <class Clock>
	bool heard(uint32_t moment, Clock &&clock)
	{
		return static_cast<int32_t>(moment - moment_) > 0 && go(moment, clock());
	}

	// For the report.
	Way chosen() const { return chosen_; }
	uint32_t trials() const { return trial(); } // of the job
	// Of the last trial, as far as this rank has seen it: how long the same messages took directly, divided by how long they
	// took by way of neighbours; 0: not seen.
	double gain() const
	{
		return took(Way::direct) && took(Way::by_neighbour) ? took(Way::direct) / took(Way::by_neighbour) : 0;
	}
	// Messages of this rank until it may call for a trial.
	uint64_t rest() const
	{
		const uint64_t end = rest_since_ + rests_ * rest_;
		return in_trial() || sent_ >= end ? 0 : end - sent_;
	}

private:
	// A moment: number of the trial, step, way. Each epoch has two steps, that which is not timed and that which is; after them
	// comes `over`, with the way that is chosen. What comes later is a larger number.
	static constexpr uint32_t over = 0x7f;
	static uint32_t at(uint32_t trial, uint32_t step, Way way = Way::direct)
	{
		return trial << 8 | step << 1 | static_cast<uint32_t>(way);
	}
	uint32_t trial() const { return moment_ >> 8; }
	uint32_t step() const { return moment_ >> 1 & over; }
	bool timed() const { return step() % 2; }
	uint32_t epoch() const { return step() / 2; }
	// The first one, number 0, tries the connections; then come pairs.
	static Way way_of(uint32_t epoch) { return !epoch || epoch % 4 == 2 || epoch % 4 == 3 ? Way::by_neighbour : Way::direct; }
	double took(Way way) const { return all_[static_cast<size_t>(way)]; }

	uint32_t next() const { return moment_ + 2; }

	bool go(uint32_t moment, int64_t now)
	{
		// Who leaps over a step knows nothing of its time.
		if (timed() && in_trial() && (moment == next() || moment >> 1 == at(trial(), over) >> 1)) {
			see(now - since_);
			if (moment == next() && (std::abs(lead_) >= law_.lead || epoch() >= 2 * law_.pairs))
				moment = at(trial(), over,
				            lead_ >= law_.lead    ? Way::by_neighbour
				            : lead_ <= -law_.lead ? Way::direct
				                                  : chosen_);
		}
		if (moment >> 8 != trial()) {
			lead_ = 0;
			all_ = {};
			first_ = 0;
		}
		moment_ = moment;
		in_step_ = 0;
		since_ = now;
		return !in_trial() && end();
	}
	// How long this epoch took.
	void see(int64_t time)
	{
		if (epoch() % 2) {
			first_ = epoch();
			first_time_ = time;
		} else if (epoch() && first_ == epoch() - 1) {
			const Way way = way_of(epoch()), before = way_of(first_);
			all_[static_cast<size_t>(way)] += static_cast<double>(time);
			all_[static_cast<size_t>(before)] += static_cast<double>(first_time_);
			if (time != first_time_)
				lead_ += (time < first_time_ ? way : before) == Way::by_neighbour ? 1 : -1;
		}
	}
	bool end()
	{
		const Way before = std::exchange(chosen_, static_cast<Way>(moment_ & 1));
		rests_ = before != chosen_ || trial() == 1 ? 1 : std::min(2 * rests_, law_.most_rests);
		rest_ = uint64_t{law_.rest} * law_.pairs * law_.epoch;
		rest_since_ = sent_;
		return before != chosen_;
	}

	const WayLaw law_;
	Way chosen_ = Way::direct;
	uint32_t moment_ = at(0, over);
	uint64_t sent_ = 0;
	uint32_t in_step_ = 0;
	bool often_ = false; // targets would change
	// Of the trial.
	int64_t since_ = 0;           // the step, ns
	uint32_t first_ = 0;          // of the pair that this rank is in, if it has the time of that epoch
	int64_t first_time_ = 0;      // ns
	int lead_ = 0;                // pairs that the way by neighbours has won more than the direct one
	std::array<double, 2> all_{}; // of all pairs, each way, ns
	// After it.
	uint64_t rest_ = 0, rest_since_ = 0;
	uint32_t rests_ = 1;
};

} // namespace pt2p::tune
