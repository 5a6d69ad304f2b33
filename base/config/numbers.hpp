// Numbers with units, as users write them: bytes with k, m and g, times with ns, us, ms and s.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace pt2p::tunables {

struct Scale {
	std::string_view suffix;
	int64_t factor;
};

// Largest first: scaled() takes the first that divides.
inline constexpr Scale byte_scales[] = {
    {"g", int64_t{1} << 30}, {"m", int64_t{1} << 20}, {"k", int64_t{1} << 10}, {"", 1}};
inline constexpr Scale time_scales[] = {{"s", 1000000000}, {"ms", 1000000}, {"us", 1000}, {"ns", 1}, {"", 1000000000}};

// As a user would write it.
std::string scaled(int64_t value, std::span<const Scale> scales);

enum class Number { good, malformed, too_large };

// Reads [-]digits[.digits][suffix]. A fraction is allowed only where `fractions` says so, and only when the value in
// the smallest unit is whole.
Number parse_number(std::string_view text, std::span<const Scale> scales, bool fractions, int64_t &value);

} // namespace pt2p::tunables
