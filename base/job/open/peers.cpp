#include "base/job/open/peers.hpp"

#include <algorithm>

#include "base/clock.hpp"
#include "base/report/report.hpp"

namespace pt2p::open_job {

Peers::Peer *Peers::find(int rank)
{
	return rank > 0 && static_cast<size_t>(rank) < peers_.size() ? &peers_[static_cast<size_t>(rank)] : nullptr;
}

Peers::Peer *Peers::find(Slot slot)
{
	Peer *peer = find(slot.rank);
	return peer && peer->owner == slot.owner ? peer : nullptr;
}

int Peers::take_number(const Id &id)
{
	// A number rests as long as possible before it has another owner.
	size_t number = peers_.size();
	if (number < static_cast<size_t>(size_)) {
		peers_.emplace_back();
	} else if (!free_.empty()) {
		number = static_cast<size_t>(free_.front());
		free_.pop_front();
	} else {
		return -1;
	}
	Peer &peer = peers_[number];
	peer = Peer{};
	peer.state = State::pending;
	peer.id = id;
	peer.owner = ++owners_;
	numbers_[id] = static_cast<int>(number);
	return static_cast<int>(number);
}

void Peers::note_end(Peer &peer, State state, const std::string &reason)
{
	peer.state = state;
	peer.reason = reason;
	peer.blob.clear();
	peer.ended = now_ns();
	ended_.push_back(static_cast<int>(&peer - peers_.data()));
}

// A pending peer that could not send anything yet leaves its number free.
void Peers::end(int rank, State state, const std::string &reason)
{
	Peer *peer = find(rank);
	if (!peer || (peer->state != State::pending && peer->state != State::live))
		return;
	numbers_.erase(peer->id);
	if (peer->state == State::live || peer->may_send) {
		note_end(*peer, state, reason);
		events_.push_back({rank, reason, state == State::left});
		pending_.store(true, std::memory_order_relaxed);
	} else {
		peer->state = State::free;
		free_.push_back(rank);
	}
	changed_.notify_all();
}

// ---- the helper thread ----------------------------------------------------------------------------------------------

int Peers::find_live(const Id &id) const
{
	const std::lock_guard lock(mutex_);
	const auto known = numbers_.find(id);
	return known != numbers_.end() && find(known->second)->state == State::live ? known->second : -1;
}

Slot Peers::begin(const Id &id)
{
	const std::lock_guard lock(mutex_);
	const auto known = numbers_.find(id);
	const int rank = known != numbers_.end() ? known->second : take_number(id);
	Peer *peer = find(rank);
	if (!peer)
		return {};
	++peer->connections;
	return {rank, peer->owner};
}

Slot Peers::begin(const Id &id, int rank_there)
{
	{
		const std::lock_guard lock(mutex_);
		const auto known = numbers_.find(id);
		const Peer *peer = known != numbers_.end() ? find(known->second) : nullptr;
		if (peer && peer->rank_there >= 0 && peer->rank_there != rank_there)
			end(known->second, State::left, "it has removed this context, and come again");
	}
	const Slot slot = begin(id);
	const std::lock_guard lock(mutex_);
	if (Peer *peer = find(slot))
		peer->may_send = true;
	return slot;
}

void Peers::learn(Slot slot, int rank_there, const std::string &blob, const std::string &address)
{
	const std::lock_guard lock(mutex_);
	Peer *peer = find(slot);
	if (!peer || peer->state != State::pending)
		return;
	peer->rank_there = rank_there;
	peer->blob = blob;
	peer->address = address;
}

void Peers::become_live(Slot slot)
{
	const std::lock_guard lock(mutex_);
	Peer *peer = find(slot);
	if (peer && peer->state == State::pending)
		peer->state = State::live;
	changed_.notify_all();
}

void Peers::detach(Slot slot, const std::string &reason)
{
	const std::lock_guard lock(mutex_);
	Peer *peer = find(slot);
	if (!peer || --peer->connections)
		return;
	end(slot.rank, State::lost, reason);
	peer->ended = now_ns();
}

void Peers::leave(Slot slot, const std::string &reason)
{
	const std::lock_guard lock(mutex_);
	if (find(slot))
		end(slot.rank, State::left, reason);
}

// ---- the job --------------------------------------------------------------------------------------------------------

// Exchanges have a limit of time.
void Peers::wait_until_known(std::unique_lock<std::mutex> &lock, int rank)
{
	changed_.wait(lock, [&] {
		const Peer *peer = find(rank);
		return !peer || peer->state != State::pending;
	});
}

bool Peers::take_blob(int rank, std::string &blob, bool wait)
{
	std::unique_lock lock(mutex_);
	if (wait)
		wait_until_known(lock, rank);
	const Peer *peer = find(rank);
	switch (peer ? peer->state : State::free) {
	case State::free:
	case State::pending: return false;
	case State::live: break;
	case State::left: throw Error(PT2P_ERR_PEER_FINALIZED, peer->reason);
	case State::lost: throw Error(PT2P_ERR_PEER_LOST, peer->reason);
	}
	blob = peer->blob;
	return true;
}

std::string Peers::address_of(int rank) const
{
	const std::lock_guard lock(mutex_);
	const Peer *peer = find(rank);
	return peer ? peer->address : std::string();
}

bool Peers::is_free(int rank) const
{
	const std::lock_guard lock(mutex_);
	const Peer *peer = find(rank);
	return rank != 0 && (!peer || peer->state == State::free);
}

int Peers::rank_at(int rank) const
{
	if (rank == 0)
		return 0;
	const std::lock_guard lock(mutex_);
	const Peer *peer = find(rank);
	return peer ? peer->rank_there : -1;
}

bool Peers::next_event(RankEvent &event)
{
	const std::lock_guard lock(mutex_);
	if (events_.empty())
		return false;
	event = std::move(events_.front());
	events_.pop_front();
	if (events_.empty())
		pending_.store(false, std::memory_order_relaxed);
	return true;
}

// The end of its connection tells, and comes soon after that of its process.
Job::End Peers::end_of(int rank, std::string &reason)
{
	constexpr int64_t soon = 2'000'000'000; // ns
	const std::lock_guard lock(mutex_);
	Peer *peer = find(rank);
	if (!peer)
		return Job::End::unknown;
	reason = peer->reason;
	if (peer->state == State::left)
		return Job::End::in_order;
	if (peer->state == State::lost)
		return Job::End::lost;
	if (!peer->end_asked)
		peer->end_asked = now_ns();
	return now_ns() - peer->end_asked < soon ? Job::End::asked : Job::End::unknown;
}

std::string Peers::remove(int rank, bool &was_live)
{
	std::unique_lock lock(mutex_);
	wait_until_known(lock, rank); // its first message may have come before the end of its introduction
	Peer *peer = find(rank);
	if (!peer || peer->state == State::free)
		return "nobody has that number";
	was_live = peer->state == State::live;
	if (was_live) {
		numbers_.erase(peer->id);
		note_end(*peer, State::left, "pt2p_peer_remove has removed it");
	}
	peer->removed = peer->handled = true;
	return "";
}

bool Peers::is_handled(Slot slot) const
{
	const std::lock_guard lock(mutex_);
	const Peer *peer = const_cast<Peers *>(this)->find(slot);
	return !peer || peer->handled;
}

void Peers::set_handled(int rank)
{
	const std::lock_guard lock(mutex_);
	if (Peer *peer = find(rank); peer && peer->state != State::live)
		peer->handled = true;
}

// Peers that have gone keep their numbers while the program may still ask for them, unless it has removed them, or
// numbers get scarce. What was under way when the last connection ended has arrived after `settling`.
bool Peers::next_to_forget(size_t &position, int &rank, bool &removed) const
{
	constexpr int64_t settling = 200'000'000; // ns
	const std::lock_guard lock(mutex_);
	if (ended_.empty())
		return false;
	const size_t left = static_cast<size_t>(size_) - peers_.size() + free_.size();
	const bool scarce = left < std::max<size_t>(1, static_cast<size_t>(size_ - 1) / 4);
	for (; position < ended_.size(); ++position) {
		rank = ended_[position];
		const Peer &peer = *find(rank);
		removed = peer.removed;
		if (peer.connections == 0 && peer.handled && (removed || scarce) && now_ns() - peer.ended > settling) {
			++position;
			return true;
		}
	}
	return false;
}

void Peers::free_number(int rank)
{
	const std::lock_guard lock(mutex_);
	std::erase(ended_, rank);
	*find(rank) = Peer{};
	free_.push_back(rank);
}

} // namespace pt2p::open_job
