// The ud transport: datagrams. One queue pair sends to all peers and receives from all, or a few do. So neither queue
// pairs nor the device's contexts grow with the job. Datagrams may be lost, so it carries calls alone
// (rpc/datagrams.hpp repeats them), and only where rc or dct reach the peer as well.
//
// All datagrams are SENDs with immediate data, which tells them from messages where both use one shared receive queue.
//
//   message        [ MessageHeader | payload ]    as over a reliable connection; its sequence number means nothing
//   header only    the immediate data; control and address fill one WQEBB, so the device reads half as much
//
// Only who knows the receiver's Q_Key reaches it. The key is random, and published with the address.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "transports/verbs/net_transport.hpp"

namespace pt2p::ud {

class UdTransport;

constexpr size_t max_queues = 8;

// The published address. Of several queue pairs, each peer sends to one.
struct Address {
	verbs::PortAddress port;
	uint32_t q_key, queues;
	uint32_t numbers[max_queues];
};

struct UdPeer final : verbs::NetPeer {
	UdTransport *transport = nullptr;
	verbs::AhOwner path; // made once
	verbs::RemoteQueue address;

	static constexpr auto kind = verbs::QueueKind::datagrams;
	const mlx5_wqe_av *address_vector() const { return &address.av; }
	inline verbs::SendQueue *usual() const;
	inline verbs::SendQueue *last_used() const;
	verbs::SendQueue *acquire() override;
	verbs::SendQueue *acquire_for_part() override { return nullptr; }
	void cut() override {}
};

class UdTransport final : public DeviceTransport, public verbs::QueueOwner {
public:
	UdTransport(const TransportEnvironment &environment, std::shared_ptr<verbs::Net> net);
	~UdTransport() override;

	const TransportTable &table() const override;
	std::string address() override;
	bool reaches(int rank, std::string_view address, std::string &why_not) override;
	Endpoint &connect(int rank, std::string_view address) override;
	void cork(bool corked, bool bundles) override;
	bool may_forget(int rank) override;
	void forget_peer(int rank) override;
	void abandon(int rank, pt2p_status_t status, const std::string &reason) override;
	bool facts(int rank, ChannelFacts &facts) override;
	std::string describe(int peer) override;
	Memory memory_per_peer() override;

	void on_broken(verbs::SendQueue &queue, ibv_wc_status status) override;
	// Nobody need wait for datagrams.
	bool left() const override { return true; }

	// The queue whose turn it is. It can post; null: none can.
	verbs::SendQueue *next();
	verbs::SendQueue &current() const { return *queues_[turn_]; }

private:
	void make_queue();
	int start(ibv_qp *qp) const; // returns an errno; 0: done

	const TransportEnvironment environment_;
	const std::shared_ptr<verbs::Net> net_;
	const uint32_t q_key_;                                  // of all queue pairs of this rank
	const size_t fixed_;                                    // queues; 0: their number follows the load
	std::vector<std::unique_ptr<UdPeer>> peers_;            // by rank
	std::vector<std::unique_ptr<verbs::SendQueue>> queues_; // those that were there at the start also receive
	size_t turn_ = 0;
	uint32_t posted_ = 0; // by the current queue when its turn began
	bool full_ = false;   // a queue has had no room
};

verbs::SendQueue *UdPeer::usual() const { return ready ? &transport->current() : nullptr; }
verbs::SendQueue *UdPeer::last_used() const { return &transport->current(); }

} // namespace pt2p::ud
