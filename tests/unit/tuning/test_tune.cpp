// The law of the paper against a model of a channel, and the normal latency.
#include <catch2/catch.hpp>

#include <random>

#include "transports/verbs/tuning/normal.hpp"
#include "transports/verbs/tuning/period.hpp"

using pt2p::tune::NormalLatency;
using pt2p::tune::PeriodLaw;
using pt2p::tune::PeriodTuner;

namespace {

// A signalled operation takes N, and `each` N more for every other work request of its period.
struct Channel {
	double each = 0.025;
	double noise = 0; // 0.2: up to a fifth more or less
	std::mt19937 random{7};

	double ratio(uint32_t period)
	{
		std::uniform_real_distribution<double> factor(1 - noise, 1 + noise);
		return (1 + each * (period - 1)) * factor(random);
	}
};

void see(PeriodTuner &tuner, Channel &channel, int periods)
{
	for (int i = 0; i < periods; ++i)
		tuner.see(channel.ratio(tuner.period()));
}

} // namespace

TEST_CASE("paper: the period grows in steps while the last operation is quick, and stays where the law holds it")
{
	Channel channel;
	PeriodTuner tuner(PeriodLaw{});
	REQUIRE(tuner.period() == 1);
	for (int i = 0; i < 200; ++i) {
		const uint32_t before = tuner.period(), after = tuner.see(channel.ratio(before));
		REQUIRE((after == before || after == before + 4));
	}
	CHECK(tuner.period() == 33); // L/N is 1.8 there
}

TEST_CASE("paper: the period is the whole depth on a fast channel, and one on a slow one")
{
	Channel fast{0.0001}, slow{5};
	PeriodTuner up(PeriodLaw{}), down(PeriodLaw{});
	see(up, fast, 300);
	CHECK(up.period() == 64);
	see(up, slow, 20);
	CHECK(up.period() <= 5);
	see(down, slow, 300);
	CHECK(down.period() <= 5);
}

TEST_CASE("paper: outside of the band the period changes, on its borders and within it does not")
{
	PeriodTuner tuner(PeriodLaw{});
	tuner.see(1);
	REQUIRE(tuner.period() == 5);
	tuner.see(9); // began before the change
	for (const double r : {1.8, 2.0, 2.5}) {
		tuner.see(r);
		CHECK(tuner.period() == 5);
	}
	CHECK(tuner.see(2.51) == 2);
	CHECK(tuner.see(9) == 2);
	CHECK(tuner.see(2.51) == 1);
	CHECK(tuner.see(9) == 1);
	CHECK(tuner.see(1.79) == 5);
}

TEST_CASE("paper: noise of a fifth halves the period at most, from what the law allows")
{
	Channel channel{0.025, 0.2};
	PeriodTuner tuner(PeriodLaw{});
	see(tuner, channel, 300);
	for (int i = 0; i < 3000; ++i) {
		see(tuner, channel, 1);
		// With L a fifth too long, L/N looks like more than 2.5 from a period of 44 on.
		REQUIRE(tuner.period() >= 44 / 2);
	}
}

TEST_CASE("N is the shortest latency, and follows idle channels only")
{
	NormalLatency normal;
	CHECK_FALSE(normal.known());
	CHECK(normal.value() == 0);
	normal.see_any(100); // of a busy channel: not N
	CHECK_FALSE(normal.known());
	normal.see_idle(1000);
	normal.see_idle(90'000);
	CHECK(normal.value() == 1000);
	normal.see_any(900);
	CHECK(normal.value() == 900);
	normal.see(950);
	CHECK(normal.value() == 900);
	// A busy channel never makes N longer.
	for (int i = 0; i < 1000; ++i) {
		normal.see_any(5000);
		normal.see(4000);
	}
	CHECK(normal.value() == 900);
	// An idle one does, after one to two epochs.
	for (unsigned i = 0; i < 2 * NormalLatency::epoch; ++i)
		normal.see_idle(1500);
	CHECK(normal.value() == 1500);
	normal.see_idle(1200);
	CHECK(normal.value() == 1200);
}
