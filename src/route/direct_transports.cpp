#include "route/direct_transports.hpp"

#include <algorithm>
#include <cstring>

#include "base/config/config.hpp"
#include "base/job/job.hpp"
#include "base/report/report.hpp"
#include "route/policy.hpp"

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

// The part of a rank's blob that holds its rule.
constexpr const char *rule_part = "rule";

} // namespace

DirectTransports::DirectTransports(const Config &config, const Topology &topology, Reporter &reporter, Job &job,
                                   TransportEvents &engine, const RoutePolicy &policy)
    : environment_{config, topology, reporter, job, engine, *this}, policy_(policy)
{
	check_list(config.transports);
}

void DirectTransports::open(TransportEvents &events)
{
	const TransportEnvironment &above = environment_;
	const TransportEnvironment environment{above.config, above.topology, above.reporter, above.job,
	                                       events,       *this,          above.device};
	for (size_t i = 0; transport_tables[i]; ++i) {
		const TransportTable &table = *transport_tables[i];
		check_table(table);
		std::string why_not = "not in PT2P_TRANSPORTS";
		std::unique_ptr<Transport> transport;
		if (listed(above.config.transports, table.name)) {
			if (table.longest_message)
				max_message_ = std::min(max_message_, table.longest_message(above.config));
			transport = table.open(environment, why_not);
		}
		if (!transport) {
			not_open_.push_back(std::string(table.name) + ": " + why_not);
			continue;
		}
		if (DeviceTransport *device = transport->as_device())
			device_transports_.push_back(device);
		transports_.push_back(std::move(transport));
	}
}

void DirectTransports::publish()
{
	std::string blob;
	for (auto &transport : transports_)
		add_address_part(blob, transport->table().name, transport->address());
	add_address_part(blob, rule_part, policy_.rule());
	add_secret(blob, environment_.job.secret());
	environment_.job.publish(blob);
}

Transport *DirectTransports::choose(int rank, const std::string &blob, std::string &reasons,
                                    bool keep_few_connections) const
{
	const bool have_dct = std::any_of(transports_.begin(), transports_.end(),
	                                  [](const auto &t) { return !std::strcmp(t->table().name, "dct"); });
	const bool both_have_dct = have_dct && !address_part(blob, "dct").empty();
	const std::string mine = policy_.rule(), theirs = address_part(blob, rule_part);
	// The choice between rc and dct depends on the rule. With groups all choices do, and with pretended nodes the
	// choice of shm.
	const bool always = decides_all(mine) || decides_all(theirs);
	for (auto &transport : transports_) {
		if (transport->table().capabilities & cap_lossy)
			continue;
		const char *name = transport->table().name;
		const std::string address = address_part(blob, name);
		const bool either = both_have_dct && !std::strcmp(name, "rc");
		if ((either || always) && mine != theirs) {
			reasons = format("rank %d has %s and this rank, %d, has %s: all ranks must have the same", rank,
			                 theirs.c_str(), environment_.job.rank(), mine.c_str());
			return nullptr;
		}
		std::string why_not = either ? policy_.why_not_rc(rank, keep_few_connections) : "";
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

Transport *DirectTransports::choose_datagrams(int rank, const std::string &blob) const
{
	std::string reasons;
	Transport *usual = choose(rank, blob, reasons);
	if (!usual || !usual->as_device())
		return nullptr;
	for (auto &transport : transports_) {
		const std::string address = address_part(blob, transport->table().name);
		if (transport->table().capabilities & cap_lossy && !address.empty() &&
		    transport->reaches(rank, address, reasons))
			return transport.get();
	}
	return nullptr;
}

Endpoint *DirectTransports::try_connect(int rank, bool keep_few_connections)
{
	std::string blob, reasons;
	if (!environment_.job.try_lookup(rank, blob))
		return nullptr;
	Transport *transport = choose(rank, blob, reasons, keep_few_connections);
	if (!transport)
		throw Error(PT2P_ERR_UNREACHABLE, reasons);
	return &transport->connect(rank, address_part(blob, transport->table().name));
}

bool DirectTransports::find_address(int rank, const char *transport, std::string &address)
{
	std::string blob;
	if (!environment_.job.try_lookup(rank, blob))
		return false;
	address = address_part(blob, transport);
	return true;
}

} // namespace pt2p
