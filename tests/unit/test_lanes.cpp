// Which lane the calls of each thread take.
#include <catch2/catch.hpp>

#include <random>
#include <vector>

#include "rpc/callers.hpp"
#include "rpc/laws/lanes.hpp"

using pt2p::rpc::Callers;
using pt2p::rpc::laws::Lanes;
using pt2p::rpc::laws::ThreadLoad;

namespace {

struct Threads {
	explicit Threads(unsigned lanes, size_t count) : law(lanes), loads(count) {}

	// Thread `t` makes so many calls of so many bytes each period.
	void set(size_t t, uint64_t calls, uint64_t bytes)
	{
		if (plans.size() < loads.size())
			plans.resize(loads.size());
		plans[t] = {calls, bytes};
	}
	bool period()
	{
		std::vector<ThreadLoad *> all;
		for (size_t t = 0; t < loads.size(); ++t) {
			loads[t].calls = plans[t].calls;
			loads[t].bytes = plans[t].calls * plans[t].bytes;
			all.push_back(&loads[t]);
		}
		const bool moved = law.decide(all);
		moves += moved;
		return moved;
	}
	void periods(unsigned n)
	{
		while (n--)
			period();
	}
	unsigned lane(size_t t) const { return loads[t].lane; }
	// Whether a short and a long thread are together.
	bool mixes(uint64_t longer_than) const
	{
		for (size_t a = 0; a < loads.size(); ++a)
			for (size_t b = 0; b < loads.size(); ++b)
				if (plans[a].bytes > longer_than && plans[b].bytes <= longer_than && lane(a) == lane(b))
					return true;
		return false;
	}
	// Bytes and fixed costs of a lane, as the law counts them.
	double load(unsigned l) const
	{
		double sum = 0;
		for (size_t t = 0; t < loads.size(); ++t)
			if (lane(t) == l)
				sum += static_cast<double>(plans[t].calls) * (2048 + static_cast<double>(plans[t].bytes));
		return sum;
	}

	struct Plan {
		uint64_t calls = 0, bytes = 0;
	};
	Lanes law;
	std::vector<ThreadLoad> loads;
	std::vector<Plan> plans;
	unsigned moves = 0;
};

} // namespace

TEST_CASE("threads that are all alike share one lane for ever")
{
	const uint64_t bytes = GENERATE(8, 64, 1500, 60000); // with a quarter more
	Threads threads(0, 16);
	std::mt19937 random(1);
	for (unsigned p = 0; p < 200; ++p) {
		for (size_t t = 0; t < 16; ++t)
			threads.set(t, random() % 64, bytes + random() % (bytes / 4 + 1));
		threads.period();
	}
	CHECK(threads.moves == 0);
	for (size_t t = 0; t < 16; ++t)
		CHECK(threads.lane(t) == 0);
}

TEST_CASE("calls that are a little longer than others are no reason for a lane")
{
	for (const uint64_t bytes : {500, 2000, 5000}) {
		Threads threads(0, 6);
		for (size_t t = 0; t < 6; ++t)
			threads.set(t, 50, t < 4 ? 128 : bytes);
		threads.periods(50);
		CHECK(threads.moves == 0);
	}
}

TEST_CASE("short and long threads are parted after two periods, and together again when all are alike")
{
	Threads threads(0, 6);
	for (size_t t = 0; t < 6; ++t)
		threads.set(t, t < 4 ? 60 : 8, t < 4 ? 64 : 30000);
	CHECK(!threads.period());
	CHECK(threads.mixes(1000));
	CHECK(threads.period());
	CHECK(!threads.mixes(1000));
	for (size_t t = 0; t < 4; ++t)
		CHECK(threads.lane(t) == 0); // which has the write ring
	threads.periods(100);
	CHECK(threads.moves == 1);
	for (size_t t = 4; t < 6; ++t)
		threads.set(t, 60, 64);
	threads.periods(20);
	CHECK(threads.moves == 2);
	for (size_t t = 0; t < 6; ++t)
		CHECK(threads.lane(t) == 0);
}

TEST_CASE("a load that shifts from one thread to another is followed within a few periods")
{
	Threads threads(0, 4);
	for (unsigned shift = 0; shift < 8; ++shift) {
		for (size_t t = 0; t < 4; ++t)
			threads.set(t, 50, t == shift % 4 ? 32768 : 64);
		unsigned until = 0;
		while (threads.mixes(1000) && until < 20)
			threads.period(), ++until;
		CHECK(until <= 6);
		const unsigned moves = threads.moves;
		threads.periods(30);
		CHECK(threads.moves <= moves + 1); // what the mean still remembered
	}
}

TEST_CASE("a burst of one period moves nobody")
{
	Threads threads(0, 4);
	for (size_t t = 0; t < 4; ++t)
		threads.set(t, 50, 64);
	for (unsigned i = 0; i < 20; ++i) {
		threads.periods(8);
		threads.set(2, 3, 9000);
		threads.period();
		threads.set(2, 50, 64);
	}
	CHECK(threads.moves == 0);
}

TEST_CASE("a thread that is now short and now long moves seldom")
{
	Threads threads(0, 4);
	for (unsigned p = 0; p < 400; ++p) {
		for (size_t t = 0; t < 4; ++t)
			threads.set(t, 50, t == 3 && p % 2 ? 40000 : 64);
		threads.period();
	}
	CHECK(threads.moves <= 2);
	CHECK(threads.lane(3) != threads.lane(0));
	CHECK(threads.lane(1) == threads.lane(0));
}

TEST_CASE("random loads: no lane has over 25 % more than it needs to, and few threads move")
{
	const unsigned lanes = GENERATE(2u, 3u, 4u);
	std::mt19937 random(lanes);
	for (unsigned trial = 0; trial < 200; ++trial) {
		const size_t count = 2 + random() % 12;
		Threads threads(lanes, count);
		for (size_t t = 0; t < count; ++t)
			threads.set(t, 1 + random() % 100, random() % 2 ? 16 + random() % 100 : 24000 + random() % 3000);
		threads.periods(4);
		bool any_short = false, any_long = false;
		for (const auto &plan : threads.plans)
			(plan.bytes > 1000 ? any_long : any_short) = true;
		if (any_short && any_long)
			CHECK(!threads.mixes(1000));
		const unsigned moves = threads.moves;
		CHECK(moves <= 1);
		threads.periods(20);
		CHECK(threads.moves == moves); // the same load again and again
	}
	// All alike: the most that a lane has is at most a thread more than its share, and what the law tolerates.
	Threads threads(lanes, 12);
	for (size_t t = 0; t < 12; ++t)
		threads.set(t, 50, 64);
	threads.periods(3);
	double most = 0, all = 0;
	for (unsigned l = 0; l < lanes; ++l) {
		most = std::max(most, threads.load(l));
		all += threads.load(l);
	}
	CHECK(most <= 1.25 * all / lanes);
}

TEST_CASE("a thread with most of the load cannot make the others move")
{
	Threads threads(3, 5);
	threads.set(0, 1000, 64);
	for (size_t t = 1; t < 5; ++t)
		threads.set(t, 10, 64);
	threads.periods(2);
	const unsigned moves = threads.moves;
	std::mt19937 random(3);
	for (unsigned p = 0; p < 200; ++p) {
		threads.set(0, 900 + random() % 200, 64);
		threads.period();
	}
	CHECK(threads.moves == moves);
	CHECK(threads.load(threads.lane(0)) < 1.25 * 1100 * (2048 + 64));
}

TEST_CASE("callers: threads that end make room for others, and more threads than places share them")
{
	Callers callers(0);
	for (uintptr_t thread = 1; thread <= 10000; ++thread)
		for (unsigned i = 0; i < 40; ++i)
			CHECK(callers.lane_of(callers.call(thread << 12, i % 2 ? 64 : 100)) == 0);
	for (unsigned i = 0; i < 20000; ++i)
		callers.call((i % 200 + 1) << 12, 64);
	unsigned lanes = 0;
	for (unsigned i = 0; i < 2000; ++i) {
		lanes |= 1u << callers.lane_of(callers.call(0x5000, 64));
		lanes |= 16u << callers.lane_of(callers.call(0x7000, 20000));
	}
	CHECK(lanes == (1 | 16 | 32)); // the short one always 0, the long one at last 1
	CHECK(callers.moves() >= 1);
}
