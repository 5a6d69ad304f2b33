// Which ranks have a reliable connection to each other when DC could reach them, too.
#pragma once

#include <algorithm>
#include <cstdint>

namespace pt2p {

// Whether ranks `a` and `b` of `size` are among each other's `most` nearest, half of them on either side, the last rank
// being the neighbour of the first. Both give the same answer, and no rank has more than `most` such peers.
constexpr bool within_nearest(int a, int b, int size, int64_t most)
{
	const int64_t way = a < b ? int64_t{b} - a : int64_t{a} - b;
	return std::min(way, size - way) <= most / 2;
}

} // namespace pt2p
