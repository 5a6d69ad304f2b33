// The shm transport: rings in shared segments for messages, single-copy transfers for large data.
// hot_rings.hpp tells which rings are polled.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/report/report.hpp"
#include "transports/shm/endpoint.hpp"
#include "transports/shm/hot_rings.hpp"
#include "transports/shm/process_watch.hpp"
#include "transports/shm/segment.hpp"
#include "transports/shm/transfers.hpp"
#include "transports/transport.hpp"

namespace pt2p::shm {

// Message ids of the transport itself; those of the layers above are smaller.
constexpr uint8_t id_help = 0xfe, id_bye = 0xff;

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
	bool may_forget(int rank) override;
	void forget_peer(int rank) override;
	void leave() override;
	std::string describe(int peer) override;
	Memory memory_per_peer() override;

	// The short path makes no call that returns to it; send_slowly and notify do everything else.
	[[gnu::always_inline]] Outcome send(ShmEndpoint &peer, uint8_t id, uint64_t header, const void *data, size_t length)
	{
		const uint64_t read = peer.in.position();
		if (__builtin_expect(
		        length > inline_max || !peer.out.write_short(id, header, data, length, static_cast<uint32_t>(read)), 0))
			return send_slowly(peer, id, header, data, length);
		return sent(peer, read);
	}
	// A message is in the ring, with `read` as acknowledgement.
	[[gnu::always_inline]] Outcome sent(ShmEndpoint &peer, uint64_t read)
	{
		peer.in.piggybacked(read);
		// Not before the message is in the ring, even for the compiler: see the handshake of hot_rings.hpp.
		std::atomic_signal_fence(std::memory_order_seq_cst);
		if (__builtin_expect(peer.fence | peer.starved | peer.out.head().attention.load(std::memory_order_relaxed), 0))
			return notify(peer);
		return Outcome::done;
	}
	Transfers &transfers() { return transfers_; }
	unsigned progress();

	// For tests: the segment and the ring that this rank reads from a peer.
	SegmentHeader *header() const { return segment_->header(); }
	ShmEndpoint *peer_of(int rank) const;

private:
	ShmEndpoint &peer_at(uint32_t index);
	[[gnu::noinline]] Outcome send_slowly(ShmEndpoint &peer, uint8_t id, uint64_t header, const void *data,
	                                      size_t length);
	[[gnu::noinline]] Outcome send_long(ShmEndpoint &peer, uint8_t id, uint64_t header, const void *data,
	                                    size_t length);
	[[gnu::noinline]] Outcome notify(ShmEndpoint &peer);
	Outcome no_room(ShmEndpoint &peer);
	void set_limits(ShmEndpoint &peer);
	void retry_slow_rings();
	bool grow(ShmEndpoint &peer, size_t length);
	void ring_doorbell(ShmEndpoint &peer);
	void relieved(ShmEndpoint &peer);
	unsigned answer_doorbells();
	void open_reader(ShmEndpoint &peer);
	unsigned read_ring(ShmEndpoint &peer);
	unsigned drain(ShmEndpoint &peer);
	bool deliver_control(ShmEndpoint &peer, uint8_t id, const unsigned char *payload, uint32_t length);
	bool attach(ShmEndpoint &peer, const Address &address, bool wait);
	std::optional<Error> how_it_ended(ShmEndpoint &peer, const char *finding);
	bool probe_single_copy(ShmEndpoint &peer, const Address &address);
	uint32_t index_at(const ShmEndpoint &peer) const;
	void watch_some();
	void end(ShmEndpoint &peer, const char *finding);
	void take_down(ShmEndpoint &peer, pt2p_status_t status, const std::string &reason);

	TransportEnvironment env_;
	std::shared_ptr<OwnSegment> segment_;
	uint64_t start_time_;
	std::shared_ptr<uint64_t> probe_;
	std::vector<std::unique_ptr<ShmEndpoint>> peers_; // by local index
	HotRings hot_;
	Transfers transfers_;
	unsigned starved_ = 0; // sends to so many peers have found no room
	ProcessWatch processes_;
	uint32_t next_watch_ = 0, checks_ = 0;
	int64_t next_retry_ = 0; // time, ns
};

} // namespace pt2p::shm
