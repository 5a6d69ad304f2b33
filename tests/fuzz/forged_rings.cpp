// SPDX-License-Identifier: BSD-3-Clause
// Forged slots, words, offsets and headers in the shared memory that rank 1 reads.
#include "tests/fuzz/pair.hpp"

#include <cstring>

#include "onesided/wire.hpp"

namespace fuzz {

void Pair::ring_doorbell()
{
	shm::SegmentHeader *h = shm_->header();
	shm::doorbells(h, 2)[0].fetch_or(1);
	h->doorbell_summary.fetch_or(1);
}

size_t Pair::a_slot(Input &in)
{
	const uint8_t far = in.byte();
	const auto next = static_cast<size_t>(shm_->peer_of(0)->in.slot() - ring_.slots);
	return (next + (far < 200 ? 0 : far)) % slots_;
}

void Pair::forge_slot(Input &in)
{
	shm::Slot &slot = ring_.slots[a_slot(in)];
	const uint8_t how = in.byte();
	uint8_t id = in.byte();
	if (how & 1)
		id = id % 16 < 10 ? id % 16 : static_cast<uint8_t>(onesided::id_put + id % 16 - 10); // those that exist
	if (how & 2)
		id = static_cast<uint8_t>(0xfe | (id & 1));
	slot.header = any_number(in);
	auto length = static_cast<uint32_t>(control_payload(in, id, slot.payload));
	if (how & 4) {
		length = static_cast<uint32_t>(in.number(3));
		if (how & 8)
			length %= 2048;
		if (length > shm::inline_max) {
			auto offset = static_cast<uint32_t>(any_number(in));
			if (how & 16)
				offset %= data_bytes_;
			std::memcpy(slot.payload, &offset, sizeof offset);
		}
	}
	// A long announcement does not exist, but a short one must not name foreign memory.
	if (length == sizeof(wire::Announcement)) {
		uint64_t words[5];
		std::memcpy(words, slot.payload, sizeof words);
		bound(id, words);
		std::memcpy(slot.payload, words, sizeof words);
	}
	const uint8_t lap = how & 32 ? in.byte() : shm_->peer_of(0)->in.lap();
	const uint64_t wrap = how & 64 ? shm::Word::wrap : 0;
	slot.word.store(shm::Word::pack(lap, id, length, static_cast<uint32_t>(any_number(in))) | wrap,
	                std::memory_order_release);
	ring_doorbell();
	pt2p_progress(ctx_[1]);
}

// An eager message whose payload ends where the data area does.
void Pair::forge_payload_at_end(Input &in)
{
	const shm::Reader &reader = shm_->peer_of(0)->in;
	const auto length = static_cast<uint32_t>(in.number(2) % (data_bytes_ / 4 + 1));
	const uint32_t offset = data_bytes_ - length;
	shm::Slot &slot = ring_.slots[reader.slot() - ring_.slots];
	std::memcpy(slot.payload, &offset, sizeof offset);
	slot.header = in.byte() % 4;
	slot.word.store(shm::Word::pack(reader.lap(), wire::id_eager, length, in.byte()), std::memory_order_release);
	ring_doorbell();
	pt2p_progress(ctx_[1]);
}

void Pair::forge_header(Input &in)
{
	shm::SegmentHeader *h = shm_->header();
	shm::RingHeader &r = *ring_.head;
	const uint64_t n = any_number(in);
	const auto small = static_cast<uint32_t>(n);
	switch (in.byte() % 9) {
	case 0: h->doorbell_summary.store(n); break;
	case 1:
		shm::doorbells(h, 2)[0].store(n);
		h->doorbell_summary.fetch_or(1);
		break;
	case 2: shm::directory(h)[small % 2].store(in.number(8)); break;
	case 3: r.starved.store(small); break;
	case 4: r.claims[in.byte() % shm::claims_per_ring].next.store(n); break;
	case 5: r.claims[in.byte() % shm::claims_per_ring].finished.store(small); break;
	case 6: r.attention.store(small); break;
	case 7: // what the reader of the other ring told about its position
		shm_->peer_of(0)->out.head().consumed.store(n);
		break;
	default: h->wake_word.store(small); h->sleeping.store(small % 2);
	}
	pt2p_progress(ctx_[1]);
}

} // namespace fuzz
