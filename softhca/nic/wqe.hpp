// Work queue entries (WQEs) as libmlx5 encodes them: a control segment, segments of the operation, data segments.
//
//   send queue, in WQEBBs of 64 bytes, wrapping at the end of the ring:
//     [ control 16 ][ address 16 or 48: DC, UD ][ remote 16 ][ atomic 16 ][ data 16 ]...
//   A data segment is a pointer (length, key, address), or, with the top bit of its length set, inline data, padded
//   to 16.
//
// All numbers in a segment are big-endian. Nothing in a ring is trusted: what is inconsistent is refused.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "softhca/kernel/qp_states.hpp"

namespace softhca {

enum class Opcode : uint8_t {
	nop = 0x00,
	rdma_write = 0x08,
	rdma_write_imm = 0x09,
	send = 0x0a,
	send_imm = 0x0b,
	rdma_read = 0x10,
	compare_swap = 0x11,
	fetch_add = 0x12,
};

// A data segment: memory under a key, or bytes of the WQE itself (key 0, `address` counts from its start).
struct DataSegment {
	uint64_t address;
	uint32_t length, key;
	bool is_inline;
};

constexpr size_t wqebb_bytes = 64;     // the basic block of a send queue
constexpr size_t max_wqe_bytes = 1008; // 63 segments: the count has six bits
constexpr size_t max_segments = max_wqe_bytes / 16;

struct Wqe {
	Opcode opcode;
	uint16_t index; // of its first WQEBB, modulo 2^16
	uint32_t qpn;
	uint32_t bytes; // of the WQE, a multiple of 16
	bool signalled, solicited, fence;
	uint32_t immediate;
	// Remote memory: RDMA and atomic operations.
	uint64_t remote_address;
	uint32_t remote_key;
	uint64_t swap_or_add, compare;
	// Address vector: DC and UD.
	uint64_t access_key;  // DC access key, or Q_Key
	uint32_t destination; // QP or DCT number
	uint16_t lid;
	bool route; // a datagram with a global route header, to `gid`
	uint8_t gid[16];
	uint8_t traffic_class, hop_limit;
	size_t segment_count;
	uint64_t length; // of all segments
	std::array<DataSegment, max_segments> segments;
	// A copy of the WQE as fetched: the program may reuse its WQEBBs once it has the completion.
	std::array<uint8_t, max_wqe_bytes> raw;

	std::span<const DataSegment> all() const { return {segments.data(), segment_count}; }
	bool is_read() const { return opcode == Opcode::rdma_read; }
	bool is_atomic() const { return opcode == Opcode::compare_swap || opcode == Opcode::fetch_add; }
};

// Reads the WQE at WQEBB `index` of a send queue. `ring` is a power of two of WQEBBs. False when a queue pair of that
// kind cannot execute it; `wqe` then holds as much as could be read.
bool parse_wqe(std::span<const uint8_t> ring, uint16_t index, QpKind kind, Wqe &wqe);

} // namespace softhca
