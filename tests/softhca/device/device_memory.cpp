// Device memory as libibverbs and libmlx5 see it: allocation, alignment, exhaustion, copies, and regions in it.
#include <catch2/catch.hpp>

#include <cerrno>
#include <cstring>
#include <numeric>
#include <vector>

#include "tests/softhca/device/device.hpp"

namespace {

ibv_dm *allocate(ibv_context *context, size_t length, uint32_t log_alignment = 0)
{
	ibv_alloc_dm_attr attributes{length, log_alignment, 0};
	return ibv_alloc_dm(context, &attributes);
}

size_t most(ibv_context *context)
{
	ibv_device_attr_ex attributes{};
	REQUIRE(ibv_query_device_ex(context, nullptr, &attributes) == 0);
	return attributes.max_dm_size;
}

} // namespace

TEST_CASE("what is copied into device memory comes out again")
{
	Device device;
	for (size_t length : {size_t{4}, size_t{64}, size_t{100}, size_t{4096}, size_t{10000}, most(device.context)}) {
		ibv_dm *dm = allocate(device.context, length);
		REQUIRE(dm);
		std::vector<unsigned char> in(length / 4 * 4), out(in.size());
		std::iota(in.begin(), in.end(), static_cast<unsigned char>(length));
		CHECK(ibv_memcpy_to_dm(dm, 0, in.data(), in.size()) == 0);
		CHECK(ibv_memcpy_from_dm(out.data(), dm, 0, out.size()) == 0);
		CHECK(in == out);
		CHECK(ibv_memcpy_to_dm(dm, length, in.data(), 4) == EFAULT);
		CHECK(ibv_free_dm(dm) == 0);
	}
}

TEST_CASE("pieces do not overlap, and all of the memory can be allocated")
{
	Device device;
	const size_t all = most(device.context), piece = 1024;
	std::vector<ibv_dm *> pieces;
	for (size_t n = 0; n < all / piece; ++n) {
		pieces.push_back(allocate(device.context, piece));
		REQUIRE(pieces.back());
		std::vector<unsigned char> fill(piece, static_cast<unsigned char>(n));
		REQUIRE(ibv_memcpy_to_dm(pieces.back(), 0, fill.data(), piece) == 0);
	}
	errno = 0;
	CHECK_FALSE(allocate(device.context, 4));
	CHECK(errno != 0);
	for (size_t n = 0; n < pieces.size(); ++n) {
		std::vector<unsigned char> wanted(piece, static_cast<unsigned char>(n)), found(piece);
		REQUIRE(ibv_memcpy_from_dm(found.data(), pieces[n], 0, piece) == 0);
		REQUIRE(found == wanted);
	}
	// A hole in the middle is used again, and only for pieces that fit.
	REQUIRE(ibv_free_dm(pieces[7]) == 0);
	CHECK_FALSE(allocate(device.context, piece + 4));
	pieces[7] = allocate(device.context, piece);
	REQUIRE(pieces[7]);
	for (ibv_dm *dm : pieces)
		CHECK(ibv_free_dm(dm) == 0);
	ibv_dm *whole = allocate(device.context, all);
	REQUIRE(whole);
	CHECK(ibv_free_dm(whole) == 0);
}

TEST_CASE("alignment is kept")
{
	Device device;
	ibv_dm *first = allocate(device.context, 4); // so that the next would not be aligned by chance
	REQUIRE(first);
	// Two pieces of 128 KiB would take all of the memory. Beside the first piece, only one aligned half is left.
	ibv_dm *half = allocate(device.context, most(device.context) / 2, 17);
	REQUIRE(half);
	CHECK_FALSE(allocate(device.context, most(device.context) / 2, 17));
	CHECK(ibv_free_dm(half) == 0);
	CHECK(ibv_free_dm(first) == 0);
	CHECK_FALSE(allocate(device.context, 64, 30));
	CHECK_FALSE(allocate(device.context, 0));
	CHECK_FALSE(allocate(device.context, most(device.context) + 1));
}

TEST_CASE("regions in device memory stay inside it")
{
	Device device;
	ibv_dm *dm = allocate(device.context, 4096);
	REQUIRE(dm);
	constexpr unsigned access = IBV_ACCESS_ZERO_BASED | IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ;
	ibv_mr *mr = ibv_reg_dm_mr(device.pd, dm, 0, 4096, access);
	REQUIRE(mr);
	ibv_mr *end = ibv_reg_dm_mr(device.pd, dm, 4000, 96, access);
	REQUIRE(end);
	CHECK(end->lkey != mr->lkey);
	CHECK_FALSE(ibv_reg_dm_mr(device.pd, dm, 4000, 97, access));
	CHECK_FALSE(ibv_reg_dm_mr(device.pd, dm, 5000, 0, access));
	CHECK_FALSE(ibv_reg_dm_mr(device.pd, dm, 1, SIZE_MAX, access));
	CHECK_FALSE(ibv_reg_dm_mr(device.pd, dm, 0, 4096, IBV_ACCESS_LOCAL_WRITE));
	CHECK_FALSE(ibv_reg_dm_mr(device.pd, dm, 0, 4096, IBV_ACCESS_ZERO_BASED | IBV_ACCESS_REMOTE_WRITE));
	CHECK(ibv_free_dm(dm) == EBUSY);
	CHECK(ibv_dereg_mr(mr) == 0);
	CHECK(ibv_dereg_mr(end) == 0);
	CHECK(ibv_free_dm(dm) == 0);
}
