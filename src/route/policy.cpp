#include "route/policy.hpp"

#include <algorithm>
#include <map>
#include <vector>

#include "base/config/config.hpp"
#include "base/job/job.hpp"
#include "base/report/report.hpp"
#include "route/nearest.hpp"

namespace pt2p {

namespace {

// What a device has to do when all ranks of its node connect to all ranks of other nodes.
struct Demand {
	int ranks = 1;             // on the fullest node
	long long connections = 0; // of the node that has most
};

Demand demand_of(const std::vector<int> &node_of)
{
	std::map<int, int> nodes;
	for (const int node : node_of)
		++nodes[node];
	Demand demand;
	for (const auto &[node, ranks] : nodes) {
		demand.ranks = std::max(demand.ranks, ranks);
		const auto others = static_cast<int64_t>(node_of.size()) - ranks;
		demand.connections = std::max<long long>(demand.connections, ranks * others);
	}
	return demand;
}

// Differs, in all likelihood, when any rank has other coordinates.
uint32_t checksum_of(const Groups &groups, int ranks)
{
	uint32_t sum = 2166136261; // FNV-1a, taken word by word
	for (int rank = 0; rank < ranks; ++rank) {
		const Coordinates at = groups.coordinates(rank);
		for (const int part : {at.group, at.index, at.local})
			sum = (sum ^ static_cast<uint32_t>(part)) * 16777619;
	}
	return sum;
}

} // namespace

int64_t initiators_for(const Config &config, int ranks)
{
	constexpr int64_t most = 16; // RESULTS.md: 32 bring no more
	return std::clamp(config.rc_connections / 8 / ranks, int64_t{1}, most);
}

RoutePolicy::RoutePolicy(const Config &config, Reporter &reporter, Job &job)
    : config_(config), rank_(job.rank()), size_(job.size())
{
	if (job.open()) {
		open_ = true;
		choice_ = "all peers directly: an open context knows of no ranks that could forward";
		return;
	}
	const bool direct = config.route == choice::route::direct,
	           named = !config.groups.empty() && config.groups != "auto";
	const bool chooses = config.route == choice::route::automatic && !named;
	const bool asked = !chooses && !(direct && config.groups.empty()); // for groups
	const auto room = static_cast<long long>(config.rc_connections);
	// However its ranks are spread over nodes, a job of that size fits: where its nodes are need not be known.
	if (!asked && static_cast<int64_t>(size_) * size_ / 4 <= room) {
		choice_ =
		    format("all ranks directly: each device has room for all connections (%lld, PT2P_RC_CONNECTIONS)", room);
		return;
	}
	std::vector<std::string> hosts;
	std::vector<int> node_of;
	try {
		node_of = job.nodes(&hosts);
	} catch (const Error &e) {
		if (asked)
			throw;
		choice_ = format("all ranks directly: %s", e.what());
		return;
	}
	const Demand demand = demand_of(node_of);
	const bool fits = demand.connections <= room;
	if (!fits)
		share_ = room / demand.ranks;
	const std::string reason =
	    format(": a node with %d ranks needs up to %lld reliable connections, and its device has room for %lld "
	           "(PT2P_RC_CONNECTIONS)",
	           demand.ranks, demand.connections, room);
	if (!asked && (direct || fits)) {
		choice_ = (fits ? "all ranks directly" : "all ranks directly, the nearest by rc") + reason;
		return;
	}
	if (chooses)
		choice_ = "few ranks directly, many by forwarders" + reason;
	std::string warning;
	const GroupNeeds needs{static_cast<int>(hosts.size()), direct ? demand.ranks : 1,
	                       config.rc_connections / demand.ranks};
	groups_ = std::make_unique<Groups>(node_of, read_groups(config.groups, needs, hosts, warning));
	if (!warning.empty() && rank_ == 0) // all ranks read the same
		reporter.log(LogLevel::warning, "%s", warning.c_str());
	checksum_ = checksum_of(*groups_, size_);
	forwards_ = !direct && groups_->forwards();
}

std::string RoutePolicy::rule() const
{
	if (open_)
		return "open";
	const auto number = [](auto value) { return static_cast<long long>(value); };
	std::string text = groups_ ? format("PT2P_ROUTE=%s and %d groups of nodes (PT2P_GROUPS, checksum %08x)",
	                                    word_of(config_.route), groups_->count(), checksum_)
	                           : format("PT2P_RC_CONNECTIONS=%lld", number(config_.rc_connections));
	// A forwarder has to be able to send a message in one piece.
	if (forwards_)
		text += format(", PT2P_FORWARD_WINDOW=%lld, PT2P_FORWARD_CREDITS=%lld and PT2P_SHM_RING_BYTES=%lld",
		               number(config_.forward_window), number(config_.forward_credits), number(config_.shm_ring_bytes));
	if (config_.ranks_per_node)
		text += format(", PT2P_RANKS_PER_NODE=%lld", number(config_.ranks_per_node));
	return text;
}

std::string RoutePolicy::why_not_rc(int rank, bool keep_few_connections) const
{
	if (!groups_)
		return within_nearest(rank_, rank, size_, share_)
		           ? ""
		           : format("not among the %lld nearest ranks (PT2P_RC_CONNECTIONS)", static_cast<long long>(share_));
	if (groups_->between(rank_, rank) == Dimension::across)
		return "in another group (PT2P_GROUPS)";
	const bool neighbours = groups_->next_hop(rank_, rank) == rank || groups_->next_hop(rank, rank_) == rank_;
	if (!neighbours && (config_.route == choice::route::forward || keep_few_connections))
		return "messages are forwarded to it (PT2P_ROUTE)";
	return "";
}

bool decides_all(const std::string &rule)
{
	return rule.find("PT2P_GROUPS") != rule.npos || rule.find("PT2P_RANKS_PER_NODE") != rule.npos;
}

} // namespace pt2p
