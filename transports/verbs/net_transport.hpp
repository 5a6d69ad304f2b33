// What the transports over verbs share besides Net: everything that does not depend on how queue pairs are connected.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/memory/copy_short.hpp"
#include "base/report/report.hpp"
#include "transports/device_transport.hpp"
#include "transports/verbs/net.hpp"

namespace pt2p::verbs {

// An address is queue_address(), which begins with a PortAddress, and then the size of network buffers.
class NetTransport : public DeviceTransport {
public:
	~NetTransport() override;

	std::string address() final;
	bool reaches(int rank, std::string_view address, std::string &why_not) override;
	// Reads the device's events, and probes peers that have been silent for long.
	void check() override;
	bool arm() override { return net_->arm(this); }
	void disarm() override { net_->disarm(this); }
	int wake_fd() override { return net_->wake_fd(); }
	void cork(bool corked, bool bundles) override { net_->doorbells.cork(corked, bundles); }
	void set_delivery(int rank, pt2p_delivery_t delivery) override;
	Outcome send_by(Endpoint &endpoint, pt2p_delivery_t delivery, uint8_t id, uint64_t header, const void *data,
	                size_t length) override;
	uint32_t consumed(int rank) override;
	void report_consumed(int rank) override;
	void on_consumed(int rank, uint32_t consumed) override;
	void abandon(int rank, pt2p_status_t status, const std::string &reason) override;
	void unconnected_senders(std::vector<int> &ranks) override { net_->unconnected_senders(this, ranks); }
	void leave() override { net_->leave(this); }
	std::string describe(int peer) override;
	void read_meters() override { net_->read_pcie(this); }
	bool facts(int peer, ChannelFacts &facts) override;
	uint32_t device_part() const override { return device().limits.vendor_part_id; }
	static size_t longest_message(const Config &config);
	void *expose(void *memory, size_t length, uint64_t &key, std::string &why_not) override
	{
		return net_->operations.expose(memory, length, key, why_not);
	}
	void withdraw(void *exposure) override { net_->operations.withdraw(exposure); }
	bool may_forget(int rank) override;
	void forget_peer(int rank) override;
	void forget(void *memory, size_t length) override { net_->operations.forget(memory, length); }

	unsigned progress() { return net_->progress(this); }
	const Device &device() const { return net_->device(); }

protected:
	NetTransport(const TransportEnvironment &environment, std::shared_ptr<Net> net);

	// What a peer connects to.
	virtual std::string queue_address() = 0;
	// The queues that work for the peer goes through.
	virtual std::vector<SendQueue *> queues_for(const NetPeer &peer) const = 0;
	// Adds a peer and fills in what all peers have. The caller has filled in the rest.
	NetPeer &add(int rank, std::unique_ptr<NetPeer> peer);

	const TransportEnvironment environment_;
	const std::shared_ptr<Net> net_;
	std::vector<std::unique_ptr<NetPeer>> peers_; // by rank
};

// Operations of a transport's table.

template <class Peer, Counter counter>
[[gnu::noinline]] Outcome send_fully(Peer &peer, uint8_t id, uint64_t header, const void *data, size_t length)
{
	Net &net = *peer.net;
	SendQueue *queue = net.doorbells.bundles() ? peer.last_used() : nullptr;
	if (!queue || !net.eager.join(*queue, peer, id, header, data, length)) {
		queue = peer.acquire();
		if (!queue || !net.eager.send(*queue, peer, id, header, data, length))
			return Outcome::no_resource;
	}
	net.eager.reporter().add(counter);
	if (__builtin_expect(peer.ring.asks(static_cast<uint32_t>(peer.next_sequence - 1), length), 0))
		net.rings.ask(peer);
	return Outcome::done;
}

// `Peer` provides kind, address_vector(), usual(), the queue of the short path, and last_used(), the last queue of its
// messages.
template <class Peer, Counter counter>
Outcome send(Endpoint &endpoint, uint8_t id, uint64_t header, const void *data, size_t length)
{
	auto &peer = static_cast<Peer &>(endpoint);
	Net &net = *peer.net;
	SendQueue *queue = peer.usual();
	const auto bytes = static_cast<uint32_t>(sizeof(MessageHeader) + length);
	if (__builtin_expect(!queue || !queue->template posts_short<Peer::kind>(bytes) || net.doorbells.batches() ||
	                         peer.ring.is_due(static_cast<uint32_t>(peer.next_sequence)),
	                     0))
		return send_fully<Peer, counter>(peer, id, header, data, length);
	net.eager.reporter().add(counter);
	queue->template post_short<Peer::kind>(
	    peer, peer.address_vector(), bytes, [&](unsigned char *to) __attribute__((always_inline)) {
		    mlx5::store(to, header);
		    mlx5::store(to + offsetof(MessageHeader, sequence), static_cast<uint32_t>(peer.next_sequence++));
		    mlx5::store(to + offsetof(MessageHeader, rank_and_id), peer.from | id);
		    copy_short(to + sizeof(MessageHeader), data, length);
	    });
	return Outcome::done;
}

template <class T>
unsigned progress(Transport &transport)
{
	return static_cast<T &>(transport).progress();
}

} // namespace pt2p::verbs
