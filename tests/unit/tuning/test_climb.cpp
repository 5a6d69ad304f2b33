// The hill climber on made-up rates.
#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <random>

#include "transports/verbs/tuning/climb.hpp"

using namespace pt2p::tune;

namespace {

// A channel whose rate is a function of the setting.
struct Load {
	Climber climber;
	uint32_t intervals = 0, tried = 0;

	explicit Load(const ClimbLaw &law, uint32_t first = 0) : climber(law, first) {}
	template <class Rate>
	void run(uint32_t count, const Rate &rate)
	{
		for (uint32_t i = 0; i < count; ++i) {
			++intervals;
			tried += climber.trying();
			climber.see(1000 * rate(climber.setting()), 1000);
		}
	}
	// Runs until this is accepted. Returns how many intervals that took.
	template <class Rate>
	uint32_t run_until(uint32_t setting, uint32_t max, const Rate &rate)
	{
		const uint32_t begin = intervals;
		while (intervals - begin < max && (climber.trying() || climber.setting() != setting))
			run(1, rate);
		CHECK(climber.setting() == setting);
		return intervals - begin;
	}
};

constexpr uint32_t w = 6; // intervals of a window, as climb.hpp counts
const ClimbLaw four{}, sixty_four{.max = 64}, by_one{.max = 10, .doubles = false};

// Best at `top`, worse by half for each factor of two away from it.
auto hill(double top)
{
	return [top](uint32_t setting) { return 1 / (1 + std::abs(std::log2(setting / top))); };
}

} // namespace

TEST_CASE("climb: the best setting is reached within the promised time from any start", "[climb]")
{
	for (uint32_t first = 1, k = 0; first <= 64; first *= 2, ++k)
		for (uint32_t top = 1, j = 0; top <= 64; top *= 2, ++j) {
			CAPTURE(first, top);
			Load load(sixty_four, first);
			const uint32_t away = k < j ? j - k : k - j;
			CHECK(load.run_until(top, 10'000, hill(top)) <= (5 * away + 5) * w);
			CHECK(load.climber.changes() <= away);
		}
	// 1, 2, ..., 10
	Load load(by_one);
	CHECK(load.run_until(10, 10'000, [](uint32_t s) { return std::pow(1.2, s); }) <= (5 * 9 + 5) * w);
	CHECK(load.climber.rate() == Approx(std::pow(1.2, 10)));
}

TEST_CASE("climb: bounds that are no powers of two are reached and kept", "[climb]")
{
	Load up({.min = 3, .max = 22}, 1);
	CHECK(up.climber.setting() == 3);
	up.run_until(22, 2000, [](uint32_t s) {
		CHECK(s >= 3);
		CHECK(s <= 22);
		return s * 1.0;
	});
	up.run_until(3, 10'000, [](uint32_t s) { return 1.0 / s; });
	Load fixed({.min = 5, .max = 5}, 1);
	fixed.run(1000, [](uint32_t s) { return s * 1.0; });
	CHECK(fixed.climber.setting() == 5);
	CHECK(fixed.climber.trials() == 0);
}

TEST_CASE("climb: a setting that makes no difference is kept, and trials become ever rarer", "[climb]")
{
	Load load(sixty_four, 8);
	load.run(20'000, [](uint32_t s) { return s == 8 ? 1.0 : 1.09; }); // within the margin
	CHECK(load.climber.changes() == 0);
	CHECK(load.climber.setting() == 8);
	const uint32_t tried = load.tried;
	CHECK(tried > 0);
	load.run((64 * (w - 1) + 1 + w) * 20, [](uint32_t) { return 1.0; });
	CHECK(load.tried - tried <= 21 * w);
	CHECK(load.tried - tried >= 19 * w);
}

TEST_CASE("climb: noise does not move the setting, and does not hide a better one", "[climb]")
{
	uint64_t moved = 0;
	for (unsigned seed = 0; seed < 100; ++seed) {
		CAPTURE(seed);
		std::mt19937 random(seed);
		// A fifth up and down, and now and then an interval in which the process did not run.
		const auto noise = [&] {
			return (random() % 10 ? 1.0 : 0.05) * std::uniform_real_distribution(0.8, 1.2)(random);
		};
		Load level(four, 2);
		level.run(20'000, [&](uint32_t) { return noise(); });
		moved += level.climber.changes();
		// Half as much again for each step.
		Load load(four);
		load.run(6000, [&](uint32_t s) { return noise() * std::pow(1.5, std::log2(s)); });
		const uint64_t changes = load.climber.changes();
		load.run(14'000, [&](uint32_t s) { return noise() * std::pow(1.5, std::log2(s)); });
		CHECK((load.climber.trying() || load.climber.setting() == 4));
		CHECK(load.climber.changes() - changes <= 2);
	}
	// Of 100 times 3300 windows, less than one in a thousand.
	CHECK(moved <= 330);
}

TEST_CASE("climb: another load is followed", "[climb]")
{
	Load load(sixty_four);
	load.run_until(32, 1000, hill(32));
	load.run(20'000, hill(32));
	// The rate shows it soon.
	CHECK(load.run_until(4, 100'000, hill(4)) <= (5 * 3 + 40) * w);
	load.run(20'000, hill(4));
	// The rate at this setting does not show it. It is found with the next trial in that direction.
	const auto hidden = [](uint32_t s) { return s == 4 ? 1.0 : hill(32)(s) / hill(32)(4); };
	CHECK(load.run_until(32, 100'000, hidden) <= (5 * 3 + 4 * 65) * w);
}

TEST_CASE("climb: a valley of one setting is crossed, a wider one is not", "[climb]")
{
	const double one[] = {1.0, 0.7, 1.4, 1.2}, two[] = {1.0, 0.7, 0.7, 1.4};
	Load load({.max = 8});
	load.run_until(4, 20'000, [&](uint32_t s) { return one[static_cast<size_t>(std::log2(s))]; });
	Load wide({.max = 8});
	wide.run(20'000, [&](uint32_t s) { return two[static_cast<size_t>(std::log2(s))]; });
	CHECK(wide.climber.changes() == 0);
}

TEST_CASE("climb: a load that grows by itself while something is tried proves nothing", "[climb]")
{
	// No setting is better than another.
	Load load(sixty_four, 8);
	double level = 1;
	bool trying = false;
	load.run(20'000, [&](uint32_t) {
		if (load.climber.trying() && !trying) // grows with each trial, and stays
			level *= 1.3;
		trying = load.climber.trying();
		return level;
	});
	CHECK(load.climber.trials() > 20);
	CHECK(load.climber.changes() == 0);
}

TEST_CASE("climb: an adversary does not make it try all the time", "[climb]")
{
	// Each trial looks worse, and the load changes with each window.
	Load load(sixty_four, 8);
	uint32_t n = 0;
	load.run(30'000, [&](uint32_t) { return load.climber.trying() ? 0.1 : ++n / w % 2 ? 1.0 : 3.0; });
	CHECK(load.tried <= load.intervals * 12 / 28);
	// Each trial looks better until it is accepted.
	Load liar(sixty_four, 8);
	liar.run(30'000, [&](uint32_t) { return liar.climber.trying() ? 2.0 : 1.0; });
	CHECK(liar.tried <= liar.intervals * 12 / 28 + w);
}

TEST_CASE("climb: intervals that took no time are ignored", "[climb]")
{
	Climber climber(four);
	for (int i = 0; i < 1000; ++i)
		climber.see(1, 0);
	CHECK(climber.rate() == 0);
	CHECK(climber.trials() == 0);
}
