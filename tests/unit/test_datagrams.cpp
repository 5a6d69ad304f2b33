// Calls by datagram: words, their tokens, and which calls have come before.
#include <catch2/catch.hpp>

#include <set>

#include "rpc/peer.hpp"

using namespace pt2p::rpc;

TEST_CASE("a word holds a token and a difference", "[datagrams]")
{
	for (const int64_t difference :
	     {INT64_C(0), INT64_C(1), INT64_C(-1), Immediate::max_difference, -Immediate::max_difference})
		for (const uint16_t token : {uint16_t{0}, uint16_t{1}, uint16_t{0x3fff}, uint16_t{0x2aaa}}) {
			REQUIRE(Immediate::fits(difference));
			const uint32_t word = Immediate::pack(token, difference);
			CHECK(Immediate::token(word) == token);
			CHECK(Immediate::difference(word) == difference);
		}
	CHECK_FALSE(Immediate::fits(Immediate::max_difference + 1));
	CHECK_FALSE(Immediate::fits(-Immediate::max_difference - 1));
	CHECK_FALSE(Immediate::fits(INT64_MAX));
	CHECK_FALSE(Immediate::fits(INT64_MIN));
}

TEST_CASE("a token tells its call from all others, and is taken again as late as possible", "[datagrams]")
{
	Tokens tokens;
	std::vector<Outgoing> calls(Tokens::count + 1);
	std::vector<uint16_t> taken;
	for (unsigned i = 0; i < Tokens::count; ++i)
		taken.push_back(tokens.take(calls[i]));
	CHECK(std::set<uint16_t>(taken.begin(), taken.end()).size() == Tokens::count);
	CHECK(tokens.take(calls.back()) == Tokens::none);
	for (unsigned i = 0; i < Tokens::count; ++i)
		CHECK(tokens.find(taken[i]) == &calls[i]);
	for (const uint16_t token : taken)
		tokens.give(token);
	for (const uint16_t token : taken)
		CHECK(tokens.find(token) == nullptr);
	CHECK(tokens.find(Tokens::none) == nullptr);
	// With one call at a time, none of the next 16383 has the token of this one.
	const uint16_t first = tokens.take(calls[0]);
	tokens.give(first);
	unsigned until = 1;
	for (uint16_t token; (token = tokens.take(calls[1])) != first; ++until)
		tokens.give(token);
	CHECK(until == Tokens::count << Tokens::turn_bits);
}

TEST_CASE("a call is known to have come before also when numbers wrap around", "[datagrams]")
{
	DatagramSlot slot;
	CHECK(slot.was_before(0));
	CHECK_FALSE(slot.was_before(1));
	slot.number = UINT32_MAX;
	CHECK(slot.was_before(UINT32_MAX));
	CHECK(slot.was_before(UINT32_MAX - 5));
	CHECK_FALSE(slot.was_before(0));
	CHECK_FALSE(slot.was_before(7));
}
