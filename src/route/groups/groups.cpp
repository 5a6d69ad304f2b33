#include "route/groups/groups.hpp"

#include <map>

#include "base/report/report.hpp"

namespace pt2p {

Groups::Groups(const std::vector<int> &node_of, const std::vector<int> &group_of) : coordinates_(node_of.size())
{
	std::vector<std::vector<int>> on_node(group_of.size());
	for (size_t rank = 0; rank < node_of.size(); rank++) {
		const int node = node_of[rank];
		if (node < 0 || index(node) >= group_of.size())
			throw Error(PT2P_ERR_ARGUMENT, format("rank %zu is on node %d, which is in no group", rank, node));
		on_node[index(node)].push_back(static_cast<int>(rank));
	}
	std::map<int, size_t> dense;
	std::vector<std::vector<size_t>> in_group;
	for (size_t node = 0; node < group_of.size(); node++) {
		if (on_node[node].empty())
			continue;
		const size_t group = dense.emplace(group_of[node], dense.size()).first->second;
		in_group.resize(dense.size());
		in_group[group].push_back(node);
	}
	ranks_.reserve(node_of.size());
	first_node_.push_back(0);
	first_rank_.push_back(0);
	for (size_t group = 0; group < in_group.size(); group++) {
		for (size_t i = 0; i < in_group[group].size(); i++) {
			const std::vector<int> &here = on_node[in_group[group][i]];
			for (size_t local = 0; local < here.size(); local++)
				coordinates_[index(here[local])] = {static_cast<int>(group), static_cast<int>(i),
				                                    static_cast<int>(local)};
			ranks_.insert(ranks_.end(), here.begin(), here.end());
			first_rank_.push_back(static_cast<int>(ranks_.size()));
		}
		first_node_.push_back(static_cast<int>(first_rank_.size()) - 1);
	}
}

int Groups::at(int group, int node_index, int local) const
{
	if (group < 0 || group >= count() || node_index < 0 || node_index >= nodes(group))
		return -1;
	const int node = first_node_[index(group)] + node_index;
	return local < 0 || local >= ranks_on(node) ? -1 : ranks_[index(first_rank_[index(node)] + local)];
}

int Groups::folded(int group, int node_index, int local) const
{
	const int node = first_node_[index(group)] + node_index % nodes(group);
	return ranks_[index(first_rank_[index(node)] + local % ranks_on(node))];
}

Dimension Groups::between(int a, int b) const
{
	const Coordinates p = coordinates(a), q = coordinates(b);
	if (p.group != q.group)
		return Dimension::across;
	if (p.index != q.index)
		return Dimension::group;
	return p.local != q.local ? Dimension::node : Dimension::none;
}

int Groups::next_hop(int from, int to) const
{
	const Coordinates p = coordinates(from), q = coordinates(to);
	if (p.group != q.group)
		return folded(q.group, p.index, p.local);
	if (p.index != q.index)
		return folded(q.group, q.index, p.local);
	return to;
}

bool Groups::forwards() const
{
	bool several_nodes = false, several_ranks = false;
	for (const Coordinates &p : coordinates_) {
		several_nodes |= p.index > 0;
		several_ranks |= p.local > 0;
	}
	return (count() > 1) + several_nodes + several_ranks > 1;
}

Groups::Connections Groups::connections(int rank) const
{
	const Coordinates p = coordinates(rank);
	return {ranks_on(first_node_[index(p.group)] + p.index) - 1, nodes(p.group) - 1, count() - 1};
}

} // namespace pt2p
