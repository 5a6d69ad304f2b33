// The wheel of deadlines: each passes once, none early, and removed ones never.
#include <catch2/catch.hpp>

#include <memory>
#include <random>
#include <vector>

#include "rpc/deadlines.hpp"

using pt2p::rpc::Deadline;
using pt2p::rpc::Deadlines;

TEST_CASE("deadlines pass once and not early, however long and however seldom one looks")
{
	constexpr int64_t ms = 1'000'000, start = 123'456'789'012;
	for (unsigned seed = 0; seed < 30; ++seed) {
		std::mt19937_64 random(seed);
		Deadlines wheel;
		std::vector<std::unique_ptr<Deadline>> all;
		std::vector<bool> open;
		int64_t now = start;
		size_t pending = 0;
		for (int step = 0; step < 2000; ++step) {
			if (random() % 3) {
				const auto span = static_cast<int64_t>(random() % (random() % 4 ? 5 * ms : 3000 * ms));
				all.push_back(std::make_unique<Deadline>());
				wheel.add(*all.back(), now + span - (random() % 10 ? 0 : ms), now);
				open.push_back(true);
				++pending;
			} else if (!all.empty()) {
				const size_t i = random() % all.size();
				wheel.remove(*all[i]); // a second time, too
				pending -= open[i];
				open[i] = false;
			}
			now += static_cast<int64_t>(random() % (random() % 50 ? ms / 4 : 500 * ms));
			if (random() % 4)
				continue;
			while (Deadline *d = wheel.next_passed(now)) {
				REQUIRE(d->at <= now);
				size_t i = 0;
				while (all[i].get() != d)
					++i;
				REQUIRE(open[i]);
				open[i] = false;
				--pending;
			}
			REQUIRE(wheel.empty() == (pending == 0));
			for (size_t i = 0; i < all.size(); ++i)
				if (open[i])
					REQUIRE(all[i]->at > now);
		}
	}
}
