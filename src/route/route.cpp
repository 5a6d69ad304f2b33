#include "route/route.hpp"

#include <algorithm>
#include <cstring>
#include <map>

#include "base/config/config.hpp"
#include "base/job/job.hpp"
#include "base/report/report.hpp"
#include "route/choice.hpp"

namespace pt2p {

namespace {

// Whether `name` is in the comma-separated list, or the list is "all".
bool listed(const std::string &list, const std::string &name)
{
	return list == "all" || ("," + list + ",").find("," + name + ",") != std::string::npos;
}

void check_list(const std::string &list)
{
	std::string known;
	for (size_t i = 0; transport_tables[i]; ++i)
		known += std::string(i ? ", " : "") + transport_tables[i]->name;
	for (size_t start = 0; list != "all" && start <= list.size();) {
		const size_t end = std::min(list.find(',', start), list.size());
		const std::string name = list.substr(start, end - start);
		bool found = false;
		for (size_t i = 0; transport_tables[i]; ++i)
			found |= name == transport_tables[i]->name;
		if (!found)
			throw Error(PT2P_ERR_TUNABLE, format("PT2P_TRANSPORTS: there is no transport \"%s\"; there are all, %s",
			                                     name.c_str(), known.c_str()));
		start = end + 1;
	}
}

int most_on_a_node(const std::vector<int> &node_of)
{
	std::map<int, int> ranks;
	int most = 0;
	for (const int node : node_of)
		most = std::max(most, ++ranks[node]);
	return most;
}

// The part of a rank's blob that holds its rule().
constexpr const char *rule_part = "rule";

// Whether ranks must have the same rule for every transport: ranks of one node, or group, have to agree that they are.
bool decides_all(const std::string &rule)
{
	return rule.find("PT2P_GROUPS") != rule.npos || rule.find("PT2P_RANKS_PER_NODE") != rule.npos;
}

// Another one, in all likelihood, when any rank has another place.
uint32_t checksum(const Groups &groups, int ranks)
{
	uint32_t sum = 2166136261; // FNV-1a, taken word by word
	for (int rank = 0; rank < ranks; ++rank) {
		const Place place = groups.place(rank);
		for (const int part : {place.group, place.index, place.local})
			sum = (sum ^ static_cast<uint32_t>(part)) * 16777619;
	}
	return sum;
}

} // namespace

Router::Router(const Config &configuration, const Topology &topology, Reporter &reporter, Job &job, TransportEvents &events,
               ChannelClient &client)
    : environment_{configuration, topology, reporter, job, events, *this}, client_(client),
      channels_(static_cast<size_t>(job.size()))
{
	const Config &config = environment_.config;
	check_list(config.transports);
	const bool direct = config.route == choice::route::direct;
	if (!config.groups.empty() || !direct) {
		std::vector<std::string> hosts;
		const std::vector<int> node_of = environment_.job.nodes(&hosts);
		std::string warning;
		const GroupNeeds needs{static_cast<int>(hosts.size()), direct ? most_on_a_node(node_of) : 1,
		                       config.rc_peers};
		groups_ = std::make_unique<Groups>(node_of, read_groups(config.groups, needs, hosts, warning));
		if (!warning.empty() && environment_.job.rank() == 0) // all ranks read the same
			environment_.reporter.log(LogLevel::warning, "%s", warning.c_str());
		groups_sum_ = checksum(*groups_, environment_.job.size());
	}
	TransportEvents *above = &environment_.events;
	if (!direct && groups_->forwards()) {
		auto relay = std::make_unique<Relay>(environment_, *this, *groups_);
		above = relay_ = relay.get();
		transports_.push_back(std::move(relay));
	}
	const TransportEnvironment below{config, environment_.topology, environment_.reporter, environment_.job, *above,
	                                 *this,                environment_.device};
	std::string blob;
	size_t max_send = SIZE_MAX;
	for (size_t i = 0; transport_tables[i]; ++i) {
		const TransportTable &table = *transport_tables[i];
		check_table(table);
		std::string why_not = "not in PT2P_TRANSPORTS";
		std::unique_ptr<Transport> transport;
		if (listed(config.transports, table.name)) {
			if (table.longest_message)
				max_send = std::min(max_send, table.longest_message(config));
			transport = table.open(below, why_not);
		}
		if (!transport) {
			not_open_.push_back(std::string(table.name) + ": " + why_not);
			continue;
		}
		add_address_part(blob, table.name, transport->address());
		if (DeviceTransport *device = transport->as_device())
			device_transports_.push_back(device);
		transports_.push_back(std::move(transport));
	}
	if (relay_)
		relay_->set_limit(max_send);
	add_address_part(blob, rule_part, rule());
	add_secret(blob, environment_.job.secret());
	environment_.job.publish(blob);
}

Router::~Router() = default;

Channel &Router::connect(int rank)
{
	auto &channel = channels_[static_cast<size_t>(rank)];
	if (channel)
		return *channel;
	const std::string blob = environment_.job.lookup(rank);
	std::string reasons;
	Transport *transport = choose(rank, blob, reasons);
	if (!transport)
		throw Error(PT2P_ERR_UNREACHABLE, reasons);
	Endpoint &endpoint = relay_ && relay_->serves(rank)
	                         ? relay_->peer(rank)
	                         : transport->connect(rank, address_part(blob, transport->table().name));
	channel = std::make_unique<Channel>(endpoint, environment_.config.eager_max, pending_, client_);
	environment_.reporter.add(Counter::peers_connected);
	return *channel;
}

bool Router::notify_connect_failure(int rank)
{
	try {
		std::string blob, reasons;
		if (!environment_.job.try_lookup(rank, blob))
			return false;
		Transport *transport = choose(rank, blob, reasons);
		return transport && transport->notify_connect_failure(rank, address_part(blob, transport->table().name));
	} catch (const Error &e) {
		environment_.reporter.log(LogLevel::info, "rank %d is not told that nothing can be sent to it: %s", rank, e.what());
		return false;
	}
}

Endpoint *Router::direct_endpoint(int rank)
{
	std::string blob, reasons;
	if (!environment_.job.try_lookup(rank, blob))
		return nullptr;
	Transport *transport = choose(rank, blob, reasons);
	if (!transport)
		throw Error(PT2P_ERR_UNREACHABLE, reasons);
	return &transport->connect(rank, address_part(blob, transport->table().name));
}

bool Router::find_address(int rank, const char *transport, std::string &address)
{
	std::string blob;
	if (!environment_.job.try_lookup(rank, blob))
		return false;
	address = address_part(blob, transport);
	return true;
}

bool Router::connect_senders()
{
	std::vector<int> ranks;
	for (DeviceTransport *transport : device_transports_)
		transport->unconnected_senders(ranks);
	bool all = true;
	for (const int rank : ranks) {
		try {
			all &= direct_endpoint(rank) != nullptr;
		} catch (const Error &e) {
			environment_.reporter.log(LogLevel::info, "rank %d is not told that this rank leaves: %s", rank, e.what());
			for (auto &transport : transports_)
				transport->abandon(rank, e.status(), e.what());
		}
	}
	return all;
}

Transport *Router::choose(int rank, const std::string &blob, std::string &reasons) const
{
	const bool have_dct = std::any_of(transports_.begin(), transports_.end(),
	                                  [](const auto &t) { return !std::strcmp(t->table().name, "dct"); });
	const bool both_have_dct = have_dct && !address_part(blob, "dct").empty();
	const std::string mine = rule(), theirs = address_part(blob, rule_part);
	// The choice between rc and dct depends on the rule; with groups the ways of all messages do, and with pretended nodes which
	// ranks share memory.
	const bool always = decides_all(mine) || decides_all(theirs);
	for (auto &transport : transports_) {
		if (transport.get() == relay_)
			continue;
		const char *name = transport->table().name;
		const std::string address = address_part(blob, name);
		const bool either = both_have_dct && !std::strcmp(name, "rc");
		if ((either || always) && mine != theirs) {
			reasons = format("rank %d has %s and this rank, %d, has %s: all ranks must have the same", rank,
			                 theirs.c_str(), environment_.job.rank(), mine.c_str());
			return nullptr;
		}
		std::string why_not = either ? why_not_rc(rank) : "";
		if (why_not.empty()) {
			why_not = "that rank does not have it";
			if (!address.empty() && transport->reaches(rank, address, why_not))
				return transport.get();
		}
		reasons += format("%s%s: %s", reasons.empty() ? "" : "; ", name, why_not.c_str());
	}
	for (const std::string &reason : not_open_)
		reasons += (reasons.empty() ? "" : "; ") + reason;
	return nullptr;
}

std::string Router::rule() const
{
	const Config &config = environment_.config;
	const auto number = [](auto value) { return static_cast<long long>(value); };
	std::string text = groups_ ? format("PT2P_ROUTE=%s and %d groups of nodes (PT2P_GROUPS, checksum %08x)",
	                                    word_of(config.route), groups_->count(), groups_sum_)
	                           : format("PT2P_RC_PEERS=%lld", number(config.rc_peers));
	// Whoever passes a message on has to be able to send it in one piece.
	if (relay_)
		text += format(", PT2P_FORWARD_WINDOW=%lld, PT2P_FORWARD_CREDITS=%lld and PT2P_SHM_RING_BYTES=%lld",
		               number(config.forward_window), number(config.forward_credits), number(config.shm_ring_bytes));
	if (config.ranks_per_node)
		text += format(", PT2P_RANKS_PER_NODE=%lld", number(config.ranks_per_node));
	return text;
}

std::string Router::why_not_rc(int rank) const
{
	const Config &config = environment_.config;
	const int me = environment_.job.rank();
	if (!groups_)
		return within_nearest(me, rank, environment_.job.size(), config.rc_peers)
		           ? ""
		           : format("not among the %lld nearest ranks (PT2P_RC_PEERS)", static_cast<long long>(config.rc_peers));
	const Dimension between = groups_->between(me, rank);
	if (between == Dimension::across)
		return "in another group (PT2P_GROUPS)";
	const bool neighbours = groups_->next_hop(me, rank) == rank || groups_->next_hop(rank, me) == me;
	if (config.route != choice::route::direct && !neighbours)
		return "messages are forwarded to it (PT2P_ROUTE)";
	return "";
}

std::string Router::why(int rank) const
{
	std::string blob, reasons;
	try {
		if (environment_.job.try_lookup(rank, blob))
			choose(rank, blob, reasons);
	} catch (const Error &) {
		// It has left; why it was reached as it was can no longer be told.
	}
	return reasons;
}

void Router::set_delivery(Channel &channel, pt2p_delivery_t delivery)
{
	Transport *transport = transport_of(channel.endpoint.direct());
	if (DeviceTransport *device = transport ? transport->as_device() : nullptr)
		device->set_delivery(channel.peer, delivery);
}

Transport *Router::transport_of(const Endpoint &endpoint) const
{
	for (auto &t : transports_)
		if (&t->table() == endpoint.table)
			return t.get();
	return nullptr;
}

} // namespace pt2p
