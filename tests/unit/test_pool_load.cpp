// The load that a pool of DC initiators would have, on made-up messages.
#include <catch2/catch.hpp>

#include "tune/pool_load.hpp"

using pt2p::tune::PoolLoad;

namespace {

// Messages so many ns apart, of which one in 16 is direct and observed.
struct Trace {
	PoolLoad load{4};
	int64_t now = 1;

	void run(unsigned messages, int64_t apart, int64_t latency, double directly, double by_neighbours)
	{
		for (unsigned i = 1; i <= messages; ++i) {
			load.sent();
			now += apart;
			if (i % 16 == 0)
				load.see(latency, now, directly, by_neighbours);
		}
	}
};

constexpr unsigned bound = 2 * PoolLoad::interval; // the first interval begins with the first direct latency

} // namespace

TEST_CASE("a pool with little to do is not overloaded", "[pool load]")
{
	Trace t;
	t.run(10'000, 10'000, 3000, 1.0, 0.0);
	CHECK_FALSE(t.load.overloaded());
	CHECK(t.load.load() > 0.07);
	CHECK(t.load.load() < 0.08);
}

TEST_CASE("a pool that could not carry the messages is overloaded within two intervals, and as long as there are so many", "[pool load]")
{
	Trace t;
	t.run(bound, 500, 3000, 1.0, 0.0);
	CHECK(t.load.overloaded());
	// By neighbours there is room for more, which does not change it; nor does what is between the bounds.
	t.run(bound, 100, 3000, 1.0, 0.0);
	CHECK(t.load.overloaded());
	t.run(bound, 2000, 3000, 1.0, 0.0);
	CHECK(t.load.overloaded());
	t.run(bound, 5000, 3000, 1.0, 0.0);
	CHECK_FALSE(t.load.overloaded());
	t.run(bound, 2000, 3000, 1.0, 0.0);
	CHECK_FALSE(t.load.overloaded());
}

TEST_CASE("neighbours are no help where targets change as often on the way to them, or do not change", "[pool load]")
{
	Trace t;
	t.run(10'000, 100, 3000, 0.8, 0.5);
	CHECK_FALSE(t.load.overloaded());
	t.run(10'000, 100, 3000, 0.001, 0.0);
	CHECK_FALSE(t.load.overloaded());
}

TEST_CASE("a neighbour that is very slow is no help; one that is not known may be", "[pool load]")
{
	Trace t;
	t.run(bound, 500, 3000, 1.0, 0.0);
	CHECK(t.load.helps(0));
	CHECK(t.load.helps(40'000));
	CHECK_FALSE(t.load.helps(50'000));
}
