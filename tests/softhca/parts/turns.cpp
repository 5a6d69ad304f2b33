// The order of fibres (softhca/time/turns.hpp).
#include <catch2/catch.hpp>

#include <algorithm>
#include <random>
#include <vector>

#include "softhca/time/turns.hpp"

using namespace softhca::time;

namespace {

struct Runner : Turn {
	bool waits = false;
};

} // namespace

TEST_CASE("turns come in the order of time, and of those of one time in the order in which they were put")
{
	std::mt19937 random(7);
	std::vector<Runner> all(50);
	Turns<Runner> turns;
	CHECK(turns.first() == nullptr);
	uint64_t order = 0;
	for (int step = 0; step < 20'000; ++step) {
		Runner &runner = all[random() % all.size()];
		if (random() % 3) {
			turns.put(runner, random() % 20, ++order);
			runner.waits = true;
		} else if (Runner *const first = turns.first()) {
			const auto next = std::min_element(all.begin(), all.end(), [](const Runner &a, const Runner &b) {
				return a.waits != b.waits ? a.waits : a.before(b);
			});
			REQUIRE(first == &*next);
			turns.take_first();
			first->waits = false;
		}
	}
	const auto waiting = std::count_if(all.begin(), all.end(), [](const Runner &r) { return r.waits; });
	for (std::ptrdiff_t i = 0; i < waiting; ++i)
		turns.take_first();
	CHECK(turns.first() == nullptr);
}
