// How many groups of nodes there are when the user names none.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace pt2p {

struct GroupNeeds {
	int nodes;         // 1 or more
	int ranks;         // that a rank connects to reliably on each other node of its group: 1 with forwarding
	int64_t max_peers; // that a rank may connect to reliably (PT2P_RC_CONNECTIONS)
};

// The smallest number of groups in which no rank has more than max_peers peers. With fewer groups, fewer messages cross
// from one to another, and fewer DC targets share the initiators of a rank. Where one group holds all nodes, dct has
// nothing to do.
constexpr int groups_wanted(const GroupNeeds &needs)
{
	const int64_t max_nodes = std::max<int64_t>(needs.max_peers, 0) / needs.ranks + 1;
	return static_cast<int>((needs.nodes + max_nodes - 1) / max_nodes);
}

// The group of each node: consecutive nodes, in groups whose sizes differ by at most one.
inline std::vector<int> even_groups(int nodes, int groups)
{
	std::vector<int> group(static_cast<size_t>(nodes));
	for (int64_t node = 0; node < nodes; ++node)
		group[static_cast<size_t>(node)] = static_cast<int>(node * groups / nodes);
	return group;
}

} // namespace pt2p
