// The messages by which a rank asks the owner for an operation, where it shares no memory with it and has no transport
// for it.
//
//   PUT(memory, offset, length, signal; first bytes) -->     short: with all bytes
//                                           PIECE ... -->    else they follow, one after another
//                                    <-- RESULT(status)
//   GET(memory, offset, length) -->
//                                    <-- DATA ...            or RESULT with a failure, at any time
//   ATOMIC(memory, offset, what) -->
//                                    <-- RESULT(status, value)
//
// The header of each message is the asking rank's number for the operation. A rank has at most `window` operations that
// an owner has not answered. That bounds what the owner keeps.
#pragma once

#include <cstddef>
#include <cstdint>

#include "message/extension.hpp"

namespace pt2p::onesided {

enum WireId : uint8_t {
	id_put = one_sided_range.first_id,
	id_piece,
	id_get,
	id_atomic,
	id_data,
	id_result,
};

constexpr uint32_t window = 64; // operations
// Bytes that every transport carries: the smallest PT2P_NET_MESSAGE_BYTES is 256, less the headers of the network and
// of forwarding.
constexpr size_t short_message = 256 - 16 - 24;

struct PutHead {
	uint64_t memory, offset, length; // the owner's handle; bytes
	uint64_t signal_memory, signal_offset, signal_value;
	uint64_t signal; // 0: none, else 1 + AtomicKind
};
struct GetHead {
	uint64_t memory, offset, length;
};
struct AtomicHead {
	uint64_t memory, offset, operand, compare;
	uint32_t kind, width;
};
struct Result {
	uint64_t value;
	uint32_t status;
	uint32_t together; // additions that the owner's device has done in one
};
// Said of a peer that sends something else.
inline constexpr const char *wrong_message = "a one-sided operation that does not exist or has the wrong length";
constexpr size_t short_put = short_message - sizeof(PutHead);

} // namespace pt2p::onesided
