#include "transports/shm/shm.hpp"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.hpp"
#include "base/config/config.hpp"
#include "base/job/job.hpp"
#include "base/job/topology.hpp"
#include "base/report/report.hpp"

namespace pt2p::shm {

namespace {

constexpr unsigned burst = 32; // messages taken from one ring in a turn

ShmEndpoint &peer_of_endpoint(Endpoint &endpoint) { return static_cast<ShmEndpoint &>(endpoint); }

} // namespace

extern const TransportTable shm_table;

ShmTransport::ShmTransport(const TransportEnvironment &environment)
    : env_(environment), start_time_(process_start_time(static_cast<uint32_t>(getpid()))),
      probe_(std::make_shared<uint64_t>(random_secret().words[0])), transfers_(env_)
{
	const auto ranks = static_cast<uint32_t>(env_.job.local_size());
	segment_ = std::make_shared<OwnSegment>(env_.config, env_.job.secret(), ranks,
	                                        env_.config.numa ? env_.topology.numa_node : -1);
	// In-process peers hold pointers into the segment.
	env_.job.keep(segment_);
	header()->fences = !hot_.membarrier();
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

ShmEndpoint &ShmTransport::peer_at(uint32_t index)
{
	auto &p = peers_[index];
	if (!p) {
		p = std::make_unique<ShmEndpoint>();
		p->table = &shm_table;
		p->transport = this;
		p->peer = env_.job.local_ranks()[index];
		p->index = index;
	}
	return *p;
}

ShmEndpoint *ShmTransport::peer_of(int rank) const
{
	const int index = env_.job.local_index(rank);
	return index < 0 ? nullptr : peers_[static_cast<size_t>(index)].get();
}

std::string ShmTransport::describe(int rank)
{
	const ShmEndpoint *peer = peer_of(rank);
	if (!peer || !peer->out.is_open())
		return "";
	return peer->capabilities & cap_get ? "single-copy" : "pipelined";
}

Inspection::Memory ShmTransport::memory_per_peer()
{
	// A directory entry and, rounded up, a doorbell bit in the segment; two pointers here. A ring for each direction,
	// of which this rank's segment holds one, at its largest.
	const Shape &shape = segment_->shape();
	const size_t silent = sizeof(uint64_t) + 1 + sizeof(std::unique_ptr<ShmEndpoint>) + sizeof(ShmEndpoint *);
	return {silent, silent + ring_bytes(shape.slots, shape.data_bytes) + sizeof(ShmEndpoint) +
	                    Writer::private_bytes(shape.slots)};
}

// ---- sending --------------------------------------------------------------------------------------------------------

Outcome ShmTransport::send_slowly(ShmEndpoint &peer, uint8_t id, uint64_t header, const void *data, size_t length)
{
	if (length > inline_max)
		return send_long(peer, id, header, data, length);
	const uint64_t read = peer.in.position();
	if (!peer.out.write(id, header, data, length, static_cast<uint32_t>(read)))
		return no_room(peer);
	return sent(peer, read);
}

Outcome ShmTransport::send_long(ShmEndpoint &peer, uint8_t id, uint64_t header, const void *data, size_t length)
{
	// A stream of such messages is quicker by single copies.
	if (length > peer.max_in_stream && (peer.capabilities & cap_get) && peer.out.refresh_data_in_flight())
		return no_room(peer);
	if (peer.out.cramped(length) && !peer.cannot_grow)
		grow(peer, length);
	const uint64_t read = peer.in.position();
	bool timed = peer.pace.wants(length);
	const int64_t begin = timed ? now_ns() : 0;
	while (!peer.out.write(id, header, data, length, static_cast<uint32_t>(read))) {
		if (!grow(peer, length))
			return no_room(peer);
		timed = false;
	}
	const Outcome outcome = sent(peer, read);
	if (timed && peer.pace.add(length, now_ns() - begin))
		set_limits(peer);
	return outcome;
}

// A quick ring beats a single copy up to Pace::factor times the usual length, and every ring beats pieces. Within one
// process, a single copy is a memcpy, which beats both.
void ShmTransport::set_limits(ShmEndpoint &peer)
{
	const bool single_copy = peer.capabilities & cap_get;
	const bool ring_wins = single_copy ? peer.pace.quick() && !peer.same_process : true;
	const size_t longest = peer.out.max_payload();
	peer.eager_factor = ring_wins ? Pace::factor : 1;
	peer.max_send = peer.cannot_grow ? std::min<size_t>(longest, peer.out.room()) : longest;
	peer.max_in_stream = longest / 2;
	if (single_copy && !peer.pace.quick())
		peer.max_in_stream = std::min(peer.max_in_stream, Pace::slow_in_stream);
	env_.events.on_limits_changed(peer.peer);
}

void ShmTransport::retry_slow_rings()
{
	constexpr int64_t period = 1000000000; // ns
	const int64_t now = now_ns();
	if (now < next_retry_)
		return;
	next_retry_ = now + period;
	for (const auto &peer : peers_)
		if (peer && peer->out.is_open() && !peer->down && !peer->pace.quick()) {
			peer->pace.retry();
			set_limits(*peer);
		}
}

// A message waits, as more is in flight than the data area of the ring has memory for.
bool ShmTransport::grow(ShmEndpoint &peer, size_t length)
{
	if (!peer.out.wants_room(length))
		return false;
	if (peer.segment->grow(peer.out.ring(), 2 * peer.out.room())) {
		peer.out.double_room();
		peer.pace.restart();
		if (std::exchange(peer.cannot_grow, false))
			set_limits(peer);
		return true;
	}
	// The transport goes on with the room that it has, in smaller pieces.
	const bool known = std::exchange(peer.cannot_grow, true);
	set_limits(peer);
	if (!known)
		env_.reporter.log(LogLevel::info,
		                  "rank %d: no memory for more than %u bytes of data in flight to it through shared "
		                  "memory",
		                  peer.peer, peer.out.room());
	return false;
}

// The reader may have to be woken, and this rank waits for no room any more.
Outcome ShmTransport::notify(ShmEndpoint &peer)
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

Outcome ShmTransport::no_room(ShmEndpoint &peer)
{
	if (!peer.starved) {
		peer.starved = true;
		++starved_;
		peer.out.head().starved.store(1, std::memory_order_seq_cst);
	}
	return Outcome::no_resource;
}

void ShmTransport::relieved(ShmEndpoint &peer)
{
	peer.starved = false;
	--starved_;
	peer.out.head().starved.store(0, std::memory_order_relaxed);
}

void ShmTransport::ring_doorbell(ShmEndpoint &peer)
{
	SegmentHeader &h = *peer.segment->header();
	const uint32_t me = peer.own_index;
	doorbells(&h, peer.segment->shape().ranks)[me / 64].fetch_or(UINT64_C(1) << (me % 64));
	h.doorbell_summary.fetch_or(UINT64_C(1) << (me / 64 % 64));
	if (h.sleeping.load()) {
		h.wake_word.fetch_add(1);
		syscall(SYS_futex, &h.wake_word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
		env_.reporter.add(Counter::wakes);
	}
}

// ---- receiving ------------------------------------------------------------------------------------------------------

void ShmTransport::open_reader(ShmEndpoint &peer)
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
		env_.reporter.log(LogLevel::info,
		                  "somebody who is not rank %d of this job, or lacks its secret, has written into the "
		                  "shared segment of this rank",
		                  peer.peer);
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
				ShmEndpoint &peer = peer_at(index);
				open_reader(peer);
				if (!peer.in.is_open() || peer.down)
					continue;
				hot_.add(peer);
				handled += read_ring(peer);
			}
		}
	}
	return handled;
}

unsigned ShmTransport::read_ring(ShmEndpoint &peer)
{
	uint64_t word, last = 0;
	unsigned n = 0;
	for (; n < burst; ++n) {
		const Slot *const slot = peer.in.next(word);
		if (!slot)
			break;
		if (n)
			peer.in.fetch_ahead();
		const uint8_t id = Word::id(word);
		const uint32_t length = Word::length(word);
		const unsigned char *const payload = peer.in.payload(slot, length);
		if (__builtin_expect(payload && id < id_help, 1)) {
			env_.events.on_message(peer.peer, id, slot->header, payload, length);
		} else if (!payload || !deliver_control(peer, id, payload, length)) {
			take_down(peer, PT2P_ERR_PROTOCOL, "it sent a message with an impossible header");
			return n + 1;
		}
		last = word;
		peer.in.pop(word);
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
bool ShmTransport::deliver_control(ShmEndpoint &peer, uint8_t id, const unsigned char *payload, uint32_t length)
{
	if (id == id_bye) {
		peer.said_bye = true;
		return length == 0;
	}
	Help help;
	if (length != sizeof help)
		return false;
	std::memcpy(&help, payload, sizeof help);
	if (help.claim >= claims_per_ring || help.piece < page || help.length / help.piece >= UINT32_MAX)
		return false;
	transfers_.help(peer, help, peers_.size());
	return true;
}

unsigned ShmTransport::drain(ShmEndpoint &peer)
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
		if (ShmEndpoint &peer = hot_[i]; peer.in.ready())
			n += read_ring(peer);
		else
			peer.in.relieve(); // most rings are empty: no call
	if (transfers_.busy())
		n += transfers_.progress();
	hot_.turn();
	return n;
}

// ---- sleeping -------------------------------------------------------------------------------------------------------

bool ShmTransport::arm()
{
	// This rank has to poll what it moves itself, and full rings: nobody tells when they have room again.
	if (starved_ || transfers_.busy())
		return false;
	return hot_.sleep(*header());
}

uint32_t *ShmTransport::wake_word() { return reinterpret_cast<uint32_t *>(&header()->wake_word); }

// ---- the table ------------------------------------------------------------------------------------------------------

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
	ShmEndpoint &peer = peer_of_endpoint(e);
	return peer.transport->send(peer, id, header, data, length);
}

Outcome get_shm(Endpoint &e, void *local, RemoteMemory from, size_t length, void *operation)
{
	ShmEndpoint &peer = peer_of_endpoint(e);
	return peer.transport->transfers().transfer(peer, local, from.address, length, operation, false);
}

Outcome get_runs_shm(Endpoint &e, const Run *runs, size_t count, void *operation)
{
	ShmEndpoint &peer = peer_of_endpoint(e);
	return peer.transport->transfers().read_runs(peer, runs, count, operation);
}

Outcome put_shm(Endpoint &e, const void *local, RemoteMemory to, size_t length, void *operation)
{
	ShmEndpoint &peer = peer_of_endpoint(e);
	return peer.transport->transfers().transfer(peer, const_cast<void *>(local), to.address, length, operation, true);
}

unsigned progress_shm(Transport &transport) { return static_cast<ShmTransport &>(transport).progress(); }

size_t longest_message_shm(const Config &config) { return longest_payload(shape_of(config, 1)); }

} // namespace

const TransportTable shm_table = {
    "shm",        cap_send | cap_get | cap_put | cap_wake,
    open_shm,     send_shm,
    get_shm,      put_shm,
    nullptr,      progress_shm,
    get_runs_shm, longest_message_shm,
};

} // namespace pt2p::shm
