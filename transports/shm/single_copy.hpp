// Single-copy transfers between processes: process_vm_readv by the receiver, helped by process_vm_writev of the sender.
//
//   receiver                                   sender
//   claim in the ring that it reads  --HELP--> (message through the opposite ring)
//   takes pieces 0, 2, ... reads them          takes pieces 1, 3, ... writes them
//   done when all pieces are finished          forgets it when no piece is left
//
// A message that comes alone is cut so that both sides finish together. While several wait, each side takes the rest of
// one message at once, the receiver of the oldest and the sender of the newest: that needs fewer system calls, and the
// sides seldom meet.
//
// Both sides take pieces from one shared counter. If the sender is busy elsewhere, the receiver takes them all. The
// counter carries a generation, so a late helper finds nothing to take.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <sys/types.h>

#include "transports/shm/layout.hpp"
#include "transports/transport.hpp"

namespace pt2p::shm {

struct Help {
	uint64_t to;   // in the receiver
	uint64_t from; // in the sender, who is asked to help
	uint64_t length;
	uint32_t piece; // bytes
	uint32_t claim; // index in the ring that the sender writes
	uint32_t generation;
	uint32_t unused;
};
static_assert(sizeof(Help) <= first_line_max);

inline uint32_t piece_count(uint64_t length, uint32_t piece)
{
	return static_cast<uint32_t>((length + piece - 1) / piece);
}
// Bytes of `count` pieces from `first` on; the last piece may be short.
inline size_t piece_bytes(uint64_t length, uint32_t piece, uint32_t first, uint32_t count)
{
	return static_cast<size_t>(
	    std::min(static_cast<uint64_t>(count) * piece, length - static_cast<uint64_t>(first) * piece));
}
// Piece size for a transfer: small enough that both sides finish together, large enough for the system call to vanish.
uint32_t piece_size(uint64_t length);

void open_claim(Claim &claim, uint32_t generation);
// Takes up to `want` consecutive pieces from `first` on; returns how many, 0 when none is left or the claim is of
// another generation.
uint32_t take_pieces(Claim &claim, uint32_t generation, uint32_t pieces, uint32_t want, uint32_t &first);

// Copy all bytes; return 0 or an errno.
int read_from(pid_t process, void *local, uint64_t remote, size_t bytes);
int read_runs(pid_t process, const Run *runs, size_t count); // at most TransportTable::max_runs
int write_to(pid_t process, uint64_t remote, const void *local, size_t bytes);

} // namespace pt2p::shm
