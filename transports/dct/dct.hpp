// The dct transport: dynamically connected queue pairs. One target receives everything for this rank, and a few
// initiators send to all peers. The number of queue pairs of a rank does not depend on the size of the job, and the
// cost of a peer does not grow with what it is sent. verbs/net.hpp shows what goes through them; pool.hpp chooses the
// initiator.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/job/job.hpp"
#include "transports/dct/pool.hpp"
#include "transports/verbs/net_transport.hpp"

namespace pt2p::dct {

class DctTransport;

// The published address.
struct Address {
	verbs::PortAddress port;
	uint32_t number;
	uint64_t key;
};

struct DctPeer final : verbs::NetPeer, Waiting {
	DctTransport *transport = nullptr;
	verbs::AhOwner path;
	verbs::RemoteQueue address;
	verbs::SendQueue *queue = nullptr; // the last queue of its messages
	uint32_t upto = 0;                 // number of its last work request there, once another target's work is behind it
	bool open = false;                 // no other target's work is behind it, and no target waits
	int64_t failing_since = 0;         // 0: it has not failed
	int64_t left_since = 0;            // when it was found to have left with work in flight; 0: it was not
	static constexpr auto kind = verbs::QueueKind::initiator;
	const mlx5_wqe_av *address_vector() const { return &address.av; }
	// The queue of its messages; null: one has to be chosen, see acquire().
	verbs::SendQueue *usual() const { return ready && open ? queue : nullptr; }
	verbs::SendQueue *last_used() const { return queue; }
	verbs::SendQueue *acquire() override;
	verbs::SendQueue *acquire_for_part() override;
	verbs::SendQueue *acquire_alone() override;
	void cut() override;
};

class DctTransport final : public verbs::NetTransport, public verbs::QueueOwner, public verbs::Answerer {
public:
	DctTransport(const TransportEnvironment &environment, std::shared_ptr<verbs::Net> net);
	~DctTransport() override;

	const TransportTable &table() const override;
	std::string queue_address() override;
	Endpoint &connect(int rank, std::string_view address) override;
	verbs::NetPeer *connect_back(int rank) override;
	Endpoint *loopback() override { return &connect(environment_.job.rank(), address()); }
	Memory memory_per_peer() override;

	void check() override;
	void forget_peer(int rank) override;
	void on_broken(verbs::SendQueue &queue, ibv_wc_status status) override;
	bool left() const override;
	verbs::Target *substitute() override;
	void look_after(verbs::SendQueue &queue) override;

	verbs::SendQueue *choose(DctPeer &peer);
	verbs::SendQueue *choose_for_part(DctPeer &peer);
	verbs::SendQueue *choose_idle(DctPeer &peer);
	// The peer is lost.
	void leave_line(DctPeer &peer) { line_.leave(peer); }
	// All initiators, as they serve all peers in turn.
	std::vector<verbs::SendQueue *> queues_for(const verbs::NetPeer &peer) const override;
	bool facts(int peer, ChannelFacts &facts) override;

private:
	void make_target();
	void make_initiators(size_t count);
	void make_initiator();
	size_t look_at_initiators(const DctPeer &peer);
	bool under_way(const DctPeer &peer, const InitiatorState &state) const;
	verbs::SendQueue *wait() const;
	verbs::SendQueue *take(size_t initiator, DctPeer &peer);
	int start_initiator(ibv_qp *qp) const; // returns an errno; 0: done
	int restart(verbs::SendQueue &queue);
	void end_work(verbs::SendQueue &queue, int error);
	void fail_target(DctPeer &peer, ibv_wc_status status);

	const uint64_t key_; // access key of the target, published in the address
	verbs::QpOwner target_;
	std::vector<std::unique_ptr<verbs::SendQueue>> initiators_;
	std::vector<InitiatorState> states_;
	Line line_;
	struct Stopped {
		verbs::SendQueue *queue;
		int64_t since;
	};
	std::vector<Stopped> stopped_; // initiators that could not be restarted yet
	uint64_t looks_ = 0;
};

} // namespace pt2p::dct
