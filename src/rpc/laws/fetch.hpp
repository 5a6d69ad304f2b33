// Fetching results: how many bytes a READ brings, when the first look is due, and how long a caller goes on looking.
// Pure functions of what was observed. The RFP paper (Remote Fetching Paradigm) has a fixed number of bytes; these laws
// are ours.
//
// Bytes. The fewest, in cache lines, that would have brought 95 % of the latest results whole. A longer result takes a
// second READ.
//
// First look. A result is ready half a round trip and the service time after the call has left, and a READ takes half a
// round trip to get there. So the READ leaves when the mean service time has passed, and some slack. The server tells
// the service time with each result. The slack is for whatever delays calls on their way, such as the calls of others:
// a server does not see a call that arrives while handlers run.
//
// The slack shrinks with each first look that finds the result, by 1/400, more while few have, and more the longer none
// has been in vain. When one was, and the result has been found or pushed, it is known by how much it was too early.
// The slack grows by that, but not by more than a step, as the result may have been there for a while. The step doubles
// if the look before in vain is no more than `soon` calls ago, and is halved if it is longer ago. So a load that varies
// little costs a look in a hundred, and one that varies a few, with small steps; and a load that has become another
// one is followed in a few calls. Calls that had left before the slack grew say nothing about it.
// A caller that sleeps earlier than the look is due, and then has the result pushed, sees that the slack is too long.
//
// More looks. The time between two doubles, beginning with half a round trip, or with an eighth of the time to the
// first look if that is longer. After `looks` in vain the caller asks for the result to be pushed.
//
// Escape. A caller whose calls mostly end pushed, as it sleeps, or as services take too different times, has looked in
// vain and could as well have been replied to. So it does not fetch for `first_pause` calls, and twice as long each
// time that this happens again at once. Only calls that judge the slack of now count, or a caller with many calls under
// way would escape before it has learnt when to look, and learn nothing meanwhile.
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
	double shrinks = 1.0 / 400; // slack, with a hit
	unsigned hurry = 64;        // hits in a row for each further time that
	unsigned soon = 16;         // calls
	int64_t least = 100;        // slack, ns
	int64_t round_trip = 4000;  // before any is known, ns
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
	// The first look was in vain, and now the result is here. The call left at that time, ns.
	void late(int64_t left, int64_t now)
	{
		if (!judges(left))
			return;
		grown_ = now;
		const double before = service_ + slack_, least = round_trip_ / 16;
		step_ = std::clamp(hits_ < law_.soon ? 2 * step_ : step_ / 2, least, std::max(before, round_trip_));
		hits_ = 0;
		slack_ += std::clamp(static_cast<double>(now - left) - round_trip_ - before, 0.0, step_);
	}
	// Whether a call that left at that time says something about the slack of now.
	bool judges(int64_t left) const { return left >= grown_; }
	// The result was there no later than so long after the call had left, ns, and the first look was not due.
	void early(int64_t span)
	{
		slack_ = std::max(static_cast<double>(law_.least), std::min(slack_, static_cast<double>(span) - service_));
	}
	// The first look has found the result.
	void hit()
	{
		const double part = std::max(law_.shrinks * (1 + ++hits_ / law_.hurry), 1 / (law_.averaged + ++all_hits_));
		slack_ = std::max(static_cast<double>(law_.least), slack_ * (1 - std::min(part, max_shrink)));
	}
	// The server took so long, ns.
	void served(int64_t took)
	{
		seen_ = std::min(seen_ + 1, law_.averaged);
		service_ += (static_cast<double>(took) - service_) / seen_;
	}
	// A READ took so long, ns. Most of what is above the shortest is waiting in queues.
	void read_took(int64_t span)
	{
		const auto took = static_cast<double>(span);
		round_trip_ = took < round_trip_ ? took : round_trip_ + (took - round_trip_) / 256;
	}
	int64_t round_trip() const { return static_cast<int64_t>(round_trip_); }

private:
	static constexpr double max_shrink = 0.1;

	LookLaw law_;
	double service_ = 0, slack_ = 0, round_trip_;
	double seen_ = 0;   // results in the mean, at most law_.averaged
	double step_ = 1e9; // of the slack, ns; see late()
	double all_hits_ = 0;
	unsigned hits_ = 0; // in a row
	int64_t grown_ = 0;
};

struct EscapeLaw {
	double averaged = 16;                            // calls
	double most = 0.5;                               // of them were pushed
	uint32_t first_pause = 64, longest_pause = 4096; // calls
};

class Escape {
public:
	explicit Escape(const EscapeLaw &law = {}) : law_(law), next_(law.first_pause) {}

	// Whether the result of the next call is to be fetched.
	bool fetches() { return !pause_ || !pause_--; }
	// One that was to be fetched has been, or has been pushed.
	void ended(bool pushed)
	{
		pushed_ += ((pushed ? 1.0 : 0.0) - pushed_) / law_.averaged;
		if (pushed_ > law_.most) {
			pause_ = next_;
			next_ = std::min(2 * next_, law_.longest_pause);
			pushed_ = law_.most * 0.75; // a few more suffice
		} else if (pushed_ < law_.most / 4) {
			next_ = law_.first_pause;
		}
	}

private:
	EscapeLaw law_;
	double pushed_ = 0; // share of the calls
	uint32_t pause_ = 0, next_;
};

} // namespace pt2p::rpc::laws
