// The normal latency N of a channel and a kind of payload: the latency of a signalled work request that was posted on
// an idle channel (TPL paper, section 4.1). Other load of the device makes such latencies longer, and nothing makes
// them shorter. So N is the shortest that was seen, as the round-trip time of BBR is (Cardwell et al., ACM Queue 2016).
// A pure function of observations; the unit of latencies is the caller's.
//
// N is forgotten after `epoch` to twice as many idle channels, so that it follows a path that has become longer. Other
// latencies than those of an idle channel can only lower it, and forget nothing: a channel that is always busy would
// else take its load for normal.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

namespace pt2p::tune {

class NormalLatency {
public:
	static constexpr uint32_t epoch = 64;

	// Of a work request that was posted on an idle channel because there was nothing else to send.
	void see_idle(int64_t latency)
	{
		see(latency);
		if (++idle_ % epoch == 0)
			before_ = std::exchange(now_, INT64_MAX);
	}
	// The same, but the channel was made idle for it.
	void see(int64_t latency) { now_ = std::min(now_, latency); }
	// N is at most the latency of any other work request.
	void see_any(int64_t latency)
	{
		if (known())
			see(latency);
	}
	bool known() const { return std::min(now_, before_) != INT64_MAX; }
	// 0: unknown
	int64_t value() const { return known() ? std::min(now_, before_) : 0; }

private:
	int64_t now_ = INT64_MAX, before_ = INT64_MAX; // the shortest of this epoch, and of the one before
	uint32_t idle_ = 0;
};

} // namespace pt2p::tune
