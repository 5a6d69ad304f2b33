// The write rings of a rank: requests, offers, and consumer indices. See write_ring.hpp.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "pt2p.h"
#include "transports/verbs/message/eager.hpp"
#include "transports/verbs/message/sequencer.hpp"
#include "transports/verbs/tuning/grants.hpp"

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
		const bool may_send_bundles_;
	};
	// Requests a ring from a peer, if its send queue has room.
	void ask(NetPeer &peer);
	// A peer requests or offers a ring, wants one back, or returns one. `sequence` is the number of its message.
	// on_offer() returns what is wrong with the offer; empty: nothing.
	void on_request(NetPeer &peer, const RingRequest &request, uint32_t sequence);
	std::string on_offer(NetPeer &peer, const RingOffer &offer) const;
	void on_retire(NetPeer &peer);
	void on_returned(NetPeer &peer);
	// So many messages have come. At the end of a period, rings are granted and taken back by use.
	void count(unsigned messages, const Sequencer &sequencer)
	{
		if (__builtin_expect((left_ -= messages) <= 0, 0))
			end_period(sequencer);
	}
	// Whether some are on their way back; does what there is to do for them.
	bool any_returning() const { return !returning_.empty() || !returned_.empty() || retired_; }
	void look_after();
	// Writes the consumer index of a ring to its sender. False: the send queue has no room now.
	bool report_read(NetPeer &peer, uint64_t flags = 0) const;
	// Tell all senders that this rank goes to sleep (true: there are senders), or is awake.
	bool report_asleep() const;
	void report_awake() const;
	// Nothing comes from that peer any more.
	void drop(NetPeer &peer);
	// That peer, which was dropped, cannot write here any more.
	void forget(NetPeer &peer);

	// Peers with a ring here. The list may get shorter while messages are delivered.
	const std::vector<NetPeer *> &incoming() const { return incoming_; }

	// Rings from one rank to others.
	static constexpr uint32_t max_outgoing = 512;

private:
	// Of a peer that has a ring here, or has requested one.
	struct Use {
		std::unique_ptr<RingRequest> request; // it has none
		uint32_t sequence = 0;                // of its messages, at the beginning of the period
		uint32_t messages = 0;                // in the last period
		uint8_t dormant = 0, behind = 0;      // see grants.hpp
	};

	Use &use_of(const NetPeer &peer) { return uses_[peer.peer]; }
	void make(NetPeer &peer, const RingRequest &request);
	void offer(NetPeer &peer) const;
	void end_period(const Sequencer &sequencer);
	void grant(NetPeer &peer);
	void grant_next();
	bool take_back(NetPeer &peer);
	bool give_back(NetPeer &peer);

	const Config &config_;
	EagerSender &sender_;
	Reporter &reporter_;
	const bool automatic_;     // rings may be used without being asked for
	const uint32_t max_rings_; // this rank's share of the device's
	RingMemory memory_;
	RegisteredMemory consumer_indices_; // written by peers
	FreeList free_indices_;
	std::unordered_map<int, Use> uses_; // by rank
	std::vector<NetPeer *> incoming_;
	std::vector<NetPeer *> requesting_; // peers without a ring that have requested one
	std::vector<NetPeer *> returned_;   // rings here that are to be freed
	std::vector<NetPeer *> returning_;  // of other ranks, which want them back
	unsigned retired_ = 0;              // rings here that their senders have been asked for
	int64_t left_;                      // messages until the period ends
	tune::Grants grants_;
	std::vector<NetPeer *> competing_; // while a period ends, with their use
	std::vector<tune::SenderUse> seen_;
};

} // namespace pt2p::verbs
