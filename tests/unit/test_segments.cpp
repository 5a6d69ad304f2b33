// Lists of segments cut into messages.
#include <catch2/catch.hpp>
#include <numeric>
#include <vector>

#include "base/memory/segments.hpp"

using namespace pt2p;

TEST_CASE("a list is cut into messages, and their limit may shrink before they are taken")
{
	std::vector<unsigned char> data(1000), buffer(256), got;
	std::iota(data.begin(), data.end(), 0);
	const auto at = [&](size_t offset) { return reinterpret_cast<uint64_t>(data.data() + offset); };
	const Segment list[] = {{at(0), 10, 0}, {at(10), 300, 0}, {at(310), 1, 0}, {at(311), 89, 0}, {at(400), 600, 0}};
	Gather gather{SegmentCursor(list, std::size(list)), buffer.data(), buffer.size()};
	size_t limit = 200;
	while (got.size() < data.size()) {
		size_t length = 0;
		const size_t left = data.size() - got.size();
		gather.next(std::min(limit, left), length);
		limit = std::max<size_t>(limit / 2, 16); // there was no room, and never will be for so much
		const unsigned char *bytes = gather.next(std::min(limit, left), length);
		REQUIRE(length > 0);
		REQUIRE(length <= limit);
		got.insert(got.end(), bytes, bytes + length);
		gather.taken(length);
	}
	CHECK(got == data);
}
