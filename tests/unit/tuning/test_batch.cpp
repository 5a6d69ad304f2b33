// The tuner of the doorbell batch against a model of a sender.
#include <catch2/catch.hpp>

#include <bit>
#include <random>

#include "transports/verbs/tuning/batch.hpp"

using namespace pt2p::tune;

namespace {

// A post takes 100 ns, a doorbell `doorbell` ns. Messages come in bursts of `burst`.
struct Sender {
	double doorbell = 100, noise = 0, ratio_of_one = 1, ratio_of_each = 0;
	uint32_t burst = 64;
	std::mt19937 random{11};
	BatchTuner tuner{BatchLaw{}};
	unsigned intervals = 0, at_one = 0, at_max = 0, changes = 0, last_change = 0, closest = UINT32_MAX;

	void run(unsigned count)
	{
		for (const unsigned end = intervals + count; intervals != end; ++intervals) {
			const uint32_t together = std::min(tuner.batch(), burst);
			const double work = BatchLaw::interval, doorbells = work / together;
			std::uniform_real_distribution<double> factor(1 - noise, 1 + noise);
			const double time = (work * 100 + doorbells * doorbell) * factor(random);
			see({work, time, BatchLaw::interval, static_cast<uint64_t>(doorbells),
			     ratio_of_one + ratio_of_each * together});
		}
	}
	void see(const BatchTuner::Interval &interval)
	{
		at_one += tuner.batch() == 1;
		at_max += tuner.batch() == BatchLaw{}.max;
		const uint64_t before = tuner.changes();
		tuner.see(interval);
		REQUIRE(std::has_single_bit(tuner.batch()));
		REQUIRE(tuner.batch() <= 16);
		if (tuner.changes() == before)
			return;
		if (changes++)
			closest = std::min(closest, intervals - last_change);
		last_change = intervals;
	}
};

constexpr unsigned bound = 20, bound_alone = 12, bound_again = 14; // intervals, as batch.hpp promises

} // namespace

TEST_CASE("where doorbells are dear, the batch becomes the largest within the promised number of intervals, and stays")
{
	for (const double doorbell : {30.0, 100.0, 3000.0}) { // the smallest makes 16 a fifth quicker
		CAPTURE(doorbell);
		Sender dear;
		dear.doorbell = doorbell;
		dear.run(bound);
		CHECK(dear.tuner.changes() == 1);
		dear.at_max = 0;
		dear.run(10'000);
		CHECK(dear.at_max > 9'700);
		CHECK(dear.tuner.changes() == 1);
		CHECK(dear.tuner.trials() < 60);
		CHECK(dear.at_one < 100);
	}
}

TEST_CASE("where doorbells are cheap, the batch is one")
{
	Sender cheap;
	cheap.doorbell = 10;
	cheap.run(10'000);
	CHECK(cheap.tuner.changes() == 0);
	CHECK(cheap.at_one >= 10'000 * 0.97);
}

TEST_CASE("messages that come alone keep the batch at one, or bring it back to one")
{
	Sender alone;
	alone.doorbell = 3000;
	alone.burst = 1;
	alone.run(2000);
	CHECK(alone.tuner.changes() == 0);

	for (unsigned phase = 0; phase < 60; ++phase) { // also in the middle of a trial
		INFO("after " << phase);
		Sender sender;
		sender.doorbell = 3000;
		sender.run(bound + phase);
		REQUIRE(sender.tuner.changes() == 1);
		sender.burst = 1;
		sender.run(bound_alone);
		CHECK(sender.tuner.changes() == 2);
		const unsigned at_one = sender.at_one;
		sender.run(bound_again);
		CHECK(sender.at_one >= at_one + bound_again / 2); // except for a trial
		sender.run(2000);
		CHECK(sender.tuner.changes() == 2);
	}
}

TEST_CASE("a batch is not taken when the last message of a period waits too long, whatever the rate")
{
	Sender sender;
	sender.doorbell = 3000;
	sender.ratio_of_each = 0.5; // 1.5, 2, 3, ...
	sender.run(2000);
	CHECK(sender.tuner.changes() == 1);
	while (sender.tuner.batch() > 2)
		sender.run(1);
	CHECK(sender.tuner.batch() == 2);

	Sender behind; // with any batch, as the device works for others, so no batch is at fault
	behind.doorbell = 3000;
	behind.ratio_of_one = 3;
	behind.run(bound);
	CHECK(behind.tuner.changes() == 1);
	CHECK(behind.at_one < bound);
}

TEST_CASE("noise does not move the batch to and fro")
{
	for (unsigned seed = 0; seed < 30; ++seed) {
		INFO("seed " << seed);
		Sender even, dear;
		even.random.seed(seed);
		even.doorbell = 10;
		even.noise = dear.noise = 0.15;
		even.run(10'000);
		CHECK(even.tuner.changes() <= 4);
		CHECK(even.tuner.trials() <= 100);
		dear.random.seed(seed);
		dear.doorbell = 3000;
		dear.run(10'000);
		CHECK(dear.at_one < 500);
		CHECK(dear.tuner.changes() <= 10);
	}
}

TEST_CASE("a load that changes is followed")
{
	Sender sender;
	sender.run(bound);
	REQUIRE(sender.tuner.changes() == 1);
	sender.doorbell = 0; // the larger batch costs nothing and may stay
	sender.run(5000);
	CHECK(sender.tuner.changes() == 1);

	Sender dearer; // nothing to be gained at first
	dearer.doorbell = 5;
	dearer.run(5000);
	REQUIRE(dearer.tuner.changes() == 0);
	dearer.doorbell = 3000; // the rate shows it soon
	dearer.run((5 + 40) * 4);
	CHECK(dearer.tuner.changes() >= 1);
	dearer.run(2000);
	CHECK(dearer.tuner.batch() == 16);
}

TEST_CASE("whatever is observed, the batch stays within its bounds, and changes are as far apart as promised")
{
	Sender wild;
	for (; wild.intervals < 50'000; ++wild.intervals)
		wild.see({BatchLaw::interval, 1 + static_cast<double>(wild.random() % 100'000), BatchLaw::interval,
		          8 + wild.random() % 8, 0});
	CHECK(wild.closest >= bound_again);

	// Shared until it is accepted, and then alone.
	Sender mean;
	for (; mean.intervals < 50'000; ++mean.intervals) {
		const bool accepted = mean.tuner.changes() % 2;
		mean.see({BatchLaw::interval, 50'000. / mean.tuner.batch(), BatchLaw::interval,
		          accepted ? BatchLaw::interval : 32u, 0});
	}
	CHECK(mean.tuner.changes() > 100);
	CHECK(mean.tuner.changes() < 2 * 50'000 / bound_again);
}

TEST_CASE("a batch on trial is not accepted yet")
{
	Sender dear;
	unsigned trying = 0;
	for (unsigned i = 0; i < bound; ++i) {
		const bool changed = dear.tuner.changes() != 0;
		CHECK(dear.tuner.accepted() == (changed ? BatchLaw{}.max : 1));
		trying += dear.tuner.batch() != dear.tuner.accepted();
		dear.run(1);
	}
	CHECK(trying > 0);
	CHECK(dear.tuner.accepted() == BatchLaw{}.max);
}
