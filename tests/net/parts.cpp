// Decisions of rc, dct and the router, without a device.
#include <catch2/catch.hpp>

#include "route/nearest.hpp"
#include "transports/dct/pool.hpp"

using namespace pt2p::dct;

namespace {

InitiatorState initiator(void *target, uint32_t outstanding, uint32_t targets, uint64_t used = 0, bool room = true)
{
	return {.target = target, .outstanding = outstanding, .room = room, .used = used, .targets = targets};
}

} // namespace

TEST_CASE("DC initiators: a target takes the one that served it, then what is idle longest, then what has least to do")
{
	int a, b, c, d;
	std::vector<InitiatorState> all(3);
	CHECK(choose_initiator(all, &a) == 0);
	all = {initiator(&a, 0, 0, 1), initiator(&b, 0, 0, 3), initiator(&c, 0, 0, 2)};
	CHECK(free_places(all) == 6);
	CHECK(choose_initiator(all, &b) == 1);
	CHECK(choose_initiator(all, &d) == 0);
	// One without work goes before one that has served it and works for another.
	all[0] = initiator(&a, 5, 1);
	CHECK(choose_initiator(all, &a) == 2);
	all[1] = initiator(&b, 3, 1);
	all[2] = initiator(&c, 2, 1);
	CHECK(free_places(all) == 3);
	CHECK(choose_initiator(all, &d) == 2);
	// No third target, however little there is to do, and nothing where there is no room.
	all[2].targets = 2;
	CHECK(choose_initiator(all, &d) == 1);
	all[1].room = false;
	CHECK(choose_initiator(all, &d) == 0);
	all[0].targets = 2;
	CHECK(choose_initiator(all, &d) == no_initiator);
	CHECK(free_places(all) == 0);
}

TEST_CASE("DC initiators: a target goes on as it likes while nobody waits, and for a quota when others do")
{
	int a;
	InitiatorState s = initiator(&a, 1, 1);
	s.begun = 0xfffffff0; // numbers come round
	s.posted = s.begun + 1000;
	CHECK(goes_on(s, false));
	CHECK_FALSE(goes_on(s, true));
	s.posted = s.begun + quota - 1;
	CHECK(goes_on(s, true));
	s.posted = s.begun + quota;
	CHECK_FALSE(goes_on(s, true));
	// Without work it has given its place up.
	s.posted = s.begun;
	s.outstanding = 0;
	CHECK(goes_on(s, false));
	CHECK_FALSE(goes_on(s, true));
	s.room = false;
	CHECK_FALSE(goes_on(s, false));
}

TEST_CASE("targets that wait for a DC initiator get places in the order in which they came")
{
	Line line;
	Waiting a, b, c;
	CHECK(line.admit(a, 1, 1));
	CHECK(line.empty());
	CHECK_FALSE(line.admit(a, 0, 1));
	CHECK_FALSE(line.admit(b, 0, 1));
	CHECK_FALSE(line.admit(a, 0, 2)); // asking again changes nothing
	// A single place is for the first, whoever asks.
	CHECK_FALSE(line.admit(c, 1, 3));
	CHECK_FALSE(line.admit(b, 1, 3));
	CHECK(line.admit(a, 1, 3));
	CHECK_FALSE(line.admit(a, 1, 3)); // and then comes behind the others
	// Two places are for the first two, in any order.
	CHECK_FALSE(line.admit(a, 2, 4));
	CHECK(line.admit(c, 2, 4));
	CHECK(line.admit(b, 1, 4));
	CHECK(line.admit(a, 1, 4));
	CHECK(line.empty());
}

TEST_CASE("a place is not kept for ever for a target that does not ask again")
{
	Line line;
	Waiting gone, patient, other;
	CHECK_FALSE(line.admit(gone, 0, 1));
	CHECK_FALSE(line.admit(patient, 0, 1));
	// As long as there is none, nobody need ask.
	CHECK_FALSE(line.admit(other, 0, 100));
	CHECK_FALSE(line.admit(patient, 1, 101));
	CHECK_FALSE(line.admit(other, 1, 101));
	CHECK_FALSE(line.admit(patient, 1, 102));
	// It has had the whole of a turn.
	CHECK(line.admit(patient, 1, 103));
	CHECK_FALSE(gone.waits);
	CHECK(line.admit(other, 1, 103));
	CHECK(line.empty());
	// It may come back.
	CHECK_FALSE(line.admit(gone, 0, 104));
	line.leave(gone);
	CHECK(line.empty());
	CHECK(line.admit(other, 1, 104));
}

TEST_CASE("DC initiators for parts: idle ones up to a number, then the one with least to do")
{
	int a, b;
	uint32_t working = 0;
	std::vector<InitiatorState> all(4);
	all = {initiator(&a, 3, 1, 9), initiator(&b, 0, 0, 2), initiator(&b, 0, 0, 1), initiator(&a, 0, 0, 8)};
	CHECK(choose_for_part(all, &a, 0, 1, working) == 0);
	CHECK(working == 1);
	// Connected to it already.
	CHECK(choose_for_part(all, &a, 0, 2, working) == 3);
	CHECK(working == 2);
	all[3].outstanding = 2;
	CHECK(choose_for_part(all, &a, 0, 2, working) == 3); // least to do of the two
	CHECK(choose_for_part(all, &a, 0, 4, working) == 2); // idle longest
	CHECK(working == 3);
	// Busy for others: not taken.
	all[1].outstanding = all[2].outstanding = 1;
	CHECK(choose_for_part(all, &a, 0, 4, working) == 3);
	CHECK(working == 2);
	// Another initiator gains nothing while one that works for the target is idle.
	all[0].outstanding = all[2].outstanding = 0;
	CHECK(choose_for_part(all, &a, 0, 4, working) == 0);
	all[0].room = all[1].room = all[2].room = all[3].room = false;
	CHECK(choose_for_part(all, &a, 0, 4, working) == no_initiator);
}

TEST_CASE("ranks agree on who has a reliable connection, and no rank has more than it may")
{
	for (const int size : {2, 3, 7, 8, 100})
		for (const int64_t most : {0, 1, 2, 5, 8, 99, 1000})
			for (int a = 0; a < size; ++a) {
				int64_t count = 0;
				for (int b = 0; b < size; ++b) {
					if (b == a)
						continue;
					REQUIRE(pt2p::within_nearest(a, b, size, most) == pt2p::within_nearest(b, a, size, most));
					count += pt2p::within_nearest(a, b, size, most);
				}
				REQUIRE(count <= most);
				if (most >= size) // everybody is near
					REQUIRE(count == size - 1);
			}
}
