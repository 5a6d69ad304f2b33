// PT2P_GROUPS: which nodes form a group.
#include <algorithm>
#include <cerrno>
#include <fstream>
#include <map>
#include <utility>

#include "base/report/report.hpp"
#include "route/groups/groups.hpp"
#include "route/groups/host_names.hpp"
#include "route/groups/switches.hpp"

namespace pt2p {

namespace {

// Where Slurm has it.
constexpr const char *standard_switch_file = "/etc/slurm/topology.conf";

class GroupList {
public:
	GroupList(int nodes, const std::vector<std::string> &hosts) : hosts_(hosts), group_(static_cast<size_t>(nodes), -1)
	{
	}

	// The explanation begins with `where`.
	void add(const std::string &where, const std::string &item)
	{
		int first, last;
		if (item.find_first_not_of("0123456789- \t") == std::string::npos) {
			if (!read_range(item, first, last))
				fail(where, format("\"%s\" is no node number and no range of them; write 5 or 0-3", item.c_str()));
			if (last < first)
				fail(where, format("the range \"%s\" ends before it begins", item.c_str()));
			if (last >= nodes())
				fail(where, format("there is no node %d: this job has the nodes 0 to %d", last, nodes() - 1));
			for (int node = first; node <= last; node++)
				put(where, node);
			return;
		}
		if (!each_name(item, [&](const std::string &name) { add_host(where, name); }))
			fail(where, format("the brackets in \"%s\" make no list of hosts; write node[01-04,7]", item.c_str()));
	}

	// Begins the next group.
	void next(const std::string &where)
	{
		if (!any_)
			fail(where, "a group without nodes; name its nodes or leave it out");
		current_++;
		any_ = false;
	}

	std::vector<int> take(const std::string &where)
	{
		for (int node = 0; node < nodes(); node++)
			if (group_[static_cast<size_t>(node)] < 0)
				fail(where, format("node %d%s is in no group; each of the nodes 0 to %d has to be in one", node,
				                   host(node).c_str(), nodes() - 1));
		return std::move(group_);
	}

	[[noreturn]] static void fail(const std::string &where, const std::string &what)
	{
		throw Error(PT2P_ERR_TUNABLE, where + ": " + what);
	}

private:
	int nodes() const { return static_cast<int>(group_.size()); }
	std::string host(int node) const
	{
		const auto n = static_cast<size_t>(node);
		return n < hosts_.size() && !hosts_[n].empty() ? " (" + hosts_[n] + ")" : "";
	}

	void add_host(const std::string &where, const std::string &name)
	{
		if (on_host_.empty())
			for (size_t node = 0; node < group_.size() && node < hosts_.size(); node++)
				on_host_.emplace(hosts_[node], static_cast<int>(node));
		const auto [begin, end] = on_host_.equal_range(name);
		for (auto it = begin; it != end; ++it)
			put(where, it->second);
		if (begin == end)
			fail(where, format("no node of this job is on a host \"%s\"; host names are written as the launcher "
			                   "has them, and node 0 is%s",
			                   name.c_str(), host(0).empty() ? " on a host without a name" : host(0).c_str()));
	}

	void put(const std::string &where, int node)
	{
		int &group = group_[static_cast<size_t>(node)];
		if (group >= 0)
			fail(where, format("node %d%s is named a second time; each is in one group", node, host(node).c_str()));
		group = current_;
		any_ = true;
	}

	const std::vector<std::string> &hosts_;
	std::multimap<std::string, int> on_host_; // the nodes of each host; filled at the first lookup of a name
	std::vector<int> group_;                  // by node; -1: none yet
	int current_ = 0;
	bool any_ = false; // whether the current group has a node
};

std::vector<int> consecutive(int nodes, int in_each)
{
	std::vector<int> group(static_cast<size_t>(nodes));
	for (int node = 0; node < nodes; node++)
		group[static_cast<size_t>(node)] = node / in_each;
	return group;
}

void read_line(GroupList &groups, const std::string &where, const std::string &line)
{
	each_item(line, [&](const std::string &item) { groups.add(where, item); });
	groups.next(where);
}

template <class See>
void each_line(const std::string &path, See &&see)
{
	errno = 0;
	std::ifstream file(path);
	std::string line;
	for (int number = 1; std::getline(file, line); number++)
		see(number, line);
	if (!file.is_open() || file.bad())
		GroupList::fail("PT2P_GROUPS", format("\"%s\" cannot be read: %s; every rank needs the file", path.c_str(),
		                                      errno ? errno_text(errno).c_str() : "unknown reason"));
}

void read_file(GroupList &groups, const std::string &path)
{
	each_line(path, [&](int number, const std::string &text) {
		const std::string line = trimmed(text.substr(0, text.find('#')));
		if (!line.empty())
			read_line(groups, format("PT2P_GROUPS, line %d of %s", number, path.c_str()), line);
	});
}

std::vector<int> by_switch(const std::string &path, const std::vector<std::string> &hosts, std::string &warning)
{
	SwitchFile file("PT2P_GROUPS", path);
	each_line(path, [&](int, const std::string &line) { file.add(line); });
	return file.groups(hosts, warning);
}

} // namespace

std::vector<int> read_groups(const std::string &text, const GroupNeeds &needs, const std::vector<std::string> &hosts,
                             std::string &warning)
{
	const std::string all = trimmed(text);
	const int nodes = needs.nodes;
	if (all.empty() || all == "auto")
		return even_groups(nodes, groups_wanted(needs));
	const std::string where = "PT2P_GROUPS=\"" + all + "\"";
	if (all.starts_with("nodes:")) {
		int in_each;
		if (!read_number(trimmed(all.substr(6)), in_each) || in_each < 1)
			GroupList::fail(where, "a group has at least one node; write nodes:N with N from 1 on");
		return consecutive(nodes, in_each);
	}
	if (all == "switches" || all.starts_with("switches:"))
		return by_switch(all == "switches" ? standard_switch_file : trimmed(all.substr(9)), hosts, warning);
	GroupList groups(nodes, hosts);
	if (all.starts_with("file:")) {
		read_file(groups, trimmed(all.substr(5)));
		return groups.take(where);
	}
	if (all.find_first_not_of("0123456789-,; \t") != std::string::npos)
		GroupList::fail(where, "neither auto, nor nodes:N, nor file:PATH, nor switches:PATH, nor lists of node numbers "
		                       "as 0-3,8;4-7");
	for (size_t begin = 0; begin <= all.size();) {
		const size_t end = std::min(all.find(';', begin), all.size());
		const std::string group = trimmed(all.substr(begin, end - begin));
		for (size_t at = 0; !group.empty() && at <= group.size();) {
			const size_t comma = std::min(group.find(',', at), group.size());
			groups.add(where, trimmed(group.substr(at, comma - at)));
			at = comma + 1;
		}
		groups.next(where);
		begin = end + 1;
	}
	return groups.take(where);
}

} // namespace pt2p
