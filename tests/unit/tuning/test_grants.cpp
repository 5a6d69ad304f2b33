// Who gets a write ring, under made-up loads.
#include <catch2/catch.hpp>

#include <algorithm>
#include <functional>
#include <random>
#include <set>
#include <vector>

#include "transports/verbs/tuning/grants.hpp"

using namespace pt2p::tune;

namespace {

// A receiver and its senders. A ring that is taken back goes, in the next period, to the one that has sent most.
struct Receiver {
	Grants grants;
	std::vector<SenderUse> senders;
	const uint32_t rings;
	size_t returning = 0;
	unsigned changes = 0;

	Receiver(size_t count, uint32_t budget) : senders(count), rings(budget)
	{
		for (SenderUse &s : senders)
			s.wants = true;
	}
	std::set<size_t> holders() const
	{
		std::set<size_t> all;
		for (size_t i = 0; i < senders.size(); ++i)
			if (senders[i].holds)
				all.insert(i);
		return all;
	}
	void period(const std::function<uint32_t(size_t)> &load)
	{
		for (; returning; --returning) {
			const auto most = std::max_element(senders.begin(), senders.end(), [](const auto &a, const auto &b) {
				return (a.holds ? 0 : a.messages) < (b.holds ? 0 : b.messages);
			});
			if (!most->holds && most->messages) {
				most->holds = true;
				++changes;
			}
		}
		for (size_t i = 0; i < senders.size(); ++i)
			senders[i].messages = load(i);
		for (const Grants::Change &c : grants.decide(senders, rings, 0)) {
			SenderUse &s = senders[c.sender];
			REQUIRE(s.holds != c.grant);
			s.holds = c.grant;
			returning += !c.grant;
			++changes;
		}
		REQUIRE(holders().size() + returning <= rings);
	}
};

std::set<size_t> range(size_t from, size_t to)
{
	std::set<size_t> all;
	for (size_t i = from; i < to; ++i)
		all.insert(i);
	return all;
}

} // namespace

TEST_CASE("grants: those that send most get the rings", "[grants]")
{
	Receiver r(40, 8);
	r.period([](size_t i) { return static_cast<uint32_t>(40 + 10 * i); });
	CHECK(r.holders() == range(32, 40));
}

TEST_CASE("grants: a shift of load is followed within three periods", "[grants]")
{
	Receiver r(40, 8);
	for (size_t hot = 0; hot < 40; hot += 8) {
		for (int i = 0; i < 10; ++i)
			r.period([=](size_t s) { return s >= hot && s < hot + 8 ? 500u : 10u; });
		CHECK(r.holders() == range(hot, hot + 8));
	}
	r.changes = 0;
	for (int i = 0; i < 3; ++i)
		r.period([](size_t s) { return s < 8 ? 500u : 10u; });
	CHECK(r.holders() == range(0, 8));
	CHECK(r.changes == 16);
}

TEST_CASE("grants: equal senders keep what they have, whatever the noise", "[grants]")
{
	std::mt19937 random(1);
	Receiver r(64, 16);
	std::uniform_int_distribution<uint32_t> load(150, 250);
	for (int i = 0; i < 200; ++i)
		r.period([&](size_t) { return load(random); });
	CHECK(r.holders().size() == 16);
	CHECK(r.changes == 16);
}

TEST_CASE("grants: nothing for the dormant, also if nobody else wants a ring", "[grants]")
{
	Receiver r(4, 8);
	r.period([](size_t) { return 100u; });
	CHECK(r.holders() == range(0, 4));
	for (int i = 0; i < 3; ++i)
		r.period([](size_t s) { return s ? 100u : 0u; });
	CHECK(r.holders() == range(0, 4)); // it may only have paused
	for (int i = 0; i < 3; ++i)
		r.period([](size_t s) { return s ? 100u : 0u; });
	CHECK(r.holders() == range(1, 4));
}

TEST_CASE("grants: few messages are worth no ring", "[grants]")
{
	Receiver r(4, 8);
	for (int i = 0; i < 10; ++i)
		r.period([](size_t) { return 5u; });
	CHECK(r.holders().empty());
}

TEST_CASE("grants: bursts that alternate do not make rings change hands in each period", "[grants]")
{
	// The adversary of the law: whoever has no ring sends most, one period each.
	Receiver r(16, 8);
	for (int i = 0; i < 100; ++i)
		r.period([&](size_t s) { return (s < 8) == (i % 2 == 0) ? 500u : 0u; });
	CHECK(r.changes <= 8 + 16);
	CHECK(r.holders().size() + r.returning >= 7);
}

TEST_CASE("grants: one flooding sender takes one ring, and the polite ones share the rest", "[grants]")
{
	Receiver r(64, 8);
	for (int i = 0; i < 20; ++i)
		r.period([](size_t s) { return s == 63 ? 100000u : 40u; });
	CHECK(r.holders().size() == 8);
	CHECK(r.holders().count(63) == 1);
}

TEST_CASE("grants: with one ring, and with none", "[grants]")
{
	Receiver one(10, 1);
	for (int i = 0; i < 10; ++i)
		one.period([](size_t s) { return s == 7 ? 900u : 100u; });
	CHECK(one.holders() == std::set<size_t>{7});
	Receiver none(10, 0);
	for (int i = 0; i < 10; ++i)
		none.period([](size_t) { return 900u; });
	CHECK(none.holders().empty());
}
