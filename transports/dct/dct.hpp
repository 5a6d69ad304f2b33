// The dct transport: dynamically connected queue pairs. One target takes everything that comes to this rank, a few
// initiators serve all peers: what a peer costs does not grow with what it is sent, and a rank has as many queue pairs in a
// job of ten thousand as in one of ten. What goes through them is in verbs/net.hpp, which initiator is chosen in pool.hpp.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "job/job.hpp"
#include "transports/dct/pool.hpp"
#include "transports/verbs/net_transport.hpp"

namespace pt2p::dct {

class DctTransport;

// What is published.
struct Address {
	verbs::PortAddress port;
	uint32_t number;
	uint64_t key;
};

struct Peer final : verbs::Peer {
	DctTransport *transport = nullptr;
	verbs::AhOwner handle;
	verbs::SendQueue *queue = nullptr; // that its messages under way are in, while in_flight is not 0
	int64_t failing_since = 0;         // 0: it has not failed yet
	// It has left this queue for another, and may have work there yet; null: no. Up to which number, before which message.
	verbs::SendQueue *left = nullptr;
	uint32_t left_upto = 0;
	uint64_t left_before = 0;

	static constexpr bool dc = true;
	// The queue that its messages go through, unless one has to be chosen; null: it has.
	verbs::SendQueue *usual() const { return ready && stays() ? queue : nullptr; }
	// Its messages go on where they are, if there is room: nobody else has work there.
	bool stays() const { return in_flight && queue->outstanding() <= in_flight && !left; }
	verbs::SendQueue *acquire() override;
	verbs::SendQueue *acquire_for_part() override;
	void cut() override;
};

class DctTransport final : public verbs::NetTransport, public verbs::QueueOwner {
public:
	DctTransport(const TransportEnvironment &environment, std::shared_ptr<verbs::Net> net);

	const TransportTable &table() const override;
	std::string address() override;
	Endpoint &connect(int rank, std::string_view address) override;
	Endpoint *loopback() override { return &connect(environment_.job.rank(), address()); }
	Memory memory_per_peer() override;

	void on_broken(verbs::SendQueue &queue, ibv_wc_status status) override;
	bool left() const override;

	verbs::SendQueue *choose(Peer &peer);
	verbs::SendQueue *choose_for_part(Peer &peer);
	// All: they serve all peers in turn.
	std::vector<verbs::SendQueue *> queues_for(const verbs::Peer &peer) const override;
	bool facts(int peer, tune::ChannelFacts &facts) override;

private:
	void make_target();
	void make_initiator();
	size_t look_at_initiators(const Peer &peer);
	void leave_queue(Peer &peer) const;
	verbs::SendQueue *take(size_t initiator, const Peer &peer);
	int start_initiator(ibv_qp *qp) const; // an errno, 0: done
	void fail_target(Peer &peer, ibv_wc_status status);

	const uint64_t key_; // of the target
	verbs::QpOwner target_;
	std::vector<std::unique_ptr<verbs::SendQueue>> initiators_;
	std::vector<InitiatorState> states_;
	uint64_t chosen_ = 0;
};

} // namespace pt2p::dct
