// The law of the window, which is what may be in flight, against models of a device.
#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <vector>

#include "transports/verbs/tuning/window.hpp"

using pt2p::tune::first_window;
using pt2p::tune::WindowLaw;
using pt2p::tune::WindowTuner;

namespace {

// A device that holds `holds` work requests in a time N, and serves `holds` of them in that time, whatever waits:
// queues that share it see the same L/N. With more than `cache` in flight, WQEs are read a second time, and all takes
// twice as long.
struct Device {
	double holds = 16, noise = 0;
	uint32_t cache = UINT32_MAX;
	std::mt19937 random{7};

	double ratio(uint32_t in_flight)
	{
		std::uniform_real_distribution<double> factor(1 - noise, 1 + noise);
		return std::max(1.0, in_flight / holds) * (in_flight > cache ? 2 : 1) * factor(random);
	}
	double rate(uint32_t in_flight) { return in_flight / ratio(in_flight); }
};

struct Queues {
	Device device;
	std::vector<WindowTuner> all;
	std::vector<double> errors; // of N, as a factor

	Queues(Device d, size_t count, const WindowLaw &law) : device(d), all(count, WindowTuner(law)), errors(count, 1) {}
	uint32_t in_flight() const
	{
		return std::accumulate(all.begin(), all.end(), 0u,
		                       [](uint32_t sum, const WindowTuner &w) { return sum + w.size(); });
	}
	// Each queue observes once. They do not observe at the same time.
	void observe(unsigned times)
	{
		for (unsigned i = 0; i < times; ++i)
			for (size_t q = 0; q < all.size(); ++q) {
				all[q].see(device.ratio(in_flight()) / errors[q], false);
				all[q].emptied();
			}
	}
	uint32_t smallest() const { return std::min_element(all.begin(), all.end(), less)->size(); }
	uint32_t largest() const { return std::max_element(all.begin(), all.end(), less)->size(); }
	static bool less(const WindowTuner &a, const WindowTuner &b) { return a.size() < b.size(); }
};

// Where the law stays: W (r - t) = t c with r = nW/B.
double fixed_point(double holds, double count, const WindowLaw &law = {})
{
	const double t = law.band.raise_below, b = t * holds / count;
	return (b + std::sqrt(b * b + 4 * b * law.flows)) / 2;
}

} // namespace

TEST_CASE("window: queues that share a device reach the window of the law, wherever they begin", "[window]")
{
	for (const double holds : {20.0, 60.0, 340.0})
		for (const size_t count : {1u, 2u, 8u, 16u, 64u})
			for (const uint32_t first : {2u, 16u, 64u}) {
				CAPTURE(holds, count, first);
				const WindowLaw law{.max = 85, .first = first};
				Queues queues({holds}, count, law);
				queues.observe(400);
				const double wanted = std::clamp(fixed_point(holds, static_cast<double>(count)), 2.0, 85.0);
				CHECK(queues.smallest() >= wanted * 0.9 - 1);
				CHECK(queues.largest() <= wanted * 1.1 + 1);
				// The device is busy, unless the queues are too short for that.
				CHECK(queues.device.rate(queues.in_flight()) >= std::min(holds, 85.0 * static_cast<double>(count)));
			}
}

TEST_CASE("window: shares become even, also if one queue is late", "[window]")
{
	const WindowLaw law{.max = 85};
	Queues queues({40}, 7, law);
	queues.observe(100);
	queues.all.emplace_back(law);
	queues.errors.push_back(1);
	REQUIRE(queues.largest() > 3 * queues.smallest());
	queues.observe(300);
	CHECK(queues.largest() <= queues.smallest() * 1.2 + 1);
}

TEST_CASE("window: a wrong N moves a share, and starves nobody", "[window]")
{
	Queues queues({340}, 16, {.max = 85});
	for (size_t q = 0; q < queues.errors.size(); ++q)
		queues.errors[q] = q % 2 ? 1.05 : 0.95;
	queues.observe(1000);
	CHECK(queues.device.rate(queues.in_flight()) == Approx(340));
	CHECK(queues.smallest() >= 4);
	CHECK(queues.in_flight() <= 1.05 * 16 * fixed_point(340, 16) + 85);
}

TEST_CASE("window: a full cache of WQEs is left within few observations, and the device keeps its rate", "[window]")
{
	for (const size_t count : {16u, 32u, 64u}) {
		CAPTURE(count);
		Device device{340};
		device.cache = 1024;
		Queues queues(device, count, {.max = 85});
		queues.observe(8);
		CHECK(queues.in_flight() <= 1024);
		queues.observe(100);
		CHECK(queues.in_flight() <= 1024);
		CHECK(queues.device.rate(queues.in_flight()) == Approx(340));
	}
}

TEST_CASE("window: it doubles until the target is reached, and is all of the queue on a device that is not busy",
          "[window]")
{
	WindowTuner tuner({.max = 85, .first = 2});
	for (const uint32_t size : {2u, 4u, 8u, 16u, 32u, 64u, 85u}) {
		CHECK(tuner.size() == size);
		CHECK_FALSE(tuner.empties());
		tuner.see(1, false);
	}
	CHECK(tuner.size() == 85);
	CHECK(tuner.emptied()); // it is refilled in one go at the end
	WindowTuner slow({.max = 85, .first = 2});
	slow.see(1, true); // alone counts while it begins
	CHECK(slow.size() == 4);
	slow.see(1, false);
	slow.see(2.3, false); // above 1.8 (1 + 2/8)
	CHECK(slow.size() == 8);
	CHECK(slow.emptied());
	slow.see(1, true); // and no more afterwards
	slow.see(1, true);
	CHECK(slow.size() == 8);
}

TEST_CASE("window: one observation outside of the band decides nothing", "[window]")
{
	Queues queues({20}, 1, {.max = 85});
	queues.observe(100);
	WindowTuner &tuner = queues.all[0];
	const uint32_t size = tuner.size();
	for (int i = 0; i < 50; ++i) {
		tuner.see(i % 2 ? 100 : 2, false);
		CHECK(tuner.size() <= size);
		CHECK(tuner.size() + 3 >= size);
	}
}

TEST_CASE("window: noise of a fifth keeps the device busy", "[window]")
{
	Device device{60, 0.2};
	Queues queues(device, 4, {.max = 85});
	queues.observe(100);
	for (int i = 0; i < 500; ++i) {
		queues.observe(1);
		REQUIRE(queues.in_flight() >= 60);
		REQUIRE(queues.in_flight() <= 240);
	}
}

TEST_CASE("window: it follows a jump of the load down and up", "[window]")
{
	Queues queues({60}, 1, {.max = 85});
	queues.observe(50);
	queues.device.holds = 5;
	queues.observe(8);
	CHECK(queues.in_flight() <= 20);
	queues.device.holds = 40;
	queues.observe(30);
	CHECK(queues.in_flight() >= 60);
}

TEST_CASE("window: a queue that is always full runs empty ever more rarely, and one that is not never does", "[window]")
{
	WindowTuner tuner({.max = 64, .first = 64});
	tuner.see(2.5, false); // the start ends
	REQUIRE(tuner.emptied());
	std::vector<unsigned> windows;
	for (unsigned since = 0, i = 0; i < 64 * 1000; ++i) {
		tuner.completed(1, true);
		++since;
		if (tuner.emptied()) {
			windows.push_back(since / tuner.size());
			since = 0;
		}
	}
	REQUIRE(windows.size() > 8);
	for (size_t i = 0; i < windows.size(); ++i)
		CHECK(windows[i] == std::min(8u << i, 64u));
	for (unsigned i = 0; i < 64 * 1000; ++i) {
		tuner.completed(1, false);
		CHECK_FALSE(tuner.empties());
	}
}

TEST_CASE("window: the bounds hold for any queue and any observation", "[window]")
{
	std::mt19937 random(3);
	for (const uint32_t depth : {1u, 2u, 3u, 85u}) {
		WindowTuner tuner({.max = depth});
		for (int i = 0; i < 10'000; ++i) {
			tuner.see(std::exp2(static_cast<int>(random() % 40) - 8), random() % 5 == 0);
			REQUIRE(tuner.size() >= std::min(depth, 2u));
			REQUIRE(tuner.size() <= depth);
			REQUIRE(tuner.period(random() % 2 == 0) >= 1);
			REQUIRE(tuner.period(true) <= tuner.size());
			REQUIRE(tuner.distance() >= 1);
		}
	}
}

TEST_CASE("window: many ranks of a device begin with less than the smallest cache together", "[window]")
{
	CHECK(first_window(1) == 64);
	CHECK(first_window(16) == 8);
	CHECK(first_window(1000) == 2);
	for (uint64_t ranks = 1; ranks <= 128; ++ranks)
		CHECK(ranks * first_window(ranks) <= 256);
}

TEST_CASE("window: a queue counts as saturated for sixteen windows after it was full", "[window]")
{
	WindowTuner tuner({});
	CHECK_FALSE(tuner.saturated());
	tuner.completed(1, false);
	CHECK_FALSE(tuner.saturated());
	tuner.completed(3, true);
	for (unsigned i = 0; i < 16 * tuner.size(); i += 8) {
		CHECK(tuner.saturated());
		tuner.completed(8, false);
	}
	CHECK_FALSE(tuner.saturated());
	tuner.completed(1, true);
	tuner.completed(10'000, false);
	CHECK_FALSE(tuner.saturated());
}

TEST_CASE("window: a queue whose L/N is at its target twice in a row counts as saturated, one slow answer does not",
          "[window]")
{
	WindowTuner tuner({});
	while (tuner.size() < 64)
		tuner.see(1, false);
	tuner.see(3, false); // the start is over
	const double target = 1.8 * tuner.scale();
	const bool above = GENERATE(false, true);
	for (int i = 0; i < 10; ++i) {
		tuner.see(above ? 10 : target * 1.01, false);
		tuner.see(1, false);
		CHECK_FALSE(tuner.saturated());
	}
	for (int i = 0; i < 10; ++i)
		tuner.see(10, true);
	CHECK_FALSE(tuner.saturated());
	tuner.see(target * 1.01, false);
	CHECK_FALSE(tuner.saturated());
	tuner.see(target * 1.01, false);
	CHECK(tuner.saturated());
	tuner.completed(16 * 64, false);
	CHECK_FALSE(tuner.saturated());
}
