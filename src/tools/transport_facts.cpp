// SPDX-License-Identifier: BSD-3-Clause
#include "tools/transport_facts.hpp"

#include <exception>
#include <string_view>
#include <utility>

#include "base/config/config.hpp"
#include "base/job/job.hpp"
#include "base/report/report.hpp"
#include "transports/transport.hpp"

namespace pt2p {

namespace {

struct NoEvents : SendPacing, TransportEvents {
	NoEvents() : TransportEvents(*static_cast<SendPacing *>(this)) {}
	void on_message(int, uint8_t, uint64_t, const void *, size_t) override {}
	void on_complete(void *, pt2p_status_t, std::string_view) override {}
	void on_peer_down(int, pt2p_status_t, std::string_view) override {}
};

struct NoAddresses final : AddressBook {
	bool find_address(int, const char *, std::string &) override { return false; }
};

bool listed(std::string_view list, std::string_view name)
{
	while (!list.empty()) {
		auto comma = list.find(',');
		std::string_view word = list.substr(0, comma);
		list.remove_prefix(comma == list.npos ? list.size() : comma + 1);
		while (word.starts_with(' '))
			word.remove_prefix(1);
		while (word.ends_with(' '))
			word.remove_suffix(1);
		if (word == name || word == "all")
			return true;
	}
	return false;
}

} // namespace

std::vector<TransportFact> transport_facts(const Config &config, const Topology &topology)
{
	std::vector<TransportFact> facts;
	for (auto table = transport_tables; *table != nullptr; ++table) {
		TransportFact fact;
		fact.name = (*table)->name;
		fact.chosen = listed(config.transports, fact.name);
		static const std::pair<Capability, const char *> names[] = {
		    {cap_send, "send"}, {cap_get, "get"}, {cap_put, "put"}, {cap_wake, "wake"}, {cap_atomic, "atomic"}};
		for (auto [bit, name] : names)
			if ((*table)->capabilities & bit)
				fact.capabilities += (fact.capabilities.empty() ? "" : ", ") + std::string(name);
		// Not what this host would pretend, but what it can.
		Config truth = config;
		truth.ranks_per_node = 0;
		try {
			Reporter reporter;
			NoEvents events;
			NoAddresses addresses;
			auto jobs = make_inprocess_jobs(2, truth, nullptr);
			auto transport = (*table)->open({truth, topology, reporter, *jobs[0], events, addresses}, fact.why_not);
			fact.usable = transport != nullptr;
			if (transport)
				transport->leave();
			transport.reset();
		} catch (const std::exception &problem) {
			fact.why_not = problem.what();
		}
		facts.push_back(std::move(fact));
	}
	return facts;
}

} // namespace pt2p
