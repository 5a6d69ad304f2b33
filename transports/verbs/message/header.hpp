// The wire format of messages of rc and dct.
#pragma once

#include <cstdint>

namespace pt2p::verbs {

// Goes before the payload. The sequence number counts the messages from one rank to another, over all queue pairs. It
// identifies a message that is sent again after a queue pair has broken. Each lane (Endpoint::lane()) has sequence
// numbers of its own.
struct MessageHeader {
	uint64_t header; // of the layer above
	uint32_t sequence;
	uint32_t rank_and_id; // lane (2 bits), rank (22), id (8)

	static constexpr unsigned max_lanes = 4;
	static constexpr uint32_t max_ranks = 1u << 22;
	static uint32_t pack(int rank, uint8_t id, unsigned lane = 0)
	{
		return lane << 30 | static_cast<uint32_t>(rank) << 8 | id;
	}
	// Lane and rank; the rank where the lane is 0.
	uint32_t sender() const { return rank_and_id >> 8; }
	int rank() const { return static_cast<int>(sender() & (max_ranks - 1)); }
	unsigned lane() const { return rank_and_id >> 30; }
	uint8_t id() const { return static_cast<uint8_t>(rank_and_id); }
};
static_assert(sizeof(MessageHeader) == 16);

// Ids of the layers above are smaller.
constexpr uint8_t first_own_id = 0xf0;
constexpr uint8_t id_bundle = 0xf4; // see bundle.hpp
constexpr uint8_t id_bye = 0xff;    // the sender has finalized

} // namespace pt2p::verbs
