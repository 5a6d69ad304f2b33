// Whether a rank's DC initiators could carry its messages if they all went directly (PT2P_ROUTE=auto): pure functions of what is
// observed.
//
// Latencies of single messages do not tell. While most go by way of neighbours, initiators are idle, and a message that is sent
// directly to learn how long that takes finds no others before it. While most go directly, the first of those by way of a neighbour
// waits behind them in the same pool, and takes as long and another hop. Either way each message seems to be where it should be.
// What tells is the load that the pool would have with all of them, each way:
//
//   load = messages a second x changes of target for each x shortest direct latency / initiators
//
//   directly > 0.5, and by neighbours less than half of that    all go by way of neighbours
//   directly < 0.25                                             each goes as its own latencies say (way.hpp)
//
// How soon: messages are counted over intervals of 256, at the next direct message whose latency is observed.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace pt2p::tune {

class PoolLoad {
public:
	static constexpr uint32_t interval = 256; // messages
	static constexpr size_t kept = 16;        // direct latencies, of which the shortest counts
	// Times the shortest direct latency: a neighbour that takes longer than that is no help.
	static constexpr int64_t help = 16;

	explicit PoolLoad(size_t initiators) : initiators_(static_cast<double>(initiators)) {}

	// A message has been sent, whichever way.
	void sent() { ++count_; }
	// A direct one took so long, and it is now. Changes of target for each message, if all went directly, and if by neighbours.
	void see(int64_t latency, int64_t now, double directly, double by_neighbours)
	{
		latencies_[seen_++ % kept] = latency;
		if (seen_ == 1)
			since_ = now, first_ = count_;
		if (count_ - first_ < interval || now <= since_)
			return;
		const double rate = static_cast<double>(count_ - first_) / static_cast<double>(now - since_);
		since_ = now;
		first_ = count_;
		const double once = rate * static_cast<double>(shortest()) / initiators_;
		load_ = once * directly;
		if (load_ < low)
			overloaded_ = false;
		else if (load_ > high && by_neighbours < directly / 2)
			overloaded_ = true;
	}
	bool overloaded() const { return overloaded_; }
	// Whether a neighbour that takes so long is better than an initiator that is overloaded; 0: not known.
	bool helps(int64_t latency) const { return latency < help * shortest(); }
	// If all went directly.
	double load() const { return load_; }

private:
	static constexpr double low = 0.25, high = 0.5;
	int64_t shortest() const { return *std::min_element(latencies_.begin(), latencies_.begin() + std::clamp(seen_, size_t{1}, kept)); }

	const double initiators_;
	uint32_t count_ = 0, first_ = 0;
	int64_t since_ = 0;
	double load_ = 0;
	bool overloaded_ = false;
	std::array<int64_t, kept> latencies_{};
	size_t seen_ = 0;
};

} // namespace pt2p::tune
