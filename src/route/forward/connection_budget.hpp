// Whether a rank sends to ranks of its group directly, each over a reliable connection, or lets the rank of their node
// at its own place forward. A pure function of what is observed; with PT2P_ROUTE=auto.
//
// A device keeps the contexts of some connections and fetches the others over PCIe when they are used (Monga, Kashyap
// and Min, FLOCK, SOSP 2021, section 2). All ranks of a node share that room, and each has the same share of it. A rank
// that talks with few ranks at a time connects to them. The messages of one that talks with many use few connections,
// one for each node.
//
// A rank begins with forwarding, so that one that talks with all makes no connections in vain. Time is counted in
// changes: messages whose destination is not that of the message before. (A message that is no change counts a little,
// for a rank that talks with one other only.) A period of forwarding ends when each rank that got a message in it has
// got `repeats` on average: from then on messages go directly. It also ends, without that, when more than 3/4 of
// `limit` ranks have got one. While messages go directly, a period lasts for `repeats` changes for each rank of the
// limit, and ends with forwarding as soon as more than `limit` ranks have got a message in it. The two bounds differ so
// that a number of partners near them does not change the path all the time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "base/report/report.hpp"

namespace pt2p {

class ConnectionBudget {
public:
	static constexpr int64_t unlimited = INT64_MAX;
	static constexpr int64_t few = 32; // ranks; more than the neighbours in a stencil of 27 points
	static constexpr uint32_t repeats = 8;

	// `share`: reliable connections that this rank may make.
	explicit ConnectionBudget(int64_t share)
	    : share_(share), limit_(share == unlimited ? no_limit : static_cast<uint32_t>(std::min(share, few))),
	      direct_(limit_ == no_limit)
	{
	}

	// A short message has been sent to the rank that `mark` belongs to. A mark is 0 at first, and stays where it is.
	void sent(uint32_t &mark)
	{
		if (limit_ == no_limit)
			return;
		time_ += &mark == last_ ? 1 : change;
		last_ = &mark;
		if (mark != period_) {
			mark = period_;
			++ranks_;
		}
		if (direct_ ? ranks_ > limit_ : ranks_ > limit_ - limit_ / 4)
			begin(false);
		else if (time_ >= repeats * change * (direct_ ? limit_ : ranks_))
			begin(true);
	}
	// A connection has been made, which lasts.
	void connected() { ++connections_; }

	// Whether short messages go directly to a rank that has, or has not, been connected to.
	bool direct(bool is_connected) const { return direct_ && (is_connected || connections_ < share_); }
	// Whether a rank that has to be reached directly is to get a connection.
	bool may_connect() const { return connections_ < (direct_ ? share_ : limit_); }
	// For the summary.
	std::string reason() const
	{
		if (limit_ == no_limit)
			return "all connections fit the device";
		return format("this rank talks with %s ranks of its group at a time, and has connected to %lld of %lld",
		              direct_ ? "few" : "many", static_cast<long long>(connections_), static_cast<long long>(share_));
	}

private:
	static constexpr uint32_t no_limit = UINT32_MAX;
	static constexpr uint32_t change = 8; // of time; a message that is none takes 1

	void begin(bool direct)
	{
		direct_ = direct;
		time_ = ranks_ = 0;
		period_ += period_ == UINT32_MAX ? 2 : 1; // never 0
	}

	const int64_t share_;
	const uint32_t limit_;
	bool direct_;
	int64_t connections_ = 0;
	uint32_t period_ = 1, time_ = 0, ranks_ = 0;
	const uint32_t *last_ = nullptr; // mark
};

} // namespace pt2p
