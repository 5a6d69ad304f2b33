// Which way additions take, on made-up latencies.
#include <catch2/catch.hpp>

#include "onesided/atomic_way.hpp"

using pt2p::onesided::AtomicWay;

namespace {

constexpr int64_t normal = 1800;

// Does additions until the way has changed, at most `most`; how many.
unsigned until_change(AtomicWay &way, int64_t device, int64_t owner, uint32_t together, unsigned most = 1'000'000)
{
	const bool before = way.asks();
	unsigned n = 0;
	for (; n < most && way.asks() == before; ++n)
		if (before)
			way.by_owner(owner, together);
		else
			way.by_device(device, normal);
	return n;
}

} // namespace

TEST_CASE("atomics: a device that is quick is never left")
{
	AtomicWay way;
	CHECK(until_change(way, 3 * normal, 1, 64) == 1'000'000);
	// Nor for a slow addition now and then.
	for (int i = 0; i < 10'000; ++i) {
		way.by_device(i % 8 ? normal : 100 * normal, normal);
		REQUIRE(!way.asks());
	}
}

TEST_CASE("atomics: without a known normal latency the device is not left")
{
	AtomicWay way;
	for (int i = 0; i < 1000; ++i)
		way.by_device(1'000'000, 0);
	CHECK(!way.asks());
}

TEST_CASE("atomics: after eight slow additions the owner is asked, and stays while it adds up and is no slower")
{
	AtomicWay way;
	CHECK(until_change(way, 4 * normal, 0, 0) == 8);
	REQUIRE(way.asks());
	CHECK(until_change(way, 0, 4 * normal, 2) == 1'000'000);
}

TEST_CASE("atomics: an owner that is slower, or adds up nothing, is left, and asked again after longer and longer")
{
	const bool slower = GENERATE(true, false);
	AtomicWay way;
	unsigned last = 8;
	for (unsigned round = 0; round < 8; ++round) {
		INFO("round " << round);
		const unsigned waited = until_change(way, 4 * normal, 0, 0);
		if (round)
			CHECK(waited == std::max(8u, std::min(64u << 2 * (round - 1), 65536u)));
		last = waited;
		CHECK(until_change(way, 0, slower ? 5 * normal : normal, slower ? 9 : 1) == (slower ? 13 : 16));
	}
	CHECK(last == 65536);
}

TEST_CASE("atomics: an owner that was quicker for long is asked again soon")
{
	AtomicWay way;
	for (int i = 0; i < 5; ++i) { // waits longer and longer
		until_change(way, 4 * normal, 0, 0);
		until_change(way, 0, 5 * normal, 9);
	}
	until_change(way, 4 * normal, 0, 0);
	REQUIRE(way.asks());
	CHECK(until_change(way, 0, normal, 9, 16 * 16) == 16 * 16);
	CHECK(until_change(way, 0, normal, 1) == 16);
	CHECK(until_change(way, 4 * normal, 0, 0) == 64);
}

TEST_CASE("atomics: answers that come after the owner was left count for nothing")
{
	AtomicWay way;
	until_change(way, 4 * normal, 0, 0);
	until_change(way, 0, normal, 1);
	REQUIRE(!way.asks());
	for (int i = 0; i < 100; ++i)
		way.by_owner(normal, 9);
	CHECK(!way.asks());
	CHECK(until_change(way, 4 * normal, 0, 0) == 64);
}
