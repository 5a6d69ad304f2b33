// The choice between the direct way and the one by neighbours, on made-up paces.
#include <catch2/catch.hpp>

#include <deque>
#include <random>

#include "tune/way.hpp"

using namespace pt2p::tune;

namespace {

// One rank; `time` of a way says how long a message takes until the next one can be sent, ns.
struct Trace {
	WayTuner tuner;
	int64_t now = 0;
	unsigned changes = 0, sent = 0, by_neighbour = 0;

	template <class Time>
	void run(unsigned messages, double rate, const Time &time)
	{
		for (unsigned i = 0; i < messages; ++i) {
			const Way way = tuner.way();
			by_neighbour += way == Way::by_neighbour;
			now += time(way);
			++sent;
			changes += tuner.sent(rate, [this] { return now; });
		}
	}
	void run(unsigned messages, double rate, int64_t direct, int64_t by_way)
	{
		run(messages, rate, [=](Way way) { return way == Way::direct ? direct : by_way; });
	}
};

// Ranks that tell each other where they are with each message, `late` rounds later. In a round rank 0 sends a message, and each
// of the others one with a probability of its own.
struct Job {
	struct Heard {
		unsigned round;
		size_t by;
		uint32_t moment;
	};
	explicit Job(size_t ranks, unsigned late_rounds, unsigned seed = 1) : late(late_rounds), random(seed), tuners(ranks) {}

	const unsigned late;
	std::mt19937 random;
	std::deque<WayTuner> tuners;
	std::deque<Heard> under_way;
	int64_t now = 0;
	unsigned round = 0;

	// `time` of the share of ranks that go directly: how long a round takes, ns.
	template <class Time>
	void run(unsigned rounds, double rate, const Time &time)
	{
		const auto clock = [this] { return now; };
		for (unsigned i = 0; i < rounds; ++i, ++round) {
			for (; !under_way.empty() && under_way.front().round <= round; under_way.pop_front())
				tuners[under_way.front().by].heard(under_way.front().moment, clock);
			size_t direct = 0;
			for (size_t r = 0; r < tuners.size(); ++r) {
				direct += tuners[r].way() == Way::direct;
				if (random() % tuners.size() < r) // the later ones send less
					continue;
				tuners[r].sent(rate, clock);
				under_way.push_back({round + late, random() % tuners.size(), tuners[r].moment()});
			}
			now += time(static_cast<double>(direct) / static_cast<double>(tuners.size()));
		}
	}
	size_t count(Way way) const
	{
		size_t n = 0;
		for (const WayTuner &t : tuners)
			n += !t.in_trial() && t.chosen() == way;
		return n;
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
	t.run(bound, 0.9, 4000, 1000);
	CHECK(t.tuner.chosen() == Way::by_neighbour);
	CHECK(t.tuner.way() == Way::by_neighbour);
	CHECK(t.changes == 1);
	CHECK(t.tuner.gain() == Approx(4));
}

TEST_CASE("what is tried and not chosen is less than a hundredth of all messages in the long run")
{
	for (const bool direct_is_better : {true, false}) {
		Trace t;
		t.run(bound, 0.9, 3000, direct_is_better ? 6000 : 1000);
		const unsigned first = direct_is_better ? t.by_neighbour : t.sent - t.by_neighbour;
		const uint64_t rest = t.tuner.rest();
		CHECK(rest == uint64_t{law.rest} * law.pairs * law.epoch);
		t.run(5'000'000, 0.9, 3000, direct_is_better ? 6000 : 1000);
		const unsigned tried = (direct_is_better ? t.by_neighbour : t.sent - t.by_neighbour) - first;
		CHECK(tried > 0);
		CHECK(tried <= 5'000'000 / law.rest);
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
	const uint32_t trials = t.tuner.trials();
	t.run(200'000, 0.0, 1000, 3000);
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

TEST_CASE("noise does not choose the worse way, and an outlier of any size costs a pair")
{
	for (const bool direct_is_better : {true, false}) {
		unsigned wrong = 0;
		for (unsigned seed = 0; seed < 200; ++seed) {
			std::mt19937 random(seed);
			Trace t;
			t.run(20'000, 0.9, [&](Way way) {
				const double mean = (way == Way::direct) == direct_is_better ? 3000 : 4000;
				const auto time = static_cast<int64_t>(std::exponential_distribution(1 / mean)(random));
				return random() % (16 * law.epoch) ? time : time + 5'000'000;
			});
			wrong += (t.tuner.chosen() == Way::direct) != direct_is_better;
		}
		CHECK(wrong <= 10);
	}
}

TEST_CASE("a drift weighs on both ways")
{
	for (const double drift : {-1.0, 1.0}) {
		Trace t;
		double time = 10'000;
		t.run((2 * law.pairs + 2) * law.epoch, 0.9, [&](Way) { return static_cast<int64_t>(time += drift); });
		CHECK(t.tuner.chosen() == Way::direct);
		CHECK(t.tuner.gain() == Approx(1).epsilon(0.02));
	}
}

TEST_CASE("all ranks of a job choose the same way, those that send little, too")
{
	for (const unsigned late : {1u, 5u, 20u})
		for (const bool direct_is_better : {true, false})
			for (unsigned seed = 1; seed <= 20; ++seed) {
				Job job(64, late, seed);
				// Two trials' time: the later ranks send too little to get through one by themselves.
				job.run(2 * bound, 0.9, [=](double direct) {
					return static_cast<int64_t>(1000 * (direct_is_better ? 3 - direct : 2 + direct));
				});
				INFO("late by " << late << ", seed " << seed);
				CHECK(job.count(direct_is_better ? Way::direct : Way::by_neighbour) == job.tuners.size());
				CHECK(job.tuners[0].trials() == 1);
			}
}

TEST_CASE("the way that is quicker for all is chosen where any one rank would be better off by the other")
{
	// Each rank that goes directly has 500 ns less for itself, and costs all others together twice that.
	Job job(64, 5);
	job.run(2 * bound, 0.9, [](double direct) { return static_cast<int64_t>(3000 - 500 * direct + 1000 * direct); });
	CHECK(job.count(Way::by_neighbour) == job.tuners.size());
}

TEST_CASE("moments that nobody would tell end in a choice all the same")
{
	for (unsigned seed = 1; seed <= 200; ++seed) {
		std::mt19937 random(seed);
		Trace t;
		for (int i = 0; i < 20; ++i) {
			t.run(random() % 300, 0.9, 2000, 1000);
			t.tuner.heard(t.tuner.moment() + (random() >> (1 + random() % 31)), [&] { return t.now; });
		}
		t.run((2 * law.pairs + 2) * law.epoch, 0.9, 2000, 1000);
		CHECK_FALSE(t.tuner.in_trial());
		// What is older does not count.
		const uint32_t moment = t.tuner.moment();
		CHECK_FALSE(t.tuner.heard(moment - 2, [&] { return t.now; }));
		CHECK(t.tuner.moment() == moment);
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
