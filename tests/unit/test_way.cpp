// The choice between the direct way and the one by a neighbour, on made-up latencies.
#include <catch2/catch.hpp>

#include <random>

#include "tune/way.hpp"

using namespace pt2p::tune;

namespace {

// Messages to one destination; `latency` of a way says how long a sample of it takes.
struct Trace {
	WayTuner tuner;
	unsigned changes = 0, sent = 0, by_neighbour = 0;

	template <class Latency>
	void run(unsigned messages, double rate, const Latency &latency)
	{
		for (unsigned i = 0; i < messages; ++i) {
			const WayTuner::Choice choice = tuner.next(rate);
			tuner.sent(choice.sample);
			++sent;
			by_neighbour += choice.what == Way::by_neighbour;
			if (choice.sample)
				changes += tuner.see(choice.what, latency(choice.what), rate);
		}
	}
	void run(unsigned messages, double rate, int64_t direct, int64_t by_way)
	{
		run(messages, rate, [=](Way way) { return way == Way::direct ? direct : by_way; });
	}
};

// What way.hpp promises.
constexpr unsigned bound = 416;

} // namespace

TEST_CASE("a few targets are reached directly, and no other way is tried")
{
	Trace t;
	t.run(10'000, 0.0, 3000, 1000);
	CHECK(t.tuner.way() == Way::direct);
	CHECK(t.by_neighbour == 0);
	CHECK(t.changes == 0);
}

TEST_CASE("targets that change at a price are reached by way of a neighbour, within the promised number of messages")
{
	Trace t;
	t.run(bound, 0.9, 6000, 3000);
	CHECK(t.tuner.way() == Way::by_neighbour);
	CHECK(t.changes == 1);
	CHECK(t.tuner.latency_of(Way::direct) == 6000);
	CHECK(t.tuner.latency_of(Way::by_neighbour) == 3000);
	// It stays so, and few messages are spent on trying the other way.
	const unsigned before = t.sent - t.by_neighbour;
	t.run(12'800, 0.9, 6000, 3000);
	CHECK(t.changes == 1);
	CHECK(t.sent - t.by_neighbour - before == 12'800 / (32 * 4));
}

TEST_CASE("when the price falls, or targets change no more, messages go directly again")
{
	Trace t;
	t.run(bound, 0.9, 6000, 3000);
	REQUIRE(t.tuner.way() == Way::by_neighbour);
	SECTION("the neighbour has become slow")
	{
		t.run(bound, 0.9, 6000, 20'000);
		CHECK(t.tuner.way() == Way::direct);
	}
	SECTION("connecting has become cheap")
	{
		t.run(bound, 0.9, 1500, 3000);
		CHECK(t.tuner.way() == Way::direct);
	}
	SECTION("one target is left")
	{
		t.run(32, 0.0, 6000, 3000);
		CHECK(t.tuner.way() == Way::direct);
	}
	CHECK(t.changes == 2);
}

TEST_CASE("what is about equal is left as it is, and noise does not move it to and fro")
{
	Trace even;
	even.run(20'000, 0.9, 3300, 3000);
	CHECK(even.changes == 0);
	for (unsigned seed = 0; seed < 50; ++seed) {
		std::mt19937 random(seed);
		// 40 % of noise, and now and then a sample that says nothing at all.
		const auto noisy = [&](double middle) {
			return static_cast<int64_t>(random() % 20 == 0 ? middle * 20
			                                               : middle * std::uniform_real_distribution(0.8, 1.2)(random));
		};
		Trace t;
		t.run(20'000, 0.9, [&](Way way) { return noisy(way == Way::direct ? 6000 : 3000); });
		CHECK(t.tuner.way() == Way::by_neighbour);
		CHECK(t.changes <= 3);
	}
}

TEST_CASE("changes of target are counted as a pool of initiators would make them")
{
	const auto rate_of = [](size_t initiators, int targets) {
		TargetChanges changes(initiators);
		for (int i = 0; i < 1000; ++i)
			changes.sent_to(i % targets);
		return changes.rate();
	};
	CHECK(rate_of(4, 1) < 0.01);
	CHECK(rate_of(4, 4) < 0.01);
	CHECK(rate_of(4, 5) > 0.99); // in turn: the one that is needed next was given away last
	CHECK(rate_of(1, 2) > 0.99);
}
