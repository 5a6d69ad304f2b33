// The rc transport: a reliable connection of verbs to each peer that is talked with, made when it is first needed.
//
// Messages are SENDs into a receive queue that all peers share. A connection is made by datagrams (verbs/wireup.hpp):
//
//   first send                                  other side
//   queue pair made  -------- request ------->  queue pair made, ready to receive
//   ready            <------- accept ---------
//                    -------- confirm ------->  ready
//
// Each side has one queue pair for the other, so requests that cross are two halves of the same connection.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "transports/transport.hpp"
#include "transports/verbs/device.hpp"
#include "transports/verbs/wireup.hpp"

namespace pt2p::rc {

class RcTransport;

// What a message begins with on the wire.
struct Header {
	uint64_t header; // of the layer above
	uint8_t id;
	uint8_t unused[7];
};

struct Peer final : Endpoint {
	enum class State : uint8_t {
		requesting, // we have asked
		accepting,  // it has asked, we have answered
		ready,
		down,
	};
	RcTransport *transport = nullptr;
	State state = State::requesting;
	verbs::WireupAddress address{};
	verbs::QpOwner qp;
	ibv_qp_ex *ex = nullptr;
	uint32_t remote_qp = 0;       // 0: not known yet
	// Work requests, counted for ever.
	uint32_t posted = 0, completed = 0, signalled = 0;
	std::deque<std::pair<uint32_t, uint32_t>> slots; // (work request, its buffer), oldest first
	int64_t asked = 0, since = 0; // when the last datagram was sent, and the first
	int64_t last_sign = 0;        // of life
};

class RcTransport final : public Transport {
public:
	RcTransport(const TransportEnvironment &environment, std::unique_ptr<verbs::Device> device);
	~RcTransport() override;

	const TransportTable &table() const override;
	std::string address() override;
	bool reaches(int rank, std::string_view address, std::string &why_not) override;
	Endpoint &connect(int rank, std::string_view address) override;
	void check() override;
	// What arrives through a connection wakes nobody yet. Without one there is nothing but requests for a connection,
	// which can wait until the sleeper looks.
	bool arm() override { return by_queue_pair_.empty(); }
	void abandon(int rank, pt2p_status_t status, const std::string &reason) override;
	void leave() override;
	std::string describe(int peer) override;
	Memory memory_per_peer() override;

	Outcome send(Peer &peer, uint8_t id, uint64_t header, const void *data, size_t length);
	unsigned progress();

private:
	Peer &make_peer(int rank, const verbs::WireupAddress &address);
	void connect_queue_pair(Peer &peer, uint32_t number, uint32_t psn);
	void tell(Peer &peer, verbs::WireupMessage::Kind kind);
	void on_wireup(const verbs::WireupMessage &message);
	void on_receive(const ibv_wc &wc);
	void on_sent(Peer &peer, uint32_t upto);
	void probe(Peer &peer);
	void take_down(Peer &peer, pt2p_status_t status, const std::string &reason);
	void post_receives(const uint64_t *buffers, unsigned count);
	bool post(Peer &peer, bool signal, const Header *header, const void *data, size_t length, uint32_t slot);
	uint32_t psn_of(const Peer &peer) const { return peer.qp->qp_num * 0x9e3779b1 >> 8; }

	const TransportEnvironment environment_;
	const std::unique_ptr<verbs::Device> device_;
	const uint64_t job_;             // a hash of its name
	const size_t message_bytes_;     // of a buffer, the header included
	const uint32_t depth_, period_;
	verbs::CqOwner cq_;
	verbs::SrqOwner srq_;
	verbs::RegisteredMemory receives_, sends_; // buffers
	std::vector<uint32_t> free_sends_;
	std::unique_ptr<verbs::Wireup> wireup_;
	std::vector<std::unique_ptr<Peer>> peers_; // by rank
	std::unordered_map<uint32_t, Peer *> by_queue_pair_;
	bool leaving_ = false;
};

} // namespace pt2p::rc
