// The check of histories of a counter, which the sequencer's study uses.
#include <catch2/catch.hpp>

#include <random>

#include "softhca/studies/programs/counter_check.hpp"

using study::Draw;
using study::wrong_draw;

TEST_CASE("Histories of a counter that are right", "[counter]")
{
	CHECK(wrong_draw({}).empty());
	CHECK(wrong_draw({{0, 5, 5}}).empty());
	CHECK(wrong_draw({{1, 3, 4}, {0, 1, 2}}).empty());
	// Draws that overlap may have taken place in either order, also if they only touch.
	CHECK(wrong_draw({{1, 1, 3}, {0, 2, 4}}).empty());
	CHECK(wrong_draw({{1, 1, 2}, {0, 2, 3}}).empty());
	// A draw that overlaps two others, of which one was before the other.
	CHECK(wrong_draw({{0, 1, 2}, {2, 1, 9}, {1, 3, 4}}).empty());
	CHECK(wrong_draw({{1, 1, 2}, {0, 1, 9}, {2, 3, 4}}).empty());
}

TEST_CASE("Histories of a counter that are refused", "[counter]")
{
	CHECK(wrong_draw({{1, 1, 2}}) == "nobody has drawn 0");
	CHECK(wrong_draw({{0, 1, 2}, {2, 3, 4}}) == "nobody has drawn 1");
	CHECK(wrong_draw({{0, 1, 2}, {0, 3, 4}}) == "0 was drawn twice");
	CHECK(wrong_draw({{0, 1, 9}, {1, 1, 9}, {1, 1, 9}, {3, 1, 9}}) == "1 was drawn twice");
	CHECK(wrong_draw({{1, 1, 2}, {0, 3, 4}}) == "1 was drawn before a smaller number was asked for");
	// The two that are in the wrong order need not be neighbours.
	CHECK(wrong_draw({{0, 5, 6}, {1, 1, 9}, {2, 1, 9}, {3, 1, 4}}) ==
	      "3 was drawn before a smaller number was asked for");
	CHECK(wrong_draw({{0, 4, 3}}) == "0 was drawn before a smaller number was asked for");
}

// Draws with a moment each are accepted. Where two that do not overlap swap their numbers, they are refused.
TEST_CASE("Histories of a counter, by many clients", "[counter]")
{
	std::mt19937 random(1);
	std::uniform_real_distribution<double> longer(0, 20);
	std::vector<Draw> history;
	for (uint64_t i = 0; i < 2000; ++i) {
		const auto moment = static_cast<double>(i);
		history.push_back({i, moment - longer(random), moment + longer(random)});
	}
	std::shuffle(history.begin(), history.end(), random);
	CHECK(wrong_draw(history).empty());
	size_t swapped = 0;
	for (size_t i = 0; i + 1 < history.size(); i += 50) {
		Draw &a = history[i], &b = history[i + 1];
		if (a.ended >= b.began && b.ended >= a.began)
			continue;
		std::swap(a.number, b.number);
		CHECK_FALSE(wrong_draw(history).empty());
		std::swap(a.number, b.number);
		++swapped;
	}
	CHECK(swapped > 30);
}
