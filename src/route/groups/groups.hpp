// Groups of nodes, and the route of a message between ranks of different groups.
//
// A rank's coordinates are (group, index of its node in the group, index on the node). A message goes first across
// groups, to the rank with the sender's own index and local index there; then inside that group to the destination's
// node; then on the node to the destination. Hops that change nothing are left out: a route has at most three hops.
//
// Uneven groups fold. Where a group has no node of that index, the index is taken modulo the number of nodes there;
// where a node has no rank of that local index, modulo the number of ranks there. So every rank has exactly one rank
// where it enters another group, and one where it enters another node of its own group. Several ranks of a larger group
// (node) share one of a smaller. The route back may then differ from the route there.
//
// No deadlock: the hops of a route are in strictly descending order, across, group, node. A forwarder chooses the next
// hop by its own coordinates and the destination alone. So a message that came by a hop `across` waits for room in
// channels `group` or `node`, one that came by a hop `group` for channels `node`, and one that came by a hop `node` has
// arrived. A chain of channels that wait for one another is at most three long and ends at a receiver.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "route/groups/group_count.hpp"

namespace pt2p {

// Where a rank is: its group of nodes, the index of its node in the group, its index on the node.
struct Coordinates {
	int group, index, local;
};

// The highest coordinate in which two ranks differ: none (the same rank), the index on their node (shm), the node of
// their group (rc), the group (dct). In the order of the hops of a route, the last first.
enum class Dimension : uint8_t { none, node, group, across };

class Groups {
public:
	// `node_of`: the node of each rank. `group_of`: the group of each node; any numbers, which are made dense here in
	// the order of first appearance. Nodes without ranks do not count. Throws Error(PT2P_ERR_ARGUMENT) when a rank's
	// node has no group.
	Groups(const std::vector<int> &node_of, const std::vector<int> &group_of);

	int count() const { return static_cast<int>(first_node_.size()) - 1; }
	int nodes(int group) const { return first_node_[index(group) + 1] - first_node_[index(group)]; }
	Coordinates coordinates(int rank) const { return coordinates_[index(rank)]; }
	// The rank there; -1: none.
	int at(int group, int node_index, int local) const;
	// In what two ranks differ, whatever the routes.
	Dimension between(int a, int b) const;
	// The rank that `from` sends a message for `to` to: `to` itself at the last hop.
	int next_hop(int from, int to) const;

	// Whether any route has more than one hop: whether ranks differ in two coordinates.
	bool forwards() const;

	// How many ranks `rank` sends to when messages are forwarded and all talk with all: ranks of its node, one rank of
	// each other node of its group, one rank of each other group. In even groups the same ranks send to it. In uneven
	// groups all ranks whose coordinates fold to its own send to it, so more connections may end here than start.
	struct Connections {
		int node, group, across;
	};
	Connections connections(int rank) const;

private:
	static size_t index(int i) { return static_cast<size_t>(i); }
	// Ranks on the node of this number in the order of groups.
	int ranks_on(int node) const { return first_rank_[index(node) + 1] - first_rank_[index(node)]; }
	// The rank at these coordinates after folding.
	int folded(int group, int node_index, int local) const;

	std::vector<Coordinates> coordinates_; // by rank
	std::vector<int> first_node_;          // by group, and one more: where its nodes begin in first_rank_
	std::vector<int> first_rank_;          // by node, and one more: where its ranks begin in ranks_
	std::vector<int> ranks_;               // in the order of their coordinates
};

// The group of each of `nodes` nodes as PT2P_GROUPS says:
//   nodes:N     each N nodes in a row
//   0-3,8;4-7   lists of node numbers, separated by semicolons
//   file:PATH   one group on each line: node numbers and host names separated by commas or blanks, names with ranges in
//               brackets as in node[01-04,7]; # begins a comment
//   switches:PATH  one group for each leaf switch (switches.hpp); `switches` alone: of Slurm's topology.conf
//   auto, or nothing  as many as are wanted (group_count.hpp), in a row
// `hosts`: the host of each node. Several nodes may have the same host, whose name then means all of them. `warning`:
// what the user should know although there are groups. Throws Error(PT2P_ERR_TUNABLE) unless each node is in one group.
std::vector<int> read_groups(const std::string &text, const GroupNeeds &needs, const std::vector<std::string> &hosts,
                             std::string &warning);

} // namespace pt2p
