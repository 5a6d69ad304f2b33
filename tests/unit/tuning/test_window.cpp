// The tuner of the window, which is what may be in flight, against models of a device.
#include <catch2/catch.hpp>

#include <cmath>
#include <numeric>
#include <random>
#include <vector>

#include "transports/verbs/tuning/channel.hpp"

using pt2p::tune::ChannelTuner;
using pt2p::tune::period_of;
using pt2p::tune::SizeClass;
using pt2p::tune::WindowLaw;
using pt2p::tune::WindowTuner;

namespace {

const WindowLaw law{.max = 128};

// The pipe holds `holds` work requests at N, and more than that waits. Others take `others` N of each L. `again`: with
// more than that in flight, WQEs are read a second time, and everything takes twice as long.
struct Device {
	double holds = 16, others = 0, noise = 0;
	uint32_t again = UINT32_MAX;
	std::mt19937 random{7};

	double ratio(uint32_t size)
	{
		std::uniform_real_distribution<double> factor(1 - noise, 1 + noise);
		return (std::max(1.0, size / holds) + others) * (size > again ? 2 : 1) * factor(random);
	}
	double rate(uint32_t size) { return size / ratio(size); }
};

// The number of observations until L is in the band.
unsigned settle(WindowTuner &tuner, Device &device)
{
	unsigned took = 0;
	while (took < 10'000 &&
	       (device.ratio(tuner.size()) > law.cut_above || device.ratio(tuner.size()) < law.raise_below)) {
		tuner.see(device.ratio(tuner.size()));
		++took;
	}
	return took;
}

} // namespace

TEST_CASE("window: the band is entered within the promised number of observations, from above and from below",
          "[window]")
{
	for (const double holds : {10.0, 14.0, 20.0, 27.0}) {
		CAPTURE(holds);
		WindowTuner tuner(law);
		CHECK(tuner.size() == law.max * 3 / 4);
		Device device{holds};
		const double above = device.ratio(tuner.size());
		CHECK(settle(tuner, device) <= std::ceil(std::max(std::log2(above / law.cut_above), 0.0)) * (law.window + 1));
		device.holds = 2 * holds;
		const double below = device.ratio(tuner.size());
		CHECK(settle(tuner, device) <=
		      law.window + std::ceil(std::log(law.raise_below / below) / std::log(1.5)) * (law.window + 1));
		// And stays there.
		const uint32_t size = tuner.size();
		for (int i = 0; i < 1000; ++i)
			CHECK(tuner.see(device.ratio(tuner.size())) == size);
	}
}

TEST_CASE("window: a device that is not busy gets everything", "[window]")
{
	WindowTuner tuner(law);
	for (unsigned i = 0; i < 2 * (law.few + 1); ++i)
		tuner.see(1);
	CHECK(tuner.size() == law.max);
}

TEST_CASE("window: a window that makes the device read WQEs again is given up", "[window]")
{
	Device device{24};
	device.again = 40;
	WindowTuner tuner(law);
	for (unsigned i = 0; i < 2 * (law.window + 1); ++i)
		tuner.see(device.ratio(tuner.size()));
	CHECK(tuner.size() <= device.again);
	CHECK(device.rate(tuner.size()) == Approx(24));
}

TEST_CASE("window: a cut that costs throughput is taken back, and cuts become ever rarer", "[window]")
{
	for (const double noise : {0.0, 0.05}) {
		CAPTURE(noise);
		Device device{1000, 3, noise}; // 4 N, whatever is in flight
		WindowTuner tuner(law);
		const uint32_t all = tuner.size();
		for (int i = 0; i < 3000; ++i)
			tuner.see(device.ratio(tuner.size()));
		unsigned less = 0;
		constexpr unsigned rest = 5000;
		for (unsigned i = 0; i < rest; ++i)
			less += tuner.see(device.ratio(tuner.size())) < all;
		CHECK(less <= rest / (law.max_calm + 1) * 2 + 2 * law.window); // a window, and what is in flight at its end
		CHECK(less > 0);
	}
}

TEST_CASE("window: noise of a fifth costs no throughput, and does not make the window swing", "[window]")
{
	for (unsigned seed = 0; seed < 30; ++seed) {
		CAPTURE(seed);
		Device device{20, 0, 0.2};
		device.random.seed(seed);
		WindowTuner tuner(law);
		settle(tuner, device);
		for (int i = 0; i < 100; ++i)
			tuner.see(device.ratio(tuner.size()));
		unsigned changes = 0;
		for (int i = 0; i < 5000; ++i) {
			const uint32_t before = tuner.size();
			changes += tuner.see(device.ratio(before)) != before;
			CHECK(tuner.size() >= device.holds); // all that the device can do
		}
		CHECK(changes <= 50);
	}
}

TEST_CASE("window: a device that is slow because of how work came is filled anew until it is quick", "[window]")
{
	for (const unsigned fills_in_vain : {0u, 1u, 2u}) {
		CAPTURE(fills_in_vain);
		WindowTuner tuner(law);
		Device quick{24}, slow{16};
		unsigned fills = 0, took = 0;
		for (; fills <= fills_in_vain && took < 1000; ++took) {
			tuner.see(slow.ratio(tuner.size()));
			fills += tuner.empties();
			tuner.emptied();
		}
		CHECK(took <= law.few + (2 + 8) * (fills_in_vain + 1) * (law.window + 1));
		CHECK_FALSE(tuner.empties());
		// Now and then, and ever more rarely, another window is tried.
		unsigned later = 0;
		constexpr unsigned rest = 10'000;
		for (unsigned i = 0; i < rest; ++i) {
			tuner.see(quick.ratio(tuner.size()));
			later += tuner.empties();
			tuner.emptied();
		}
		CHECK(later > 0);
		CHECK(later <= rest / (law.max_calm * law.window) + 4);
		// It has become slow. Two windows show that, and cuts take their time.
		took = 0;
		for (bool filled = false; !filled && took < 1000; ++took) {
			tuner.see(slow.ratio(tuner.size()));
			filled = tuner.empties();
			tuner.emptied();
		}
		CHECK(took <= 5 * (law.window + 1));
	}
}

TEST_CASE("window: a device that is not busy is not drained", "[window]")
{
	WindowTuner tuner(law);
	for (int i = 0; i < 1000; ++i) {
		tuner.see(1);
		CHECK_FALSE(tuner.empties());
	}
}

TEST_CASE("window: whatever is observed, it stays within its bounds, and opens when L is low", "[window]")
{
	std::mt19937 random(5);
	for (int round = 0; round < 200; ++round) {
		WindowLaw any{.max = 1 + static_cast<uint32_t>(random() % 200)};
		any.min = std::min(any.min, any.max);
		any.share = 1 + static_cast<uint32_t>(random() % 200);
		WindowTuner tuner(any);
		for (int i = 0; i < 2000; ++i) {
			tuner.see(std::ldexp(1.0, static_cast<int>(random() % 40) - 10));
			REQUIRE((tuner.size() >= any.min && tuner.size() <= any.max));
		}
		for (int i = 0; i < 300; ++i)
			tuner.see(1);
		CHECK(tuner.size() == any.max);
	}
}

TEST_CASE("window: ranks that share a device do not long have more in flight than it keeps", "[window]")
{
	// 480 in N while all WQEs are kept, 300 when some are read again.
	constexpr size_t ranks = 64;
	constexpr uint32_t keeps = 1024;
	const auto contended = [](uint32_t share, unsigned seed) {
		std::mt19937 random(seed);
		std::vector<WindowTuner> tuners(ranks, WindowTuner({.share = share}));
		const auto all = [&] {
			return std::accumulate(tuners.begin(), tuners.end(), 0u,
			                       [](uint32_t sum, const WindowTuner &t) { return sum + t.size(); });
		};
		size_t over = 0;
		constexpr size_t unsettled = 40, observations = 400; // of each
		for (size_t i = 0; i < ranks * observations; ++i) {
			const uint32_t under_way = all();
			WindowTuner &tuner = tuners[random() % ranks];
			tuner.see(std::max(1.0, under_way / (under_way > keeps ? 300.0 : 480.0)));
			tuner.emptied();
			over += i >= ranks * unsettled && under_way > keeps + keeps / 8;
		}
		return static_cast<double>(over) / static_cast<double>(ranks * (observations - unsettled));
	};
	for (unsigned seed = 0; seed < 10; ++seed) {
		CAPTURE(seed);
		CHECK(contended(pt2p::tune::share_of_device(ranks, WindowLaw{}.max), seed) < 0.03);
		CHECK(contended(WindowLaw{}.max, seed) > 0.9); // as each cut is taken back
	}
}

TEST_CASE("window: a share is everything while the device has room for all", "[window]")
{
	using pt2p::tune::share_of_device;
	CHECK(share_of_device(1, 85) == 85);
	CHECK(share_of_device(16, 85) == 85);
	CHECK(share_of_device(17, 85) == WindowLaw{}.min);
	CHECK(share_of_device(1 << 20, 1 << 14) == WindowLaw{}.min);
	CHECK(share_of_device(1000, 4) == 4);
	const auto raise_below = [](bool tied, uint32_t share) {
		return ChannelTuner(pt2p::tune::PeriodLaw{}, 85, tied, share).raise_below();
	};
	CHECK(raise_below(false, 85) == Approx(1.8));
	CHECK(raise_below(false, 16) == Approx(1.2));
	CHECK(raise_below(true, 16) == Approx(1.8));
}

TEST_CASE("window: a rank that is alone on a device has more than its share", "[window]")
{
	WindowLaw shared = law;
	shared.share = 16;
	Device device{24, 20};
	WindowTuner tuner(shared);
	settle(tuner, device);
	for (int i = 0; i < 100; ++i)
		tuner.see(device.ratio(tuner.size()));
	CHECK(tuner.size() == shared.share);
	device.others = 0;
	for (int i = 0; i < 100; ++i)
		tuner.see(device.ratio(tuner.size()));
	CHECK(tuner.size() >= device.holds);
	CHECK(tuner.size() <= device.holds * law.cut_above);
}

TEST_CASE("window: under contention, payload without its own window keeps to the share", "[window]")
{
	constexpr uint32_t depth = 100, share = 20;
	for (const bool tied : {false, true}) {
		CAPTURE(tied);
		ChannelTuner tuner(pt2p::tune::PeriodLaw{.max = depth}, depth, tied, share);
		int64_t now = 0;
		const auto see = [&](int64_t latency, int64_t min_normal) {
			tuner.see_last(SizeClass::buffer, latency, ++now, min_normal);
			return tuner.completed(SizeClass::buffer, 1, false);
		};
		CHECK(see(90'000, 0) == depth);
		CHECK(see(90'000, 0) == depth); // there is nothing to compare it with
		CHECK(see(17'000, 1000) == depth);
		CHECK(see(17'000, 1000) == (tied ? depth : share));
		for (int i = 0; i < 10; ++i)
			CHECK(see(4100, 1000) == (tied ? depth : share));
		see(3900, 1000);
		CHECK(see(3900, 1000) == depth);
	}
}

TEST_CASE("window: an N that was seen under contention does not count", "[window]")
{
	constexpr uint32_t depth = 100;
	ChannelTuner tuner(pt2p::tune::PeriodLaw{.max = depth}, depth, false, depth);
	const auto normal = [&](SizeClass c) { return tuner.period(c).normal(); };
	tuner.see_normal(SizeClass::inlined, 1500);
	tuner.see_normal(SizeClass::bulk, 9000);
	tuner.see_last(SizeClass::inlined, 2000, 1, 1000);
	CHECK(normal(SizeClass::inlined) == 1500); // another one is nearer
	tuner.see_last(SizeClass::inlined, 2000, 2, 900);
	CHECK(normal(SizeClass::inlined) == 900);
	CHECK(tuner.period(SizeClass::inlined).ratio() > 1.3);
	tuner.see_last(SizeClass::bulk, 20'000, 3, 900);
	CHECK(normal(SizeClass::bulk) == 9000); // is longer
}

TEST_CASE("window: a channel has a window for inlined messages while it sends nothing else", "[window]")
{
	constexpr uint32_t depth = 100;
	ChannelTuner tuner(pt2p::tune::PeriodLaw{.max = depth}, depth, false, depth);
	CHECK(tuner.completed(SizeClass::inlined, 1, false) == depth * 3 / 4);
	CHECK(tuner.completed(SizeClass::buffer, 10, false) == depth);
	// Observations meanwhile do not count.
	tuner.see_normal(SizeClass::inlined, 1000);
	for (int i = 0; i < 100; ++i)
		tuner.see_last(SizeClass::inlined, 9000, i, 0);
	CHECK(tuner.completed(SizeClass::inlined, 4 * depth - 1, false) == depth);
	CHECK(tuner.completed(SizeClass::inlined, 1, false) == depth * 3 / 4);
	for (int i = 0; i < 100; ++i)
		tuner.see_last(SizeClass::inlined, 1000, i, 0);
	CHECK(tuner.completed(SizeClass::inlined, 1, false) == depth);
}

TEST_CASE("window: while a channel is drained, its window is one", "[window]")
{
	constexpr uint32_t depth = 100;
	ChannelTuner tuner(pt2p::tune::PeriodLaw{.max = depth}, depth, false, depth);
	tuner.see_normal(SizeClass::inlined, 1000);
	for (uint32_t i = 0; i < WindowLaw{}.few; ++i)
		tuner.see_last(SizeClass::inlined, 2000, i, 0);
	CHECK(tuner.completed(SizeClass::inlined, 10, false) == 1);
	CHECK(tuner.completed(SizeClass::inlined, 10, false) == 1);
	CHECK(tuner.completed(SizeClass::inlined, 10, true) == depth * 3 / 4);
	CHECK(tuner.completed(SizeClass::inlined, 10, false) == depth * 3 / 4);
}

TEST_CASE("window: a cut begins with an empty queue, and so does taking it back when the state has changed", "[window]")
{
	WindowTuner tuner(law);
	const uint32_t all = tuner.size();
	uint32_t before = all;
	unsigned fills = 0, useless = 0;
	// 24 in N. With less than 80 in flight it gets slow, and stays slow until it is filled in one go with more.
	bool slow = false;
	for (int i = 0; i < 3000; ++i) {
		const uint32_t size = tuner.see(std::max(1.0, tuner.size() / (slow ? 16.0 : 24.0)));
		if (size < before)
			CHECK(tuner.empties());
		if (tuner.empties()) {
			slow = size < 80;
			++fills;
			useless += slow;
		} else if (size < 80) {
			slow = true;
		}
		tuner.emptied();
		before = size;
	}
	CHECK(tuner.size() >= 80);
	CHECK_FALSE(slow);
	CHECK(useless > 0);
	CHECK(useless <= 3 + 3000 / (law.max_calm * law.few)); // L is far above the band
	CHECK(fills <= 2 * useless + 2);
}

TEST_CASE("window: the signal period is a tenth of it at most, a quarter where doorbells are shared", "[window]")
{
	for (uint32_t window = 0; window <= 300; ++window) {
		CAPTURE(window);
		for (const bool shared : {false, true}) {
			const uint32_t period = period_of(window, shared);
			CHECK(period >= 1);
			CHECK((period == 1 || period * (shared ? 4 : 10) <= window));
			CHECK((period + 1) * (shared ? 4 : 10) > window); // and not less
		}
	}
}
