// Parts by themselves.
#include <catch2/catch.hpp>

#include "route/choice.hpp"
#include "transports/dct/pool.hpp"

using namespace pt2p::dct;

TEST_CASE("DC initiators: a target stays, then comes back, then takes what is idle longest, then what has least to do")
{
	int a, b, c, d;
	std::vector<InitiatorState> all(3);
	CHECK(choose_initiator(all, &a, no_initiator, false) == 0);
	all[0] = {&a, 5, true, 1};
	all[1] = {&b, 0, true, 3};
	all[2] = {&c, 0, true, 2};
	// Work under way: no other, even when it has no room.
	CHECK(choose_initiator(all, &a, 0, false) == 0);
	all[0].room = false;
	CHECK(choose_initiator(all, &a, 0, false) == no_initiator);
	all[0].room = true;
	// But where it shares one it goes to an idle one, the idle longest, if there is one.
	CHECK(choose_initiator(all, &a, 0, true) == 2);
	all[2].room = false;
	CHECK(choose_initiator(all, &a, 0, true) == 1);
	all[2].room = true;
	all[1].outstanding = all[2].outstanding = 1;
	CHECK(choose_initiator(all, &a, 0, true) == 0);
	all[1].outstanding = all[2].outstanding = 0;
	// The one that served it last, also when another is idle for longer.
	CHECK(choose_initiator(all, &b, no_initiator, false) == 1);
	// Idle longest.
	CHECK(choose_initiator(all, &d, no_initiator, false) == 2);
	// None idle: the least loaded that has room.
	all[1].outstanding = 3;
	all[2].outstanding = 2;
	CHECK(choose_initiator(all, &d, no_initiator, false) == 2);
	all[2].room = false;
	CHECK(choose_initiator(all, &d, no_initiator, false) == 1);
	all[0].room = all[1].room = false;
	CHECK(choose_initiator(all, &d, no_initiator, false) == no_initiator);
}

TEST_CASE("a single DC initiator serves everybody as long as it has room")
{
	int a, b;
	std::vector<InitiatorState> one(1);
	one[0] = {&a, 7, true, 1};
	CHECK(choose_initiator(one, &b, no_initiator, false) == 0);
	one[0].room = false;
	CHECK(choose_initiator(one, &b, no_initiator, false) == no_initiator);
}

TEST_CASE("DC initiators for parts: idle ones up to a number, those that served the target first, then the one with least to do")
{
	int a, b;
	uint32_t working = 0;
	std::vector<InitiatorState> all(4);
	all[0] = {&a, 3, true, 9};
	all[1] = {&b, 0, true, 2};
	all[2] = {&b, 0, true, 1};
	all[3] = {&a, 0, true, 8};
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
	// Nothing is gained by another while one that works for it has nothing to do.
	all[0].outstanding = all[2].outstanding = 0;
	CHECK(choose_for_part(all, &a, 0, 4, working) == 0);
	all[0].room = all[1].room = all[2].room = all[3].room = false;
	CHECK(choose_for_part(all, &a, 0, 4, working) == no_initiator);
}

TEST_CASE("ranks agree on who has a reliable connection, and nobody has more than he may")
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
