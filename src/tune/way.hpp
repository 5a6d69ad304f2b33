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
// What is longer, and how soon that is followed: either.hpp. That is (3 * 4 + 1) * 32 = 416 messages at most.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tune/either.hpp"

namespace pt2p::tune {

enum class Way : uint8_t { direct, by_neighbour };

struct WayLaw {
	EitherLaw latency{};
	double often = 0.25; // changes of target for each message
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
	explicit WayTuner(const WayLaw &law = {}) : often_(law.often), either_(law.latency) {}

	using Choice = Either<Way>::Next;
	// For the next message, while targets change at this rate.
	Choice next(double changes) const { return either_.next(changes > often_ || way() == Way::by_neighbour); }
	// It has been sent.
	void sent(bool as_sample) { either_.sent(as_sample); }
	// A sample of a way; true when messages go another way from now on.
	bool see(Way what, int64_t latency, double changes)
	{
		either_.see(what, latency);
		if (way() == Way::direct || changes >= often_ / 2)
			return either_.judge(changes > often_);
		either_.choose(Way::direct);
		return true;
	}
	Way way() const { return either_.chosen(); }
	// The median of the last samples, in their unit; 0: there is none.
	int64_t latency_of(Way what) const { return either_.latency_of(what); }

private:
	const double often_;
	Either<Way> either_;
};

} // namespace pt2p::tune
