// The way back for all callers of a server: what is chosen, how soon, at what cost, and that it stays.
#include <catch2/catch.hpp>

#include <algorithm>
#include <functional>
#include <random>

#include "rpc/laws/way_back.hpp"

using namespace pt2p::rpc::laws;

namespace {

Ways of(std::initializer_list<Way> list)
{
	Ways ways;
	for (const Way way : list)
		ways.add(way);
	return ways;
}

// A server that gets through so many calls per us with each way. Calls follow the way that is told, each caller with
// its next call but one.
struct Server {
	WayBack law;
	std::function<double(Way)> pace;
	size_t callers = 64;
	Ways possible = of({Way::reply, Way::fetch});
	double can = 1;        // share of calls for which they are possible
	double jitter = 0;     // of the time of each call
	bool stubborn = false; // callers do not follow
	double lingers = 0;    // ns after a change for which each way has the pace of the other
	uint64_t served = 0, by_other = 0;
	unsigned changes = 0;
	double now = 1000, since_change = 0;
	Way last = Way::reply;
	std::mt19937_64 random{1};

	void serve(uint64_t calls)
	{
		std::uniform_real_distribution<double> uniform(0, 1);
		std::vector<Way> told(callers, law.way());
		for (uint64_t i = 0; i < calls; ++i) {
			Way &way = told[i % callers];
			const bool could = uniform(random) < can;
			const Way took = could && !stubborn ? way : Way::reply;
			if (took != last)
				since_change = now;
			last = took;
			const bool as_other = now - since_change < lingers;
			const Way costs = !as_other ? took : took == Way::fetch ? Way::reply : Way::fetch;
			now += 1000 / pace(costs) * (1 + jitter * (uniform(random) - 0.5));
			if (law.watches())
				changes +=
				    law.saw(could ? possible : Ways{}, took, callers, [this] { return static_cast<int64_t>(now); });
			way = law.way();
			if (++served >= law.due())
				law.look(served, static_cast<int64_t>(now));
			by_other += took != law.chosen();
		}
	}
};

Server server_of(double reply, double fetch)
{
	Server s;
	s.pace = [reply, fetch](Way way) { return way == Way::reply ? reply : fetch; };
	return s;
}

} // namespace

TEST_CASE("the quicker way back is chosen soon, and stays")
{
	for (const size_t callers : {1, 8, 64, 255})
		for (const double gain : {0.2, 0.5, 0.9, 1.1, 2.0, 5.0}) {
			INFO(callers << " callers, fetching is " << gain << " times as quick");
			Server s = server_of(2, 2 * gain);
			s.callers = callers;
			s.jitter = 0.5;
			s.serve(50000 + 256 * callers);
			CHECK((s.law.chosen() == Way::fetch) == (gain > 1));
			CHECK(s.law.gain() == Approx(gain).epsilon(0.1));
			s.serve(3000000 + 10000 * callers);
			CHECK((s.law.chosen() == Way::fetch) == (gain > 1));
			CHECK(s.changes == (gain > 1));
			CHECK(s.law.trials() > 1);
		}
}

TEST_CASE("the choice is that of the pace in the long run, where a way leaves the other one its pace for a while")
{
	for (const double gain : {0.8, 1.25}) {
		INFO("fetching is " << gain << " times as quick");
		Server s = server_of(8, 8 * gain);
		s.lingers = 400000;
		s.serve(200000);
		CHECK(s.law.trials() == 1);
		CHECK((s.law.chosen() == Way::fetch) == (gain > 1));
		CHECK(s.law.gain() == Approx(gain).epsilon(0.02));
	}
}

TEST_CASE("a small gain is seen though callers still learn when to fetch")
{
	for (const double gain : {0.95, 1.06}) {
		INFO("fetching is " << gain << " times as quick");
		double unlearnt = 0.12;
		Server s;
		s.callers = 16;
		s.pace = [&](Way way) {
			if (way == Way::reply)
				return 4.0;
			unlearnt *= 1 - 1.0 / 6000;
			return 4 * (gain - unlearnt);
		};
		s.serve(150000);
		CHECK(s.law.trials() == 1);
		CHECK((s.law.chosen() == Way::fetch) == (gain > 1));
	}
}

TEST_CASE("a small gain is seen though the pace comes in bursts")
{
	for (const double gain : {0.95, 1.05})
		for (unsigned seed = 1; seed <= 20; ++seed) {
			INFO("fetching is " << gain << " times as quick, seed " << seed);
			std::mt19937_64 random{seed};
			std::uniform_real_distribution<double> uniform(0.9, 1.1);
			double burst = 1;
			unsigned n = 0;
			Server s;
			s.pace = [&](Way way) {
				if (n++ % 512 == 0)
					burst = uniform(random);
				return burst * (way == Way::reply ? 4 : 4 * gain);
			};
			s.serve(150000);
			CHECK(s.law.trials() == 1);
			CHECK((s.law.chosen() == Way::fetch) == (gain > 1));
		}
}

TEST_CASE("a trial is short where calls take long, or one way is far better")
{
	for (const double gain : {0.5, 2.0}) {
		INFO("fetching is " << gain << " times as quick");
		Server s = server_of(0.01, 0.01 * gain);
		s.callers = 4;
		const uint64_t first = WayLaw{}.first;
		s.serve(first);
		REQUIRE(s.law.watches());
		while (s.law.watches() && s.served < first + 20000)
			s.serve(1);
		CHECK(s.law.trials() == 1);
		CHECK((s.law.chosen() == Way::fetch) == (gain > 1));
		CHECK(s.served - first < 6 * WayLaw{}.timed);
	}
}

TEST_CASE("ways that are about as good do not take turns")
{
	for (const double gain : {0.99, 1.0, 1.01}) {
		INFO("fetching is " << gain << " times as quick");
		Server s = server_of(2, 2 * gain);
		s.jitter = 1;
		s.serve(5000000);
		CHECK(s.changes <= 1);
		CHECK(s.law.trials() < 40);
	}
}

TEST_CASE("trials cost next to nothing")
{
	Server s = server_of(4, 1);
	s.serve(1000000); // most of the first trial's cost is here
	const double start = s.now;
	const uint64_t before = s.by_other;
	s.serve(10000000);
	CHECK(s.changes == 0);
	CHECK(static_cast<double>(s.by_other - before) / 10000000 < 0.004);
	CHECK(s.now - start < 10000000 / 4.0 * 1000 * 1.01);
}

TEST_CASE("another load is followed")
{
	bool fetch_is_quicker = false;
	Server s;
	s.pace = [&](Way way) { return fetch_is_quicker ? (way == Way::fetch ? 6 : 2.5) : (way == Way::fetch ? 1 : 1.5); };
	s.serve(1000000);
	REQUIRE(s.law.chosen() == Way::reply);
	for (unsigned i = 0; i < 10; ++i) {
		INFO("change " << i);
		fetch_is_quicker = !fetch_is_quicker;
		s.serve(5 * WayLaw{}.look + 30000);
		CHECK((s.law.chosen() == Way::fetch) == fetch_is_quicker);
		s.serve(300000);
	}
	CHECK(s.changes == 10);
}

TEST_CASE("a load that never stays costs little")
{
	Server s;
	uint64_t n = 0;
	s.pace = [&](Way way) { return (n++ / 20000 % 2 ? 4.0 : 1.0) * (way == Way::reply ? 1 : 0.5); };
	s.serve(3000000);
	CHECK(s.changes == 0);
	CHECK(static_cast<double>(s.by_other) / 3000000 < 0.06);
}

TEST_CASE("the quickest of three ways is chosen")
{
	const double paces[][3] = {{4, 5, 6}, {4, 6, 5}, {6, 5, 4}, {5, 6, 4},     {5, 4, 6},       {6, 4, 5},
	                           {4, 1, 8}, {4, 8, 1}, {8, 4, 1}, {4, 4.4, 4.6}, {4.6, 4.4, 4.2}, {4, 4.6, 4.4}};
	for (const auto &pace : paces)
		for (const size_t callers : {1, 64, 255}) {
			INFO(callers << " callers, paces " << pace[0] << ' ' << pace[1] << ' ' << pace[2]);
			Server s;
			s.callers = callers;
			s.possible = of({Way::reply, Way::fetch, Way::datagram});
			s.jitter = 0.5;
			s.pace = [&pace](Way way) { return pace[static_cast<size_t>(way)]; };
			const auto best = static_cast<Way>(std::max_element(pace, pace + 3) - pace);
			s.serve(200000 + 512 * callers);
			CHECK(s.law.chosen() == best);
			CHECK(s.law.trials() == 1); // one round, of both candidates
			CHECK(s.changes <= 2);
			const unsigned changes = s.changes;
			const double before = s.now;
			s.serve(8000000);
			CHECK(s.law.chosen() == best);
			CHECK((s.law.trials() > 1 || callers == 255)); // its rest is longer
			CHECK(s.changes == changes);
			CHECK(s.now - before < 8e9 / *std::max_element(pace, pace + 3) * 1.02);
		}
}

TEST_CASE("among three ways another load is followed")
{
	unsigned best = 1;
	Server s;
	s.possible = of({Way::reply, Way::fetch, Way::datagram});
	s.pace = [&](Way way) { return static_cast<unsigned>(way) == best ? 5.0 : 2.0; };
	for (unsigned i = 0; i < 9; ++i) {
		INFO("change " << i);
		best = (best + 1 + i % 2) % 3;
		s.serve(150000); // two ways that are as good take three comparisons
		CHECK(static_cast<unsigned>(s.law.chosen()) == best);
		s.serve(2000000); // trials are apart
	}
	CHECK(s.changes <= 18);
}

TEST_CASE("a way that is not open to most calls is not tried")
{
	for (const Way shut : {Way::fetch, Way::datagram}) {
		const Way open = shut == Way::fetch ? Way::datagram : Way::fetch;
		Server s;
		s.possible = of({Way::reply, open});
		s.pace = [shut, open](Way way) { return way == shut ? 9.0 : way == open ? 3.0 : 2.0; };
		s.serve(300000);
		CHECK(s.law.chosen() == open);
		CHECK(s.changes == 1);
	}
}

TEST_CASE("nothing is tried where few results could be fetched, or callers do not follow")
{
	Server few = server_of(2, 4);
	few.can = 0.5;
	few.serve(3000000);
	CHECK(few.law.trials() == 0);
	CHECK(few.by_other == 0);
	CHECK(few.law.chosen() == Way::reply);
	Server stubborn = server_of(2, 4);
	stubborn.stubborn = true;
	stubborn.serve(3000000);
	CHECK(stubborn.law.chosen() == Way::reply);
	CHECK(stubborn.changes == 0);
	CHECK(stubborn.law.trials() < 12);
}
