// Striping: over how many queue pairs bulk data goes, on a made-up device.
#include <catch2/catch.hpp>

#include <algorithm>
#include <deque>
#include <vector>

#include "transports/verbs/tuning/striping.hpp"

using namespace pt2p::tune;

namespace {

// Serves each queue pair at its own rate, and all together at no more than `whole`, in bytes for a tick. So many parts
// are always in flight.
struct Device {
	Striping &spread;
	double each, whole;
	size_t under_way;
	uint32_t there = 16; // queue pairs that can be had
	double now = 0;

	void run(unsigned parts)
	{
		for (unsigned i = 0; i < parts; ++i) {
			const uint32_t in_use = std::min(spread.queue_pairs(), there);
			spread.uses(in_use);
			while (spread.under_way() < under_way) {
				spread.begins(Striping::max_part);
				spread.posted(Striping::max_part);
			}
			const size_t bytes = Striping::max_part;
			now += static_cast<double>(bytes) /
			       std::min(each * std::min<double>(in_use, static_cast<double>(under_way)), whole);
			spread.completed(bytes, static_cast<int64_t>(now));
		}
	}
};

} // namespace

TEST_CASE("spread: as many queue pairs as the device is faster by", "[spread]")
{
	struct {
		double each, whole;
		uint32_t best;
	} cases[] = {{10, 10, 1}, {10, 20, 2}, {10, 100, 4}, {10, 10.5, 1}};
	for (const auto &c : cases) {
		CAPTURE(c.each, c.whole);
		Striping spread(0, 4);
		Device device{spread, c.each, c.whole, 16};
		device.run(10'000);
		CHECK((spread.climber().trying() || spread.queue_pairs() == c.best));
		CHECK(spread.climber().changes() == (c.best == 1 ? 0u : c.best == 2 ? 1u : 2u));
		CHECK(spread.climber().rate() == Approx(std::min(c.each * c.best, c.whole)).epsilon(0.01));
		CHECK(!spread.pinned());
	}
}

TEST_CASE("spread: what is pinned stays, within what there is", "[spread]")
{
	for (const uint32_t max : {1u, 2u, 8u}) {
		Striping spread(3, max);
		Device device{spread, 10, 10, 16};
		device.run(2000);
		CHECK(spread.queue_pairs() == std::min(3u, max));
		CHECK(spread.climber().trials() == 0);
		CHECK(spread.pinned());
	}
}

TEST_CASE("spread: while nothing waits, or queue pairs are missing, nothing is concluded", "[spread]")
{
	Striping one_at_a_time(0, 4);
	Device idle{one_at_a_time, 10, 100, 1};
	idle.run(10'000);
	CHECK(one_at_a_time.climber().rate() == 0);
	CHECK(one_at_a_time.climber().trials() == 0);
	// There is no second one. The tuner waits for it, and no rate counts as that of two.
	Striping refused(0, 4);
	Device alone{refused, 10, 100, 16, 1};
	alone.run(10'000);
	CHECK(refused.climber().trials() == 1);
	CHECK(refused.climber().changes() == 0);
	alone.there = 4;
	alone.run(10'000);
	CHECK(refused.climber().changes() == 2);
}

TEST_CASE("spread: parts that wait for room count as waiting", "[spread]")
{
	Striping spread(0, 4);
	int64_t now = 0;
	spread.begins(SIZE_MAX);
	for (int i = 0; i < 10'000; ++i) { // one in each queue pair, as there is no room for more
		spread.uses(spread.queue_pairs());
		while (spread.under_way() < spread.queue_pairs())
			spread.posted(1000);
		spread.completed(1000, now += 1000 / spread.queue_pairs());
	}
	CHECK(spread.climber().changes() == 2);
}

TEST_CASE("spread: time in which nothing waited is not part of a rate", "[spread]")
{
	Striping spread(0, 1 << 10);
	Device device{spread, 10, 10, 8};
	for (int i = 0; i < 500; ++i) {
		device.run(20);
		// The last ones. Then nothing waits for an hour.
		while (spread.under_way()) {
			const bool waits = spread.under_way() > spread.queue_pairs();
			device.now += waits ? Striping::max_part / 10. : 1e12;
			spread.completed(Striping::max_part, static_cast<int64_t>(device.now));
		}
	}
	CHECK(spread.climber().rate() == Approx(10).epsilon(0.01));
}

TEST_CASE("spread: parts are shares of the whole, neither tiny nor huge", "[spread]")
{
	Striping four(4, 4);
	CHECK(four.part_of(16 << 10) == Striping::min_part);
	CHECK(four.part_of(100'000) == 28'672);
	CHECK(four.part_of(1 << 20) == 256 << 10);
	CHECK(four.part_of(64 << 20) == Striping::max_part);
	for (size_t length = Striping::min_part; length < 4 << 20; length += 4711)
		CHECK((length + four.part_of(length) - 1) / four.part_of(length) <= 4);
	Striping one(0, 4);
	CHECK(one.part_of(1 << 20) == 1 << 20);
}
