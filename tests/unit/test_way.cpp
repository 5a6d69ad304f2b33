// The choice between the direct way and the one by neighbours, on made-up delays.
#include <catch2/catch.hpp>

#include <random>

#include "tune/way.hpp"

using namespace pt2p::tune;

namespace {

// Messages of a rank; `delay` of a way says how long one takes, which is told at once.
struct Trace {
	WayTuner tuner;
	unsigned changes = 0, sent = 0, by_neighbour = 0;

	template <class Delay>
	void run(unsigned messages, double rate, const Delay &delay)
	{
		for (unsigned i = 0; i < messages; ++i) {
			const Way way = tuner.way();
			by_neighbour += way == Way::by_neighbour;
			if (tuner.measures())
				tuner.see(way, delay(way));
			++sent;
			changes += tuner.sent(rate);
		}
	}
	void run(unsigned messages, double rate, int64_t direct, int64_t by_way)
	{
		run(messages, rate, [=](Way way) { return way == Way::direct ? direct : by_way; });
	}
};

// What way.hpp promises: the epoch that begins the trial at its end, one of the first use, and pairs.
constexpr WayLaw law;
constexpr unsigned bound = (2 * law.lead + 2) * law.epoch;

} // namespace

TEST_CASE("a few targets are reached directly, and no other way is tried")
{
	Trace t;
	t.run(10'000, 0.05, 3000, 1000);
	CHECK(t.tuner.chosen() == Way::direct);
	CHECK(t.tuner.trials() == 0);
	CHECK(t.by_neighbour == 0);
}

TEST_CASE("targets that change at a price are reached by way of neighbours, within the promised number of messages")
{
	Trace t;
	t.run(bound, 0.9, -1000, -4000); // clocks may differ: only the difference counts
	CHECK(t.tuner.chosen() == Way::by_neighbour);
	CHECK(t.tuner.way() == Way::by_neighbour);
	CHECK(t.changes == 1);
	CHECK(t.tuner.gain() == 3000);
}

TEST_CASE("what is tried and not chosen is less than a hundredth of all messages in the long run")
{
	for (const bool direct_is_better : {true, false}) {
		Trace t;
		t.run(bound, 0.9, 3000, direct_is_better ? 6000 : 1000);
		const unsigned first = direct_is_better ? t.by_neighbour : t.sent - t.by_neighbour;
		const uint64_t rest = t.tuner.rest();
		CHECK(rest == uint64_t{law.rest} * law.lead * law.epoch);
		t.run(1'000'000, 0.9, 3000, direct_is_better ? 6000 : 1000);
		const unsigned tried = (direct_is_better ? t.by_neighbour : t.sent - t.by_neighbour) - first;
		CHECK(tried > 0);
		CHECK(tried <= 1'000'000 / law.rest);
		CHECK(t.changes == !direct_is_better);
		// Each rest is twice as long as the one before.
		CHECK(t.tuner.trials() <= 8);
		CHECK(t.tuner.trials() >= 4);
	}
}

TEST_CASE("when the price falls, messages go directly again after the rest")
{
	Trace t;
	t.run(bound, 0.9, 6000, 3000);
	REQUIRE(t.tuner.chosen() == Way::by_neighbour);
	t.run(static_cast<unsigned>(t.tuner.rest()) + bound, 0.9, 1000, 3000);
	CHECK(t.tuner.chosen() == Way::direct);
	CHECK(t.changes == 2);
}

TEST_CASE("targets that no longer change shorten the rest to what one trial costs")
{
	Trace t;
	t.run(bound, 0.9, 6000, 3000);
	const uint64_t once = t.tuner.rest();
	t.run(static_cast<unsigned>(15 * once), 0.9, 6000, 3000); // several trials
	REQUIRE(t.tuner.chosen() == Way::by_neighbour);
	t.run(static_cast<unsigned>(once) + bound, 0.0, 1000, 3000);
	CHECK(t.tuner.chosen() == Way::direct);
	// And there it stays without another trial.
	const uint64_t trials = t.tuner.trials();
	t.run(100'000, 0.0, 1000, 3000);
	CHECK(t.tuner.trials() == trials);
}

TEST_CASE("ways that are alike are left as they are after a bounded trial")
{
	Trace t;
	t.run((2 * law.pairs + 2) * law.epoch, 0.9, 3000, 3000);
	CHECK_FALSE(t.tuner.in_trial());
	CHECK(t.tuner.chosen() == Way::direct);
	CHECK(t.by_neighbour == (law.pairs + 1) * law.epoch);
}

TEST_CASE("delays that never come back leave the way as it is")
{
	WayTuner tuner;
	for (unsigned i = 0; i < 10'000; ++i)
		tuner.sent(0.9);
	CHECK(tuner.chosen() == Way::direct);
	CHECK(tuner.trials() == 1);
}

TEST_CASE("noise does not choose the worse way, and an outlier of any size costs a pair")
{
	for (const bool direct_is_better : {true, false}) {
		unsigned wrong = 0;
		for (unsigned seed = 0; seed < 200; ++seed) {
			std::mt19937 random(seed);
			Trace t;
			t.run(20'000, 0.9, [&](Way way) {
				const double mean = (way == Way::direct) == direct_is_better ? 3000 : 4000;
				const auto delay = static_cast<int64_t>(std::exponential_distribution(1 / mean)(random));
				return random() % 2000 ? delay : delay + 500'000;
			});
			wrong += (t.tuner.chosen() == Way::direct) != direct_is_better;
		}
		CHECK(wrong <= 10);
	}
}

TEST_CASE("a drift weighs on both ways")
{
	for (const double drift : {-20.0, 20.0}) {
		Trace t;
		double all = 0;
		t.run((2 * law.pairs + 2) * law.epoch, 0.9, [&](Way) { return static_cast<int64_t>(all += drift); });
		CHECK(t.tuner.chosen() == Way::direct);
		CHECK(std::abs(t.tuner.gain()) < std::abs(drift) * law.epoch);
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
