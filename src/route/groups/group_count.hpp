// How many groups of nodes there are when nobody names them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace pt2p {

struct GroupNeeds {
	int nodes;          // 1 or more
	int ranks;          // of each other node of its group that a rank is connected to reliably: one when messages are forwarded
	int64_t most_peers; // that a rank may be connected to reliably (PT2P_RC_PEERS)
};

// As few as hold no more peers than a rank may have: the fewer groups, the fewer messages cross from one to another, and the
// fewer targets of DC share the initiators of a rank. When all nodes fit into one, there is nothing for dct.
constexpr int groups_wanted(const GroupNeeds &needs)
{
	const int64_t most_nodes = std::max<int64_t>(needs.most_peers, 0) / needs.ranks + 1;
	return static_cast<int>((needs.nodes + most_nodes - 1) / most_nodes);
}

// The group of each node: in a row, sizes differing by one at the most.
inline std::vector<int> even_groups(int nodes, int groups)
{
	std::vector<int> group(static_cast<size_t>(nodes));
	for (int64_t node = 0; node < nodes; ++node)
		group[static_cast<size_t>(node)] = static_cast<int>(node * groups / nodes);
	return group;
}

} // namespace pt2p
