#include "message/barrier.hpp"

#include <algorithm>

#include "base/assert.hpp"
#include "message/wire.hpp"
#include "progress/progress.hpp"
#include "route/forward/direct_connector.hpp"

namespace pt2p {

namespace {

uint64_t failure_token(int rank, pt2p_status_t status)
{
	return static_cast<uint64_t>(status) << 40 | static_cast<uint64_t>(rank + 1) << 8;
}

pt2p_status_t status_of(uint64_t failure) { return static_cast<pt2p_status_t>(failure >> 40); }
int64_t rank_of(uint64_t failure) { return static_cast<int64_t>(failure >> 8 & UINT32_MAX) - 1; }

} // namespace

pt2p_status_t Barrier::enter()
{
	failures_.erase(failures_.begin(), failures_.lower_bound(epoch_ + 1));
	Course course;
	pt2p_status_t status = PT2P_OK;
	if (!connect(course, status)) {
		pause();
		return status;
	}
	for (unsigned round = 0; round < course.rounds; ++round) {
		send_token(course, round);
		if (!course.failure)
			await_token(course, round);
	}
	await_sent(course);
	heed_others(course); // since the last token came
	if (course.failure && rank_of(course.failure) == rank_)
		pause();
	else
		lacking_ = 0;
	return course.failure ? explain(course.failure) : PT2P_OK;
}

// A rank that lacks something need not wait for others, and programs try again at once. Without a pause it would be
// many barriers ahead of a rank that comes late, and the failures of all of them would be under way to that rank.
void Barrier::pause()
{
	if (++lacking_ > 1)
		layers_.progress->wait_for(std::min(first_pause << std::min(lacking_ - 2, 8u), longest_pause),
		                           [] { return false; });
}

bool Barrier::connect(Course &course, pt2p_status_t &lacks)
{
	bool told_any = false; // or can be
	std::vector<int> untold;
	for (int64_t distance = 1; distance < size_; distance *= 2, ++course.rounds) {
		const int to = static_cast<int>((rank_ + distance) % size_);
		pt2p_status_t status = PT2P_OK;
		if ((course.told[course.rounds].channel = channels_.reach(to, status))) {
			told_any = true;
			continue;
		}
		const bool of_peer = is_of_peer(status);
		if (!of_peer) {
			lacks_ = format("it cannot send to rank %d: %s", to, channels_.why_unreached(to).c_str());
			lacks = status;
			if (channels_.router().notify_connect_failure(to))
				told_any = true;
			else
				untold.push_back(to);
		}
		if (!course.failure)
			course.failure = failure_token(of_peer ? to : rank_, status);
	}
	if (lacks != PT2P_OK && !told_any)
		return false;
	for (const int to : untold)
		++owed_[to];
	++epoch_;
	if (lacks != PT2P_OK)
		failures_.try_emplace(epoch_, failure_token(rank_, lacks)); // all of its tokens say so
	heed_others(course);
	return true;
}

void Barrier::heed_others(Course &course) const
{
	if (const auto failed = failures_.find(epoch_); failed != failures_.end() && !course.failure)
		course.failure = failed->second;
}

void Barrier::send_token(Course &course, unsigned round)
{
	Channel *c = course.told[round].channel;
	if (c && !c->down()) {
		pay_tokens(*c, round);
		channels_.control(*c, wire::id_barrier, course.failure | round, nullptr, 0);
		course.told[round].place = c->end_of_queue();
	} else if (c && !course.failure) {
		course.failure = failure_token(c->peer, losses_.find(c->peer)->status);
	}
}

void Barrier::await_token(Course &course, unsigned round)
{
	PT2P_ASSERT(!course.failure);
	const int from = static_cast<int>((rank_ - (int64_t{1} << round) + size_) % size_);
	const auto finished = [&] {
		heed_others(course);
		if (course.failure || tokens_[round] >= epoch_)
			return true;
		// Any lost rank can be the one that all wait for. One that has finalized had entered every barrier but this.
		for (const auto &[rank, loss] : losses_.all())
			if (loss.status != PT2P_ERR_PEER_FINALIZED || rank == from) {
				course.failure = failure_token(rank, loss.status);
				return true;
			}
		return false;
	};
	if (finished())
		return;
	awaited_ = from;
	layers_.progress->wait(finished);
	awaited_ = rank_;
}

// The program may not call in again for long: what the others wait for has to be on its way.
void Barrier::await_sent(const Course &course)
{
	const auto sent = [&] {
		for (unsigned i = 0; i < course.rounds; ++i)
			if (const Channel *c = course.told[i].channel;
			    c && !c->down() && !(c->passed(course.told[i].place) && c->endpoint.settle()))
				return false;
		return true;
	};
	if (!sent())
		layers_.progress->wait(sent);
	for (DeviceTransport *t : channels_.router().device_transports())
		t->cork(false);
}

pt2p_status_t Barrier::explain(uint64_t failure)
{
	const int missing = static_cast<int>(rank_of(failure));
	const pt2p_status_t status = status_of(failure);
	const std::string reason = channels_.why_unreached(missing);
	return reporter_.fail(status, "barrier: rank %d cannot arrive: %s", missing,
	                      missing == rank_  ? lacks_.c_str()
	                      : !reason.empty() ? reason.c_str()
	                      : is_of_peer(status)
	                          ? "another rank found it gone"
	                          : "it cannot send to all others; its own explanation says what it lacks");
}

bool Barrier::on_control(int peer, uint8_t id, uint64_t header, const void *data, size_t length)
{
	uint64_t epoch = 0;
	if (id == wire::id_barrier ? length != 0 : !wire::read(epoch, data, length))
		return false;
	if (id == wire::id_barrier)
		on_token(peer, header);
	else
		on_failure(peer, header, epoch);
	return true;
}

void Barrier::on_token(int peer, uint64_t header)
{
	const unsigned round = header & 0xff;
	const int64_t distance = int64_t{1} << (round & 31);
	const int64_t missing = rank_of(header);
	const uint64_t status = header >> 40;
	const bool failed = missing >= 0;
	if (round >= max_rounds || distance >= size_ || (peer + distance) % size_ != rank_ || missing >= size_ ||
	    failed != (status != 0) || !is_status(status)) {
		channels_.malformed(peer, "a barrier token that nobody can send");
		return;
	}
	const uint64_t epoch = ++tokens_[round];
	if (failed)
		fail(epoch, header & ~UINT64_C(0xff));
}

void Barrier::on_failure(int peer, uint64_t failure, uint64_t epoch)
{
	const int64_t missing = rank_of(failure);
	if (missing < 0 || missing >= size_ || (failure & 0xff) || !(failure >> 40) || !is_status(failure >> 40))
		return channels_.malformed(peer, "a failure of a barrier that nobody can have");
	fail(epoch, failure);
}

// Passes a failure on to all that this rank sends tokens to, unless they see it themselves: one of them may wait for a
// token that does not come.
void Barrier::fail(uint64_t epoch, uint64_t failure, int unreached)
{
	if (epoch < epoch_ || !failures_.try_emplace(epoch, failure).second || is_of_peer(status_of(failure)))
		return;
	for (int64_t distance = 1; distance < size_; distance *= 2)
		if (Channel *c = channels_.find(static_cast<int>((rank_ + distance) % size_));
		    c && !c->down() && c->peer != unreached)
			channels_.control(*c, wire::id_barrier_failed, failure, &epoch, sizeof epoch);
}

void Barrier::on_refused(int peer, pt2p_status_t status, unsigned tokens)
{
	owed_[peer] += tokens;
	lacks_ = format("it cannot send to rank %d: %s", peer, channels_.why_unreached(peer).c_str());
	fail(epoch_, failure_token(rank_, status), peer);
}

void Barrier::pay_tokens(Channel &c, unsigned round)
{
	const auto owed = owed_.find(c.peer);
	if (owed == owed_.end())
		return;
	for (; owed->second; --owed->second)
		channels_.control(c, wire::id_barrier, failure_token(rank_, PT2P_ERR_NO_MEMORY) | round, nullptr, 0);
	owed_.erase(owed);
}

void Barrier::on_connect_failure(int peer, pt2p_status_t status)
{
	for (unsigned round = 0; int64_t{1} << round < size_; ++round)
		if ((peer + (int64_t{1} << round)) % size_ == rank_)
			on_token(peer, failure_token(peer, status) | round);
}

} // namespace pt2p
