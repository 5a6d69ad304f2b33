// The write rings of a rank: requests, offers, and consumer indices. See write_ring.hpp.
#pragma once

#include <string>
#include <vector>

#include "pt2p.h"
#include "transports/verbs/message/eager.hpp"

namespace pt2p {
struct Config;
}

namespace pt2p::verbs {

class WriteRings {
public:
	// Throws Error.
	WriteRings(const Device &device, const Config &config, EagerSender &sender, Reporter &reporter, int numa_node);

	// As in DeviceTransport.
	void set_delivery(NetPeer &peer, pt2p_delivery_t delivery) const;
	// While one exists, messages to the peer are sent, or written if there is a ring. None is requested unless messages
	// are to be written.
	class Override {
	public:
		Override(WriteRings &rings, NetPeer &peer, pt2p_delivery_t delivery);
		~Override();
		Override(const Override &) = delete;
		Override &operator=(const Override &) = delete;

	private:
		NetPeer &peer_;
		const int64_t max_payload_;
		const uint32_t due_;
	};
	// Requests a ring from a peer, if its send queue has room.
	void ask(NetPeer &peer);
	// A peer requests or offers a ring. on_offer() returns what is wrong with the offer; empty: nothing.
	void on_request(NetPeer &peer, const RingRequest &request);
	std::string on_offer(NetPeer &peer, const RingOffer &offer) const;
	// Writes the consumer index of a ring to its sender. False: the send queue has no room now.
	bool report_read(NetPeer &peer, uint64_t flags = 0) const;
	// Tell all senders that this rank goes to sleep (true: there are senders), or is awake.
	bool report_asleep() const;
	void report_awake() const;
	// Nothing comes from that peer any more.
	void drop(NetPeer &peer) { std::erase(incoming_, &peer); }

	// Peers with a ring here. The list may get shorter while messages are delivered.
	const std::vector<NetPeer *> &incoming() const { return incoming_; }

	// Rings from one rank to others.
	static constexpr uint32_t max_outgoing = 512;

private:
	const Device &device_;
	const Config &config_;
	EagerSender &sender_;
	Reporter &reporter_;
	const int numa_node_;
	RegisteredMemory consumer_indices_; // written by peers
	FreeList free_indices_;
	std::vector<NetPeer *> incoming_;
};

} // namespace pt2p::verbs
