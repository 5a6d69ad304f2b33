// The rc transport: a reliable connection (RC) to each peer that is used. It is made on first use, and made again if it
// breaks while the peer lives. verbs/net.hpp shows what goes through it.
//
// Datagrams (verbs/wireup.hpp) make a connection:
//
//   first send                                  other side
//   queue pair made  -------- request ------->  queue pair made, ready to receive
//   ready            <------- accept ---------
//                    -------- confirm ------->  ready
//
// This first connection carries the messages. If it cannot be made, because one side has no queue pair or memory to
// spare, it is refused: what waits for it fails, and the next send asks again. Parts of large data need no order and
// may use further connections (verbs/tuning/striping.hpp). So does each further lane of messages (Endpoint::lane()): it
// has the connection with its number. These are made in the same way, one after the other, when large data moves or a
// lane is wanted, and stay. The messages of a connection that is refused later on go by the first.
//
// Each side has one queue pair per connection, so two requests that cross are halves of the same connection. Attempts
// are numbered: a rank that finds attempt n broken asks for attempt n+1, and the other gives n up. Before a queue pair
// is reset, everything that has come through it is read. Then each side posts again what has no completion, and the
// sequence numbers of messages tell what had already arrived.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "transports/verbs/net_transport.hpp"

namespace pt2p::rc {

constexpr uint32_t max_connections = 16; // with one peer

class RcTransport;

struct RcPeer;
struct RcLane;

struct Connection final : verbs::QueueOwner {
	enum class State : uint8_t {
		requesting, // this rank has asked
		accepting,  // the peer has asked, this rank has answered
		connected,
		draining, // given up; what has come through it is still being read
		refused,  // one side has none to spare; the first connection is asked for again with the next send
	};
	Connection(RcPeer &p, uint8_t n) : peer(p), number(n) {}

	RcPeer &peer;
	const uint8_t number; // among those with the peer; 0 carries the messages
	State state = State::requesting;
	std::unique_ptr<verbs::SendQueue> queue;
	uint32_t attempt = 1;           // how often it was made, this time included
	uint32_t remote_qp = 0;         // of this attempt; 0: unknown
	verbs::WireupMessage request{}; // draining: the peer's latest request; attempt 0: none
	int64_t asked = 0, since = 0;   // time of the last datagram; time of the first
	uint32_t asked_from = 0;        // low bits of the number of the first request since a send wanted it
	std::string lacks;              // why reconnecting has failed so far

	bool is_first() const { return number == 0; }
	// The lane that goes over it; null: none does.
	RcLane *lane() const;
	void on_broken(verbs::SendQueue &queue, ibv_wc_status status) override;
	bool left() const override;
};

// Messages over a further connection.
struct RcLane final : verbs::Lane {
	explicit RcLane(Connection &c) : connection(c) {}
	Connection &connection;

	static constexpr auto kind = verbs::QueueKind::connection;
	static const mlx5_wqe_av *address_vector() { return nullptr; }
	verbs::SendQueue *usual() const { return ready ? connection.queue.get() : nullptr; }
	verbs::SendQueue *last_used() const { return connection.queue.get(); }
	verbs::SendQueue *acquire() override { return ready && connection.queue->can_post() ? usual() : nullptr; }
	verbs::SendQueue *acquire_for_part() override { return acquire(); }
	void cut() override {} // the peer is
};

struct RcPeer final : verbs::NetPeer {
	RcTransport *transport = nullptr;
	verbs::WireupAddress address{};
	Secret secret{};              // secret of the rank that was asked first, which both know; proves datagrams
	uint64_t heard = 0;           // number of the last datagram from it
	std::unique_ptr<Lanes> lanes; // outlive the connections, whose work requests name them
	Connection first{*this, 0};
	std::vector<std::unique_ptr<Connection>> others; // by number, from 1

	static constexpr auto kind = verbs::QueueKind::connection;
	static const mlx5_wqe_av *address_vector() { return nullptr; }
	// The queue of its messages; null: not ready, see acquire().
	verbs::SendQueue *usual() const
	{
		if (!ready)
			return nullptr;
		if (!first.queue)
			__builtin_unreachable(); // a ready peer has one
		return first.queue.get();
	}
	verbs::SendQueue *last_used() const { return first.queue.get(); }
	verbs::SendQueue *acquire() override;
	verbs::SendQueue *acquire_for_part() override;
	void cut() override;
	Endpoint *lane(unsigned number) override;
	verbs::Lane *lane_from(unsigned number) override;
	const Lanes *further_lanes() const override { return lanes.get(); }

	template <class F>
	void for_each_connection(F &&f)
	{
		f(first);
		for (size_t i = 0; i < others.size(); ++i) // `f` may add a connection
			f(*others[i]);
	}
};

class RcTransport final : public verbs::NetTransport, public verbs::ConnectionManager {
public:
	RcTransport(const TransportEnvironment &environment, std::shared_ptr<verbs::Net> net);
	~RcTransport() override;

	const TransportTable &table() const override;
	std::string queue_address() override;
	Endpoint &connect(int rank, std::string_view address) override;
	Endpoint *loopback() override;
	void check() override;
	bool settle() override;
	bool may_forget(int rank) override;
	void leave() override;
	std::string trouble(int peer) override;
	Memory memory_per_peer() override;

	void on_wireup(const verbs::WireupMessage &message) override;
	void on_heard(int rank) override;
	void on_broken(Connection &connection, ibv_wc_status status);
	// Tells a peer that this rank has given it up; best effort.
	void disconnect(RcPeer &peer);
	// Something is to be sent to a peer that is not ready.
	void wanted(RcPeer &peer);
	// Asks for one more connection with this peer, unless one is being made or was refused.
	void connect_another(RcPeer &peer);
	std::vector<verbs::SendQueue *> queues_for(const verbs::NetPeer &peer) const override;
	RcLane &make_lane(Connection &connection);
	void connected(Connection &connection);

	unsigned progress() { return draining_ ? NetTransport::progress() + finish_draining() : NetTransport::progress(); }

private:
	RcPeer *find(int rank) const { return static_cast<RcPeer *>(peers_[static_cast<size_t>(rank)].get()); }
	RcPeer &make_peer(int rank, const verbs::WireupAddress &address, const Secret &secret);
	Connection &make_another(RcPeer &peer);
	void make_queue_pair(Connection &connection);
	bool connect_queue_pair(Connection &connection, uint32_t number, uint32_t psn);
	void connect_to_itself(Connection &connection);
	void start_over(Connection &connection);
	void not_now(Connection &connection, const std::string &reason);
	void give_up(Connection &connection, uint32_t attempt);
	unsigned finish_draining();
	void finish_draining(Connection &connection);
	void look_after(Connection &connection);
	void warn_of_stall(const Connection &connection, int64_t now);
	void tell(Connection &connection, verbs::WireupMessage::Kind kind);
	bool genuine(const verbs::WireupMessage &message) const;
	void handle(const verbs::WireupMessage &message);
	void answer(const verbs::WireupMessage &request, verbs::WireupMessage::Kind kind, const char *reason);
	void disconnected(Connection &first, const verbs::WireupMessage &message);
	Connection *asked_for(const verbs::WireupMessage &message);
	uint32_t psn_of(const Connection &connection) const;

	unsigned draining_ = 0; // connections
	bool leaving_ = false;
	bool stall_reported_ = false; // of a request for a connection
};

} // namespace pt2p::rc
