// The barrier: dissemination in ceil(log2 n) rounds (Hensgen, Finkel, Manber, "Two algorithms for barrier synchronization",
// International Journal of Parallel Programming 17(1), 1988). In round k a rank tells the rank 2^k after it and waits to
// be told by the rank 2^k before it.
//
// A rank that cannot go on, because somebody it waits for is gone, says so in its remaining tokens: all learn who is missing.
//
//   token header:  63        40 39           8 7      0
//                  [ status   ][ rank + 1     ][ round ]       rank + 1 is 0 in an ordinary token
#include "message/engine.hpp"

#include "job/job.hpp"

namespace pt2p {

namespace {

uint64_t failure_token(int rank, pt2p_status_t status)
{
	return static_cast<uint64_t>(status) << 40 | static_cast<uint64_t>(rank + 1) << 8;
}

} // namespace

pt2p_status_t Engine::barrier()
{
	const int n = size_;
	// What this rank lacks to reach another one ends the call before anybody has been told anything: it can be repeated.
	for (int64_t distance = 1; distance < n; distance *= 2) {
		const int to = static_cast<int>((rank_ + distance) % n);
		pt2p_status_t status = PT2P_OK;
		if (!channel(to, status) && !is_down(to) && status != PT2P_ERR_UNREACHABLE)
			return status;
	}
	const uint64_t epoch = ++barrier_epoch_;
	barrier_failure_ = 0;
	uint64_t failure = 0;
	unsigned round = 0;
	struct {
		Channel *channel;
		uint64_t place;
	} told[32] = {};
	for (int64_t distance = 1; distance < n; distance *= 2, ++round) {
		const int to = static_cast<int>((rank_ + distance) % n), from = static_cast<int>((rank_ - distance + n) % n);
		pt2p_status_t status = PT2P_OK;
		if (Channel *c = channel(to, status)) {
			control(*c, id_barrier, failure | round, nullptr, 0);
			told[round] = {c, c->end_of_queue()};
		} else if (!failure) {
			failure = failure_token(to, status);
		}
		if (failure)
			continue;
		const auto finished = [&] {
			if (barrier_tokens_[round] >= epoch) {
				failure = barrier_failure_;
				return true;
			}
			// Anybody lost can be the one that all wait for; one that has finalized had entered every barrier but this.
			for (const auto &[rank, loss] : losses_)
				if (loss.status != PT2P_ERR_PEER_FINALIZED || rank == from) {
					failure = failure_token(rank, loss.status);
					return true;
				}
			return false;
		};
		if (!finished())
			progress_->wait(finished);
	}
	// The program may not call in again for long: what the others wait for has to be on its way.
	const auto sent = [&] {
		for (unsigned i = 0; i < round; ++i)
			if (const Channel *c = told[i].channel; c && !c->down() && !(c->passed(told[i].place) && c->endpoint.settled()))
				return false;
		return true;
	};
	if (!sent())
		progress_->wait(sent);
	for (auto &t : router_->transports())
		t->cork(false);
	if (!failure)
		return PT2P_OK;
	const int missing = static_cast<int>(failure >> 8 & UINT32_MAX) - 1;
	const auto loss = losses_.find(missing);
	return reporter_.fail(static_cast<pt2p_status_t>(failure >> 40), "barrier: rank %d cannot arrive: %s", missing,
	                      loss != losses_.end() ? loss->second.reason.c_str() : "another rank found it gone");
}

void Engine::on_barrier(int peer, uint64_t header)
{
	const unsigned round = header & 0xff;
	const int64_t distance = int64_t{1} << (round & 31);
	const int64_t missing = static_cast<int64_t>(header >> 8 & UINT32_MAX) - 1;
	const auto status = static_cast<pt2p_status_t>(header >> 40);
	const bool failed = missing >= 0;
	if (round >= 32 || distance >= size_ || (peer + distance) % size_ != rank_ || missing >= size_ ||
	    (failed && status != PT2P_ERR_PEER_LOST && status != PT2P_ERR_PEER_FINALIZED && status != PT2P_ERR_PROTOCOL &&
	                status != PT2P_ERR_UNREACHABLE)) {
		malformed(peer, "a barrier token that nobody can send");
		return;
	}
	++barrier_tokens_[round];
	if (failed)
		barrier_failure_ = header & ~UINT64_C(0xff);
}

} // namespace pt2p
