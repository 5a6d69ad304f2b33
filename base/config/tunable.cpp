#include "base/config/tunable.hpp"

#include <algorithm>
#include <bit>
#include <cctype>
#include <iterator>

#include "base/config/numbers.hpp"
#include "base/config/text.hpp"
#include "base/report/report.hpp"

namespace pt2p::tunables {

namespace {

const Tunable table[] = {
#define PT2P_TUNABLE(kind, field, name, dflt, minimum, maximum, unit, line, help)                                      \
	{Kind::kind, #kind, name, member_of<&Config::field>(), minimum, maximum, unit, line, help},
#include "base/config/tunables.def"
#undef PT2P_TUNABLE
};

} // namespace

std::span<const Tunable> all() { return table; }

const Tunable *find(std::string_view name)
{
	auto found = std::find_if(std::begin(table), std::end(table), [&](const Tunable &t) { return name == t.name; });
	return found == std::end(table) ? nullptr : found;
}

const Tunable &nearest(std::string_view name)
{
	// An absurdly long name need not cost a quadratic comparison.
	std::string wanted(name.substr(0, 80));
	std::transform(wanted.begin(), wanted.end(), wanted.begin(), [](unsigned char c) { return std::toupper(c); });
	return *std::min_element(std::begin(table), std::end(table), [&](const Tunable &a, const Tunable &b) {
		return distance(wanted, a.name) < distance(wanted, b.name);
	});
}

// ---- writing --------------------------------------------------------------------------------------------------------

std::string written(const Tunable &tunable, int64_t value)
{
	switch (tunable.kind) {
	case Kind::bytes:
	case Kind::bytes64: return scaled(value, byte_scales);
	case Kind::duration: return scaled(value, time_scales);
	default: return std::to_string(value);
	}
}

std::string written(const Tunable &tunable, const Config &config)
{
	switch (tunable.kind) {
	case Kind::boolean: return config.*std::get<bool Config::*>(tunable.member) ? "yes" : "no";
	case Kind::integer:
	case Kind::power:
	case Kind::duration: return written(tunable, config.*std::get<int64_t Config::*>(tunable.member));
	case Kind::bytes:
	case Kind::bytes64:
		return written(tunable, static_cast<int64_t>(config.*std::get<uint64_t Config::*>(tunable.member)));
	case Kind::choice: {
		auto list = words(tunable.unit);
		auto position = static_cast<size_t>(std::get<ChoiceMember>(tunable.member).get(config));
		return std::string(position < list.size() ? list[position] : list.front());
	}
	case Kind::text: return config.*std::get<std::string Config::*>(tunable.member);
	}
	return {};
}

std::string range_of(const Tunable &tunable)
{
	switch (tunable.kind) {
	case Kind::boolean: return "yes, no";
	case Kind::choice: {
		std::string out;
		for (auto word : words(tunable.unit))
			out += (out.empty() ? "" : ", ") + std::string(word);
		return out;
	}
	case Kind::text: return "any text";
	default: return written(tunable, tunable.minimum) + " to " + written(tunable, tunable.maximum);
	}
}

const char *rule_of(const Tunable &tunable)
{
	return tunable.kind == Kind::power ? "a power of two" : tunable.kind == Kind::bytes64 ? "a multiple of 64" : "";
}

int64_t ruled(const Tunable &tunable, int64_t value)
{
	switch (tunable.kind) {
	case Kind::power: return static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(value)));
	case Kind::bytes64: return value / 64 * 64;
	default: return value;
	}
}

std::string Source::text() const
{
	switch (origin) {
	case Origin::file: return place;
	case Origin::environment: return "the environment";
	case Origin::argument: return "the options of the call";
	case Origin::built_in: break;
	}
	return "the built-in default";
}

// ---- reading --------------------------------------------------------------------------------------------------------

namespace {

// How a value is written, for explanations of bad ones.
std::string expected(const Tunable &tunable)
{
	switch (tunable.kind) {
	case Kind::boolean: return "allowed: 0, 1, no, yes, off, on, false, true";
	case Kind::integer: return "allowed: " + range_of(tunable) + " " + tunable.unit + ", decimal";
	case Kind::power: return "allowed: " + range_of(tunable) + " " + tunable.unit + ", " + rule_of(tunable);
	case Kind::bytes: return "allowed: " + range_of(tunable) + " bytes, decimal with k, m or g";
	case Kind::bytes64: return "allowed: " + range_of(tunable) + " bytes, decimal with k, m or g, " + rule_of(tunable);
	case Kind::duration: return "allowed: " + range_of(tunable) + ", a time in ns, us, ms or s (plain: s)";
	case Kind::choice: return "allowed: " + range_of(tunable);
	case Kind::text: break;
	}
	return "allowed: any text";
}

[[noreturn]] void refuse(const Tunable &tunable, std::string_view value, const Source &source, const std::string &why)
{
	throw Error(PT2P_ERR_TUNABLE, format("%s = %s in %s: %s; %s", tunable.name, quoted(value).c_str(),
	                                     source.text().c_str(), why.c_str(), expected(tunable).c_str()));
}

int64_t number(const Tunable &tunable, std::string_view value, const Source &source)
{
	static constexpr Scale plain[] = {{"", 1}};
	int64_t result = 0;
	Number outcome = Number::malformed;
	const char *what = "not a whole number";
	switch (tunable.kind) {
	case Kind::bytes:
	case Kind::bytes64:
		outcome = parse_number(value, byte_scales, false, result);
		what = "not a number of bytes";
		break;
	case Kind::duration:
		outcome = parse_number(value, time_scales, true, result);
		what = "not a time";
		break;
	default: outcome = parse_number(value, plain, false, result); break;
	}
	if (outcome == Number::malformed)
		refuse(tunable, value, source, what);
	bool negative = value.front() == '-';
	if (outcome == Number::too_large)
		refuse(tunable, value, source, negative ? "too small" : "too large");
	if (result < tunable.minimum)
		refuse(tunable, value, source, "too small");
	if (result > tunable.maximum)
		refuse(tunable, value, source, "too large");
	// The limits keep to the rule, so what is next to a number in between does, too.
	if (const int64_t below = ruled(tunable, result); below != result)
		refuse(tunable, value, source,
		       format("not %s, as for instance %s is", rule_of(tunable), written(tunable, below).c_str()));
	return result;
}

} // namespace

void assign(Config &config, const Tunable &tunable, std::string_view raw, const Source &source)
{
	std::string_view value = trimmed(raw);
	if (tunable.kind == Kind::text) {
		config.*std::get<std::string Config::*>(tunable.member) = std::string(value);
		return;
	}
	if (value.empty())
		refuse(tunable, raw, source, "no value");
	switch (tunable.kind) {
	case Kind::boolean: {
		const std::string_view word = yes_or_no(lowered(value));
		if (word.empty())
			refuse(tunable, value, source, "neither yes nor no");
		config.*std::get<bool Config::*>(tunable.member) = word == "yes";
		return;
	}
	case Kind::choice: {
		auto list = words(tunable.unit);
		std::string word = lowered(value);
		auto found = std::find(list.begin(), list.end(), std::string_view(word));
		if (found == list.end()) // where yes and no are among them, these may be written as elsewhere
			found = std::find(list.begin(), list.end(), std::string_view(yes_or_no(word)));
		if (found == list.end())
			refuse(tunable, value, source, "not one of its words");
		std::get<ChoiceMember>(tunable.member).set(config, static_cast<int>(found - list.begin()));
		return;
	}
	case Kind::bytes:
	case Kind::bytes64:
		config.*std::get<uint64_t Config::*>(tunable.member) = static_cast<uint64_t>(number(tunable, value, source));
		return;
	default: config.*std::get<int64_t Config::*>(tunable.member) = number(tunable, value, source); return;
	}
}

} // namespace pt2p::tunables
