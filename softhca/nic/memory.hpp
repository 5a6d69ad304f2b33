// Moving bytes between packets and the memory that keys name.
#pragma once

#include <functional>
#include <span>

#include "softhca/nic/wqe.hpp"

namespace softhca {

struct Qp;

// Where bytes are that a key names; null when the key does not allow it.
struct Memory {
	uint8_t *bytes = nullptr;
	bool on_device = false;
};
// Books the transfer of payload.
void count_read(Qp &qp, const Memory &memory, size_t bytes);
void count_write(Qp &qp, const Memory &memory, size_t bytes);

// What the kernel says of this process' address space, in ascending order, until `use` returns false. Slow.
struct Mapping {
	uint64_t from, to;
	uint64_t offset, inode; // of the file
	bool readable, writable;
};
void for_each_mapping(const std::function<bool(const Mapping &)> &use);
// Whether this process may read, and if asked write, all of a piece of memory; true when that cannot be told. Slow: for
// registration.
bool accessible(uint64_t start, uint64_t length, bool writable);

// Whether all pieces may be used: with IB_UVERBS_ACCESS_LOCAL_WRITE as `rights` also to be written.
bool pieces_allowed(const Qp &qp, std::span<const DataPiece> pieces, uint32_t rights);
// Copies bytes [offset, offset + bytes) of what the pieces name. `entry` holds the pieces that are in the work queue entry
// itself. scatter() is false when a piece that it needs must not be written.
void gather(Qp &qp, std::span<const DataPiece> pieces, const uint8_t *entry, uint64_t offset, uint8_t *to,
            size_t bytes);
bool scatter(Qp &qp, std::span<const DataPiece> pieces, uint64_t offset, const uint8_t *from, size_t bytes);
// Copies in ascending order, the last byte last: programs wait for the last byte of a message to change.
void place(uint8_t *to, const uint8_t *from, size_t bytes);

} // namespace softhca
