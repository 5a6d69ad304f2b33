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

int max_on_a_node(const std::vector<int> &node_of)
{
	std::map<int, int> ranks;
	int most = 0;
	for (const int node : node_of)
		most = std::max(most, ++ranks[node]);
	return most;
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

RoutePolicy::RoutePolicy(const Config &config, Reporter &reporter, Job &job)
    : config_(config), rank_(job.rank()), size_(job.size())
{
	const bool direct = config.route == choice::route::direct;
	if (config.groups.empty() && direct)
		return;
	std::vector<std::string> hosts;
	const std::vector<int> node_of = job.nodes(&hosts);
	std::string warning;
	const GroupNeeds needs{static_cast<int>(hosts.size()), direct ? max_on_a_node(node_of) : 1, config.rc_peers};
	groups_ = std::make_unique<Groups>(node_of, read_groups(config.groups, needs, hosts, warning));
	if (!warning.empty() && rank_ == 0) // all ranks read the same
		reporter.log(LogLevel::warning, "%s", warning.c_str());
	checksum_ = checksum_of(*groups_, size_);
	forwards_ = !direct && groups_->forwards();
}

std::string RoutePolicy::rule() const
{
	const auto number = [](auto value) { return static_cast<long long>(value); };
	std::string text = groups_ ? format("PT2P_ROUTE=%s and %d groups of nodes (PT2P_GROUPS, checksum %08x)",
	                                    word_of(config_.route), groups_->count(), checksum_)
	                           : format("PT2P_RC_PEERS=%lld", number(config_.rc_peers));
	// A forwarder has to be able to send a message in one piece.
	if (forwards_)
		text += format(", PT2P_FORWARD_WINDOW=%lld, PT2P_FORWARD_CREDITS=%lld and PT2P_SHM_RING_BYTES=%lld",
		               number(config_.forward_window), number(config_.forward_credits), number(config_.shm_ring_bytes));
	if (config_.ranks_per_node)
		text += format(", PT2P_RANKS_PER_NODE=%lld", number(config_.ranks_per_node));
	return text;
}

std::string RoutePolicy::why_not_rc(int rank) const
{
	if (!groups_)
		return within_nearest(rank_, rank, size_, config_.rc_peers)
		           ? ""
		           : format("not among the %lld nearest ranks (PT2P_RC_PEERS)",
		                    static_cast<long long>(config_.rc_peers));
	if (groups_->between(rank_, rank) == Dimension::across)
		return "in another group (PT2P_GROUPS)";
	const bool neighbours = groups_->next_hop(rank_, rank) == rank || groups_->next_hop(rank, rank_) == rank_;
	if (config_.route != choice::route::direct && !neighbours)
		return "messages are forwarded to it (PT2P_ROUTE)";
	return "";
}

bool decides_all(const std::string &rule)
{
	return rule.find("PT2P_GROUPS") != rule.npos || rule.find("PT2P_RANKS_PER_NODE") != rule.npos;
}

} // namespace pt2p
