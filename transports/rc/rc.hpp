// The rc transport: a reliable connection of verbs to each peer that is talked with, made when it is first needed, and made
// anew when it breaks while the peer lives. What goes through it is in verbs/net.hpp.
//
// A connection is made by datagrams (verbs/wireup.hpp):
//
//   first send                                  other side
//   queue pair made  -------- request ------->  queue pair made, ready to receive
//   ready            <------- accept ---------
//                    -------- confirm ------->  ready
//
// Each side has one queue pair for the other, so requests that cross are two halves of the same connection. Connections of
// two ranks are numbered: who finds that number n has broken asks for number n+1, and the other gives n up. Before a queue
// pair is reset for that, everything that has come through it is read; then each side posts again what it has no
// completion of, and the sequence numbers of messages tell what had arrived.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "transports/verbs/net_transport.hpp"

namespace pt2p::rc {

class RcTransport;

struct Peer final : verbs::Peer, verbs::QueueOwner {
	enum class State : uint8_t {
		requesting, // we have asked
		accepting,  // it has asked, we have answered
		connected,
		draining,   // given up; what has come through it is still being read
	};
	RcTransport *transport = nullptr;
	State state = State::requesting;
	verbs::WireupAddress address{};
	std::unique_ptr<verbs::SendQueue> connection;
	uint32_t attempt = 1;          // number of the connection
	uint32_t remote_qp = 0;        // of this connection; 0: not known yet
	verbs::WireupMessage request{}; // draining: what the peer has asked for meanwhile; attempt 0: nothing
	int64_t asked = 0, since = 0;  // when the last datagram was sent, and the first

	static constexpr bool dc = false;
	// The queue that its messages go through, unless there is more to it; null: there is.
	verbs::SendQueue *usual() const
	{
		if (!ready)
			return nullptr;
		if (!connection)
			__builtin_unreachable(); // who is ready has one
		return connection.get();
	}
	verbs::SendQueue *acquire() override { return ready && connection->room() ? connection.get() : nullptr; }
	void cut() override;
	void on_broken(verbs::SendQueue &queue, ibv_wc_status status) override;
	bool left() const override { return down; }
};

class RcTransport final : public verbs::NetTransport, public verbs::Connector {
public:
	RcTransport(const TransportEnvironment &environment, std::shared_ptr<verbs::Net> net);
	~RcTransport() override;

	const TransportTable &table() const override;
	std::string address() override;
	Endpoint &connect(int rank, std::string_view address) override;
	Endpoint *loopback() override;
	void check() override;
	void leave() override;
	std::string trouble(int peer) override;
	Memory memory_per_peer() override;

	void on_wireup(const verbs::WireupMessage &message) override;
	void on_heard(int rank) override;
	void on_broken(Peer &peer, ibv_wc_status status);
	std::vector<verbs::SendQueue *> queues_for(const verbs::Peer &peer) const override;

	unsigned progress() { return NetTransport::progress() + (draining_ ? finish_draining() : 0); }

private:
	Peer *find(int rank) const { return static_cast<Peer *>(peers_[static_cast<size_t>(rank)].get()); }
	Peer &make_peer(int rank, const verbs::WireupAddress &address);
	void make_queue_pair(Peer &peer);
	bool connect_queue_pair(Peer &peer, uint32_t number, uint32_t psn);
	void connected(Peer &peer);
	void give_up(Peer &peer, uint32_t attempt);
	unsigned finish_draining();
	void tell(Peer &peer, verbs::WireupMessage::Kind kind);
	uint32_t psn_of(const Peer &peer) const;

	unsigned draining_ = 0; // peers
	bool leaving_ = false;
};

} // namespace pt2p::rc
