// An eager message that does not take the short path. This decides how the message is delivered (by SEND, or by WRITE
// into the peer's write ring) and where its payload is staged (inline, in device memory, in a buffer), and posts it.
// Messages to one peer that leave together share work requests (bundle.hpp).
#pragma once

#include "transports/verbs/device/send_memory.hpp"
#include "transports/verbs/message/bundle.hpp"
#include "transports/verbs/peer.hpp"
#include "transports/verbs/qp/send_queue.hpp"

namespace pt2p {
class Reporter;
}

namespace pt2p::verbs {

class EagerSender {
public:
	EagerSender(SendMemory &memory, tune::DeviceTuner &tuner, Reporter &reporter)
	    : memory_(memory), tuner_(tuner), reporter_(reporter)
	{
	}

	// Through a queue that can post; false: there is no free place for the payload.
	bool send(SendQueue &queue, NetPeer &peer, uint8_t id, uint64_t header, const void *data, size_t length);
	// Adds the message to the one that is open in the queue. False: it has to be sent by itself.
	bool join(SendQueue &queue, NetPeer &peer, uint8_t id, uint64_t header, const void *data, size_t length);
	Reporter &reporter() const { return reporter_; }

private:
	// Where the payload of a message is staged.
	struct Staged {
		Payload payload = Payload::inlined;
		uint32_t place = FreeList::none;
		Shortage shortage = Shortage::none; // of such places
		bool sample = false;                // the latency of staging is observed
		int64_t since = 0;                  // sample: begin, in ticks
	};
	bool stage(SendQueue &queue, NetPeer &peer, uint32_t bytes, Staged &staged);
	static size_t max_send_bytes(const NetPeer &peer);
	bool stays_open(const NetPeer &peer, const WorkRequest &request, uint8_t id, size_t length) const;

	SendMemory &memory_;
	tune::DeviceTuner &tuner_;
	Reporter &reporter_;
};

} // namespace pt2p::verbs
