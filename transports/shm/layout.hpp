// What lies in a shared segment. Every rank has one segment; it holds what others write for this rank to read:
//
//   +--------------------+  0
//   | SegmentHeader      |  proof of the owner, state, wake word, doorbell summary
//   | directory          |  for each local rank what it has shown of itself (Entry); 0 at first
//   | doorbells          |  one bit for each local rank
//   +--------------------+  header_bytes (page aligned)
//   | ring 0             |  of local rank 0
//   | ring 1             |  of local rank 1 ...
//   +--------------------+
//
// A silent peer costs its directory entry and its doorbell bit: the file has holes where nobody writes. The sender maps
// a ring and gives it memory before its first message, without asking the owner. The data area gets more memory when
// more is in flight.
//
// One ring carries the messages of one ordered pair. Flag, header and the first 48 bytes of the payload share a cache
// line, so a short message moves one cache line. Slots are two lines wide: the next line then belongs to the same
// message, and a prefetcher that fetches neighbouring lines does not take the next slot away from its writer.
//
//   slot:  [ word | header | payload, up to 112 bytes                      ]
//   word:  credit:24 | wrap:1 | length:23 | id:8 | lap:8     written last, with release order
//
// A slot is full when its lap is the reader's: no index is shared and nothing has to be cleared. The message after a
// word with `wrap` is in the first slot, in the next lap. While few messages are in flight, the writer wraps after 16
// slots, which stay in the first-level caches of both ranks. Every 128th lap goes through all slots at least: the lap
// in an old word would otherwise come up again, as it has 8 bits.
//
// Payloads above 112 bytes lie in the ring's data area; the slot's payload then starts with their offset. `credit`
// acknowledges messages of the opposite direction, so two ranks that answer each other never touch the credit line.
//
// The owner trusts nothing in its segment. It keeps positions privately, checks what a peer writes against bounds, and
// reads a ring only after its writer has shown that it knows the owner's secret.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/memory/fence.hpp"

namespace pt2p::shm {

constexpr uint64_t segment_magic = UINT64_C(0x70743270'73686d31); // "pt2pshm1"
constexpr uint32_t layout_version = 3;
constexpr size_t line = 128; // two cache lines: see above

enum State : uint32_t { state_alive = 1, state_left = 2 };

struct SegmentHeader {
	uint64_t proof;  // of the owner
	uint32_t fences; // 1: senders have to fence before they look at `attention` (no membarrier here)
	std::atomic<uint32_t> state;

	alignas(line) std::atomic<uint32_t> wake_word;        // futex
	std::atomic<uint32_t> sleeping;                       // the owner sleeps, or is about to
	alignas(line) std::atomic<uint64_t> doorbell_summary; // bit w: look at doorbell word w (w modulo 64)
};

// A copy that two ranks do together; see single_copy.hpp.
struct alignas(line) Claim {
	std::atomic<uint64_t> next; // generation:32 | next piece:32
	std::atomic<uint32_t> finished;
	std::atomic<uint32_t> failed; // errno of a helper that could not copy
};
constexpr unsigned claims_per_ring = 8;

struct RingHeader {
	alignas(line) std::atomic<uint64_t> consumed;  // by the reader: slots read, published lazily
	alignas(line) std::atomic<uint32_t> attention; // by the reader: it does not poll this ring, ring the doorbell
	alignas(line) std::atomic<uint32_t> starved;   // by the writer: it waits for `consumed`
	std::atomic<uint32_t> left;                    // by the writer: it has finalized; outlives its own segment
	Claim claims[claims_per_ring];
};

constexpr size_t inline_max = 112;
constexpr size_t first_line_max = 48;

struct alignas(line) Slot {
	std::atomic<uint64_t> word;
	uint64_t header;
	unsigned char payload[inline_max];
};
static_assert(sizeof(Slot) == line);
static_assert(offsetof(Slot, payload) + first_line_max == 64);

// A ring in memory, wherever it is mapped.
struct Ring {
	RingHeader *head = nullptr;
	Slot *slots = nullptr;
	unsigned char *data = nullptr; // after the slots

	const Slot *last_slot() const { return reinterpret_cast<const Slot *>(data) - 1; }
	static Ring at(void *base, uint32_t slots)
	{
		auto *bytes = static_cast<unsigned char *>(base);
		return {reinterpret_cast<RingHeader *>(bytes), reinterpret_cast<Slot *>(bytes + sizeof(RingHeader)),
		        bytes + sizeof(RingHeader) + slots * sizeof(Slot)};
	}
};

// The parts of a slot's word.
struct Word {
	static constexpr uint32_t credit_mask = 0xffffff, length_mask = 0x7fffff;
	static constexpr uint64_t wrap = UINT64_C(1) << 39;
	static uint64_t pack(uint8_t lap, uint8_t id, uint32_t length, uint32_t credit)
	{
		return static_cast<uint64_t>(lap) | static_cast<uint64_t>(id) << 8 | static_cast<uint64_t>(length) << 16 |
		       static_cast<uint64_t>(credit & credit_mask) << 40;
	}
	static uint8_t lap(uint64_t w) { return static_cast<uint8_t>(w); }
	static uint8_t id(uint64_t w) { return static_cast<uint8_t>(w >> 8); }
	static uint32_t length(uint64_t w) { return static_cast<uint32_t>(w >> 16) & length_mask; }
	static bool wraps(uint64_t w) { return w & wrap; }
	static uint32_t credit(uint64_t w) { return static_cast<uint32_t>(w >> 40); }
};

constexpr size_t page = 4096;
constexpr size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

inline size_t doorbell_words(uint32_t ranks) { return (ranks + 63) / 64; }
// A directory entry is written by the rank that it stands for:
//
//   entry:  open:1 | failures:15 | proof:48    open: it writes into its ring; failures: how often it could not get one
struct Entry {
	static constexpr uint64_t proof_mask = (UINT64_C(1) << 48) - 1;
	static constexpr uint16_t open = 0x8000, failures_mask = 0x7fff;

	static uint64_t pack(uint16_t facts, uint64_t proof) { return uint64_t{facts} << 48 | (proof & proof_mask); }
	static uint16_t facts(uint64_t entry) { return static_cast<uint16_t>(entry >> 48); }
};
inline std::atomic<uint64_t> *directory(SegmentHeader *h) { return reinterpret_cast<std::atomic<uint64_t> *>(h + 1); }
inline size_t doorbells_offset(uint32_t ranks)
{
	return round_up(sizeof(SegmentHeader) + ranks * sizeof(uint64_t), 64);
}
inline std::atomic<uint64_t> *doorbells(SegmentHeader *h, uint32_t ranks)
{
	return reinterpret_cast<std::atomic<uint64_t> *>(reinterpret_cast<unsigned char *>(h) + doorbells_offset(ranks));
}
inline size_t header_bytes(uint32_t ranks)
{
	return round_up(doorbells_offset(ranks) + doorbell_words(ranks) * sizeof(uint64_t), page);
}
// With this much of its data area.
inline size_t ring_bytes(uint32_t slots, uint64_t data_bytes)
{
	return round_up(sizeof(RingHeader) + slots * sizeof(Slot) + data_bytes, page);
}
static_assert(sizeof(SegmentHeader) % alignof(std::atomic<uint64_t>) == 0);
static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free);

} // namespace pt2p::shm
