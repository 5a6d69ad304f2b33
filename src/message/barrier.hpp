// The barrier: dissemination in ceil(log2 n) rounds (Hensgen, Finkel, Manber, "Two algorithms for barrier
// synchronization", International Journal of Parallel Programming 17(1), 1988). In round k a rank sends a token to the
// rank 2^k after it and waits for one from the rank 2^k before it.
//
// Failures. A rank cannot go on when somebody that it waits for is gone, or when it lacks what it takes to reach
// another. It then sends its remaining tokens with that failure, so that all ranks learn who is missing, and why. A
// rank connects to all that it sends tokens to before it sends the first one.
//
// Tokens are counted: each barrier sends one in every round. When a rank cannot be connected to, its transport tells it
// so (Transport::notify_connect_failure), which counts as the token. Where the transport cannot, the token is owed and
// sent before the next one. Those who wait for it hear of the failure from others: each rank that learns that somebody
// lacks something passes it on to all that it sends tokens to.
//
//   token header:  63        40 39           8 7      0
//                  [ status   ][ rank + 1     ][ round ]       rank + 1 is 0 in an ordinary token
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "message/layers.hpp"
#include "message/peers/channels.hpp"
#include "message/peers/losses.hpp"

namespace pt2p {

class Barrier {
public:
	Barrier(const Layers &layers, Channels &channels, const PeerLosses &losses, Reporter &reporter, int rank, int size)
	    : layers_(layers), channels_(channels), losses_(losses), reporter_(reporter), rank_(rank), size_(size),
	      awaited_(rank)
	{
	}

	pt2p_status_t enter();
	uint64_t entered() const { return epoch_; } // barriers so far
	// Whose token is waited for; this rank: nobody's.
	int awaited() const { return awaited_; }

	// False: it does not carry what such a message must.
	bool on_control(int peer, uint8_t id, uint64_t header, const void *data, size_t length);
	void on_connect_failure(int peer, pt2p_status_t status);
	// So many tokens for a rank have been dropped before they left.
	void on_refused(int peer, pt2p_status_t status, unsigned tokens);

private:
	static constexpr unsigned max_rounds = 32;
	static constexpr int64_t first_pause = 1'000'000, longest_pause = 100'000'000; // ns
	// The ranks that a barrier sends tokens to, by round, and what has gone wrong so far.
	struct Course {
		unsigned rounds = 0;
		struct {
			Channel *channel; // null: cannot be connected to
			uint64_t place;   // of the token in the channel's queue
		} told[max_rounds] = {};
		uint64_t failure = 0; // as in a token; 0: none
	};

	// False: nobody has been told anything, or can be, and the barrier can be tried again; `status` says why.
	bool connect(Course &course, pt2p_status_t &status);
	void send_token(Course &course, unsigned round);
	void await_token(Course &course, unsigned round);
	void await_sent(const Course &course);
	// The failure of this barrier, if others have told of one.
	void heed_others(Course &course) const;
	pt2p_status_t explain(uint64_t failure);
	void on_token(int peer, uint64_t header);
	void on_failure(int peer, uint64_t failure, uint64_t epoch);
	void pause();
	void fail(uint64_t epoch, uint64_t failure, int unreached = -1);
	void pay_tokens(Channel &channel, unsigned round);

	const Layers &layers_;
	Channels &channels_;
	const PeerLosses &losses_;
	Reporter &reporter_;
	const int rank_, size_;
	int awaited_;
	uint64_t epoch_ = 0;
	unsigned lacking_ = 0;                  // barriers in a row that have failed for what this rank lacks
	uint64_t tokens_[max_rounds] = {};      // received, by round
	std::map<uint64_t, uint64_t> failures_; // by barrier: header of a token that reported a failure
	std::string lacks_;                     // what this rank cannot do in a barrier that fails for it
	std::map<int, unsigned> owed_;          // by rank: tokens of barriers that have failed which it has not got
};

} // namespace pt2p
