// The write rings of a rank: asked for, offered, and how far each has been read. See write_ring.hpp.
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

	// As Transport's.
	void set_delivery(NetPeer &peer, pt2p_delivery_t delivery) const;
	// Asks a peer for a ring there, if there is room to ask.
	void ask(NetPeer &peer);
	// A peer asks for one, or offers one. The latter returns what is wrong with the offer; empty: nothing.
	void on_request(NetPeer &peer, const RingRequest &request);
	std::string on_offer(NetPeer &peer, const RingOffer &offer) const;
	// Writes to a sender how much of its ring has been read. False when there is no room for that now.
	bool report_read(NetPeer &peer, uint64_t flags = 0) const;
	// Tells all senders that this rank is going to sleep: true, if any was told; that it is awake.
	bool report_asleep() const;
	void report_awake() const;
	// Nothing comes from that peer any more.
	void drop(NetPeer &peer) { std::erase(incoming_, &peer); }

	// Peers with a ring here. It may get shorter while messages are delivered.
	const std::vector<NetPeer *> &incoming() const { return incoming_; }

	// Of a rank: rings to others.
	static constexpr uint32_t max_outgoing = 512;

private:
	const Device &device_;
	const Config &config_;
	EagerSender &sender_;
	Reporter &reporter_;
	const int numa_node_;
	RegisteredMemory consumer_indices_; // that peers write
	FreeList free_indices_;
	std::vector<NetPeer *> incoming_;
};

} // namespace pt2p::verbs
