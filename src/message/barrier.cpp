// The barrier: dissemination in ceil(log2 n) rounds (Hensgen, Finkel, Manber, "Two algorithms for barrier synchronization",
// International Journal of Parallel Programming 17(1), 1988). In round k a rank tells the rank 2^k after it and waits to
// be told by the rank 2^k before it.
//
// A rank that cannot go on, because somebody it waits for is gone, or because it lacks what it takes to reach another, says so
// in its remaining tokens: all learn who is missing, and why. So that all do, a rank connects to those that it is to tell before
// it tells the first. Tokens are counted: each barrier sends one in every round. For a rank that cannot be connected to, its
// transport tells that instead (Transport::notify_connect_failure); where it cannot, the token is owed, and comes before the
// next one. Whoever waits for it hears of the failure from others: each rank that learns that somebody lacks something passes it
// on to all whom it tells in a barrier.
//
//   token header:  63        40 39           8 7      0
//                  [ status   ][ rank + 1     ][ round ]       rank + 1 is 0 in an ordinary token
#include "message/engine.hpp"

#include "base/job/job.hpp"

namespace pt2p {

namespace {

uint64_t failure_token(int rank, pt2p_status_t status)
{
	return static_cast<uint64_t>(status) << 40 | static_cast<uint64_t>(rank + 1) << 8;
}

pt2p_status_t status_of(uint64_t failure) { return static_cast<pt2p_status_t>(failure >> 40); }

} // namespace

pt2p_status_t Engine::barrier()
{
	const int n = size_;
	const uint64_t epoch = barrier_epoch_ + 1;
	barrier_failures_.erase(barrier_failures_.begin(), barrier_failures_.lower_bound(epoch));
	uint64_t failure = 0;
	bool told_any = false; // or can be
	pt2p_status_t lacks = PT2P_OK;
	std::vector<int> untold;
	unsigned rounds = 0;
	struct {
		Channel *channel;
		uint64_t place;
	} told[32] = {};
	for (int64_t distance = 1; distance < n; distance *= 2, ++rounds) {
		const int to = static_cast<int>((rank_ + distance) % n);
		pt2p_status_t status = PT2P_OK;
		if ((told[rounds].channel = channel(to, status))) {
			told_any = true;
			continue;
		}
		const bool of_peer = is_of_peer(status);
		if (!of_peer) {
			barrier_lacks_ = format("it cannot send to rank %d: %s", to, why_unreached(to).c_str());
			lacks = status;
			if (router_->notify_connect_failure(to))
				told_any = true;
			else
				untold.push_back(to);
		}
		if (!failure)
			failure = failure_token(of_peer ? to : rank_, status);
	}
	if (lacks != PT2P_OK && !told_any)
		return lacks; // nobody has been told anything, or can be: the barrier can be tried again
	for (const int to : untold)
		++owed_tokens_[to];
	barrier_epoch_ = epoch;
	if (lacks != PT2P_OK)
		barrier_failures_.try_emplace(epoch, failure_token(rank_, lacks)); // all of its tokens say so
	if (const auto failed = barrier_failures_.find(epoch); failed != barrier_failures_.end() && !failure)
		failure = failed->second;
	for (unsigned round = 0; round < rounds; ++round) {
		const int from = static_cast<int>((rank_ - (int64_t{1} << round) + n) % n);
		if (Channel *c = told[round].channel; c && !c->down()) {
			pay_tokens(*c, round);
			control(*c, id_barrier, failure | round, nullptr, 0);
			told[round].place = c->end_of_queue();
		} else if (c && !failure) {
			failure = failure_token(c->peer, losses_.at(c->peer).status);
		}
		if (failure)
			continue;
		const auto finished = [&] {
			if (const auto failed = barrier_failures_.find(epoch); failed != barrier_failures_.end()) {
				failure = failed->second;
				return true;
			}
			if (barrier_tokens_[round] >= epoch)
				return true;
			// Anybody lost can be the one that all wait for; one that has finalized had entered every barrier but this.
			for (const auto &[rank, loss] : losses_)
				if (loss.status != PT2P_ERR_PEER_FINALIZED || rank == from) {
					failure = failure_token(rank, loss.status);
					return true;
				}
			return false;
		};
		if (!finished()) {
			barrier_from_ = from;
			progress_->wait(finished);
			barrier_from_ = rank_;
		}
	}
	// The program may not call in again for long: what the others wait for has to be on its way.
	const auto sent = [&] {
		for (unsigned i = 0; i < rounds; ++i)
			if (const Channel *c = told[i].channel; c && !c->down() && !(c->passed(told[i].place) && c->endpoint.settled()))
				return false;
		return true;
	};
	if (!sent())
		progress_->wait(sent);
	for (DeviceTransport *t : router_->device_transports())
		t->cork(false);
	if (const auto failed = barrier_failures_.find(epoch); failed != barrier_failures_.end() && !failure)
		failure = failed->second; // since the last token came
	if (!failure)
		return PT2P_OK;
	const int missing = static_cast<int>(failure >> 8 & UINT32_MAX) - 1;
	const pt2p_status_t status = status_of(failure);
	const std::string reason = losses_.count(missing) ? losses_.at(missing).reason : why_unreached(missing);
	return reporter_.fail(status, "barrier: rank %d cannot arrive: %s", missing,
	                      missing == rank_     ? barrier_lacks_.c_str()
	                      : !reason.empty()    ? reason.c_str()
	                      : is_of_peer(status) ? "another rank found it gone"
	                                           : "it cannot send to all others; its own explanation says what it lacks");
}

void Engine::on_barrier(int peer, uint64_t header)
{
	const unsigned round = header & 0xff;
	const int64_t distance = int64_t{1} << (round & 31);
	const int64_t missing = static_cast<int64_t>(header >> 8 & UINT32_MAX) - 1;
	const uint64_t status = header >> 40;
	const bool failed = missing >= 0;
	if (round >= 32 || distance >= size_ || (peer + distance) % size_ != rank_ || missing >= size_ || failed != (status != 0) ||
	    !is_status(status)) {
		malformed(peer, "a barrier token that nobody can send");
		return;
	}
	const uint64_t epoch = ++barrier_tokens_[round];
	if (failed)
		barrier_failed(epoch, header & ~UINT64_C(0xff));
}

void Engine::on_barrier_failed(int peer, uint64_t failure, uint64_t epoch)
{
	const int64_t missing = static_cast<int64_t>(failure >> 8 & UINT32_MAX) - 1;
	if (missing < 0 || missing >= size_ || (failure & 0xff) || !(failure >> 40) || !is_status(failure >> 40))
		return malformed(peer, "a failure of a barrier that nobody can have");
	barrier_failed(epoch, failure);
}

// Passed on to all whom this rank tells, unless they see for themselves: one of them may wait for a token that does not come.
void Engine::barrier_failed(uint64_t epoch, uint64_t failure, int unreached)
{
	if (epoch < barrier_epoch_ || !barrier_failures_.try_emplace(epoch, failure).second || is_of_peer(status_of(failure)))
		return;
	for (int64_t distance = 1; distance < size_; distance *= 2)
		if (Channel *c = router_->find(static_cast<int>((rank_ + distance) % size_)); c && !c->down() && c->peer != unreached)
			control(*c, id_barrier_failed, failure, &epoch, sizeof epoch);
}

// Tokens for a rank have been dropped before they left.
void Engine::barrier_refused(int peer, pt2p_status_t status, unsigned tokens)
{
	owed_tokens_[peer] += tokens;
	barrier_lacks_ = format("it cannot send to rank %d: %s", peer, why_unreached(peer).c_str());
	barrier_failed(barrier_epoch_, failure_token(rank_, status), peer);
}

void Engine::pay_tokens(Channel &c, unsigned round)
{
	const auto owed = owed_tokens_.find(c.peer);
	if (owed == owed_tokens_.end())
		return;
	for (; owed->second; --owed->second)
		control(c, id_barrier, failure_token(rank_, PT2P_ERR_NO_MEMORY) | round, nullptr, 0);
	owed_tokens_.erase(owed);
}

void Engine::on_connect_failure(int peer, pt2p_status_t status)
{
	for (unsigned round = 0; int64_t{1} << round < size_; ++round)
		if ((peer + (int64_t{1} << round)) % size_ == rank_)
			on_barrier(peer, failure_token(peer, status) | round);
}

} // namespace pt2p
