// How peers come and go: this rank attaches their segments, watches their processes, and ends what was in flight with
// them.
#include <chrono>
#include <thread>
#include <unistd.h>

#include "base/config/config.hpp"
#include "base/job/job.hpp"
#include "base/job/topology.hpp"
#include "transports/shm/shm.hpp"

namespace pt2p::shm {

namespace {

constexpr unsigned watches_at_once = 16;
constexpr uint32_t checks_before_watches = 5; // a program that only starts has better things to do

} // namespace

// Attaches the peer's segment. False: its process is gone, and the launcher has been asked how it ended; with `wait`,
// the answer is waited for and thrown. Throws Error.
bool ShmTransport::attach(ShmEndpoint &peer, const Address &address, bool wait)
{
	if (peer.attached)
		return true;
	std::string finding;
	try {
		// Peers of an open job that are in this process come and go as others do.
		const bool within_process = !env_.job.open();
		peer.segment = std::make_unique<PeerSegment>(address, within_process);
		peer.pid = static_cast<pid_t>(address.pid);
		peer.same_process = within_process && peer.pid == getpid();
		peer.own_index = index_at(peer);
		peer.start_time = address.start_time;
		peer.fence = !hot_.membarrier() || peer.segment->header()->fences;
		peer.attached = true;
		return true;
	} catch (const Error &e) {
		if (e.status() == PT2P_ERR_PROTOCOL)
			env_.reporter.add(Counter::auth_refused);
		else if (e.status() != PT2P_ERR_PEER_LOST)
			throw;
		finding = e.what();
	}
	for (;;) {
		if (const auto end = how_it_ended(peer, finding.c_str()))
			throw *end;
		if (!wait)
			return false;
		std::this_thread::sleep_for(std::chrono::milliseconds(5));
	}
}

// How a process has ended whose segment is gone when this rank first looks for it; empty while the launcher has not
// answered.
std::optional<Error> ShmTransport::how_it_ended(ShmEndpoint &peer, const char *finding)
{
	open_reader(peer);
	bool left;
	if (peer.segment)
		left = peer.segment->header()->state.load(std::memory_order_acquire) == state_left;
	else if (peer.in.is_open())
		left = peer.in.head().left.load(std::memory_order_acquire) != 0;
	else {
		// Nothing that it has left behind tells.
		std::string reason;
		switch (env_.job.end_of(peer.peer, reason)) {
		case Job::End::asked: return std::nullopt;
		case Job::End::lost: return Error(PT2P_ERR_PEER_LOST, reason);
		case Job::End::in_order: return Error(PT2P_ERR_PEER_FINALIZED, "it exited before this rank had met it");
		case Job::End::unknown: break;
		}
		return Error(PT2P_ERR_PEER_LOST,
		             format("it ended before this rank had met it, and the launcher does not tell how: %s", finding));
	}
	return left ? Error(PT2P_ERR_PEER_FINALIZED, "it has called pt2p_finalize")
	            : Error(PT2P_ERR_PEER_LOST, format("it ended without pt2p_finalize: %s", finding));
}

// Where this rank is in the peer's segment.
uint32_t ShmTransport::index_at(const ShmEndpoint &peer) const
{
	const int index = env_.job.open() ? env_.job.rank_at(peer.peer) : env_.job.local_rank();
	if (index < 0 || static_cast<uint32_t>(index) >= peer.segment->shape().ranks)
		throw Error(
		    PT2P_ERR_UNREACHABLE,
		    format("its shared segment has room for %u ranks of its node, and this rank is number %d there: the "
		           "two count the ranks of the node differently",
		           peer.segment->shape().ranks, index));
	return static_cast<uint32_t>(index);
}

Endpoint &ShmTransport::connect(int rank, std::string_view blob)
{
	Address address;
	if (!Address::unpack(blob, address))
		throw Error(PT2P_ERR_PROTOCOL, format("rank %d published an address that is not one of shm", rank));
	ShmEndpoint &peer = peer_at(static_cast<uint32_t>(env_.job.local_index(rank)));
	attach(peer, address, true);
	if (!peer.out.is_open()) {
		const Shape &shape = peer.segment->shape();
		uint32_t room;
		const Ring ring = peer.segment->open_ring(peer.own_index, room);
		// The reader polls it only once it has seen the doorbell.
		ring.head->attention.store(1, std::memory_order_relaxed);
		peer.segment->show(peer.own_index, true);
		peer.out.open(ring, shape.slots, shape.data_bytes, room);
		peer.max_send = peer.out.max_payload();
		peer.capabilities = cap_send | cap_wake;
		if (probe_single_copy(peer, address))
			peer.capabilities |= cap_get | cap_put;
		set_limits(peer);
	}
	return peer;
}

bool ShmTransport::notify_connect_failure(int rank, std::string_view blob)
{
	Address address;
	if (!Address::unpack(blob, address))
		return false;
	ShmEndpoint &peer = peer_at(static_cast<uint32_t>(env_.job.local_index(rank)));
	try {
		attach(peer, address, true);
	} catch (const Error &) {
		return false;
	}
	peer.segment->show(peer.own_index, false);
	ring_doorbell(peer);
	return true;
}

bool ShmTransport::probe_single_copy(ShmEndpoint &peer, const Address &address)
{
	if (!env_.config.shm_single_copy)
		return false;
	if (peer.same_process)
		return true;
	uint64_t value = 0;
	const int error = read_from(peer.pid, &value, address.probe, sizeof value);
	if (error)
		env_.reporter.log(LogLevel::info,
		                  "rank %d: the kernel refuses process_vm_readv (%s); large messages are pipelined", peer.peer,
		                  errno_text(error).c_str());
	return !error && value == address.probe_value;
}

// ---- signs of life --------------------------------------------------------------------------------------------------

// Starts to watch a few ranks of this node, including ranks that this one has not met: a receive may wait for any of
// them. The next call goes on with other ranks, so that a rank that cannot be watched yet does not hold up the others.
void ShmTransport::watch_some()
{
	if (checks_ < checks_before_watches) {
		++checks_;
		return;
	}
	const auto ranks = static_cast<uint32_t>(peers_.size());
	for (unsigned looked = 0; looked < watches_at_once && looked < ranks; ++looked) {
		const uint32_t index = next_watch_;
		next_watch_ = (next_watch_ + 1) % ranks;
		const int rank = env_.job.local_ranks()[index];
		const ShmEndpoint *met = peers_[index].get();
		if (rank == env_.job.rank() || (met && (met->down || met->process || (met->attached && met->same_process))))
			continue;
		try {
			if (!met || !met->attached) {
				std::string text;
				if (!env_.addresses.find_address(rank, table().name, text))
					continue; // not started yet
				Address address;
				if (Address::unpack(text, address) && address.node_id == env_.topology.node_id)
					attach(peer_at(index), address, false);
			}
			if (ShmEndpoint *peer = peers_[index].get(); peer && peer->attached && !peer->same_process)
				if (!processes_.add(index, peer->pid, peer->start_time, peer->process))
					end(*peer, "is gone");
		} catch (const Error &e) {
			if (e.status() == PT2P_ERR_PEER_LOST || e.status() == PT2P_ERR_PEER_FINALIZED ||
			    e.status() == PT2P_ERR_EXCHANGE)
				take_down(peer_at(index), e.status(), e.what());
			else
				env_.reporter.log(LogLevel::info, "rank %d cannot be watched: %s", rank, e.what());
		}
	}
}

// Its process has ended. Its segment tells whether it had finalized.
void ShmTransport::end(ShmEndpoint &peer, const char *finding)
{
	if (peer.said_bye || peer.segment->header()->state.load(std::memory_order_acquire) == state_left)
		take_down(peer, PT2P_ERR_PEER_FINALIZED, "it has called pt2p_finalize");
	else
		take_down(peer, PT2P_ERR_PEER_LOST, format("its process %d %s", peer.pid, finding));
}

void ShmTransport::check()
{
	watch_some();
	retry_slow_rings();
	for (size_t i = 0; i < peers_.size(); ++i) {
		ShmEndpoint *p = peers_[i].get();
		if (!p || !p->attached || p->down)
			continue;
		if (p->said_bye || p->segment->header()->state.load(std::memory_order_acquire) == state_left)
			take_down(*p, PT2P_ERR_PEER_FINALIZED, "it has called pt2p_finalize");
	}
	processes_.for_each_ended([this](uint32_t index) {
		ShmEndpoint &p = *peers_[index];
		processes_.remove(p.process);
		if (!p.down)
			end(p, "ended without pt2p_finalize");
	});
}

void ShmTransport::take_down(ShmEndpoint &peer, pt2p_status_t status, const std::string &reason)
{
	if (peer.down)
		return;
	// What it had sent before is still delivered.
	if (status != PT2P_ERR_PROTOCOL)
		drain(peer);
	if (peer.down)
		return;
	peer.down = true;
	if (peer.starved)
		relieved(peer);
	hot_.remove(peer);
	transfers_.abandon(peer, status);
	env_.events.on_peer_down(peer.peer, status, reason);
}

void ShmTransport::abandon(int rank, pt2p_status_t status, const std::string &reason)
{
	if (ShmEndpoint *peer = peer_of(rank))
		take_down(*peer, status, reason);
}

bool ShmTransport::may_forget(int rank)
{
	const ShmEndpoint *peer = peer_of(rank);
	return !peer || (peer->down && !peer->hot && !peer->starved);
}

void ShmTransport::forget_peer(int rank)
{
	const auto index = static_cast<uint32_t>(env_.job.local_index(rank));
	if (ShmEndpoint *peer = peers_[index].get(); peer && peer->process)
		processes_.remove(peer->process);
	peers_[index].reset();
	segment_->clear(index);
}

void ShmTransport::leave()
{
	for (auto &p : peers_)
		if (p && p->out.is_open() && !p->down) {
			send(*p, id_bye, 0, nullptr, 0);
			p->out.head().left.store(1, std::memory_order_release);
		}
	header()->state.store(state_left, std::memory_order_release);
}

} // namespace pt2p::shm
