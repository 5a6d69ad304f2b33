// A peer of a rank on its device: what all transports over verbs know of one.
#pragma once

#include <memory>

#include "transports/verbs/message/write_ring.hpp"
#include "transports/verbs/qp/work_request.hpp"
#include "transports/verbs/tuning/striping.hpp"

namespace pt2p::verbs {

class Net;
class SendQueue;

struct NetPeer : Target {
	Net *net = nullptr;
	uint64_t next_sequence = 0;                  // goes on the wire as 32 bits, and counts the messages
	int64_t last_sign = 0;                       // of life
	OutgoingWriteRing ring;                      // to it
	std::unique_ptr<IncomingWriteRing> incoming; // from it
	struct {
		uint64_t messages = 0, bytes = 0;
	} by_device_memory, by_buffer, bulk;      // what is not inline; bulk: parts of operations
	uint64_t bulk_written = 0;                // of its bytes, those that this rank's device reads
	uint64_t device_memory_full = 0;          // messages that are in a buffer for that reason
	uint32_t max_queue_pairs = 1;             // that parts of operations may be striped over
	std::unique_ptr<tune::Striping> striping; // of these; null: none has been yet

	// A queue that takes a work request to it; null: none does now.
	virtual SendQueue *acquire() = 0;
	// The same for a part of an operation, which needs no order.
	virtual SendQueue *acquire_for_part() = 0;
	// The same for a message that nothing may be in front of, if others could be kept waiting by what it is for.
	virtual SendQueue *acquire_alone() { return acquire(); }
	// It is down: the device is to stop working on what is for it, and its operations fail.
	virtual void cut() = 0;

	bool has_read(const WorkRequest &ring_write) override { return ring.has_read(ring_write.number); }
	Refusal refusal() const override;
};

} // namespace pt2p::verbs
