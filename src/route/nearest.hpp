// Which ranks have a reliable connection to each other where DC could reach them, too.
#pragma once

#include <algorithm>
#include <cstdint>

namespace pt2p {

// Whether ranks `a` and `b` of `size` are among each other's `max_peers` nearest, half of them on either side. The last
// rank is next to the first. Both ranks get the same answer, and no rank has more than `max_peers` such peers.
constexpr bool within_nearest(int a, int b, int size, int64_t max_peers)
{
	const int64_t distance = a < b ? int64_t{b} - a : int64_t{a} - b;
	return std::min(distance, size - distance) <= max_peers / 2;
}

} // namespace pt2p
