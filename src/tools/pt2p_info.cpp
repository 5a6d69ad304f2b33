// SPDX-License-Identifier: BSD-3-Clause
// pt2p_info: what this build of libpt2p is, what it finds on this host, and how it is set.
#ifdef HAVE_CONFIG_H
#include <config.h>
#endif

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <string>
#include <string_view>
#include <sys/utsname.h>
#include <utility>
#include <vector>

#include <pt2p.h>

#include "base/config/config.hpp"
#include "base/job/topology.hpp"
#include "base/report/report.hpp"
#include "tools/advise.hpp"
#include "tools/json.hpp"
#include "tools/rdma_devices.hpp"
#include "tools/system_facts.hpp"
#include "tools/transport_facts.hpp"

#ifndef PT2P_BUILD_FLAGS
#define PT2P_BUILD_FLAGS "unknown"
#endif

namespace {

using namespace pt2p;

const char usage_text[] =
    "usage: pt2p_info [--json] [SECTION ...]\n"
    "\n"
    "Shows what libpt2p is, what it finds on this host and how it is set.\n"
    "Without a section: a page of everything, with the tunables that differ from their defaults.\n"
    "\n"
    "  --config [NAME ...]  all tunables with value, default, origin, range and unit, or the long help of some\n"
    "  --topology           the host: sockets, NUMA nodes, caches, cores\n"
    "  --transports         the transports, and why each is or is not usable; what they depend on\n"
    "  --devices            RDMA devices, with the limits that matter here, and what is set for libmlx5\n"
    "  --build              compiler and flags of this build\n"
    "  --counters           what pt2p_counter_read counts\n"
    "  --advise WORD ...    which way of calling is the quickest for a load, such as m=28 s=16 bytes=365 "
    "device=connectx5;\n"
    "                       pt2p_info(1) tells the words\n"
    "  --version            version of the library\n"
    "  --json               as one JSON object; without a section, all of them\n"
    "  --help               this text\n"
    "\n"
    "Exit status: 0; 1 when the configuration is invalid or the host cannot be examined; 2 for a wrong option.\n";

struct Request {
	bool json = false, config = false, topology = false, transports = false, devices = false, build = false;
	bool counters = false, version = false, help = false, advise = false;
	std::vector<std::string> names; // of --config
	std::vector<std::string> load;  // of --advise
	bool everything() const
	{
		return !config && !topology && !transports && !devices && !build && !counters && !version;
	}
};

std::vector<Fact> build_facts()
{
#if defined(__clang__)
	const char *compiler = "clang " __clang_version__;
#elif defined(__GNUC__)
	const char *compiler = "gcc " __VERSION__;
#else
	const char *compiler = "unknown";
#endif
#if defined(HAVE_VERBS) && HAVE_VERBS
	const char *verbs = "yes";
#else
	const char *verbs = "no";
#endif
	return {{"compiler", "compiler", compiler},
	        {"flags", "flags", PT2P_BUILD_FLAGS},
	        {"language", "language", format("C++%ld", __cplusplus / 100 % 100)},
	        {"verbs", "verbs (rdma-core)", verbs}};
}

std::vector<Fact> topology_facts(const Topology &t)
{
	auto or_several = [](int value) { return value < 0 ? std::string("several") : std::to_string(value); };
	auto cache = [](size_t bytes) { return bytes == 0 ? std::string("none") : bytes_text(bytes); };
	std::string list;
	for (int cpu : t.cpu_list)
		list += (list.empty() ? "" : ",") + std::to_string(cpu);
	utsname system{};
	uname(&system);
	return {{"host", "host", t.host},
	        {"system", "system", format("%s %s %s", system.sysname, system.release, system.machine)},
	        {"node", "node identity", t.node_id},
	        {"sockets", "sockets", std::to_string(t.sockets)},
	        {"numa_nodes", "NUMA nodes", std::to_string(t.numa_nodes)},
	        {"cores", "cores", std::to_string(t.cores)},
	        {"host_cpus", "logical CPUs", std::to_string(t.host_cpus)},
	        {"cpus", "of them usable here", std::to_string(t.cpus)},
	        {"cpu_list", "their numbers", list},
	        {"core", "bound to core", or_several(t.core)},
	        {"socket", "on socket", or_several(t.socket)},
	        {"numa_node", "on NUMA node", or_several(t.numa_node)},
	        {"l1d", "L1 data cache", cache(t.l1d)},
	        {"l2", "L2 cache", cache(t.l2)},
	        {"l3", "L3 cache", cache(t.l3)}};
}

std::string origin_text(const TunableInfo &tunable)
{
	switch (tunable.origin) {
	case Origin::file: return tunable.place;
	case Origin::environment: return "environment";
	case Origin::argument: return "argument";
	case Origin::built_in: break;
	}
	return "default";
}

// The unit column: for choices the words already stand in the range.
std::string unit_text(const TunableInfo &tunable)
{
	if (strcmp(tunable.kind, "choice") == 0)
		return "";
	return std::string(tunable.unit) + (*tunable.rule ? ", " : "") + tunable.rule;
}

void print_table(const std::vector<std::vector<std::string>> &rows, const char *margin)
{
	std::vector<size_t> widths;
	for (const auto &row : rows)
		for (size_t i = 0; i < row.size(); ++i) {
			widths.resize(std::max(widths.size(), i + 1));
			widths[i] = std::max(widths[i], row[i].size());
		}
	for (const auto &row : rows) {
		std::string line = margin;
		for (size_t i = 0; i < row.size(); ++i) {
			line += row[i];
			if (i + 1 < row.size())
				line.append(widths[i] + 2 - row[i].size(), ' ');
		}
		puts(line.c_str());
	}
}

void print_tunables(const std::vector<TunableInfo> &tunables)
{
	std::vector<std::vector<std::string>> rows{{"NAME", "VALUE", "DEFAULT", "FROM", "RANGE", "UNIT", "WHAT"}};
	for (const TunableInfo &t : tunables)
		rows.push_back({t.name, t.value, t.standard, origin_text(t), t.range, unit_text(t), t.line});
	print_table(rows, "");
}

void print_changed(const std::vector<TunableInfo> &tunables)
{
	std::vector<std::vector<std::string>> rows;
	for (const TunableInfo &t : tunables)
		if (t.value != t.standard)
			rows.push_back({t.name, "= " + t.value, "(default " + t.standard + ", from " + origin_text(t) + ")"});
	puts("tunables that differ from their defaults");
	if (rows.empty())
		puts("  none; pt2p_info --config lists all");
	print_table(rows, "  ");
}

void print_help(const TunableInfo &t)
{
	printf("%s: %s\n", t.name, t.line);
	print_text(t.help);
	std::string unit = unit_text(t);
	std::string from = t.origin == Origin::built_in ? "" : " (from " + origin_text(t) + ")";
	printf("    value    %s%s\n    default  %s\n    allowed  %s%s%s\n", t.value.c_str(), from.c_str(),
	       t.standard.c_str(), t.range.c_str(), unit.empty() ? "" : ", ", unit.c_str());
}

void print_transports(const std::vector<TransportFact> &transports)
{
	puts("transports");
	for (const TransportFact &t : transports) {
		std::string text = t.usable ? "usable (" + t.capabilities + ")" : "not usable: " + t.why_not;
		if (!t.chosen)
			text += "; left out by PT2P_TRANSPORTS";
		printf("  %-26s %s\n", t.name.c_str(), text.c_str());
	}
}

void print_counters()
{
	puts("counters");
	for (int i = 0; i < pt2p_counter_count(); ++i)
		printf("  %-26s %s\n", pt2p_counter_name(i), pt2p_counter_help(i));
}

void write_tunables(Json &json, const std::vector<TunableInfo> &tunables)
{
	json.open("config", '[');
	for (const TunableInfo &t : tunables) {
		json.open(nullptr, '{');
		json.add("name", t.name);
		json.add("kind", t.kind);
		json.add("value", t.value);
		json.add("default", t.standard);
		json.add("origin", t.origin == Origin::file ? "file" : origin_text(t));
		if (t.origin == Origin::file)
			json.add("place", t.place);
		json.add("range", t.range);
		json.add("unit", unit_text(t));
		json.add("line", t.line);
		json.add("help", t.help);
		json.close('}');
	}
	json.close(']');
}

void write_transports(Json &json, const std::vector<TransportFact> &transports)
{
	json.open("transports", '[');
	for (const TransportFact &t : transports) {
		json.open(nullptr, '{');
		json.add("name", t.name);
		json.add("usable", t.usable);
		json.add("chosen", t.chosen);
		json.add("why_not", t.why_not);
		json.add("capabilities", t.capabilities);
		json.close('}');
	}
	json.close(']');
}

void write_counters(Json &json)
{
	json.open("counters", '[');
	for (int i = 0; i < pt2p_counter_count(); ++i) {
		json.open(nullptr, '{');
		json.add("name", pt2p_counter_name(i));
		json.add("help", pt2p_counter_help(i));
		json.close('}');
	}
	json.close(']');
}

// Keeps only the tunables that were asked for; false when one is unknown.
bool select(std::vector<TunableInfo> &tunables, const std::vector<std::string> &names)
{
	if (names.empty())
		return true;
	std::vector<TunableInfo> chosen;
	for (const std::string &name : names) {
		auto found = std::find_if(tunables.begin(), tunables.end(),
		                          [&](const TunableInfo &t) { return t.name == name || t.name == "PT2P_" + name; });
		if (found == tunables.end()) {
			fprintf(stderr, "pt2p_info: %s is not the name of a tunable; did you mean %s?\n", name.c_str(),
			        nearest_tunable(name));
			return false;
		}
		chosen.push_back(*found);
	}
	tunables = std::move(chosen);
	return true;
}

bool parse(int count, char **arguments, Request &request)
{
	for (int i = 1; i < count; ++i) {
		std::string_view word = arguments[i];
		if (word == "--json")
			request.json = true;
		else if (word == "--topology")
			request.topology = true;
		else if (word == "--transports")
			request.transports = true;
		else if (word == "--devices")
			request.devices = true;
		else if (word == "--build")
			request.build = true;
		else if (word == "--counters")
			request.counters = true;
		else if (word == "--version")
			request.version = true;
		else if (word == "--help")
			request.help = true;
		else if (word == "--advise") {
			request.advise = true;
			while (i + 1 < count && arguments[i + 1][0] != '-')
				request.load.emplace_back(arguments[++i]);
		} else if (word == "--config") {
			request.config = true;
			while (i + 1 < count && arguments[i + 1][0] != '-')
				request.names.emplace_back(arguments[++i]);
		} else if (word.starts_with("--config=")) {
			request.config = true;
			request.names.emplace_back(word.substr(sizeof "--config=" - 1));
		} else {
			fprintf(stderr, "pt2p_info: unknown option %s\n\n%s", arguments[i], usage_text);
			return false;
		}
	}
	return true;
}

// All that can be shown, as far as it is asked for.
struct Found {
	ParsedConfig parsed;
	std::vector<Fact> system;
	Topology topology;
	std::vector<TransportFact> transports;
	RdmaDevices devices;
};

Found find(const Request &request, ParsedConfig parsed)
{
	const bool all = request.everything();
	Found found{std::move(parsed), {}, {}, {}, {}};
	// Forks, and so comes before anything that may start threads.
	if (all || request.transports)
		found.system = system_facts();
	if (all || request.topology || request.transports)
		found.topology = read_topology();
	if (all || request.transports)
		found.transports = transport_facts(found.parsed.config, found.topology);
	if (all || request.devices)
		found.devices = read_rdma_devices();
	return found;
}

void show_json(const Request &request, const Found &found)
{
	const bool all = request.everything();
	Json json;
	json.open(nullptr, '{');
	json.add("version", pt2p_version());
	if (all || request.build)
		write_facts(json, "build", build_facts());
	if (all || request.topology)
		write_facts(json, "topology", topology_facts(found.topology));
	if (all || request.transports) {
		write_transports(json, found.transports);
		write_facts(json, "system", found.system);
	}
	if (all || request.devices)
		write_rdma_devices(json, found.devices);
	if (all || request.config)
		write_tunables(json, found.parsed.tunables);
	if (all || request.counters)
		write_counters(json);
	json.close('}');
	puts(json.text().c_str());
}

void show_tunables(const Request &request, const Found &found)
{
	if (request.names.empty())
		print_tunables(found.parsed.tunables);
	for (size_t i = 0; i < request.names.size(); ++i) {
		if (i > 0)
			puts("");
		print_help(found.parsed.tunables[i]);
	}
}

void show_text(const Request &request, const Found &found)
{
	const bool all = request.everything();
	const char *gap = "";
	auto section = [&] {
		fputs(gap, stdout);
		gap = "\n";
	};
	if (all || request.version) {
		section();
		printf("libpt2p %s\n", pt2p_version());
	}
	if (all || request.build) {
		section();
		print_facts("build", build_facts());
	}
	if (all || request.topology) {
		section();
		print_facts("topology", topology_facts(found.topology));
		printf("\n%s%s", found.topology.text.c_str(), found.topology.text.ends_with('\n') ? "" : "\n");
	}
	if (all || request.transports) {
		section();
		print_transports(found.transports);
		section();
		print_facts("what they depend on", found.system);
	}
	if (all || request.devices) {
		section();
		print_rdma_devices(found.devices);
	}
	if (request.counters) {
		section();
		print_counters();
	}
	if (all) {
		section();
		print_changed(found.parsed.tunables);
	} else if (request.config) {
		section();
		show_tunables(request, found);
	}
}

int show(const Request &request)
{
	int result = 0;
	ParsedConfig parsed;
	try {
		parsed = load_config(nullptr);
	} catch (const Error &error) {
		fprintf(stderr, "pt2p_info: %s: %s\n", pt2p_strerror(error.status()), error.what());
		// The table is what helps to repair it.
		if (!request.config)
			return 1;
		fputs("pt2p_info: the built-in defaults are shown instead\n", stderr);
		parsed.tunables = standard_tunables();
		result = 1;
	}
	if (!select(parsed.tunables, request.names))
		return 2;
	const Found found = find(request, std::move(parsed));
	if (request.json)
		show_json(request, found);
	else
		show_text(request, found);
	return result;
}

} // namespace

int main(int count, char **arguments)
{
	Request request;
	if (!parse(count, arguments, request))
		return 2;
	if (request.help) {
		fputs(usage_text, stdout);
		return 0;
	}
	try {
		int result = request.advise ? advise(request.load, request.json) : show(request);
		if (fflush(stdout) != 0 && result == 0) {
			fprintf(stderr, "pt2p_info: cannot write: %s\n", errno_text(errno).c_str());
			result = 1;
		}
		return result;
	} catch (const std::exception &problem) {
		fprintf(stderr, "pt2p_info: %s\n", problem.what());
		return 1;
	}
}
