// A peer, as all transports over verbs know it.
#pragma once

#include <array>
#include <memory>

#include "transports/verbs/message/sequencer.hpp"
#include "transports/verbs/message/write_ring.hpp"
#include "transports/verbs/qp/work_request.hpp"
#include "transports/verbs/tuning/striping.hpp"

namespace pt2p::verbs {

class Net;
class SendQueue;
struct Lane;

struct NetPeer : Target {
	Net *net = nullptr;
	uint64_t next_sequence = 0;                  // counts the messages; the wire has its low 32 bits
	int64_t last_sign = 0;                       // time of the last sign of life
	OutgoingWriteRing ring;                      // to the peer
	std::unique_ptr<IncomingWriteRing> incoming; // from the peer
	struct {
		uint64_t messages = 0, bytes = 0;
	} by_device_memory, by_buffer, bulk;      // payload that is not inlined; bulk: parts of operations
	uint64_t bulk_written = 0;                // bytes of bulk that this rank's device reads
	uint64_t device_memory_full = 0;          // messages that went to a buffer for that reason
	uint32_t max_queue_pairs = 1;             // for striping
	uint32_t from = 0;                        // this rank, as in the header of a message beside the id
	std::unique_ptr<tune::Striping> striping; // null: nothing was striped yet

	using Lanes = std::array<std::unique_ptr<Lane>, MessageHeader::max_lanes - 1>;
	// By number, from 1; null: none was used.
	virtual const Lanes *further_lanes() const { return nullptr; }
	template <class F>
	void for_each_lane(F &&function) const
	{
		if (const Lanes *lanes = further_lanes())
			for (auto &lane : *lanes)
				if (lane)
					function(*lane);
	}

	// WQEs of all its messages and parts, and their length. What was not counted as encoded took the short path.
	struct Wqes {
		uint64_t count = 0, wqebbs = 0;
	};
	void add_wqes(Wqes &all) const
	{
		const uint64_t short_path = next_sequence - encoded.messages;
		all.count += encoded.wqes + short_path;
		all.wqebbs += encoded.wqebbs + short_path * (remote ? 2 : 1);
	}

	// A queue that can post a work request to the peer now; null: there is none.
	virtual SendQueue *acquire() = 0;
	// The same for a part of an operation, which needs no order.
	virtual SendQueue *acquire_for_part() = 0;
	// The same for a message that must not queue behind others, if the queue is shared between targets.
	virtual SendQueue *acquire_alone() { return acquire(); }
	// The lane with this number, over which a message of the peer has come; null: there is none.
	virtual Lane *lane_from(unsigned number) { return (void)number, nullptr; }
	// The peer is down: the device stops working for it, and its operations fail.
	virtual void cut() = 0;

	bool has_read(const WorkRequest &ring_write) override { return ring.has_read(ring_write.number); }
	Refusal refusal() const override;
};

// A further lane to a peer. It has no write ring: its messages go by SEND.
struct Lane : NetPeer {
	Sequencer::Expected expected; // from the peer
};

} // namespace pt2p::verbs
