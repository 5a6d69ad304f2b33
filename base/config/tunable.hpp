// One tunable of tunables.def: how its value is read from text, checked, stored in a Config, and written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>

#include "base/config/config.hpp"

namespace pt2p::tunables {

enum class Kind { boolean, integer, power, bytes, bytes64, duration, choice, text };

// A field whose type is an enumeration of its own.
struct ChoiceMember {
	int (*get)(const Config &);
	void (*set)(Config &, int);
};

using Member = std::variant<bool Config::*, int64_t Config::*, uint64_t Config::*, ChoiceMember, std::string Config::*>;

template <auto member>
Member member_of()
{
	using Field = std::remove_cvref_t<decltype(std::declval<Config &>().*member)>;
	if constexpr (std::is_enum_v<Field>)
		return ChoiceMember{[](const Config &config) { return static_cast<int>(config.*member); },
		                    [](Config &config, int value) { config.*member = static_cast<Field>(value); }};
	else
		return member;
}

struct Tunable {
	Kind kind;
	const char *kind_name;
	const char *name;
	Member member;
	int64_t minimum, maximum;
	const char *unit, *line, *help;
};

constexpr size_t table_size = 0
#define PT2P_TUNABLE(...) +1
#include "base/config/tunables.def"
#undef PT2P_TUNABLE
    ;

// All of them, in the order of tunables.def.
std::span<const Tunable> all();
// Null: there is none of that name.
const Tunable *find(std::string_view name);
// The one whose name takes the fewest edits to get to from `name`.
const Tunable &nearest(std::string_view name);

// Where a value comes from, for explanations and pt2p_info.
struct Source {
	Origin origin;
	std::string place; // "FILE:LINE" of a file

	std::string text() const;
};

// Stores a value that a user has written. Throws Error(PT2P_ERR_TUNABLE).
void assign(Config &config, const Tunable &tunable, std::string_view value, const Source &source);

// The value in a configuration, or another one, as a user would write it.
std::string written(const Tunable &tunable, const Config &config);
std::string written(const Tunable &tunable, int64_t value);
// "8 to 4096", "memfd, devshm", ...
std::string range_of(const Tunable &tunable);
// What a number in the range has to be besides; empty: nothing.
const char *rule_of(const Tunable &tunable);
// The largest number up to this one that keeps to the rule; `value` is at least the minimum.
int64_t ruled(const Tunable &tunable, int64_t value);

} // namespace pt2p::tunables
