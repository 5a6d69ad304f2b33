// Tunables: declared once in tunables.def, parsed from overrides, environment, pt2p.conf and defaults, in that order.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace pt2p {

namespace tunable_type {
using boolean = bool;
using integer = int64_t;
using power = int64_t;
using bytes = uint64_t;
using bytes64 = uint64_t;
using duration = int64_t; // nanoseconds
using choice = int;
using text = std::string;
} // namespace tunable_type

struct Config {
#define PT2P_TUNABLE(kind, field, name, dflt, minimum, maximum, unit, line, help) tunable_type::kind field = dflt;
#include "base/config/tunables.def"
#undef PT2P_TUNABLE
};

// Where a tunable's value came from.
enum class Origin { built_in, file, environment, argument };

// One tunable as pt2p_info and the man page show it.
struct TunableInfo {
	const char *name;
	const char *kind;
	const char *unit;
	std::string value;    // in force
	std::string standard; // built-in default, written as a user would write it
	std::string range;    // "8 to 4096", "memfd, devshm", ...
	const char *rule;     // "a power of two", ... or empty
	Origin origin;
	std::string place;    // file and line for Origin::file
	const char *line;
	const char *help;
};

struct ParsedConfig {
	Config config;
	std::vector<TunableInfo> tunables; // in the order of tunables.def
};

// Reads the configuration. `overrides` is a null-ended list of "PT2P_NAME=value" or null; the last of several for one
// name counts. The file is the one that PT2P_CONF names (in the environment only), else ./pt2p.conf, else ~/.pt2p.conf,
// else /etc/pt2p.conf; the first that exists. It holds lines PT2P_NAME = value, empty lines, and comments after #.
// Throws Error(PT2P_ERR_TUNABLE) for the first unknown name (with the nearest valid one) or bad value (with its range),
// also when a stronger source sets the same tunable; or for values that contradict each other.
ParsedConfig load_config(const char *const *overrides);

// Every tunable with its built-in default; reads nothing.
std::vector<TunableInfo> standard_tunables();

// The tunable whose name takes the fewest edits to get to from `name`.
const char *nearest_tunable(std::string_view name);

// The environment, for the few facts that are not tunables (launcher variables): the only other use of getenv.
const char *environment(const char *name);

} // namespace pt2p
