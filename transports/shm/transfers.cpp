#include "transports/shm/transfers.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/config/config.hpp"
#include "base/report/report.hpp"
#include "transports/shm/shm.hpp"

namespace pt2p::shm {

namespace {

constexpr uint32_t turn_bytes = 512 * 1024; // copied in one turn
// A message that comes alone is worth a helper from this many times PT2P_SHM_COOPERATE_MIN on. For shorter ones, the
// message to the helper and the cache lines that the two take from each other cost more than the second core gains.
constexpr size_t alone_factor = 8;

// What an errno of a copy between processes means.
pt2p_status_t copy_status(int error)
{
	return error == 0 ? PT2P_OK : error == ESRCH ? PT2P_ERR_PEER_LOST : PT2P_ERR_SYSTEM;
}

// How many pieces to take of a message at once while `waiting` messages are to be copied; bounded, so that a turn stays
// short.
uint32_t pieces_at_once(size_t waiting, uint32_t piece) { return waiting > 1 ? std::max(1u, turn_bytes / piece) : 1; }

} // namespace

Outcome Transfers::transfer(ShmEndpoint &peer, void *local, uint64_t remote, size_t length, void *operation, bool write)
{
	if (peer.same_process) {
		auto *there = reinterpret_cast<void *>(remote);
		std::memcpy(write ? there : local, write ? local : there, length);
		env_.reporter.add(Counter::shm_single_copy_bytes, length);
		return Outcome::done;
	}
	Transfer t{};
	t.peer = &peer;
	t.local = static_cast<unsigned char *>(local);
	t.remote = remote;
	t.length = length;
	t.piece = piece_size(length);
	t.write = write;
	t.operation = operation;
	const bool alone = transfers_.empty() && !(peer.in.is_open() && peer.in.more());
	if (length < env_.config.shm_cooperate_min * (alone ? alone_factor : 1)) {
		// Short enough to finish on the spot.
		const int error = copy_pieces(t, 0, piece_count(length, t.piece));
		if (!error)
			return Outcome::done;
		env_.events.on_complete(operation, copy_status(error));
		return Outcome::in_progress;
	}
	share(t);
	transfers_.push_back(t);
	return Outcome::in_progress;
}

// Asks the peer to copy along, where that can be.
void Transfers::share(Transfer &t)
{
	ShmEndpoint &peer = *t.peer;
	const uint32_t free_claims = ~peer.claims_busy & ((1u << claims_per_ring) - 1);
	if (t.write || !peer.in.is_open() || !free_claims)
		return;
	t.claim_index = static_cast<uint32_t>(__builtin_ctz(free_claims));
	t.claim = &peer.in.head().claims[t.claim_index];
	t.generation = ++peer.generation;
	open_claim(*t.claim, t.generation);
	const Help help{reinterpret_cast<uint64_t>(t.local), t.remote, t.length, t.piece, t.claim_index, t.generation, 0};
	if (peer.transport->send(peer, id_help, 0, &help, sizeof help) == Outcome::done)
		peer.claims_busy |= 1u << t.claim_index;
	else
		t.claim = nullptr;
}

Outcome Transfers::read_runs(const ShmEndpoint &peer, const Run *runs, size_t count, void *operation)
{
	size_t bytes = 0;
	for (size_t i = 0; i < count; ++i) {
		if (peer.same_process)
			std::memcpy(runs[i].local, reinterpret_cast<const void *>(runs[i].from.address), runs[i].length);
		bytes += runs[i].length;
	}
	const int error = peer.same_process ? 0 : shm::read_runs(peer.pid, runs, count);
	if (error) {
		env_.events.on_complete(operation, copy_status(error));
		return Outcome::in_progress;
	}
	env_.reporter.add(Counter::shm_single_copy_bytes, bytes);
	return Outcome::done;
}

int Transfers::copy_pieces(Transfer &t, uint32_t first, uint32_t count)
{
	const uint64_t at = static_cast<uint64_t>(first) * t.piece;
	const size_t n = piece_bytes(t.length, t.piece, first, count);
	env_.reporter.add(Counter::shm_single_copy_bytes, n);
	return t.write ? write_to(t.peer->pid, t.remote + at, t.local + at, n)
	               : read_from(t.peer->pid, t.local + at, t.remote + at, n);
}

// Copies some of a transfer. Returns true when the transfer is over; it is then gone and reported.
bool Transfers::advance(Transfer &t, unsigned &moved)
{
	const uint32_t pieces = piece_count(t.length, t.piece), want = pieces_at_once(transfers_.size(), t.piece);
	uint32_t first = t.next;
	const uint32_t taken =
	    t.claim ? take_pieces(*t.claim, t.generation, pieces, want, first) : std::min(want, pieces - t.next);
	int error = 0;
	if (taken) {
		error = copy_pieces(t, first, taken);
		++moved;
		if (t.claim)
			t.claim->finished.fetch_add(taken, std::memory_order_acq_rel);
		else
			t.next += taken;
	}
	if (!error) {
		const uint32_t finished = t.claim ? t.claim->finished.load(std::memory_order_acquire) : t.next;
		if (finished < pieces)
			return false;
		if (t.claim && t.claim->failed.load(std::memory_order_relaxed)) {
			// The helper could not write; read everything from here.
			t.peer->claims_busy &= ~(1u << t.claim_index);
			t.claim = nullptr;
			t.next = 0;
			return false;
		}
	}
	// After an error the claim stays taken for ever: a helper may still be writing under it.
	if (t.claim && !error)
		t.peer->claims_busy &= ~(1u << t.claim_index);
	void *operation = t.operation;
	transfers_.erase(transfers_.begin() + (&t - transfers_.data()));
	env_.events.on_complete(operation, copy_status(error));
	return true;
}

unsigned Transfers::progress()
{
	unsigned n = 0;
	if (!transfers_.empty())
		n += advance_all();
	if (!helping_.empty())
		n += help_some();
	return n;
}

unsigned Transfers::advance_all()
{
	unsigned moved = 0;
	for (size_t i = 0; i < transfers_.size();)
		if (advance(transfers_[i], moved))
			++moved;
		else
			++i;
	return moved;
}

void Transfers::help(ShmEndpoint &peer, const Help &help, size_t peers)
{
	// A peer cannot have more claims than this.
	if (helping_.size() < claims_per_ring * peers && peer.out.is_open() && !peer.same_process)
		helping_.push_back({&peer, help});
}

void Transfers::abandon(const ShmEndpoint &peer, pt2p_status_t status)
{
	std::erase_if(helping_, [&](const Helping &h) { return h.peer == &peer; });
	for (size_t i = 0; i < transfers_.size();) {
		if (transfers_[i].peer != &peer) {
			++i;
			continue;
		}
		void *operation = transfers_[i].operation;
		transfers_.erase(transfers_.begin() + static_cast<ptrdiff_t>(i));
		env_.events.on_complete(operation, status);
	}
}

unsigned Transfers::help_some()
{
	const auto [peer, help] = helping_.back();
	Claim &claim = peer->out.head().claims[help.claim];
	uint32_t first;
	const uint32_t taken = take_pieces(claim, help.generation, piece_count(help.length, help.piece),
	                                   pieces_at_once(helping_.size(), help.piece), first);
	if (!taken) {
		helping_.pop_back();
		return 0;
	}
	const uint64_t at = static_cast<uint64_t>(first) * help.piece;
	const size_t n = piece_bytes(help.length, help.piece, first, taken);
	// The kernel checks both addresses: a wrong one costs an error, no memory.
	if (const int error = write_to(peer->pid, help.to + at, reinterpret_cast<void *>(help.from + at), n))
		claim.failed.store(static_cast<uint32_t>(error), std::memory_order_relaxed);
	env_.reporter.add(Counter::shm_helped_bytes, n);
	claim.finished.fetch_add(taken, std::memory_order_acq_rel);
	return 1;
}

} // namespace pt2p::shm
