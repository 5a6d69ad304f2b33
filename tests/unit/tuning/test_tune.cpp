// The tuner of the signal period against a model of a channel.
#include <catch2/catch.hpp>

#include <random>

#include "transports/verbs/tuning/period.hpp"

using pt2p::tune::PeriodLaw;
using pt2p::tune::PeriodTuner;

namespace {

// The laws of Net::law(). With PT2P_TUNE=tied each observation is judged, and the period moves between 1 and the depth.
// With free the period is fixed, and only N and L/N are measured.
constexpr PeriodLaw tied{.window = 1, .few = 1};
constexpr PeriodLaw fixed(uint32_t period) { return {.min = period, .max = period}; }

// A signalled operation takes `idle` ns, and `each` ns more for every other work request of its period.
struct Channel {
	double idle = 1000, each = 25;
	double noise = 0; // 0.2: up to a fifth more or less
	std::mt19937 random{7};

	int64_t latency(uint32_t period)
	{
		std::uniform_real_distribution<double> factor(1 - noise, 1 + noise);
		return static_cast<int64_t>((idle + each * (period - 1)) * factor(random));
	}
};

} // namespace

TEST_CASE("the period grows in steps while the last operation is quick, and stays where the law holds it")
{
	Channel channel;
	PeriodTuner tuner(tied);
	CHECK(tuner.see_last(100) == 1); // no N yet
	tuner.see_normal(channel.latency(1));
	for (int i = 0; i < 200; ++i) {
		const uint32_t before = tuner.period(), after = tuner.see_last(channel.latency(before));
		REQUIRE((after == before || after == before + 4));
	}
	// L/N is 1.8 at a period of 33. The first period from there on is kept.
	CHECK(tuner.period() == 33);
	CHECK(tuner.cuts() == 0);
}

TEST_CASE("a channel that is never idle has its first latency as N, until it is idle once")
{
	PeriodTuner tuner(tied);
	CHECK(tuner.normal() == 0);
	CHECK(tuner.see_last(2800) == 1);
	CHECK(tuner.normal() == 2800);
	CHECK(tuner.see_last(2900) == 5); // 1.04 N: it grows
	tuner.see_normal(1000);
	CHECK(tuner.normal() == 1000);
	CHECK(tuner.see_last(2900) == 5); // it began before the last change
	CHECK(tuner.see_last(2900) == 2); // 2.9 N
}

TEST_CASE("with a fixed period, a channel that is never idle has the shortest of its first latencies as N")
{
	PeriodTuner tuner(fixed(12));
	for (const int64_t ns : {4000, 3000, 5000, 3500, 9000, 2800, 4100, 3300}) {
		CHECK(tuner.normal() == 0);
		CHECK(tuner.see_last(ns) == 12);
	}
	CHECK(tuner.normal() == 2800);
}

TEST_CASE("the period is the whole depth on a fast channel, and one on a slow one")
{
	for (const double each : {0.1, 5000.0}) {
		Channel channel{1000, each};
		PeriodTuner tuner(tied);
		tuner.see_normal(channel.latency(1));
		for (int i = 0; i < 300; ++i)
			tuner.see_last(channel.latency(tuner.period()));
		if (each < 1)
			CHECK(tuner.period() == 64);
		else
			CHECK(tuner.period() <= 5);
	}
}

TEST_CASE("noise of a fifth halves the period at most, from what the law allows")
{
	Channel channel{1000, 25, 0.2};
	PeriodTuner tuner(tied);
	for (int i = 0; i < 5; ++i)
		tuner.see_normal(channel.latency(1));
	for (int i = 0; i < 300; ++i)
		tuner.see_last(channel.latency(tuner.period()));
	// With N a fifth too low and L a fifth too high, L/N looks like more than 2.5 from a period of 28 on.
	for (int i = 0; i < 3000; ++i)
		REQUIRE(tuner.see_last(channel.latency(tuner.period())) >= 28 / 2);
}

TEST_CASE("the period follows a jump of the payload within a few periods, and recovers afterwards")
{
	Channel channel;
	PeriodTuner tuner(tied);
	tuner.see_normal(1000);
	for (int i = 0; i < 200; ++i)
		tuner.see_last(channel.latency(tuner.period()));
	REQUIRE(tuner.period() == 33);
	channel.each = 400; // L is 13.8 N
	int periods = 0;
	while (channel.latency(tuner.period()) > 2500 && ++periods < 100)
		tuner.see_last(channel.latency(tuner.period()));
	CHECK(periods <= 8);
	CHECK(tuner.period() <= 4);
	channel.each = 25;
	for (int i = 0; i < 200; ++i)
		tuner.see_last(channel.latency(tuner.period()));
	CHECK(tuner.period() >= 30);
}

TEST_CASE("N follows a drift, and not an outlier")
{
	PeriodTuner tuner(tied);
	for (int i = 0; i < 5; ++i)
		tuner.see_normal(1000);
	tuner.see_normal(90'000);
	tuner.see_normal(10);
	CHECK(tuner.normal() == 1000);
	for (int i = 0; i < 3; ++i)
		tuner.see_normal(1500);
	CHECK(tuner.normal() == 1500);
}

namespace {

// The number of observations until the period does not change for 60 of them.
unsigned settle(PeriodTuner &tuner, Channel &channel)
{
	unsigned quiet = 0, all = 0;
	while (quiet < 60 && all < 100'000) {
		const uint32_t before = tuner.period();
		quiet = tuner.see_last(channel.latency(before)) == before ? quiet + 1 : 0;
		++all;
	}
	return all - quiet;
}

} // namespace

TEST_CASE("the period settles as soon as the law promises")
{
	const PeriodLaw law = tied;
	const unsigned up = (law.max - law.min + law.step - 1) / law.step, down = 6;
	for (const double each : {0.0, 1.0, 10.0, 12.5, 17.0, 25.0, 40.0, 80.0}) {
		Channel channel{1000, each};
		PeriodTuner tuner(law);
		tuner.see_normal(1000);
		const unsigned took = settle(tuner, channel);
		INFO(each << " ns for each: " << took << " observations, period " << tuner.period());
		CHECK(took <= (up + down) * (law.window + 1));
		if (each <= 5)
			CHECK(took <= up * (law.window + 1));
		const double ratio = static_cast<double>(channel.latency(tuner.period())) / 1000;
		CHECK((ratio <= law.cut_above && (ratio >= law.raise_below || tuner.period() == law.max)));
	}
	// Down from the longest: slow, and so slow that one observation is enough.
	for (const double slow : {2.6, 6.0}) {
		PeriodTuner tuner(law);
		tuner.see_normal(1000);
		Channel quick{1000, 0};
		settle(tuner, quick);
		REQUIRE(tuner.period() == law.max);
		Channel channel{1000 * slow, 0};
		CHECK(settle(tuner, channel) <= (slow > 5 ? 2 * down : (down + 1) * (law.window + 1)));
		CHECK(tuner.period() == law.min);
	}
}

TEST_CASE("the period follows a latency that creeps up, and recovers afterwards")
{
	Channel channel{1000, 10};
	PeriodTuner tuner(tied);
	tuner.see_normal(1000);
	settle(tuner, channel);
	REQUIRE(tuner.period() == 64);
	// From 10 to 110 ns for each over 3000 observations: L is never far outside of the band.
	double worst = 0;
	for (int i = 0; i < 3000; ++i) {
		channel.each = 10 + i / 30.0;
		tuner.see_last(channel.latency(tuner.period()));
		worst = std::max(worst, static_cast<double>(channel.latency(tuner.period())) / 1000);
	}
	CHECK(worst < 1.2 * 2.5);
	CHECK(tuner.period() <= 14);
	for (int i = 3000; i > 0; --i) {
		channel.each = 10 + i / 30.0;
		tuner.see_last(channel.latency(tuner.period()));
	}
	settle(tuner, channel);
	CHECK(tuner.period() == 64);
}

TEST_CASE("on a channel that is too steep for any period the law swings, and the period grows again when that is over")
{
	Channel channel{1000, 3000}; // two work requests: L is 4 N
	PeriodTuner tuner(tied);
	tuner.see_normal(1000);
	for (int i = 0; i < 3000; ++i)
		REQUIRE(tuner.see_last(channel.latency(tuner.period())) <= 5);
	CHECK(tuner.cuts() > 300);
	channel.each = 10;
	settle(tuner, channel);
	CHECK(tuner.period() == 64);
}

// After anything that it has seen, an idle channel leads to the longest period.
static void check_that_peace_settles(PeriodTuner &tuner, const PeriodLaw &law)
{
	for (int i = 0; i < 5; ++i)
		tuner.see_normal(1000);
	Channel channel{1000, 0};
	for (int i = 0; i < 3000; ++i)
		tuner.see_last(channel.latency(tuner.period()));
	CHECK(tuner.period() == law.max);
}

// Misleading latencies: long whenever the period is long and short whenever it is short, as if each change had been
// wrong. And single outliers.
TEST_CASE("an adversary neither stops the tuner nor drives it out of its bounds")
{
	std::mt19937 random(3);
	for (int round = 0; round < 200; ++round) {
		const PeriodLaw law{.step = 1 + static_cast<uint32_t>(random() % 8),
		                    .max = 1 + static_cast<uint32_t>(random() % 128),
		                    .window = 1,
		                    .few = 1};
		PeriodTuner tuner(law);
		for (int i = 0; i < 2000; ++i) {
			const uint32_t period = tuner.period();
			REQUIRE((period >= law.min && period <= law.max));
			const bool pushed = random() % 16 == 0;
			if (random() % 50 == 0)
				tuner.see_normal(static_cast<int64_t>(random() % 3000 + 1));
			else
				tuner.see_last(pushed ? INT64_C(1) << random() % 50 : period > law.max / 2 ? 9000 : 900);
		}
		check_that_peace_settles(tuner, law);
	}
}

TEST_CASE("with equal bounds the period is fixed, whatever is observed")
{
	std::mt19937 random(4);
	for (uint32_t share = 1; share <= 64; share *= 2) {
		PeriodTuner tuner(fixed(share));
		for (int i = 0; i < 2000; ++i) {
			if (random() % 50 == 0)
				tuner.see_normal(static_cast<int64_t>(random() % 3000 + 1));
			else
				tuner.see_last(static_cast<int64_t>(random() % 30'000 + 1));
			REQUIRE(tuner.period() == share);
		}
		CHECK(tuner.raises() + tuner.cuts() == 0);
		// N and L/N are still measured.
		for (int i = 0; i < 5; ++i)
			tuner.see_normal(1000);
		for (unsigned i = 0; i < 2 * PeriodLaw{}.window; ++i)
			tuner.see_last(2000);
		CHECK(tuner.normal() == 1000);
		CHECK(tuner.ratio() == Approx(2));
	}
}
