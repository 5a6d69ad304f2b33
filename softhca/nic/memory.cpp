#include "softhca/nic/memory.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/ib_user_verbs.h>

#include "softhca/kernel/context.hpp"
#include "softhca/nic/nic.hpp"

namespace softhca {

namespace {

// Calls `use(segment, offset in it, offset in the range, bytes)` for each part of bytes [offset, offset + bytes) of all
// segments.
template <class Use>
void for_range(std::span<const DataSegment> segments, uint64_t offset, size_t bytes, const Use &use)
{
	size_t done = 0;
	for (const DataSegment &segment : segments) {
		if (done == bytes)
			return;
		if (offset >= segment.length) {
			offset -= segment.length;
			continue;
		}
		const size_t n = std::min<size_t>(bytes - done, static_cast<size_t>(segment.length - offset));
		use(segment, offset, done, n);
		done += n;
		offset = 0;
	}
}

} // namespace

void for_each_mapping(const std::function<bool(const Mapping &)> &use)
{
	FILE *maps = std::fopen("/proc/self/maps", "re");
	if (!maps)
		return;
	char line[512];
	bool more = true;
	while (more && std::fgets(line, sizeof line, maps)) {
		unsigned long long from, to, offset, inode;
		char read, write;
		if (std::sscanf(line, "%llx-%llx %c%c%*s %llx %*s %llu", &from, &to, &read, &write, &offset, &inode) == 6)
			more = use({from, to, offset, inode, read == 'r', write == 'w'});
	}
	std::fclose(maps);
}

bool accessible(uint64_t start, uint64_t length, bool writable)
{
	if (time_is_virtual())
		return true; // the check would be slow with so many devices
	uint64_t at = start;
	const uint64_t end = start + length;
	bool seen = false;
	for_each_mapping([&](const Mapping &mapping) {
		seen = true;
		if (mapping.to <= at)
			return true;
		if (mapping.from > at || !mapping.readable || (writable && !mapping.writable))
			return false;
		at = mapping.to;
		return at < end;
	});
	return at >= end || !seen;
}

Memory Context::memory(const Pd &pd, uint32_t key, uint64_t address, uint64_t length, uint32_t rights) const
{
	const auto mr = objects.mrs.find(key >> 8);
	if (!mr || mr->key != key || mr->pd.get() != &pd || (rights & mr->access) != rights)
		return {};
	const uint64_t offset = address - mr->iova;
	if (address < mr->iova || offset > mr->length || length > mr->length - offset)
		return {};
	if (mr->dm)
		return {objects.device_memory.bytes() + mr->start + offset, true};
	return {reinterpret_cast<uint8_t *>(static_cast<uintptr_t>(mr->start + offset)), false};
}

bool segments_allowed(const Qp &qp, std::span<const DataSegment> segments, uint32_t rights)
{
	for (const DataSegment &segment : segments) {
		if (segment.is_inline && rights != 0)
			return false;
		if (!segment.is_inline && segment.length &&
		    !qp.context.memory(*qp.pd, segment.key, segment.address, segment.length, rights).bytes)
			return false;
	}
	return true;
}

void gather(Qp &qp, std::span<const DataSegment> segments, const uint8_t *wqe, uint64_t offset, uint8_t *to,
            size_t bytes)
{
	for_range(segments, offset, bytes, [&](const DataSegment &segment, uint64_t in_segment, size_t at, size_t n) {
		if (segment.is_inline) {
			std::memcpy(to + at, wqe + segment.address + in_segment, n);
			return;
		}
		const uint64_t address = segment.address + in_segment;
		const Memory memory = qp.context.memory(*qp.pd, segment.key, address, n, 0);
		if (!memory.bytes)
			return;
		std::memcpy(to + at, memory.bytes, n);
		count_read(qp, memory, n);
	});
}

bool scatter(Qp &qp, std::span<const DataSegment> segments, uint64_t offset, const uint8_t *from, size_t bytes)
{
	bool allowed = true;
	for_range(segments, offset, bytes, [&](const DataSegment &segment, uint64_t in_segment, size_t at, size_t n) {
		const uint64_t address = segment.address + in_segment;
		const Memory memory = segment.is_inline
		                          ? Memory{}
		                          : qp.context.memory(*qp.pd, segment.key, address, n, IB_UVERBS_ACCESS_LOCAL_WRITE);
		if (!memory.bytes) {
			allowed = false;
			return;
		}
		place(memory.bytes, from + at, n);
		count_write(qp, memory, n);
	});
	return allowed;
}

void count_read(Qp &qp, const Memory &memory, size_t bytes)
{
	if (memory.on_device) {
		qp.count(Counter::dm_read_bytes, bytes);
	} else {
		qp.count(Counter::payload_reads, pcie_reads(reinterpret_cast<uintptr_t>(memory.bytes), bytes));
		qp.count(Counter::payload_read_bytes, bytes);
	}
}

void count_write(Qp &qp, const Memory &memory, size_t bytes)
{
	if (memory.on_device) {
		qp.count(Counter::dm_write_bytes, bytes);
	} else {
		qp.count(Counter::payload_writes, pcie_writes(reinterpret_cast<uintptr_t>(memory.bytes), bytes));
		qp.count(Counter::payload_write_bytes, bytes);
		qp.context.nic().scheduler().wrote(qp.context);
	}
}

// Every store is a release: a reader that sees a later byte sees all before it. On x86-64 these are plain stores.
void place(uint8_t *to, const uint8_t *from, size_t bytes)
{
	using Word = uint64_t;
	while (bytes && reinterpret_cast<uintptr_t>(to) % sizeof(Word)) {
		__atomic_store_n(to++, *from++, __ATOMIC_RELEASE);
		--bytes;
	}
	for (; bytes >= sizeof(Word); bytes -= sizeof(Word), to += sizeof(Word), from += sizeof(Word)) {
		Word word;
		std::memcpy(&word, from, sizeof word);
		__atomic_store_n(reinterpret_cast<Word *>(to), word, __ATOMIC_RELEASE);
	}
	while (bytes--)
		__atomic_store_n(to++, *from++, __ATOMIC_RELEASE);
}

} // namespace softhca
