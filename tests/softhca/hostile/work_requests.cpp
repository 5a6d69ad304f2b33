// Work requests that no program would make: the rings of queue pairs are filled with anything.
#include <algorithm>
#include <cstring>
#include <endian.h>

#include "tests/softhca/hostile/round.hpp"

namespace hostile {

namespace {

void put16(uint8_t *&at, uint16_t v) { v = htobe16(v), std::memcpy(at, &v, sizeof v), at += sizeof v; }
void put32(uint8_t *&at, uint32_t v) { v = htobe32(v), std::memcpy(at, &v, sizeof v), at += sizeof v; }
void put64(uint8_t *&at, uint64_t v) { v = htobe64(v), std::memcpy(at, &v, sizeof v), at += sizeof v; }

// Encodes a WQE as libmlx5 would. Returns the number of its 16-byte segments.
uint32_t encode_wqe(const Round &round, ibv_qp *qp, bool address, uint16_t index, uint8_t *wqe)
{
	constexpr uint8_t opcodes[] = {0x00, 0x08, 0x09, 0x0a, 0x0b, 0x10, 0x11, 0x12};
	const uint8_t opcode = one_of(opcodes);
	uint8_t *at = wqe + 16;
	if (address) {
		put64(at, qp == round.dci ? dc_key : UINT64_C(0x11) << 32);
		ibv_qp *targets[] = {round.dct, round.dct, round.datagrams, round.one};
		put32(at, one_of(targets)->qp_num | 0x80000000);
		put16(at, 0);
		put16(at, round.lid);
		std::memset(at, 0, 32);
		at += 32;
	}
	if (opcode == 0x08 || opcode == 0x09 || opcode >= 0x10) {
		put64(at, round.arena.address() & (opcode > 0x10 ? ~UINT64_C(7) : ~UINT64_C(0)));
		put32(at, round.arena.key());
		put32(at, 0);
	}
	if (opcode > 0x10) {
		put64(at, random_below(3));
		put64(at, random_below(3));
		put32(at, 8);
		put32(at, round.arena.key());
		put64(at, round.arena.address());
	} else if (opcode) {
		for (uint32_t n = random_below(4); n; --n) {
			if (sometimes(4)) { // inline
				const uint32_t bytes = random_below(29);
				put32(at, bytes | 0x80000000);
				at += (bytes + 4 + 15) / 16 * 16 - 4;
			} else {
				put32(at, sometimes(20) ? static_cast<uint32_t>(random_word()) : random_below(9000));
				put32(at, round.arena.key());
				put64(at, round.arena.address());
			}
		}
	}
	const auto segments = static_cast<uint32_t>(at - wqe) / 16;
	at = wqe;
	put32(at, static_cast<uint32_t>(index) << 8 | opcode);
	put32(at, qp->qp_num << 8 | segments);
	const uint32_t flags = (sometimes(2) ? 8u : 0u) | (sometimes(4) ? 2u : 0u) | (sometimes(8) ? 0x80u : 0u);
	put32(at, flags);
	put32(at, static_cast<uint32_t>(random_word()));
	return segments;
}

} // namespace

void fuzz_send_queue(Round &round, ibv_qp *qp, bool address)
{
	mlx5dv_qp dv{};
	mlx5dv_obj object{};
	object.qp.in = qp;
	object.qp.out = &dv;
	check(mlx5dv_init_obj(&object, MLX5DV_OBJ_QP) == 0, "no direct access");
	auto *ring = static_cast<uint8_t *>(dv.sq.buf);
	const size_t ring_bytes = static_cast<size_t>(dv.sq.wqe_cnt) * dv.sq.stride;
	auto producer = static_cast<uint16_t>(be32toh(dv.dbrec[1]));
	for (uint32_t n = 1 + random_below(12); n; --n) {
		uint8_t wqe[1024] = {};
		uint32_t segments = encode_wqe(round, qp, address, producer, wqe);
		if (sometimes(12))
			for (uint8_t &byte : wqe)
				byte = static_cast<uint8_t>(engine());
		if (sometimes(3))
			for (uint32_t flips = 1 + random_below(3); flips; --flips)
				wqe[random_below(segments * 16)] ^= static_cast<uint8_t>(1u << random_below(8));
		const uint32_t units = std::max(1u, (segments + 3) / 4);
		for (size_t i = 0; i < units * 64; ++i)
			ring[(static_cast<size_t>(producer) * 64 + i) % ring_bytes] = wqe[i];
		producer = static_cast<uint16_t>(producer + units);
	}
	if (sometimes(30))
		producer = static_cast<uint16_t>(random_word());
	__atomic_store_n(&dv.dbrec[1], htobe32(producer), __ATOMIC_RELEASE);
	// The receive queue as well.
	if (dv.rq.wqe_cnt && sometimes(4)) {
		auto *receives = static_cast<uint8_t *>(dv.rq.buf);
		for (size_t i = random_below(dv.rq.wqe_cnt * dv.rq.stride), n = random_below(64);
		     n && i < static_cast<size_t>(dv.rq.wqe_cnt) * dv.rq.stride; ++i, --n)
			receives[i] = static_cast<uint8_t>(engine());
		if (sometimes(4))
			__atomic_store_n(&dv.dbrec[0], static_cast<uint32_t>(random_word()), __ATOMIC_RELEASE);
	}
}

void fuzz_srq(Round &round)
{
	mlx5dv_srq dv{};
	mlx5dv_obj object{};
	object.srq.in = round.srq;
	object.srq.out = &dv;
	check(mlx5dv_init_obj(&object, MLX5DV_OBJ_SRQ) == 0, "no direct access");
	auto *ring = static_cast<uint8_t *>(dv.buf);
	round.srq_spoiled = true;
	for (uint32_t n = random_below(20); n; --n)
		ring[random_below((dv.tail + 1) * dv.stride)] = static_cast<uint8_t>(engine());
	if (sometimes(3))
		__atomic_store_n(dv.dbrec, static_cast<uint32_t>(random_word()), __ATOMIC_RELEASE);
}

} // namespace hostile
