// Which way a rank's small messages to far ranks take (PT2P_ROUTE=auto): all directly, or all by way of neighbours. Pure
// functions of what is observed; route/relay.hpp observes and obeys.
//
// A DC initiator works for one target at a time, and a rank that talks with many in turn pays for another connection again and
// again. By way of a neighbour a message makes another hop instead. What either costs depends on all messages that share the
// initiators: while others go by way of neighbours, one that goes directly finds the initiators idle, and while others go
// directly, one by way of a neighbour waits behind them. So one choice is made for all destinations, and what is compared is
// how long messages of either way are under way while all go that way. Only differences are: clocks of two ranks need not
// agree.
//
// Where targets would change often, a trial is held. It consists of pairs of epochs, one of either way, of equally many
// messages. The first messages of an epoch do not count: what is under way yet went the other way. The way with the shorter
// mean delay has won the pair; what disturbs one epoch, however long, costs one pair. As pairs go on chosen, other; other,
// chosen; and so on, a drift of load or clocks weighs on both.
//
//   the other way has won `lead` pairs more     it is chosen
//   the chosen one has, or `pairs` are over     it stays
//
// Then nothing is tried for so long that the way that was not chosen had 1 % of all messages since the trial began, and for
// twice as long each time the answer is the same, up to 64 times. When targets begin to change often, or no longer do, it is
// once again 1 %.
//
// How soon: a way that is always quicker is chosen after 2 * lead epochs, and one epoch more for the first trial, whose first
// use of connections counts for nobody. Where both are alike, no more than `pairs` epochs go another way than before.
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
	uint32_t epoch = 64, settling = 16; // messages; of them, those that do not count
	int lead = 3;
	uint32_t pairs = 32;
	uint32_t rest = 100;               // messages for each that a trial had sent the way that was not chosen
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

class WayTuner {
public:
	explicit WayTuner(const WayLaw &law = {}) : law_(law) {}

	// Of the next message.
	Way way() const { return now_; }
	// Whether see() is to be told the delay of the next message.
	bool measures() const { return in_trial_ && !warm_up_ && in_epoch_ >= law_.settling; }
	// How long one of these was under way, ns beyond what is the same for all.
	void see(Way way, int64_t delay)
	{
		Delays &d = pair_[index(way)];
		++d.count;
		d.sum += static_cast<double>(delay);
	}
	// A message has been sent, and targets would change so often if all went directly; true when another way is chosen.
	bool sent(double changes)
	{
		++sent_;
		if (++in_epoch_ < law_.epoch)
			return false;
		in_epoch_ = 0;
		if (in_trial_)
			return end_epoch();
		if (changes > law_.often ? !often_ : changes < law_.rarely && often_) {
			often_ = !often_;
			rests_ = 1;
		}
		if ((often_ || chosen_ == Way::by_neighbour) && sent_ - rest_since_ >= uint64_t{rests_} * rest_)
			begin_trial();
		return false;
	}

	// For the report.
	Way chosen() const { return chosen_; }
	bool in_trial() const { return in_trial_; }
	uint64_t trials() const { return trials_; }
	// Of the last trial: by how much messages were longer under way directly than by neighbours, ns; below 0: they were not so
	// long.
	double gain() const { return gain_; }
	// Until the next trial may begin.
	uint64_t rest() const
	{
		const uint64_t end = rest_since_ + uint64_t{rests_} * rest_;
		return in_trial_ || sent_ >= end ? 0 : end - sent_;
	}

private:
	static size_t index(Way way) { return static_cast<size_t>(way); }
	Way other() const { return chosen_ == Way::direct ? Way::by_neighbour : Way::direct; }

	void begin_trial()
	{
		in_trial_ = true;
		++trials_;
		warm_up_ = trials_ == 1;
		epochs_ = 0;
		lead_ = 0;
		pair_ = all_ = {};
		if (warm_up_)
			now_ = other();
		else
			next_epoch();
	}
	// In the order chosen, other, other, chosen.
	void next_epoch() { now_ = epochs_ % 4 == 1 || epochs_ % 4 == 2 ? other() : chosen_; }
	bool end_epoch()
	{
		if (!std::exchange(warm_up_, false) && ++epochs_ % 2 == 0) {
			const Delays &c = pair_[index(chosen_)], &o = pair_[index(other())];
			if (c.count && o.count)
				lead_ += (o.mean() < c.mean()) - (c.mean() < o.mean());
			for (size_t i = 0; i < all_.size(); ++i) {
				all_[i].count += pair_[i].count;
				all_[i].sum += pair_[i].sum;
			}
			pair_ = {};
			if (std::abs(lead_) >= law_.lead || epochs_ == 2 * law_.pairs)
				return end_trial();
		}
		next_epoch();
		return false;
	}
	bool end_trial()
	{
		in_trial_ = false;
		gain_ = all_[index(Way::direct)].mean() - all_[index(Way::by_neighbour)].mean();
		const bool change = lead_ >= law_.lead;
		if (change)
			chosen_ = other();
		now_ = chosen_;
		rests_ = change || trials_ == 1 ? 1 : std::min(2 * rests_, law_.most_rests);
		rest_ = uint64_t{law_.rest} * (epochs_ / 2) * law_.epoch;
		rest_since_ = sent_;
		return change;
	}

	const WayLaw law_;
	Way chosen_ = Way::direct, now_ = Way::direct;
	bool often_ = false; // targets would change
	uint64_t sent_ = 0;
	uint32_t in_epoch_ = 0;
	// Of the trial.
	bool in_trial_ = false, warm_up_ = false;
	uint64_t trials_ = 0;
	uint32_t epochs_ = 0;
	int lead_ = 0; // pairs that the other way has won more than the chosen one
	struct Delays {
		uint32_t count = 0;
		double sum = 0;
		double mean() const { return count ? sum / count : 0; }
	};
	std::array<Delays, 2> pair_{}, all_{}; // of each way
	double gain_ = 0;
	// After it.
	uint64_t rest_ = 0, rest_since_ = 0;
	uint32_t rests_ = 1;
};

} // namespace pt2p::tune
