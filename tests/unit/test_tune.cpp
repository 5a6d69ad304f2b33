// The tuner of the signal period against a model of a channel.
#include <catch2/catch.hpp>

#include <random>

#include "tune/period.hpp"

using pt2p::tune::PeriodLaw;
using pt2p::tune::PeriodTuner;

namespace {

// A signalled operation takes `idle` ns, and `each` more for every other work request of its period.
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

TEST_CASE("the period grows by steps while the last operation is quick, and stays where the law holds it")
{
	Channel channel;
	PeriodTuner tuner(PeriodLaw{});
	CHECK(tuner.see_last(100) == 1); // no N yet
	tuner.see_normal(channel.latency(1));
	for (int i = 0; i < 200; ++i) {
		const uint32_t before = tuner.period(), after = tuner.see_last(channel.latency(before));
		REQUIRE((after == before || after == before + 4));
	}
	// L/N is 1.8 at a period of 33: the first step from there on is kept.
	CHECK(tuner.period() == 33);
	CHECK(tuner.cuts() == 0);
}

TEST_CASE("a channel that is never idle has the shortest of its first latencies as N, until it is idle once")
{
	PeriodTuner tuner(PeriodLaw{});
	for (const int64_t ns : {4000, 3000, 5000, 3500, 9000, 2800, 4100, 3300}) {
		CHECK(tuner.normal() == 0);
		CHECK(tuner.see_last(ns) == 1);
	}
	CHECK(tuner.normal() == 2800);
	for (int i = 0; i < 3; ++i)
		tuner.see_last(2900);
	CHECK(tuner.period() == 5); // 1.04 N: it grows
	tuner.see_normal(1000);
	CHECK(tuner.normal() == 1000);
	for (int i = 0; i < 9; ++i)
		tuner.see_last(2900);
	CHECK(tuner.period() == 2); // 2.9 N
}

TEST_CASE("a fast channel takes the whole depth, a slow one no more than one")
{
	for (const double each : {0.1, 5000.0}) {
		Channel channel{1000, each};
		PeriodTuner tuner(PeriodLaw{});
		tuner.see_normal(channel.latency(1));
		for (int i = 0; i < 300; ++i)
			tuner.see_last(channel.latency(tuner.period()));
		if (each < 1)
			CHECK(tuner.period() == 64);
		else
			CHECK(tuner.period() <= 5);
	}
}

TEST_CASE("noise of a fifth does not make the period swing")
{
	Channel channel{1000, 25, 0.2};
	PeriodTuner tuner(PeriodLaw{});
	for (int i = 0; i < 5; ++i)
		tuner.see_normal(channel.latency(1));
	for (int i = 0; i < 300; ++i)
		tuner.see_last(channel.latency(tuner.period()));
	const uint64_t changes = tuner.raises() + tuner.cuts();
	uint32_t least = tuner.period(), most = least;
	for (int i = 0; i < 3000; ++i) {
		const uint32_t period = tuner.see_last(channel.latency(tuner.period()));
		least = std::min(least, period);
		most = std::max(most, period);
	}
	CHECK(tuner.raises() + tuner.cuts() - changes <= 6);
	CHECK(most - least <= 16);
}

TEST_CASE("a payload that jumps is answered within a few periods, and the way back is found")
{
	Channel channel;
	PeriodTuner tuner(PeriodLaw{});
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
	PeriodTuner tuner(PeriodLaw{});
	for (int i = 0; i < 5; ++i)
		tuner.see_normal(1000);
	tuner.see_normal(90'000);
	tuner.see_normal(10);
	CHECK(tuner.normal() == 1000);
	for (int i = 0; i < 3; ++i)
		tuner.see_normal(1500);
	CHECK(tuner.normal() == 1500);
}
