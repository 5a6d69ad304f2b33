// Places of memory in sizes that fit.
#include <catch2/catch.hpp>

#include <map>
#include <random>

#include "transports/verbs/device/cells.hpp"

using pt2p::verbs::Cells;

TEST_CASE("cells: as many places as fit, for each length")
{
	Cells cells;
	cells.cut(64 << 10, 1152);
	CHECK(cells.max_bytes() == 1152);
	CHECK(cells.used() == 0);
	for (const auto &[bytes, places] : std::map<size_t, size_t>{
	         {1, 448}, {128, 448}, {129, 224}, {256, 224}, {528, 112}, {576, 112}, {577, 56}, {1152, 56}}) {
		CAPTURE(bytes);
		std::vector<uint32_t> taken;
		for (uint32_t place; (place = cells.take(bytes)) != Cells::none;)
			taken.push_back(place);
		CHECK(taken.size() == places);
		CHECK(cells.take(1) == Cells::none);
		CHECK(cells.used() > 0.88);
		for (const uint32_t place : taken)
			cells.give(place);
		CHECK(cells.used() == 0);
	}
}

TEST_CASE("cells: there are none without memory")
{
	Cells cells;
	CHECK(cells.max_bytes() == 0);
	CHECK(cells.used() == 1);
	cells.cut(1024, 0);
	CHECK(cells.max_bytes() == 0);
}

TEST_CASE("cells: places in use never overlap, and all come back")
{
	Cells cells;
	constexpr size_t memory = 16 << 10, block = 1152;
	cells.cut(memory, block);
	std::vector<int> owner(memory / Cells::unit, -1);
	std::vector<std::pair<uint32_t, size_t>> taken; // place, units
	std::mt19937 random(5);
	for (int turn = 0; turn < 200'000; ++turn) {
		if (random() % 2 || taken.empty()) {
			const size_t bytes = 1 + random() % block, units = (bytes + Cells::unit - 1) / Cells::unit;
			const uint32_t place = cells.take(bytes);
			if (place == Cells::none)
				continue;
			REQUIRE(place + units <= owner.size());
			for (size_t u = place; u < place + units; ++u) {
				REQUIRE(owner[u] == -1);
				owner[u] = turn;
			}
			taken.emplace_back(place, units);
		} else {
			std::swap(taken[random() % taken.size()], taken.back());
			const auto [place, units] = taken.back();
			taken.pop_back();
			cells.give(place);
			std::fill_n(owner.begin() + place, units, -1);
		}
	}
	for (const auto &[place, units] : taken)
		cells.give(place);
	CHECK(cells.used() == 0);
	size_t blocks = 0;
	while (cells.take(block) != Cells::none)
		++blocks;
	CHECK(blocks == memory / block);
}
