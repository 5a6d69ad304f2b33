// SPDX-License-Identifier: BSD-3-Clause
// Groups of nodes: the routes of messages between ranks, and how groups are written.
#include <catch2/catch.hpp>

#include <algorithm>
#include <cstdio>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <unistd.h>

#include "base/report/report.hpp"
#include "route/groups/groups.hpp"

using namespace pt2p;
using Catch::Matchers::Contains;

namespace {

using Channel = std::pair<int, int>; // from a rank to the next hop

struct Topology {
	std::vector<int> node_of, group_of;
	bool even = false;
	size_t ranks() const { return node_of.size(); }
};

int up_to(std::mt19937 &random, int most) { return std::uniform_int_distribution(1, most)(random); }

// Ranks, nodes and groups in any order. Either random numbers in each, or the same number in each.
Topology make(std::mt19937 &random, bool even)
{
	Topology t;
	t.even = even;
	const int most = up_to(random, 5), ranks_on_node = up_to(random, 4), nodes_in_group = up_to(random, 4);
	const int groups = up_to(random, 5);
	for (int g = 0; g < groups; g++)
		for (int n = even ? nodes_in_group : up_to(random, most); n > 0; n--) {
			t.node_of.insert(t.node_of.end(), static_cast<size_t>(even ? ranks_on_node : up_to(random, most)),
			                 static_cast<int>(t.group_of.size()));
			t.group_of.push_back(g * 7);
		}
	std::shuffle(t.node_of.begin(), t.node_of.end(), random);
	// Another order of groups. Each node keeps its ranks.
	std::shuffle(t.group_of.begin(), t.group_of.end(), random);
	return t;
}

bool same(const Coordinates &a, const Coordinates &b)
{
	return a.group == b.group && a.index == b.index && a.local == b.local;
}

// Removes channels that no other one leads to, until none is left. With a cycle some remain.
bool acyclic(const std::map<Channel, std::set<Channel>> &waits_for)
{
	std::map<Channel, int> led_to;
	for (const auto &[channel, next] : waits_for) {
		led_to.emplace(channel, 0);
		for (const Channel &n : next)
			led_to[n]++;
	}
	std::vector<Channel> free;
	for (const auto &[channel, count] : led_to)
		if (count == 0)
			free.push_back(channel);
	size_t taken = 0;
	while (!free.empty()) {
		const Channel channel = free.back();
		free.pop_back();
		taken++;
		if (const auto found = waits_for.find(channel); found != waits_for.end())
			for (const Channel &n : found->second)
				if (--led_to[n] == 0)
					free.push_back(n);
	}
	return taken == led_to.size();
}

// What is wrong with the routes between all ranks; empty: nothing. Catch checks only this, once for each topology.
std::string wrong(const Topology &t)
{
	const Groups groups(t.node_of, t.group_of);
	const int ranks = static_cast<int>(t.ranks());
	std::set<Channel> channels;
	std::map<Channel, std::set<Channel>> waits_for;
	for (int a = 0; a < ranks; a++) {
		const Coordinates place = groups.coordinates(a);
		if (groups.at(place.group, place.index, place.local) != a)
			return format("rank %d is not where it is", a);
		for (int b = 0; b < ranks; b++) {
			if (groups.between(a, b) != groups.between(b, a))
				return format("what is between %d and %d differs from one side to the other", a, b);
			int at = a, hops = 0;
			Dimension last{};
			Channel before{};
			for (; at != b; hops++) {
				const int next = groups.next_hop(at, b);
				if (next < 0 || next >= ranks || next == at || hops == 3)
					return format("from %d to %d: rank %d hands to %d, hop %d", a, b, at, next, hops);
				const Dimension dimension = groups.between(at, next);
				if (dimension == Dimension::none || (hops && dimension >= last))
					return format("from %d to %d: hop %d is not of a lower dimension", a, b, hops);
				const Coordinates p = groups.coordinates(at), q = groups.coordinates(next);
				if (t.even && (p.group != q.group) + (p.index != q.index) + (p.local != q.local) != 1)
					return format("from %d to %d: hop %d changes not one coordinate", a, b, hops);
				const Channel channel{at, next};
				channels.insert(channel);
				if (hops)
					waits_for[before].insert(channel);
				before = channel;
				last = dimension;
				at = next;
			}
			if (groups.next_hop(a, a) != a)
				return format("rank %d hands to another what is for itself", a);
		}
	}
	if (groups.forwards() == waits_for.empty())
		return "whether anything is forwarded is not what routes say";
	if (!acyclic(waits_for))
		return "channels wait for one another in a cycle";
	for (int rank = 0; rank < ranks; rank++) {
		Groups::Connections counted{0, 0, 0};
		for (auto it = channels.lower_bound({rank, 0}); it != channels.end() && it->first == rank; ++it) {
			const Dimension dimension = groups.between(rank, it->second);
			(dimension == Dimension::node    ? counted.node
			 : dimension == Dimension::group ? counted.group
			                                 : counted.across)++;
		}
		const Groups::Connections told = groups.connections(rank);
		if (told.node != counted.node || told.group != counted.group || told.across != counted.across)
			return format("rank %d starts %d, %d, %d connections, not %d, %d, %d", rank, counted.node, counted.group,
			              counted.across, told.node, told.group, told.across);
	}
	return "";
}

std::vector<int> groups_of(const std::string &text, int nodes, const std::vector<std::string> &hosts)
{
	std::string warning;
	const auto groups = read_groups(text, {.nodes = nodes, .ranks = 1, .max_peers = 2}, hosts, warning);
	CHECK(warning.empty());
	return groups;
}

std::string refusal(const std::string &text, int nodes, const std::vector<std::string> &hosts = {})
{
	try {
		groups_of(text, nodes, hosts);
	} catch (const Error &error) {
		CHECK(error.status() == PT2P_ERR_TUNABLE);
		return error.what();
	}
	return "";
}

// A file that exists as long as this object.
class File {
public:
	explicit File(const std::string &text)
	{
		const int fd = mkstemp(name_);
		REQUIRE(fd >= 0);
		REQUIRE(write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size()));
		close(fd);
	}
	~File() { unlink(name_); }
	std::string tunable(const std::string &kind = "file:") const { return kind + name_; }

private:
	char name_[32] = "/tmp/pt2p-groups-XXXXXX";
};

} // namespace

TEST_CASE("routes over random groups end, follow the order of dimensions and make no cycle", "[groups]")
{
	std::mt19937 random(20);
	size_t most = 0, least = 1000;
	for (int i = 0; i < 3200; i++) {
		const Topology t = make(random, i % 4 == 0);
		most = std::max(most, t.ranks());
		least = std::min(least, t.ranks());
		const std::string what = wrong(t);
		INFO("topology " << i << ": nodes " << Catch::Detail::stringify(t.node_of) << ", groups "
		                 << Catch::Detail::stringify(t.group_of));
		REQUIRE(what == "");
	}
	CHECK(least == 1);
	CHECK(most > 60);
}

TEST_CASE("the search for cycles finds one", "[groups]")
{
	CHECK(acyclic({}));
	CHECK(acyclic({{{0, 1}, {{1, 2}, {1, 3}}}, {{1, 2}, {{2, 3}}}}));
	CHECK_FALSE(acyclic({{{0, 1}, {{1, 2}}}, {{1, 2}, {{2, 0}}}, {{2, 0}, {{0, 1}}}}));
}

TEST_CASE("the route across two even groups", "[groups]")
{
	// Two groups of two nodes with two ranks each: rank = 4 * group + 2 * index + local.
	const Groups groups({0, 0, 1, 1, 2, 2, 3, 3}, {5, 5, 2, 2});
	CHECK(groups.count() == 2);
	CHECK(groups.nodes(0) == 2);
	CHECK(groups.nodes(1) == 2);
	CHECK(same(groups.coordinates(7), {1, 1, 1}));
	CHECK(groups.at(1, 0, 1) == 5);
	CHECK(groups.at(1, 2, 0) == -1);
	CHECK(groups.at(2, 0, 0) == -1);
	CHECK(groups.at(0, 0, 2) == -1);
	CHECK(groups.at(0, -1, 0) == -1);
	CHECK(groups.between(0, 0) == Dimension::none);
	CHECK(groups.between(0, 1) == Dimension::node);
	CHECK(groups.between(0, 2) == Dimension::group);
	CHECK(groups.between(0, 7) == Dimension::across);
	CHECK(groups.next_hop(0, 7) == 4);
	CHECK(groups.next_hop(4, 7) == 6);
	CHECK(groups.next_hop(6, 7) == 7);
	CHECK(groups.next_hop(0, 3) == 2);
	const auto [node, group, across] = groups.connections(0);
	CHECK(node == 1);
	CHECK(group == 1);
	CHECK(across == 1);
}

TEST_CASE("uneven groups fold", "[groups]")
{
	// Group 0: nodes of 3, 1 and 1 ranks (0 1 2, 3, 4); group 1: one node of 2 ranks (5 6).
	const Groups groups({0, 0, 0, 1, 2, 3, 3}, {0, 0, 0, 1});
	CHECK(groups.next_hop(4, 6) == 5); // index 2 folds to 0, and the destination is on that node
	CHECK(groups.next_hop(2, 5) == 5); // local 2 folds to 0
	CHECK(groups.next_hop(1, 6) == 6);
	CHECK(groups.next_hop(6, 4) == 1);
	CHECK(groups.next_hop(1, 4) == 4);
	CHECK(groups.next_hop(2, 3) == 3);
	CHECK(groups.next_hop(3, 2) == 0);
	// Nodes without ranks do not count.
	CHECK(Groups({0, 2}, {0, 1, 0}).nodes(0) == 2);
	CHECK(Groups({0, 2}, {0, 1, 0}).count() == 1);
	CHECK_THROWS_AS(Groups({0, 1}, {0}), Error);
}

TEST_CASE("groups are parsed", "[groups]")
{
	using List = std::vector<int>;
	CHECK(groups_of("", 1, {}) == List{0});
	CHECK(groups_of(" ", 4, {}) == List{0, 0, 1, 1});
	CHECK(groups_of("auto", 3, {}) == List{0, 0, 0});
	CHECK(groups_of("auto", 8, {}) == List{0, 0, 0, 1, 1, 1, 2, 2});
	CHECK(groups_of("nodes:2", 5, {}) == List{0, 0, 1, 1, 2});
	CHECK(groups_of("nodes:1", 2, {}) == List{0, 1});
	CHECK(groups_of("nodes:2147483647", 2, {}) == List{0, 0});
	CHECK(groups_of("0-3,8;4-7", 9, {}) == List{0, 0, 0, 0, 1, 1, 1, 1, 0});
	CHECK(groups_of(" 1 ; 0 , 2 - 3 ", 4, {}) == List{1, 0, 1, 1});

	const std::vector<std::string> hosts{"node01", "node02", "node03", "io-1", "node07"};
	CHECK(groups_of(File("node[01-02,07]\nnode03, io-1\n").tunable(), 5, hosts) == List{0, 0, 1, 1, 0});
	CHECK(groups_of(File("# racks\n\n  0-1 node03 # near\r\n3\t4").tunable(), 5, hosts) == List{0, 0, 0, 1, 1});
	// Pretended nodes of one host.
	CHECK(groups_of(File("a\nb").tunable(), 3, {"a", "a", "b"}) == List{0, 0, 1});
	CHECK(groups_of(File("r[1-2]n[1,3]").tunable(), 4, {"r1n1", "r1n3", "r2n1", "r2n3"}) == List{0, 0, 0, 0});
}

TEST_CASE("the number of groups is the smallest that keeps within the peers of a rank", "[groups]")
{
	CHECK(groups_wanted({1, 1, 0}) == 1);
	CHECK(groups_wanted({16, 1, 15}) == 1);
	CHECK(groups_wanted({16, 1, 14}) == 2);
	CHECK(groups_wanted({16, 4, 31}) == 2); // eight nodes: 28 peers; nine: 32
	CHECK(groups_wanted({18, 4, 31}) == 3);
	CHECK(groups_wanted({16, 4, 3}) == 16);
	CHECK(groups_wanted({5, 1, 0}) == 5);
	std::mt19937 random(21);
	const auto up_to = [&](int most) { return std::uniform_int_distribution(0, most)(random); };
	for (int i = 0; i < 3000; ++i) {
		const GroupNeeds needs{1 + up_to(i % 2 ? 40 : 2000), 1 + up_to(i % 3 ? 0 : 63), up_to(i % 5 ? 64 : 1000)};
		const int groups = groups_wanted(needs);
		CAPTURE(needs.nodes, needs.ranks, needs.max_peers, groups);
		const std::vector<int> group = even_groups(needs.nodes, groups);
		REQUIRE(group.size() == static_cast<size_t>(needs.nodes));
		REQUIRE(std::is_sorted(group.begin(), group.end()));
		std::vector<int64_t> size(static_cast<size_t>(groups), 0);
		for (const int g : group)
			++size.at(static_cast<size_t>(g));
		const auto [least, most] = std::minmax_element(size.begin(), size.end());
		REQUIRE(*least >= 1);
		REQUIRE(*most - *least <= 1);
		// A single node has no such peers.
		REQUIRE((*most - 1) * needs.ranks <= needs.max_peers);
		// With one group less, one of the groups would have too many peers.
		const int64_t larger = groups == 1 ? 0 : (needs.nodes + groups - 2) / (groups - 1);
		REQUIRE((groups == 1 || (larger - 1) * needs.ranks > needs.max_peers));
	}
}

TEST_CASE("groups that cannot be parsed", "[groups]")
{
	CHECK_THAT(refusal("nodes:0", 4), Contains("nodes:N"));
	CHECK_THAT(refusal("nodes:-1", 4), Contains("nodes:N"));
	CHECK_THAT(refusal("nodes:", 4), Contains("nodes:N"));
	CHECK_THAT(refusal("nodes:99999999999", 4), Contains("nodes:N"));
	CHECK_THAT(refusal("racks", 4), Contains("neither auto, nor nodes:N, nor file:PATH"));
	CHECK_THAT(refusal("0-3;", 4), Contains("group without nodes"));
	CHECK_THAT(refusal("0,1;;2,3", 4), Contains("group without nodes"));
	CHECK_THAT(refusal("0,,1-3", 4), Contains("no node number"));
	CHECK_THAT(refusal("0-1-3", 4), Contains("no node number"));
	CHECK_THAT(refusal("-1", 4), Contains("no node number"));
	CHECK_THAT(refusal("99999999999", 4), Contains("no node number"));
	CHECK_THAT(refusal("3-0", 4), Contains("ends before it begins"));
	CHECK_THAT(refusal("0-4", 4), Contains("no node 4: this job has the nodes 0 to 3"));
	CHECK_THAT(refusal("0-2;2,3", 4), Contains("node 2 is named a second time"));
	CHECK_THAT(refusal("0-1;3", 4, {"a", "b", "c", "d"}), Contains("node 2 (c) is in no group"));
	CHECK_THAT(refusal("file:/nowhere/groups", 4), Contains("/nowhere/groups") && Contains("No such file"));
	CHECK_THAT(refusal("file:/", 4), Contains("cannot be read"));

	const std::vector<std::string> hosts{"h1", "h2"};
	CHECK_THAT(refusal(File("h1\nh3").tunable(), 2, hosts),
	           Contains("line 2 of") && Contains("\"h3\"") && Contains("(h1)"));
	CHECK_THAT(refusal(File("h[1-999999999]").tunable(), 2, hosts), Contains("\"h3\""));
	CHECK_THAT(refusal(File("h[1-2").tunable(), 2, hosts), Contains("brackets"));
	CHECK_THAT(refusal(File("h1]").tunable(), 2, hosts), Contains("brackets"));
	CHECK_THAT(refusal(File("h[2-1]").tunable(), 2, hosts), Contains("brackets"));
	CHECK_THAT(refusal(File("h[]").tunable(), 2, hosts), Contains("brackets"));
	CHECK_THAT(refusal(File("h1 h2\n1").tunable(), 2, hosts), Contains("node 1 (h2) is named a second time"));
	CHECK_THAT(refusal(File("h1\n,\nh2").tunable(), 2, hosts), Contains("line 2") && Contains("without nodes"));
	CHECK_THAT(refusal(File("h2").tunable(), 2, hosts), Contains("node 0 (h1) is in no group"));
	CHECK_THAT(refusal(File("").tunable(), 1, hosts), Contains("node 0 (h1) is in no group"));
	CHECK_THAT(refusal(File("h1").tunable(), 1, {""}), Contains("a host without a name"));
}

namespace {

const char *const slurm = "# two racks and a lonely node\n"
                          "SwitchName=leaf2 Nodes=n[03-04],login\n"
                          "\n"
                          "switchname=leaf1 LinkSpeed=100 \\\n"
                          "    nodes=n[01-02],m[1,3] # and its nodes\n"
                          "SwitchName=empty\n"
                          "SwitchName=elsewhere Nodes=x[1-900]\n"
                          "SwitchName=spine Switches=leaf[1-2],empty,elsewhere\n";

const char *const fabric = "#\n# Topology file: generated on Tue Jun  5 14:15:10 2007\n#\n"
                           "vendid=0x2c9\ndevid=0xbd36\nsysimgguid=0x1\nswitchguid=0x2(2)\n"
                           "Switch\t36 \"S-0000000000000002\"\t\t# \"spine\" enhanced port 0 lid 4 lmc 0\n"
                           "[1]\t\"S-0000000000000003\"[9]\t\t# \"leaf one\" lid 3 4xQDR\n"
                           "[2]\t\"S-0000000000000004\"[9]\t\t# \"leaf two\" lid 5 4xQDR\n\n"
                           "Chassis 1\nswitchguid=0x3(3)\n"
                           "Switch\t36 \"S-0000000000000003\"\t\t# \"leaf one\" enhanced port 0 lid 3 lmc 0\n"
                           "[1]\t\"H-0000000000000011\"[1](12) \t\t# \"n01 HCA-1\" lid 10 4xQDR\n"
                           "[2][ext 7]\t\"H-0000000000000013\"[1](14) \t\t# \"n02.cluster mlx5_0\" lid 11 4xQDR\n"
                           "[3]\t\"H-0000000000000015\"[1](16) \t\t# \"\" lid 12 4xQDR\n"
                           "[9]\t\"S-0000000000000002\"[1]\t\t# \"spine\" lid 4 4xQDR\n\n"
                           "Non-Chassis Nodes\nswitchguid=0x4(4)\n"
                           "Switch\t36 \"S-0000000000000004\"\t\t# \"leaf two\" base port 0 lid 5 lmc 0\n"
                           "[1]\t\"H-0000000000000021\"[1](22) \t\t# \"n03 HCA-1\" lid 20 4xQDR\n"
                           "[2]\t\"H-0000000000000017\"[1](18) \t\t# \"n01 HCA-2\" lid 13 4xQDR\n\n"
                           "caguid=0x11\n"
                           "Ca\t2 \"H-0000000000000011\"\t\t# \"n01 HCA-1\"\n"
                           "[1](12) \t\"S-0000000000000003\"[1]\t\t# lid 10 lmc 0 \"leaf one\" lid 3 4xQDR\n";

} // namespace

TEST_CASE("groups from the switches of a fabric", "[groups]")
{
	using List = std::vector<int>;
	std::string warning;
	const File by_slurm(slurm), by_fabric(fabric);
	const auto read = [&](const File &file, const std::vector<std::string> &hosts) {
		warning.clear();
		return read_groups(file.tunable("switches:"), {static_cast<int>(hosts.size()), 1, 256}, hosts, warning);
	};
	// Groups are numbered in the order of the file. Spines, empty switches and those of other jobs make no group.
	CHECK(read(by_slurm, {"n01", "n02", "n03", "n04", "m1", "m3", "login"}) == List{2, 2, 1, 1, 2, 2, 1});
	CHECK(warning.empty());
	CHECK(read(by_fabric, {"n01", "n02", "n03", "n01"}) == List{2, 2, 3, 2});
	CHECK(warning.empty());
	// Host names with and without the domain, on either side. Numbers are addresses.
	CHECK(read(by_slurm, {"n01.cluster.org", "n03.cluster.org"}) == List{2, 1});
	CHECK(read(by_fabric, {"n02", "n02.cluster", "n03.cluster"}) == List{2, 2, 3});
	CHECK(read(File("SwitchName=a Nodes=10.0.0.1\nSwitchName=b Nodes=10.0.0.2"), {"10.0.0.2", "10.0.0.1"}) ==
	      List{2, 1});
	// Hosts that the file does not name are one more group.
	CHECK(read(by_slurm, {"n01", "m2", "n04", "m4"}) == List{2, 0, 1, 0});
	CHECK_THAT(warning, Contains("no switch of 2 of 4 nodes, as \"m2\"; they are one group"));
	CHECK(read(by_fabric, {"n03", "HCA-1", ""}) == List{3, 0, 0});
	CHECK_THAT(warning, Contains("2 of 3"));
}

TEST_CASE("descriptions of switches that cannot be parsed", "[groups]")
{
	const auto refused = [](const std::string &text, const std::vector<std::string> &hosts = {"n1", "n2"}) {
		return refusal(File(text).tunable("switches:"), static_cast<int>(hosts.size()), hosts);
	};
	CHECK_THAT(refusal("switches:/nowhere/topology", 1, {"n1"}),
	           Contains("/nowhere/topology") && Contains("No such file"));
	CHECK_THAT(refused(""), Contains("names none of this job's hosts, as \"n1\""));
	CHECK_THAT(refused(slurm), Contains("names none of this job's hosts"));
	CHECK_THAT(refused(slurm, {"", ""}), Contains("as a host without a name"));
	CHECK_THAT(refused("SwitchName=a Nodes=n1\nNodes=n2\n"),
	           Contains("line 2 of") && Contains("\"Nodes=n2\" is neither"));
	CHECK_THAT(refused("SwitchName=a Nodes=n1, n2\n"), Contains("line 1 of") && Contains("\"n2\" is no key=value"));
	CHECK_THAT(refused("SwitchName=a \\\nNodes=n[1-2\n"), Contains("line 2 of") && Contains("brackets"));
	CHECK_THAT(refused("SwitchName=a Nodes=n[2-1]\n"), Contains("brackets"));
	CHECK_THAT(refused("SwitchName=a Nodes=n[1-999999999]\n"), Contains("more than 1000000 hosts"));
	CHECK_THAT(refused("\n\n[1] \"H-1\"[1](2) # \"n1\"\n"), Contains("line 3 of") && Contains("port of nothing"));
	CHECK_THAT(refused("Switch 36\n"), Contains("a switch without its number"));
	CHECK_THAT(refused("Switch 36 \"S-1\"\n[1] # \"n1\"\n"), Contains("line 2 of") && Contains("connected to"));
	CHECK_THAT(refused("Switch 36 \"S-1\"\n[1]\n"), Contains("connected to"));
	for (const char *port :
	     {"[1] \"H-1\"[1](2)", "[1] \"H-1\"[1](2) #", "[1] \"H-1\"[1](2) # n1", "[1] \"H-1\"[1](2) # \"n1"})
		CHECK_THAT(refused(std::string("Switch 36 \"S-1\"\n") + port),
		           Contains("line 2 of") && Contains("without its description"));
	CHECK_THAT(refused("n1 n2\n"), Contains("\"n1 n2\" is neither of Slurm's"));
}
