// Which way small messages take to a destination (PT2P_ROUTE=auto): directly, or by way of a neighbour. Pure functions of what
// is observed; route/relay.hpp observes and obeys.
//
// A DC initiator works for one target at a time, and a rank that talks with many in turn pays for another connection again and
// again: that shows in the latency of what it sends directly. By way of a neighbour a message makes another hop instead.
// Neither cost is known beforehand, so both are measured: now and then a message asks to be confirmed at once, and the time
// until then is the latency of the way it took.
//
//   targets change often, and  direct > 1.25 x by neighbour    messages go by way of the neighbour
//   targets change rarely, or  by neighbour > 1.25 x direct    directly
//   in between                                                 as before
//
// How soon: of `every` messages to a destination one is a sample, and where another way is in question one sample of
// `others` takes that. A change of load is followed after at most every * others * known = 384 messages.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace pt2p::tune {

enum class Way : uint8_t { direct, by_neighbour };

struct WayLaw {
	double worth = 1.25;         // how much longer a way has to take for the other to be taken
	double often = 0.25;         // changes of target for each message
	uint32_t every = 32;         // messages
	uint32_t others = 4;         // samples
	static constexpr size_t known = 3, kept = 5; // samples of a way
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

	struct Choice {
		Way way;
		bool sample; // its latency is to be observed
	};
	// For the next message, while targets change at this rate.
	Choice next(double changes) const
	{
		const uint32_t number = count_ + 1;
		if (number % law_.every)
			return {way_, false};
		const Way other = way_ == Way::direct ? Way::by_neighbour : Way::direct;
		const bool in_question = changes > law_.often || way_ == Way::by_neighbour;
		const bool turn = number / law_.every % (known(other) ? law_.others : 2) == 0;
		return {in_question && turn ? other : way_, true};
	}
	// It has been sent.
	void sent() { ++count_; }
	// A sample of a way; true when messages go another way from now on.
	bool see(Way way, int64_t latency, double changes)
	{
		Samples &s = samples_[static_cast<size_t>(way)];
		s.latency[s.seen++ % WayLaw::kept] = latency;
		const Way before = way_;
		if (way_ == Way::by_neighbour && changes < law_.often / 2)
			way_ = Way::direct;
		else if (known(Way::direct) && known(Way::by_neighbour))
			way_ = judge(latency_of(Way::direct), latency_of(Way::by_neighbour), changes);
		return way_ != before;
	}
	Way way() const { return way_; }
	// The median of the last samples, in their unit; 0: there is none.
	int64_t latency_of(Way way) const
	{
		const Samples &s = samples_[static_cast<size_t>(way)];
		const size_t n = std::min(s.seen, WayLaw::kept);
		if (!n)
			return 0;
		auto sorted = s.latency;
		std::nth_element(sorted.begin(), sorted.begin() + n / 2, sorted.begin() + n);
		return sorted[n / 2];
	}

private:
	struct Samples {
		std::array<int64_t, WayLaw::kept> latency{};
		size_t seen = 0;
	};
	bool known(Way way) const { return samples_[static_cast<size_t>(way)].seen >= WayLaw::known; }
	Way judge(int64_t direct, int64_t by_neighbour, double changes) const
	{
		if (static_cast<double>(by_neighbour) > law_.worth * static_cast<double>(direct))
			return Way::direct;
		if (changes > law_.often && static_cast<double>(direct) > law_.worth * static_cast<double>(by_neighbour))
			return Way::by_neighbour;
		return way_;
	}

	const WayLaw law_;
	Way way_ = Way::direct;
	uint32_t count_ = 0;
	Samples samples_[2];
};

} // namespace pt2p::tune
