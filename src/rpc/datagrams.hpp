// Calls by datagram: over a transport that may lose what it sends, deliver it twice, or late (cap_lossy). Nothing is
// connected for them, so a server can have callers without number.
//
//   caller                                            server
//   SHORT_CALL or CALL(number, token; ...) -->        served, if its number is the highest so far in its slot
//                       <-- SHORT_REPLY or REPLY      stored until the next call comes in the slot
//   the same again, if no reply comes -->             dropped; the reply, if there is one, is sent again
//
// A call comes in a slot only after the reply to the one before, so a server keeps one number and one reply for each
// slot. That makes a call happen at most once: what was served is known by its number for as long as it can come again.
// A caller goes on until it has the reply, or learns that the server is gone (GONE, or from the launcher).
//
// Either half of a call may go over the connection instead. Then it is repeated all the same, as the other may be lost.
// Windows, notices, and what does not fit in one datagram always do so.
//
// Header-only replies. A reply that is only a word can go as a SEND without payload: the word is in the immediate data
// of its header, so the device reads one WQEBB less. The 32 bits hold a token and a difference. The token came with the
// call, and tells it from all others of this caller. The difference is that to the word before in the slot, which both
// sides know:
//
//   [ token: index 8, turn 6 | difference, signed 18 ]
//
// That gives counters of 64 bits, as long as no more than 2^17 numbers are handed out during a call. An index is taken
// again as late as possible, so a reply that the network repeats fits no later call unless it is 64 x 256 calls late. A
// reply that is sent again always goes as a message, with the number of its call. (Sequencer with 64-bit numbers in 32
// bits: A. Kalia, M. Kaminsky, D. G. Andersen, "Design Guidelines for High Performance RDMA Systems", 2016.)
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "rpc/wire.hpp"

namespace pt2p::rpc {

struct Outgoing;

// The header of a call by datagram: its number, and the token above.
constexpr unsigned datagram_number_bits = 48;
constexpr uint64_t datagram_number(uint64_t header) { return header & ((UINT64_C(1) << datagram_number_bits) - 1); }

// The immediate data of a header-only reply.
struct Immediate {
	static constexpr unsigned difference_bits = 18;
	static constexpr int64_t max_difference = (INT64_C(1) << (difference_bits - 1)) - 1;
	static constexpr bool fits(int64_t difference)
	{
		return difference >= -max_difference && difference <= max_difference;
	}
	static constexpr uint32_t pack(uint16_t token, int64_t difference)
	{
		return uint32_t{token} << difference_bits | (static_cast<uint32_t>(difference) & ((1u << difference_bits) - 1));
	}
	static constexpr uint16_t token(uint32_t word) { return static_cast<uint16_t>(word >> difference_bits); }
	static constexpr int64_t difference(uint32_t word)
	{
		return static_cast<int32_t>(word << (32 - difference_bits)) >> (32 - difference_bits);
	}
};

// The tokens of a caller.
class Tokens {
public:
	static constexpr uint16_t none = 0xffff; // no token is that large
	static constexpr unsigned index_bits = 8, turn_bits = 6, count = 1u << index_bits;

	Tokens()
	{
		for (unsigned i = 0; i < count; ++i)
			free_[i] = static_cast<uint8_t>(i);
	}
	// `none` where all are in use: the reply comes as a message.
	uint16_t take(Outgoing &call)
	{
		if (taken_ - given_ == count)
			return none;
		const uint8_t index = free_[taken_++ % count];
		calls_[index] = &call;
		return static_cast<uint16_t>(index << turn_bits | turns_[index]);
	}
	void give(uint16_t token)
	{
		const auto index = static_cast<uint8_t>(token >> turn_bits);
		calls_[index] = nullptr;
		turns_[index] = (turns_[index] + 1) % (1u << turn_bits);
		free_[given_++ % count] = index;
	}
	// Null: its call has ended.
	Outgoing *find(uint16_t token) const
	{
		const unsigned index = token >> turn_bits;
		return index < count && turns_[index] == token % (1u << turn_bits) ? calls_[index] : nullptr;
	}

private:
	std::array<Outgoing *, count> calls_{};
	std::array<uint8_t, count> turns_{}, free_{}; // free_: a queue, so that each waits long
	uint32_t taken_ = 0, given_ = 0;
};
static_assert(Tokens::index_bits + Tokens::turn_bits + Immediate::difference_bits == 32);

// What a server keeps of the last call by datagram in a slot.
struct DatagramSlot {
	uint32_t number = 0; // of the call, without its slot; counts on and on
	uint16_t token = Tokens::none;
	bool waits = false;   // its reply has found no room in the transport
	uint8_t reply_id = 0; // 0: it has none, or it went over the connection
	uint64_t word = 0;    // of the last reply that succeeded
	std::vector<unsigned char> reply;

	bool was_before(uint32_t call) const { return static_cast<int32_t>(call - number) <= 0; }
};

} // namespace pt2p::rpc
