// A rank on its RDMA device. All transports over verbs share it. It owns the queues, the memory and the layers above
// them, polls all CQEs, and delivers messages.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "transports/verbs/device/pcie.hpp"
#include "transports/verbs/device/send_memory.hpp"
#include "transports/verbs/message/eager.hpp"
#include "transports/verbs/message/sequencer.hpp"
#include "transports/verbs/message/write_rings.hpp"
#include "transports/verbs/qp/completions.hpp"
#include "transports/verbs/qp/receive_queue.hpp"
#include "transports/verbs/qp/send_queue.hpp"
#include "transports/verbs/rma/operations.hpp"
#include "transports/verbs/tuning/device_tuner.hpp"
#include "transports/verbs/wireup.hpp"

namespace pt2p::verbs {

// Makes reliable connections.
class ConnectionManager {
public:
	virtual void on_wireup(const WireupMessage &message) = 0;
	// A message has come from a rank that was not ready.
	virtual void on_heard(int rank) = 0;

protected:
	~ConnectionManager() = default;
};

// Connects to a rank that has reached this one and needs an answer.
class Answerer {
public:
	// Null: not now. Nothing is sent by that, so nothing waits.
	virtual NetPeer *connect_back(int rank) = 0;

protected:
	~Answerer() = default;
};

class Net {
	const TransportEnvironment environment_;
	const std::unique_ptr<Device> device_;

public:
	// The parts. Each uses only those above it.
	SendMemory memory;
	Completions completions;
	SendQueues queues;
	Doorbells doorbells;
	tune::DeviceTuner tuner;
	Operations operations;
	SendShared shared; // shared by send queues
	ReceiveQueue receives;
	EagerSender eager;
	WriteRings rings;
	Wireup wireup;

	// The Net of this context; the first caller opens it. Null: there is no device, `why_not` says why. Throws Error if
	// the device that was asked for cannot be used.
	static std::shared_ptr<Net> open(const TransportEnvironment &environment, std::string &why_not);
	Net(const TransportEnvironment &environment, std::unique_ptr<Device> device);
	~Net();

	const Device &device() const { return *device_; }
	// For a queue pair that a SendQueue takes over.
	ibv_qp_init_attr_ex queue_attributes(ibv_qp_type type);
	// Longest payload of a message with buffers of this size.
	static size_t max_payload(size_t message_bytes) { return message_bytes - sizeof(MessageHeader); }
	size_t max_payload() const { return max_payload(memory.buffer_bytes()); }

	// Polls CQEs and delivers messages; returns how many. `caller` is one of the transports that share this. Only one
	// of them drives it; calls of the others do nothing.
	unsigned progress(const void *caller)
	{
		if (__builtin_expect(!driver_, 0))
			driver_ = caller;
		return driver_ == caller ? progress() : 0;
	}
	// The same for any caller.
	unsigned progress()
	{
		if (!finds_nothing())
			return make_progress();
		++turns_;
		drained_ = true;
		look_at_wireup_ -= idle_turn_;
		return 0;
	}
	// Calls of progress() so far.
	uint64_t turns() const { return turns_; }
	// Whether the last progress() found nothing.
	bool drained() const { return drained_; }
	// Handles events of the device; call it every few milliseconds. Only for the caller that drives, as progress().
	void check(const void *caller);
	// For sleeping, as in Transport. Only for the caller that drives.
	bool arm(const void *caller);
	int wake_fd() const { return completions.fd(); }
	void disarm(const void *caller);

	std::vector<const NetPeer *> datagram_peers; // of the ud transport, which adds them: they take PCIe as well
	ConnectionManager *connections = nullptr;
	Answerer *answerer = nullptr;
	// Adds a peer.
	void set_peer(NetPeer &peer);
	NetPeer *peer(int rank) const { return peers_[static_cast<size_t>(rank)]; }
	void drop_peer(int rank);
	// The peer is not connected, or not any more.
	void not_ready(NetPeer &peer);
	// The peer is down for good. May be called at any time.
	void take_down(NetPeer &peer, pt2p_status_t status, const std::string &reason);
	// The peer cannot be reached for now, and nothing has been sent to it: what waits for it fails.
	void put_off(NetPeer &peer, pt2p_status_t status, const std::string &reason);
	// As in DeviceTransport. Only for the caller that drives.
	void unconnected_senders(const void *caller, std::vector<int> &ranks) const;
	// That rank will be somebody else.
	void forget_peer(int rank)
	{
		peers_[static_cast<size_t>(rank)] = nullptr;
		sequencer_.drop(rank);
		sequencer_.from(rank) = {};
	}
	// This rank has no endpoint here and needs no goodbye.
	void forget_unconnected(int rank) { sequencer_.from(rank).gone = true; }
	// Says goodbye to all peers, and waits until what was posted has arrived.
	void leave(const void *caller);

	size_t bytes_per_queue() const;

	// What this rank moves over PCIe. Takes a reading; only for the caller that drives.
	void read_pcie(const void *caller);
	const PcieFacts &pcie() const { return pcie_.facts(); }
	// Fills in the facts of the channel to a peer, whose work goes through these queues.
	void gather(const NetPeer &peer, const std::vector<SendQueue *> &queues, ChannelFacts &facts) const;

	static constexpr size_t bytes_per_silent_peer = sizeof(NetPeer *) + sizeof(uint32_t);

private:
	// Whether a turn would find nothing. Most turns of a call that waits do.
	bool finds_nothing() const
	{
		return completions.empty() && look_at_wireup_ > 0 && rings.incoming().empty() && !doorbells.any_waits() &&
		       !queues.any_broken() && !tuner.watches();
	}
	unsigned make_progress();
	static constexpr unsigned max_completions = ReceiveQueue::max_batch; // that are read at a time
	// Receives to post again.
	struct Used {
		unsigned count = 0;
		uint64_t numbers[max_completions];
	};
	void read_some(CompletionQueue &queue, unsigned &messages);
	unsigned read(CompletionQueue &queue, unsigned &messages);
	unsigned read_directly(mlx5::CqBuffer &cq, unsigned &messages);
	// A completion as libibverbs tells it.
	struct Told {
		uint64_t id;
		ibv_wc_status status;
		uint32_t bytes = 0;
		uint32_t datagram_to = 0; // queue pair; 0: it is no datagram
		uint32_t immediate = 0;
	};
	bool receives_datagrams(uint32_t queue_pair) const;
	static Told told(ibv_cq_ex *cq);
	static Told told(const ibv_wc &completion);
	bool handle(const Told &told, Used &used);
	bool on_receive(const unsigned char *message, uint32_t bytes);
	[[gnu::noinline]] bool on_datagram(const unsigned char *buffer, uint32_t bytes, uint32_t word);
	[[gnu::noinline]] bool on_unusual(const MessageHeader &header, const unsigned char *data, size_t length);
	[[gnu::noinline]] bool take_wireup();
	bool take_in_order(Sequencer::Expected &expected, const MessageHeader &header, const unsigned char *data,
	                   size_t length);
	[[gnu::noinline]] bool on_lane(const unsigned char *message, uint32_t bytes);
	void deliver_held(Sequencer::Expected &expected, uint32_t sender);
	// Delivers a message in its turn.
	void deliver(const MessageHeader &h, const unsigned char *data, size_t length)
	{
		if (__builtin_expect(h.id() < id_ring_request, 1))
			environment_.events.on_message(h.rank(), h.id(), h.header, data, length);
		else
			take(h, data, length);
	}
	void take(const MessageHeader &header, const unsigned char *data, size_t length);
	void take_bundle(const MessageHeader &header, const unsigned char *data, size_t length);
	unsigned read_ring(NetPeer &peer, unsigned max_messages);
	void look_after_queues();
	void flush_all();
	void say_goodbye(bool all, int64_t end);
	void await_goodbyes(int64_t end);
	bool knows_this_rank(const NetPeer &peer) const;
	// Makes progress until done() or that time, ns.
	template <class Done>
	void drive_until(int64_t end, const Done &done);
	// take_down() for a rank that may have no endpoint here.
	void lose(int rank, pt2p_status_t status, const std::string &reason);
	void read_events();
	void count_pcie();

	PcieMeter pcie_;
	PcieCounts pcie_counts_{};
	PcieTraffic pcie_traffic_;
	Sequencer sequencer_;
	const size_t ranks_;
	std::vector<NetPeer *> peers_; // by rank
	const void *driver_ = nullptr; // the caller that drives
	uint64_t turns_ = 0;
	const uint32_t receives_; // PT2P_NET_RECEIVES
	const int idle_turn_;     // an empty turn subtracts this from look_at_wireup_
	// Turns between two polls of wireup. Four empty turns are enough, and one where ranks share processors.
	static constexpr int wireup_interval = 64;
	int look_at_wireup_ = 0; // 0 or less: poll in the next turn
	uint64_t strange_ = 0;   // datagrams that were counted as refused
	bool failed_ = false, asleep_ = false, drained_ = false;
};

} // namespace pt2p::verbs
