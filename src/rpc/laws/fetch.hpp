// Fetching results: how many bytes a READ brings, when the first look is due, and how long a caller goes on looking.
// Pure functions of what was observed. The RFP paper (Remote Fetching Paradigm) has a fixed number of bytes; these laws
// are ours.
//
// Bytes. The fewest, in cache lines, that would have brought 95 % of the latest results whole. A longer result takes a
// second READ.
//
// First look. A result is ready half a round trip and the service time after the call has left, and a READ takes half a
// round trip to get there. So the READ leaves when the mean service time has passed, and some slack. The server tells
// the service time with each result. The slack is what keeps misses rare, whatever delays calls on their way: it is
// doubled with a first look that finds nothing, and shrinks by 1/200 with one that finds the result, so it rests where
// less than one look in a hundred is in vain. Misses of calls that had left before it grew say nothing about it.
// A caller that sleeps earlier than the look is due, and then has the result pushed, sees that the slack is too long.
//
// More looks. The time between two doubles, beginning with half a round trip, or with an eighth of the time to the
// first look if that is longer. After `looks` in vain the caller asks for the result to be pushed.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace pt2p::rpc::laws {

class FetchBytes {
public:
	static constexpr size_t line = 64, max_lines = 128;

	// Of a whole result.
	void add(size_t bytes)
	{
		++count_[std::clamp<size_t>((bytes + line - 1) / line, 1, max_lines) - 1];
		if (++total_ >= remembered)
			forget_half();
		if (total_ < judged || total_ % judged == 0)
			judge();
	}
	size_t bytes() const { return lines_ * line; }

private:
	static constexpr uint32_t remembered = 1024, judged = 64; // results

	void judge()
	{
		uint32_t sum = 0;
		for (size_t i = 0; i < max_lines; ++i) {
			sum += count_[i];
			if (20 * uint64_t{sum} >= 19 * uint64_t{total_}) {
				lines_ = i + 1;
				return;
			}
		}
	}
	void forget_half()
	{
		total_ = 0;
		for (uint16_t &count : count_)
			total_ += count /= 2;
	}

	uint16_t count_[max_lines] = {}; // by lines
	uint32_t total_ = 0;
	size_t lines_ = 1;
};

struct LookLaw {
	unsigned looks = 5;
	double averaged = 16;       // results
	double grows = 1;           // slack, with a miss
	double shrinks = 1.0 / 200; // with a hit
	int64_t least = 100;        // slack, ns
	int64_t round_trip = 4000;  // before any is known, ns
	int64_t max_slack = 64;     // round trips
};

class Looks {
public:
	explicit Looks(const LookLaw &law = {}) : law_(law), round_trip_(static_cast<double>(law.round_trip)) {}

	// From the time when the call leaves to the first look, ns.
	int64_t first() const { return static_cast<int64_t>(service_ + slack_); }
	// From a look in vain to the next, the `n`-th look of the call, from 1 on; negative: there is none.
	int64_t next(unsigned n) const
	{
		if (n >= law_.looks)
			return -1;
		return static_cast<int64_t>(std::max(round_trip_ / 2, (service_ + slack_) / 8)) << (n - 1);
	}
	// A first look has found nothing, or the result. The call left at that time, ns.
	void missed(int64_t left, int64_t now)
	{
		if (left < grown_)
			return;
		grown_ = now;
		const double most = static_cast<double>(law_.max_slack) * round_trip_;
		slack_ = std::min(most, slack_ + std::max(slack_ * law_.grows, round_trip_ / 16));
	}
	// The result was there no later than so long after the call had left, ns, and the first look was not due.
	void early(int64_t span)
	{
		slack_ = std::max(static_cast<double>(law_.least), std::min(slack_, static_cast<double>(span) - service_));
	}
	void hit() { slack_ = std::max(static_cast<double>(law_.least), slack_ * (1 - law_.shrinks)); }
	// The server took so long, ns.
	void served(int64_t took) { service_ += (static_cast<double>(took) - service_) / law_.averaged; }
	// A READ took so long, ns. Most of what is above the shortest is waiting in queues.
	void read_took(int64_t span)
	{
		const auto took = static_cast<double>(span);
		round_trip_ = took < round_trip_ ? took : round_trip_ + (took - round_trip_) / 256;
	}
	int64_t round_trip() const { return static_cast<int64_t>(round_trip_); }

private:
	LookLaw law_;
	double service_ = 0, slack_ = 0, round_trip_;
	int64_t grown_ = 0;
};

} // namespace pt2p::rpc::laws
