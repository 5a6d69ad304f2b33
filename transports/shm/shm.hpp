// The shm transport: rings in shared segments for messages, single-copy transfers for large data.
//
// Which rings are polled:
//
//        first message, or            traffic                 idle for a sweep,
//        doorbell                                             or about to sleep
//   (none) ---------> [ dozing ] --------------> [ hot ] ---------------------> [ dozing ]
//
// The owner polls its hot rings only. The writer of a dozing ring finds `attention` set and rings the owner's doorbell. A
// ring goes from hot to dozing with an asymmetric handshake (Dekker's, with the fence paid by the rare side): the owner
// sets `attention`, makes every writer's core fence with membarrier(2), and looks once more; the writer just stores its
// message and loads `attention`. To sleep, a rank puts all its rings to doze and says in `sleeping` that it wants to be
// woken.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/report/report.hpp"
#include "transports/shm/ring.hpp"
#include "transports/shm/segment.hpp"
#include "transports/shm/single_copy.hpp"
#include "transports/transport.hpp"

namespace pt2p::shm {

// Message ids of the transport itself; those of the layers above are smaller.
constexpr uint8_t id_help = 0xfe, id_bye = 0xff;

class ShmTransport;

// One peer: the ring to it, and the ring from it. Made when either direction is first used.
struct Peer final : Endpoint {
	ShmTransport *transport = nullptr;
	Writer out;
	Reader in;
	bool hot = false;      // `in` is polled
	bool fence = false;    // its segment, or this process, does without membarrier
	bool starved = false;  // a send found no room
	bool down = false;     // reported lost or finalized
	bool attached = false;
	bool said_bye = false;
	bool stunted = false;  // there was no memory for more room in `out`
	uint64_t shown = 0;    // its directory entry in this rank's segment, as last seen and genuine
	uint32_t index = 0;    // local index of the peer
	pid_t pid = 0;
	bool same_process = false;
	uint32_t claims_busy = 0; // bits
	uint32_t generation = 0;
	std::unique_ptr<PeerSegment> segment;
	FileDescriptor process; // pidfd
	uint64_t start_time = 0;
};

// A get or put that is not finished yet.
struct Transfer {
	Peer *peer;
	unsigned char *local;
	uint64_t remote;
	uint64_t length;
	uint32_t piece;
	uint32_t next;  // piece, when working alone
	Claim *claim;   // null: alone
	uint32_t claim_index;
	uint32_t generation;
	bool write;
	void *operation;
};

class ShmTransport final : public Transport {
public:
	ShmTransport(const TransportEnvironment &environment);
	~ShmTransport() override;

	const TransportTable &table() const override;
	std::string address() override;
	bool reaches(int peer, std::string_view address, std::string &why_not) override;
	Endpoint &connect(int peer, std::string_view address) override;
	bool notify_connect_failure(int peer, std::string_view address) override;
	void check() override;
	bool arm() override;
	void disarm() override { header()->sleeping.store(0, std::memory_order_relaxed); }
	uint32_t *wake_word() override;
	void abandon(int rank, pt2p_status_t status, const std::string &reason) override;
	void leave() override;
	std::string describe(int peer) override;
	Memory memory_per_peer() override;

	// The short way calls nothing that comes back; whatever is out of the ordinary is done by send_slowly and notify.
	[[gnu::always_inline]] Outcome send(Peer &peer, uint8_t id, uint64_t header, const void *data, size_t length)
	{
		const uint64_t read = peer.in.position();
		if (__builtin_expect(length > inline_max ||
		                         !peer.out.write_short(id, header, data, length, static_cast<uint32_t>(read)), 0))
			return send_slowly(peer, id, header, data, length);
		peer.in.piggybacked(read);
		// Not before the message is in the ring, even for the compiler: see the handshake above.
		std::atomic_signal_fence(std::memory_order_seq_cst);
		if (__builtin_expect(peer.fence | peer.starved | peer.out.head().attention.load(std::memory_order_relaxed), 0))
			return notify(peer);
		return Outcome::done;
	}
	Outcome read_runs(Peer &peer, const Run *runs, size_t count, void *operation);
	Outcome transfer(Peer &peer, void *local, uint64_t remote, size_t length, void *operation, bool write);
	unsigned progress();

	// For tests: the segment and the ring that this rank reads from a peer.
	SegmentHeader *header() const { return segment_->header(); }
	Peer *peer_of(int rank) const;

private:
	Peer &peer_at(uint32_t index);
	[[gnu::noinline]] Outcome send_slowly(Peer &peer, uint8_t id, uint64_t header, const void *data, size_t length);
	[[gnu::noinline]] Outcome notify(Peer &peer);
	Outcome no_room(Peer &peer);
	bool grow(Peer &peer);
	void ring_doorbell(Peer &peer);
	void relieved(Peer &peer);
	unsigned answer_doorbells();
	void open_reader(Peer &peer);
	void heat(Peer &peer);
	unsigned read_ring(Peer &peer);
	unsigned drain(Peer &peer);
	bool deliver_control(Peer &peer, const Reader::Message &message);
	void sweep();
	bool attach(Peer &peer, const Address &address, bool wait);
	std::optional<Error> how_it_ended(Peer &peer, const char *finding);
	bool probe_single_copy(Peer &peer, const Address &address);
	void watch(Peer &peer);
	void watch_some();
	void end(Peer &peer, const char *finding);
	void take_down(Peer &peer, pt2p_status_t status, const std::string &reason);
	void everyone_fences();

	bool advance(Transfer &transfer, unsigned &moved);
	unsigned advance_transfers();
	unsigned help_some();
	int copy_pieces(Transfer &transfer, uint32_t first, uint32_t count);

	struct Helping {
		Peer *peer;
		Help help;
	};

	TransportEnvironment env_;
	std::shared_ptr<OwnSegment> segment_;
	uint64_t start_time_;
	std::shared_ptr<uint64_t> probe_;
	bool membarrier_ = false;
	std::vector<std::unique_ptr<Peer>> peers_; // by local index
	std::vector<Peer *> hot_;
	std::vector<Transfer> transfers_;
	std::vector<Helping> helping_;
	unsigned starved_ = 0;
	uint32_t idle_turns_ = 0;
	FileDescriptor watcher_; // epoll over the peers' pidfds
	uint32_t next_watch_ = 0, checks_ = 0;
};

} // namespace pt2p::shm
