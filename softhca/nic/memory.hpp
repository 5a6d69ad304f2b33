// Moves bytes between packets and the memory that keys name.
#pragma once

#include <functional>
#include <span>

#include "softhca/nic/wqe.hpp"

namespace softhca {

struct Qp;

// The memory that a key names; null when the key does not allow it.
struct Memory {
	uint8_t *bytes = nullptr;
	bool on_device = false;
};
// Counts the transfer of payload.
void count_read(Qp &qp, const Memory &memory, size_t bytes);
void count_write(Qp &qp, const Memory &memory, size_t bytes);

// The mappings of this process, in ascending order, until `use` returns false. Slow.
struct Mapping {
	uint64_t from, to;
	uint64_t offset, inode; // of the file
	bool readable, writable;
};
void for_each_mapping(const std::function<bool(const Mapping &)> &use);
// Whether this process may read, and with `writable` write, all of this memory; true when that is unknown. Slow: for
// registration.
bool accessible(uint64_t start, uint64_t length, bool writable);

// Whether all segments may be read; with IB_UVERBS_ACCESS_LOCAL_WRITE as `rights`, written.
bool segments_allowed(const Qp &qp, std::span<const DataSegment> segments, uint32_t rights);
// Copies bytes [offset, offset + bytes) of what the segments name. `wqe` holds inline data. scatter() is false when it
// must not write a segment that it needs.
void gather(Qp &qp, std::span<const DataSegment> segments, const uint8_t *wqe, uint64_t offset, uint8_t *to,
            size_t bytes);
bool scatter(Qp &qp, std::span<const DataSegment> segments, uint64_t offset, const uint8_t *from, size_t bytes);
// Copies in ascending order: programs wait for the last byte of a message to change.
void place(uint8_t *to, const uint8_t *from, size_t bytes);

} // namespace softhca
