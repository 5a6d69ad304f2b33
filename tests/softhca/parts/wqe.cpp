// WQEs as libmlx5 encodes them, WQEs that wrap, and bytes that are no WQE.
#include <catch2/catch.hpp>

#include <cstring>
#include <endian.h>
#include <random>
#include <vector>

#include "softhca/nic/wqe.hpp"

using namespace softhca;

namespace {

// Encodes a WQE in a ring, segment by segment.
class Builder {
public:
	Builder(size_t units, uint16_t index, Opcode opcode, uint8_t flags = 0, uint32_t immediate = 0)
	    : ring(units * 64, 0xee), index_(index)
	{
		be32(static_cast<uint32_t>(index) << 8 | static_cast<uint32_t>(opcode));
		be32(0);
		be32(flags);
		be32(immediate);
	}
	Builder &be32(uint32_t value)
	{
		const uint32_t big = htobe32(value);
		return bytes(&big, sizeof big);
	}
	Builder &be64(uint64_t value)
	{
		return be32(static_cast<uint32_t>(value >> 32)).be32(static_cast<uint32_t>(value));
	}
	Builder &bytes(const void *from, size_t n)
	{
		entry_.insert(entry_.end(), static_cast<const uint8_t *>(from), static_cast<const uint8_t *>(from) + n);
		return *this;
	}
	Builder &pad()
	{
		while (entry_.size() % 16)
			entry_.push_back(0);
		return *this;
	}
	Builder &data(uint32_t length, uint32_t key, uint64_t address) { return be32(length).be32(key).be64(address); }

	bool parse(QpKind kind, Wqe &wqe, int more_segments = 0)
	{
		const uint32_t which = htobe32(0x123456u << 8 | static_cast<uint32_t>(entry_.size() / 16 + more_segments));
		std::memcpy(&entry_[4], &which, sizeof which);
		for (size_t i = 0; i < entry_.size(); ++i)
			ring[(index_ * 64u + i) % ring.size()] = entry_[i];
		return parse_wqe(ring, index_, kind, wqe);
	}
	std::vector<uint8_t> ring;

private:
	uint16_t index_;
	std::vector<uint8_t> entry_;
};

} // namespace

TEST_CASE("a send with two pieces")
{
	Wqe w;
	Builder b(16, 3, Opcode::send_imm, 8 | 2, 0xabcdef01);
	REQUIRE(b.data(100, 7, 0x1000).data(28, 9, 0x2000).parse(QpKind::rc, w));
	CHECK(w.opcode == Opcode::send_imm);
	CHECK(w.qpn == 0x123456);
	CHECK(w.index == 3);
	CHECK(w.bytes == 48);
	CHECK((w.signalled && w.solicited && !w.fence));
	CHECK(w.immediate == 0xabcdef01);
	REQUIRE(w.segment_count == 2);
	CHECK((w.segments[0].length == 100 && w.segments[0].key == 7 && w.segments[0].address == 0x1000));
	CHECK((w.segments[1].length == 28 && w.segments[1].key == 9 && w.segments[1].address == 0x2000));
	CHECK(w.length == 128);
}

TEST_CASE("inline bytes, padded, before a pointer, across the end of the ring")
{
	const char text[] = "exactly twenty-nine bytes here";
	for (uint16_t index : {uint16_t{0}, uint16_t{3}, uint16_t{7}}) {
		Wqe w;
		Builder b(4, index, Opcode::rdma_write, 4 << 5);
		b.be64(0xdeadbeef00).be32(77).be32(0);
		REQUIRE(b.be32(0x80000000u | 29).bytes(text, 29).pad().data(5, 6, 7).parse(QpKind::rc, w));
		CHECK(w.fence);
		CHECK(w.remote_address == 0xdeadbeef00);
		CHECK(w.remote_key == 77);
		REQUIRE(w.segment_count == 2);
		CHECK((w.segments[0].is_inline && w.segments[0].length == 29));
		CHECK(std::memcmp(w.raw.data() + w.segments[0].address, text, 29) == 0);
		CHECK((!w.segments[1].is_inline && w.segments[1].length == 5));
		CHECK(w.length == 34);
	}
}

TEST_CASE("atomic operations bring back eight bytes")
{
	Wqe w;
	Builder good(8, 1, Opcode::compare_swap);
	REQUIRE(good.be64(64).be32(5).be32(0).be64(11).be64(22).data(8, 1, 2).parse(QpKind::rc, w));
	CHECK((w.swap_or_add == 11 && w.compare == 22));
	Builder bad(8, 1, Opcode::fetch_add);
	CHECK_FALSE(bad.be64(64).be32(5).be32(0).be64(11).be64(22).data(4, 1, 2).parse(QpKind::rc, w));
}

TEST_CASE("address vectors, long and short")
{
	Wqe w;
	Builder longer(8, 0, Opcode::rdma_write);
	longer.be64(0x1122334455667788).be32(0x80000000u | 0x4242).be32(17);
	for (int i = 0; i < 8; ++i)
		longer.be32(0);
	REQUIRE(longer.be64(9).be32(8).be32(0).data(1, 2, 3).parse(QpKind::dci, w));
	CHECK((w.access_key == 0x1122334455667788 && w.destination == 0x4242 && w.lid == 17));
	CHECK((w.remote_address == 9 && w.remote_key == 8 && w.segment_count == 1));
	Builder shorter(8, 0, Opcode::send);
	REQUIRE(shorter.be64(5).be32(0x17).be32(3).data(1, 2, 3).parse(QpKind::dci, w));
	CHECK((w.destination == 0x17 && w.lid == 3 && w.segment_count == 1));
}

TEST_CASE("a WQE that does not fit is refused")
{
	Wqe w;
	CHECK(Builder(8, 0, Opcode::nop).parse(QpKind::rc, w));
	CHECK_FALSE(Builder(8, 0, Opcode::send).data(1, 2, 3).parse(QpKind::dct, w));        // targets do not send
	CHECK_FALSE(Builder(8, 0, Opcode::rdma_write).be64(1).be64(2).parse(QpKind::ud, w)); // datagrams cannot write
	CHECK_FALSE(Builder(8, 0, static_cast<Opcode>(0x77)).parse(QpKind::rc, w));
	CHECK_FALSE(Builder(8, 0, Opcode::rdma_read).parse(QpKind::rc, w));                          // no remote segment
	CHECK_FALSE(Builder(8, 0, Opcode::send).be32(0x80000000u | 100).pad().parse(QpKind::rc, w)); // longer than the WQE
	CHECK_FALSE(Builder(1, 0, Opcode::send).data(1, 2, 3).parse(QpKind::rc, w, 3));              // longer than the ring
	CHECK_FALSE(Builder(8, 0, Opcode::send).parse(QpKind::rc, w, -1));                           // no segment at all
	Builder stale(8, 5, Opcode::send);
	REQUIRE(stale.data(1, 2, 3).parse(QpKind::rc, w));
	CHECK_FALSE(parse_wqe(stale.ring, 5 + 8, QpKind::rc, w)); // the WQE of an earlier turn
}

TEST_CASE("any bytes are read without harm")
{
	std::mt19937 random(7);
	Wqe w;
	for (int i = 0; i < 200000; ++i) {
		std::vector<uint8_t> ring(64u << random() % 5);
		for (auto &byte : ring)
			byte = static_cast<uint8_t>(random());
		const auto index = static_cast<uint16_t>(random());
		const size_t at = index % (ring.size() / 64) * 64;
		if (i % 2) { // often a control segment that is accepted
			const uint8_t opcodes[] = {0, 1, 8, 9, 10, 11, 16, 17, 18};
			const uint32_t what = htobe32(static_cast<uint32_t>(index) << 8 | opcodes[random() % sizeof opcodes]);
			std::memcpy(&ring[at], &what, sizeof what);
			ring[at + 7] = static_cast<uint8_t>(random() % 20);
		}
		const bool good = parse_wqe(ring, index, static_cast<QpKind>(random() % 4), w);
		REQUIRE(w.segment_count <= max_segments);
		if (good)
			for (size_t p = 0; p < w.segment_count; ++p)
				if (w.segments[p].is_inline)
					REQUIRE(w.segments[p].address + w.segments[p].length <= w.bytes);
	}
}
