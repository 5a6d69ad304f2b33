#include "transports/shm/shm.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <climits>
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>

#include "base/config/config.hpp"
#include "base/job/job.hpp"
#include "base/job/topology.hpp"
#include "base/clock.hpp"
#include "base/report/report.hpp"

namespace pt2p::shm {

namespace {

constexpr unsigned burst = 32;         // messages taken from one ring in a turn
constexpr size_t hot_enough = 8;       // fewer hot rings than this are not worth a sweep
constexpr uint32_t sweep_turns = 8192; // turns between two looks for idle rings
constexpr unsigned watches_at_once = 16;
constexpr uint32_t checks_before_watches = 5; // a program that only starts has better things to do

Peer &peer_of_endpoint(Endpoint &endpoint) { return static_cast<Peer &>(endpoint); }

} // namespace

extern const TransportTable shm_table;

ShmTransport::ShmTransport(const TransportEnvironment &environment)
    : env_(environment), start_time_(process_start_time(static_cast<uint32_t>(getpid()))),
      probe_(std::make_shared<uint64_t>(random_secret().words[0])), watcher_(epoll_create1(EPOLL_CLOEXEC))
{
	if (!watcher_) {
		const int error = errno;
		throw Error(PT2P_ERR_SYSTEM, format("epoll_create1: %s%s", errno_text(error).c_str(), remedy_of(error).c_str()));
	}
	const auto ranks = static_cast<uint32_t>(env_.job.local_size());
	segment_ = std::make_shared<OwnSegment>(env_.config, env_.job.secret(), ranks, env_.config.numa ? env_.topology.numa_node : -1);
	// In-process peers hold pointers into the segment.
	env_.job.keep(segment_);
	membarrier_ = syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0) == 0;
	header()->fences = !membarrier_;
	env_.job.keep(probe_);
	peers_.resize(ranks);
	hot_.reserve(ranks);
}

ShmTransport::~ShmTransport() = default;

const TransportTable &ShmTransport::table() const { return shm_table; }

std::string ShmTransport::address()
{
	Address a;
	a.pid = static_cast<uint32_t>(getpid());
	a.fd = segment_->fd();
	a.start_time = start_time_;
	a.base = reinterpret_cast<uint64_t>(segment_->header());
	a.probe = reinterpret_cast<uint64_t>(probe_.get());
	a.probe_value = *probe_;
	a.secret = segment_->secret();
	a.shape = segment_->shape();
	a.node_id = env_.topology.node_id;
	return a.pack();
}

bool ShmTransport::reaches(int peer, std::string_view blob, std::string &why_not)
{
	Address a;
	if (env_.job.local_index(peer) < 0)
		why_not = "on another node";
	else if (!Address::unpack(blob, a))
		why_not = "its shared segment is of another version of libpt2p";
	else if (a.node_id != env_.topology.node_id)
		why_not = "on another host or in another PID name space (" + a.node_id + ")";
	else
		return true;
	return false;
}

Peer &ShmTransport::peer_at(uint32_t index)
{
	auto &p = peers_[index];
	if (!p) {
		p = std::make_unique<Peer>();
		p->table = &shm_table;
		p->transport = this;
		p->peer = env_.job.local_ranks()[index];
		p->index = index;
	}
	return *p;
}

Peer *ShmTransport::peer_of(int rank) const
{
	const int index = env_.job.local_index(rank);
	return index < 0 ? nullptr : peers_[static_cast<size_t>(index)].get();
}

// False: its process is gone, and the launcher has been asked how it ended. With `wait` the answer is waited for. Throws Error,
// also when it is gone.
bool ShmTransport::attach(Peer &peer, const Address &address, bool wait)
{
	if (peer.attached)
		return true;
	std::string finding;
	try {
		peer.segment = std::make_unique<PeerSegment>(address);
		peer.pid = static_cast<pid_t>(address.pid);
		peer.same_process = peer.pid == getpid();
		peer.start_time = address.start_time;
		peer.fence = !membarrier_ || peer.segment->header()->fences;
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

// For a segment that is gone when this rank first looks for it; empty while the launcher has not answered yet.
std::optional<Error> ShmTransport::how_it_ended(Peer &peer, const char *finding)
{
	open_reader(peer);
	bool left;
	if (peer.segment)
		left = peer.segment->header()->state.load(std::memory_order_acquire) == state_left;
	else if (peer.in.is_open())
		left = peer.in.head().left.load(std::memory_order_acquire) != 0;
	else {
		// Nothing of it is here to tell.
		std::string reason;
		switch (env_.job.end_of(peer.peer, reason)) {
		case Job::End::asked: return std::nullopt;
		case Job::End::lost: return Error(PT2P_ERR_PEER_LOST, reason);
		case Job::End::in_order: return Error(PT2P_ERR_PEER_FINALIZED, "it exited before this rank had met it");
		case Job::End::unknown: break;
		}
		return Error(PT2P_ERR_PEER_LOST, format("it ended before this rank had met it, and the launcher does not tell how: %s",
		                                        finding));
	}
	return left ? Error(PT2P_ERR_PEER_FINALIZED, "it has called pt2p_finalize")
	            : Error(PT2P_ERR_PEER_LOST, format("it ended without pt2p_finalize: %s", finding));
}

Endpoint &ShmTransport::connect(int rank, std::string_view blob)
{
	Address address;
	if (!Address::unpack(blob, address))
		throw Error(PT2P_ERR_PROTOCOL, format("rank %d published an address that is not one of shm", rank));
	Peer &peer = peer_at(static_cast<uint32_t>(env_.job.local_index(rank)));
	attach(peer, address, true);
	if (!peer.out.is_open()) {
		const auto me = static_cast<uint32_t>(env_.job.local_rank());
		const Shape &shape = peer.segment->shape();
		uint32_t room;
		const Ring ring = peer.segment->open_ring(me, room);
		// The reader polls it only once it has seen the doorbell.
		ring.head->attention.store(1, std::memory_order_relaxed);
		peer.segment->show(me, true);
		peer.out.open(ring, shape.slots, shape.data_bytes, room);
		peer.max_send = peer.out.max_payload();
		peer.capabilities = cap_send | cap_wake;
		if (probe_single_copy(peer, address))
			peer.capabilities |= cap_get | cap_put;
	}
	return peer;
}

bool ShmTransport::notify_connect_failure(int rank, std::string_view blob)
{
	Address address;
	if (!Address::unpack(blob, address))
		return false;
	Peer &peer = peer_at(static_cast<uint32_t>(env_.job.local_index(rank)));
	try {
		attach(peer, address, true);
	} catch (const Error &) {
		return false;
	}
	peer.segment->show(static_cast<uint32_t>(env_.job.local_rank()), false);
	ring_doorbell(peer);
	return true;
}

bool ShmTransport::probe_single_copy(Peer &peer, const Address &address)
{
	if (!env_.config.shm_single_copy)
		return false;
	if (peer.same_process)
		return true;
	uint64_t value = 0;
	const int error = read_from(peer.pid, &value, address.probe, sizeof value);
	if (error)
		env_.reporter.log(LogLevel::info, "rank %d: the kernel refuses process_vm_readv (%s); large messages are pipelined",
		                  peer.peer, errno_text(error).c_str());
	return !error && value == address.probe_value;
}

std::string ShmTransport::describe(int rank)
{
	const Peer *peer = peer_of(rank);
	if (!peer || !peer->out.is_open())
		return "";
	return peer->capabilities & cap_get ? "single-copy" : "pipelined";
}

Inspection::Memory ShmTransport::memory_per_peer()
{
	// A directory entry and, rounded up, a doorbell bit in the segment; two pointers here. A ring for each direction, of which
	// this rank's segment holds one, at its largest.
	const Shape &shape = segment_->shape();
	const size_t silent = sizeof(uint64_t) + 1 + sizeof(std::unique_ptr<Peer>) + sizeof(Peer *);
	return {silent, silent + ring_bytes(shape.slots, shape.data_bytes) + sizeof(Peer) + Writer::private_bytes(shape.slots)};
}

// ---- sending ----------------------------------------------------------------------------------------------------------

Outcome ShmTransport::send_slowly(Peer &peer, uint8_t id, uint64_t header, const void *data, size_t length)
{
	const uint64_t read = peer.in.position();
	while (!peer.out.write(id, header, data, length, static_cast<uint32_t>(read)))
		if (length <= inline_max || !grow(peer))
			return no_room(peer);
	peer.in.piggybacked(read);
	return notify(peer);
}

// More is in flight than the data area of the ring has memory for.
bool ShmTransport::grow(Peer &peer)
{
	if (!peer.out.wants_room())
		return false;
	if (peer.segment->grow(peer.out.ring(), 2 * peer.out.room())) {
		peer.out.double_room();
		peer.max_send = peer.out.max_payload();
		return true;
	}
	// It goes on with what it has, in smaller pieces.
	peer.max_send = std::min<size_t>(peer.max_send, peer.out.room());
	if (!std::exchange(peer.stunted, true))
		env_.reporter.log(LogLevel::info, "rank %d: no memory for more than %u bytes of data in flight to it through shared "
		                  "memory", peer.peer, peer.out.room());
	return false;
}

// After a message: the reader may have to be woken, and this rank no longer starves.
Outcome ShmTransport::notify(Peer &peer)
{
	if (peer.fence)
		full_fence();
	else
		std::atomic_signal_fence(std::memory_order_seq_cst);
	if (peer.out.head().attention.load(std::memory_order_relaxed))
		ring_doorbell(peer);
	if (peer.starved)
		relieved(peer);
	return Outcome::done;
}

Outcome ShmTransport::no_room(Peer &peer)
{
	if (!peer.starved) {
		peer.starved = true;
		++starved_;
		peer.out.head().starved.store(1, std::memory_order_seq_cst);
	}
	return Outcome::no_resource;
}

void ShmTransport::relieved(Peer &peer)
{
	peer.starved = false;
	--starved_;
	peer.out.head().starved.store(0, std::memory_order_relaxed);
}

void ShmTransport::ring_doorbell(Peer &peer)
{
	SegmentHeader &h = *peer.segment->header();
	const auto me = static_cast<uint32_t>(env_.job.local_rank());
	doorbells(&h, peer.segment->shape().ranks)[me / 64].fetch_or(UINT64_C(1) << (me % 64));
	h.doorbell_summary.fetch_or(UINT64_C(1) << (me / 64 % 64));
	if (h.sleeping.load()) {
		h.wake_word.fetch_add(1);
		syscall(SYS_futex, &h.wake_word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
		env_.reporter.add(Counter::wakes);
	}
}

// ---- receiving --------------------------------------------------------------------------------------------------------

void ShmTransport::open_reader(Peer &peer)
{
	if (peer.in.is_open())
		return;
	const uint64_t entry = directory(header())[peer.index].load(std::memory_order_acquire);
	if (entry == peer.shown)
		return;
	const uint16_t facts = Entry::facts(entry);
	if (entry != entry_of(segment_->secret(), peer.index, facts)) {
		// What the rank itself writes later counts.
		uint64_t forged = entry;
		directory(header())[peer.index].compare_exchange_strong(forged, peer.shown);
		env_.reporter.add(Counter::auth_refused);
		env_.reporter.log(LogLevel::info, "somebody who is not rank %d of this job, or lacks its secret, has written into the "
		                  "shared segment of this rank", peer.peer);
		return;
	}
	unsigned failures = (facts - Entry::facts(peer.shown)) & Entry::failures_mask;
	peer.shown = entry;
	while (failures--)
		env_.events.on_connect_failure(peer.peer, PT2P_ERR_SHARED_MEMORY);
	if (!(facts & Entry::open))
		return;
	peer.in.open(segment_->ring(peer.index), segment_->shape().slots, segment_->shape().data_bytes);
}

void ShmTransport::heat(Peer &peer)
{
	if (peer.hot)
		return;
	peer.hot = true;
	peer.in.head().attention.store(0, std::memory_order_relaxed);
	hot_.push_back(&peer);
}

unsigned ShmTransport::answer_doorbells()
{
	SegmentHeader *h = header();
	const auto ranks = static_cast<uint32_t>(peers_.size());
	unsigned handled = 0;
	for (uint64_t summary = h->doorbell_summary.exchange(0); summary; summary &= summary - 1) {
		for (auto w = static_cast<size_t>(__builtin_ctzll(summary)); w < doorbell_words(ranks); w += 64) {
			for (uint64_t bits = doorbells(h, ranks)[w].exchange(0); bits; bits &= bits - 1) {
				const auto index = static_cast<uint32_t>(w * 64 + static_cast<size_t>(__builtin_ctzll(bits)));
				if (index >= ranks)
					continue;
				Peer &peer = peer_at(index);
				open_reader(peer);
				if (!peer.in.is_open() || peer.down)
					continue;
				heat(peer);
				handled += read_ring(peer);
			}
		}
	}
	return handled;
}

unsigned ShmTransport::read_ring(Peer &peer)
{
	Reader::Message m;
	uint64_t last = 0;
	unsigned n = 0;
	for (; n < burst; ++n) {
		const Reader::Peek found = peer.in.peek(m);
		if (found == Reader::Peek::nothing)
			break;
		if (n)
			peer.in.fetch_ahead();
		if (__builtin_expect(found == Reader::Peek::message && Word::id(m.word) < id_help, 1)) {
			env_.events.on_message(peer.peer, Word::id(m.word), m.header, m.payload, m.length);
		} else if (found == Reader::Peek::malformed || !deliver_control(peer, m)) {
			take_down(peer, PT2P_ERR_PROTOCOL, "it sent a message with an impossible header");
			return n + 1;
		}
		peer.in.pop(m.length);
		last = m.word;
		if (__builtin_expect(peer.down, 0))
			return n + 1;
	}
	if (!n) {
		peer.in.relieve();
		return 0;
	}
	peer.in.publish_if_due();
	peer.out.acknowledge(Word::credit(last));
	env_.reporter.add(Counter::shm_messages, n);
	return n;
}

// HELP: the receiver of a large message asks this rank to copy along. BYE: the peer has finalized.
bool ShmTransport::deliver_control(Peer &peer, const Reader::Message &m)
{
	if (Word::id(m.word) == id_bye) {
		peer.said_bye = true;
		return m.length == 0;
	}
	Help help;
	if (m.length != sizeof help)
		return false;
	std::memcpy(&help, m.payload, sizeof help);
	if (help.claim >= claims_per_ring || help.piece < page || help.length / help.piece >= UINT32_MAX)
		return false;
	// A peer cannot have more claims than this.
	if (helping_.size() < claims_per_ring * peers_.size() && peer.out.is_open() && !peer.same_process)
		helping_.push_back({&peer, help});
	return true;
}

unsigned ShmTransport::drain(Peer &peer)
{
	unsigned all = 0;
	open_reader(peer);
	if (peer.in.is_open() && !peer.down)
		while (unsigned n = read_ring(peer))
			all += n;
	return all;
}

unsigned ShmTransport::progress()
{
	SegmentHeader *h = header();
	unsigned n = 0;
	if (__builtin_expect(h->doorbell_summary.load(std::memory_order_relaxed) != 0, 0))
		n += answer_doorbells();
	for (size_t i = 0; i < hot_.size(); ++i)
		n += read_ring(*hot_[i]);
	if (!transfers_.empty())
		n += advance_transfers();
	if (!helping_.empty())
		n += help_some();
	if (++idle_turns_ >= sweep_turns) {
		idle_turns_ = 0;
		if (hot_.size() > hot_enough)
			sweep();
	}
	return n;
}

// ---- polling less, and sleeping ---------------------------------------------------------------------------------------

void ShmTransport::everyone_fences()
{
	full_fence();
	if (membarrier_)
		syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0);
}

void ShmTransport::sweep()
{
	const auto idle = std::stable_partition(hot_.begin(), hot_.end(), [](Peer *p) {
		const bool busy = p->in.position() != p->in.seen_at_sweep;
		p->in.seen_at_sweep = p->in.position();
		return busy;
	});
	for (auto i = idle; i != hot_.end(); ++i)
		(*i)->in.head().attention.store(1, std::memory_order_relaxed);
	if (idle != hot_.end())
		everyone_fences();
	const auto dozing = std::stable_partition(idle, hot_.end(), [](Peer *p) { return p->in.ready(); });
	for (auto i = idle; i != dozing; ++i)
		(*i)->in.head().attention.store(0, std::memory_order_relaxed);
	for (auto i = dozing; i != hot_.end(); ++i) {
		(*i)->in.settle();
		(*i)->hot = false;
	}
	hot_.erase(dozing, hot_.end());
}

bool ShmTransport::arm()
{
	// What this rank moves itself, and a full ring that nobody announces to be free again, has to be polled.
	if (starved_ || !transfers_.empty() || !helping_.empty())
		return false;
	SegmentHeader *h = header();
	h->sleeping.store(1);
	for (Peer *p : hot_)
		p->in.head().attention.store(1);
	everyone_fences();
	bool ready = h->doorbell_summary.load() != 0;
	for (Peer *p : hot_)
		ready |= p->in.ready();
	if (ready) {
		h->sleeping.store(0, std::memory_order_relaxed);
		for (Peer *p : hot_)
			p->in.head().attention.store(0, std::memory_order_relaxed);
		return false;
	}
	for (Peer *p : hot_) {
		p->in.settle();
		p->hot = false;
	}
	hot_.clear();
	return true;
}

uint32_t *ShmTransport::wake_word() { return reinterpret_cast<uint32_t *>(&header()->wake_word); }

// ---- signs of life ----------------------------------------------------------------------------------------------------

// Has the end of the peer's process told, where a descriptor can be had for that; else looks whether it has ended. Throws
// Error(PT2P_ERR_SYSTEM) when that cannot be found out for now.
void ShmTransport::watch(Peer &peer)
{
	FileDescriptor process(static_cast<int>(syscall(SYS_pidfd_open, peer.pid, 0)));
	const bool gone = !process && errno == ESRCH;
	// The pid could have been reused before it was opened.
	if (gone || !process_lives(static_cast<uint32_t>(peer.pid), peer.start_time))
		return end(peer, "is gone");
	epoll_event e{};
	e.events = EPOLLIN;
	e.data.u32 = peer.index;
	if (process && epoll_ctl(watcher_.get(), EPOLL_CTL_ADD, process.get(), &e) == 0)
		peer.process = std::move(process);
}

// Starts to watch a few ranks of this node, also those that this rank has not met: a receive may wait for any of them. Goes
// round, so that one that has not started yet, or cannot be watched for now, holds up nobody.
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
		const Peer *met = peers_[index].get();
		if (rank == env_.job.rank() || (met && (met->down || met->process || (met->attached && met->same_process))))
			continue;
		try {
			if (!met || !met->attached) {
				std::string text;
				if (!env_.addresses.find_address(rank, shm_table.name, text))
					continue; // not started yet
				Address address;
				if (Address::unpack(text, address) && address.node_id == env_.topology.node_id)
					attach(peer_at(index), address, false);
			}
			if (Peer *peer = peers_[index].get(); peer && peer->attached && !peer->same_process)
				watch(*peer);
		} catch (const Error &e) {
			if (e.status() == PT2P_ERR_PEER_LOST || e.status() == PT2P_ERR_PEER_FINALIZED || e.status() == PT2P_ERR_EXCHANGE)
				take_down(peer_at(index), e.status(), e.what());
			else
				env_.reporter.log(LogLevel::info, "rank %d cannot be watched: %s", rank, e.what());
		}
	}
}

// Its process has ended: in order or not, its segment tells.
void ShmTransport::end(Peer &peer, const char *finding)
{
	if (peer.said_bye || peer.segment->header()->state.load(std::memory_order_acquire) == state_left)
		take_down(peer, PT2P_ERR_PEER_FINALIZED, "it has called pt2p_finalize");
	else
		take_down(peer, PT2P_ERR_PEER_LOST, format("its process %d %s", peer.pid, finding));
}

void ShmTransport::check()
{
	watch_some();
	for (size_t i = 0; i < peers_.size(); ++i) {
		Peer *p = peers_[i].get();
		if (!p || !p->attached || p->down)
			continue;
		if (p->said_bye || p->segment->header()->state.load(std::memory_order_acquire) == state_left)
			take_down(*p, PT2P_ERR_PEER_FINALIZED, "it has called pt2p_finalize");
	}
	epoll_event events[16];
	const int n = epoll_wait(watcher_.get(), events, 16, 0);
	for (int i = 0; i < n; ++i) {
		Peer &p = *peers_[events[i].data.u32];
		epoll_ctl(watcher_.get(), EPOLL_CTL_DEL, p.process.get(), nullptr);
		if (!p.down)
			end(p, "ended without pt2p_finalize");
	}
}

void ShmTransport::take_down(Peer &peer, pt2p_status_t status, const std::string &reason)
{
	if (peer.down)
		return;
	// What it had sent before still counts.
	if (status != PT2P_ERR_PROTOCOL)
		drain(peer);
	if (peer.down)
		return;
	peer.down = true;
	if (peer.starved)
		relieved(peer);
	std::erase(hot_, &peer);
	peer.hot = false;
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
	env_.events.on_peer_down(peer.peer, status, reason);
}

void ShmTransport::abandon(int rank, pt2p_status_t status, const std::string &reason)
{
	if (Peer *peer = peer_of(rank))
		take_down(*peer, status, reason);
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

// ---- the table --------------------------------------------------------------------------------------------------------

namespace {

std::unique_ptr<Transport> open_shm(const TransportEnvironment &environment, std::string &why_not)
{
	if (environment.job.local_size() < 2) {
		why_not = "no other rank on this node";
		return nullptr;
	}
	return std::make_unique<ShmTransport>(environment);
}

Outcome send_shm(Endpoint &e, uint8_t id, uint64_t header, const void *data, size_t length)
{
	Peer &peer = peer_of_endpoint(e);
	return peer.transport->send(peer, id, header, data, length);
}

Outcome get_shm(Endpoint &e, void *local, RemoteMemory from, size_t length, void *operation)
{
	Peer &peer = peer_of_endpoint(e);
	return peer.transport->transfer(peer, local, from.address, length, operation, false);
}

Outcome get_runs_shm(Endpoint &e, const Run *runs, size_t count, void *operation)
{
	Peer &peer = peer_of_endpoint(e);
	return peer.transport->read_runs(peer, runs, count, operation);
}

Outcome put_shm(Endpoint &e, const void *local, RemoteMemory to, size_t length, void *operation)
{
	Peer &peer = peer_of_endpoint(e);
	return peer.transport->transfer(peer, const_cast<void *>(local), to.address, length, operation, true);
}

unsigned progress_shm(Transport &transport) { return static_cast<ShmTransport &>(transport).progress(); }

size_t longest_message_shm(const Config &config) { return longest_payload(shape_of(config, 1)); }

} // namespace

const TransportTable shm_table = {
    "shm", cap_send | cap_get | cap_put | cap_wake, open_shm, send_shm, get_shm, put_shm, nullptr, progress_shm,
    get_runs_shm, longest_message_shm,
};

} // namespace pt2p::shm
