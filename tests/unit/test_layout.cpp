// What the short path of a message touches lies in few cache lines.
#include <catch2/catch.hpp>

#include <cstdint>

#include "message/request/request.hpp"
#include "transports/shm/endpoint.hpp"

using namespace pt2p;

namespace {

constexpr uintptr_t line = 64;

template <class Whole, class Part>
uintptr_t line_of(const Whole &whole, const Part &part)
{
	const auto begin = reinterpret_cast<uintptr_t>(&whole), at = reinterpret_cast<uintptr_t>(&part);
	REQUIRE(begin % line == 0);
	REQUIRE(at - begin + sizeof part <= sizeof whole);
	CHECK((at - begin) / line == (at - begin + sizeof part - 1) / line);
	return (at - begin) / line;
}

} // namespace

TEST_CASE("a request that is done at once is one cache line, and a receive is two")
{
	static_assert(sizeof(Request) == 2 * line && alignof(Request) == line);
	const Request r{};
	// What a send writes, what a wait looks at, and what delivers a message into a buffer.
	CHECK(line_of(r, r.handle) == 1);
	CHECK(line_of(r, r.state) == 1);
	CHECK(line_of(r, r.is_send) == 1);
	CHECK(line_of(r, r.awaits_answer) == 1);
	CHECK(line_of(r, r.special) == 1);
	CHECK(line_of(r, r.status) == 1);
	CHECK(line_of(r, r.peer) == 1);
	CHECK(line_of(r, r.message_tag) == 1);
	CHECK(line_of(r, r.length) == 1);
	CHECK(line_of(r, r.buffer) == 1);
	CHECK(line_of(r, r.room) == 1);
	CHECK(line_of(r, r.next_free) == 1);
	// What matching compares and links.
	CHECK(line_of(r, r.previous) == 0);
	CHECK(line_of(r, r.next) == 0);
	CHECK(line_of(r, r.tag) == 0);
	CHECK(line_of(r, r.mask) == 0);
	CHECK(line_of(r, r.order) == 0);
	CHECK(line_of(r, r.source) == 0);
}

TEST_CASE("an endpoint begins with what every send reads")
{
	alignas(line) const shm::ShmEndpoint e{};
	CHECK(line_of(e, e.table) == 0);
	CHECK(line_of(e, e.transport) == 0);
}
