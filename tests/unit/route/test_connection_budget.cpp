// SPDX-License-Identifier: BSD-3-Clause
#include <catch2/catch.hpp>

#include <algorithm>
#include <random>
#include <vector>

#include "route/forward/connection_budget.hpp"

using pt2p::ConnectionBudget;

namespace {

struct Rank {
	explicit Rank(int64_t share, size_t peers) : budget(share), marks(peers) {}

	// Sends `count` messages; `next` says to whom each. True: all that time they went the same way, and directly or
	// not.
	template <class Next>
	bool stays(bool direct, unsigned count, Next &&next)
	{
		bool same = true;
		for (unsigned i = 0; i < count; ++i) {
			same &= budget.direct(true) == direct;
			budget.sent(marks[next(i)]);
		}
		return same && budget.direct(true) == direct;
	}
	template <class Next>
	unsigned until(bool direct, Next &&next)
	{
		unsigned i = 0;
		for (; budget.direct(true) != direct && i < 100'000; ++i)
			budget.sent(marks[next(i)]);
		return i;
	}

	ConnectionBudget budget;
	std::vector<uint32_t> marks;
};

auto in_turn(unsigned peers)
{
	return [=](unsigned i) { return size_t{i % peers}; };
}
auto in_bursts(unsigned peers, unsigned burst)
{
	return [=](unsigned i) { return size_t{i / burst % peers}; };
}

} // namespace

TEST_CASE("a rank with few partners connects to them soon, and stays")
{
	for (const unsigned partners : {1u, 2u, 6u, 18u, 24u}) {
		CAPTURE(partners);
		Rank rank(64, 1000);
		CHECK_FALSE(rank.budget.direct(true));
		CHECK(rank.until(true, in_turn(partners)) <= std::max(64u, partners * ConnectionBudget::repeats));
		CHECK(rank.stays(true, 10'000, in_turn(partners)));
	}
}

TEST_CASE("a rank that talks with all never connects to them, also in bursts or at random")
{
	std::mt19937 random(7);
	const auto any = [&](unsigned) { return size_t{random() % 240}; };
	CHECK(Rank(64, 240).stays(false, 100'000, in_turn(240)));
	CHECK(Rank(64, 240).stays(false, 100'000, in_bursts(240, 16)));
	CHECK(Rank(64, 240).stays(false, 100'000, any));
}

TEST_CASE("the path follows the number of partners, and does not change near the bounds")
{
	Rank rank(64, 240);
	rank.until(true, in_turn(6));
	CHECK(rank.until(false, in_turn(240)) <= ConnectionBudget::few + 1);
	CHECK(rank.stays(false, 10'000, in_turn(28)));
	CHECK(rank.until(true, in_turn(24)) <= 2 * 24 * ConnectionBudget::repeats);
	CHECK(rank.stays(true, 10'000, in_turn(28)));
	CHECK(rank.stays(true, 10'000, in_turn(32)));
	CHECK(rank.until(false, in_turn(33)) <= 2 * ConnectionBudget::repeats * 33);
}

TEST_CASE("a small share bounds the partners and the connections")
{
	Rank rank(4, 10);
	CHECK(rank.stays(false, 1000, in_turn(5)));
	rank.until(true, in_turn(3));
	for (int i = 0; i < 4; ++i) {
		CHECK(rank.budget.direct(false));
		CHECK(rank.budget.may_connect());
		rank.budget.connected();
	}
	CHECK_FALSE(rank.budget.direct(false));
	CHECK(rank.budget.direct(true));
	CHECK_FALSE(rank.budget.may_connect());
}

TEST_CASE("without a share nothing is connected, and with no limit nothing is forwarded")
{
	Rank none(0, 10), all(ConnectionBudget::unlimited, 1000);
	CHECK(none.stays(false, 1000, in_turn(1)));
	CHECK_FALSE(none.budget.may_connect());
	CHECK(all.stays(true, 10'000, in_turn(1000)));
	CHECK(all.budget.direct(false));
}
