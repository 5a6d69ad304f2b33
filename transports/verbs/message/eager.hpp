// An eager message that takes more than the short path: it decides how the message is delivered (SEND, or WRITE into the peer's write
// ring) and where its payload is staged (inline, in device memory, in a buffer), and posts it.
#pragma once

#include "base/memory/copy_short.hpp"
#include "transports/verbs/device/send_memory.hpp"
#include "transports/verbs/message/header.hpp"
#include "transports/verbs/peer.hpp"
#include "transports/verbs/qp/send_queue.hpp"

namespace pt2p {
class Reporter;
}

namespace pt2p::verbs {

class EagerSender {
public:
	EagerSender(int rank, SendMemory &memory, tune::DeviceTuner &tuner, Reporter &reporter)
	    : from_(MessageHeader::pack(rank, 0)), memory_(memory), tuner_(tuner), reporter_(reporter)
	{
	}

	// Through a queue that can post; false when there is no place for its payload.
	bool send(SendQueue &queue, NetPeer &peer, uint8_t id, uint64_t header, const void *data, size_t length);
	uint32_t from() const { return from_; }
	Reporter &reporter() const { return reporter_; }

private:
	// Where the payload of a message is staged.
	struct Staged {
		Payload payload = Payload::inlined;
		uint32_t place = FreeList::none;
		bool scarce = false; // such places are: a completion frees them
		bool sample = false; // of the latency there
		int64_t since = 0;   // ticks, of a sample
	};
	bool stage(SendQueue &queue, NetPeer &peer, uint32_t bytes, Staged &staged);

	const uint32_t from_; // this rank, as a header has it beside the id
	SendMemory &memory_;
	tune::DeviceTuner &tuner_;
	Reporter &reporter_;
};

// The short path: a message of up to some bytes by SEND, inline, into a WQE that is written directly.
template <bool dc>
[[gnu::always_inline]] inline void send_short(SendQueue &queue, NetPeer &peer, const mlx5_wqe_av *av, uint32_t rank_and_id,
                                              uint64_t header, const void *data, size_t length)
{
	const auto sequence = static_cast<uint32_t>(peer.next_sequence++);
	queue.post_short<dc>(peer, av, static_cast<uint32_t>(sizeof(MessageHeader) + length), [&](unsigned char *to) {
		mlx5::store(to, header);
		mlx5::store(to + offsetof(MessageHeader, sequence), sequence);
		mlx5::store(to + offsetof(MessageHeader, rank_and_id), rank_and_id);
		copy_short(to + sizeof(MessageHeader), data, length);
	});
}

} // namespace pt2p::verbs
