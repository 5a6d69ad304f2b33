// Tunables: declared once in tunables.def, parsed from overrides, environment, pt2p.conf and defaults, in that order.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/config/choices.hpp"

namespace pt2p {

struct Config {
// The type of a field, by its kind.
#define PT2P_TYPE_boolean(field) bool
#define PT2P_TYPE_integer(field) int64_t
#define PT2P_TYPE_power(field) int64_t
#define PT2P_TYPE_bytes(field) uint64_t
#define PT2P_TYPE_bytes64(field) uint64_t
#define PT2P_TYPE_duration(field) int64_t /* nanoseconds */
#define PT2P_TYPE_choice(field) choice::field
#define PT2P_TYPE_text(field) std::string
#define PT2P_TUNABLE(kind, field, name, dflt, minimum, maximum, unit, line, help)                                      \
	PT2P_TYPE_##kind(field) field = static_cast<PT2P_TYPE_##kind(field)>(dflt);
#include "base/config/tunables.def"
#undef PT2P_TUNABLE
#undef PT2P_TYPE_boolean
#undef PT2P_TYPE_integer
#undef PT2P_TYPE_power
#undef PT2P_TYPE_bytes
#undef PT2P_TYPE_bytes64
#undef PT2P_TYPE_duration
#undef PT2P_TYPE_choice
#undef PT2P_TYPE_text
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
	std::string place; // file and line for Origin::file
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
