// SPDX-License-Identifier: BSD-3-Clause
#include "base/config/config.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <limits>
#include <string_view>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>
#include <type_traits>
#include <variant>

#include "base/report/report.hpp"

extern char **environ;

namespace pt2p {

namespace {

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

const Tunable table[] = {
#define PT2P_TUNABLE(kind, field, name, dflt, minimum, maximum, unit, line, help)                                      \
	{Kind::kind, #kind, name, member_of<&Config::field>(), minimum, maximum, unit, line, help},
#include "base/config/tunables.def"
#undef PT2P_TUNABLE
};

constexpr size_t table_size = std::size(table);
constexpr std::string_view prefix = "PT2P_";
constexpr const char *file_variable = "PT2P_CONF";
// A configuration file above this is a mistake, such as a device or a core dump.
constexpr size_t file_limit = size_t{1} << 20;

struct Scale {
	std::string_view suffix;
	int64_t factor;
};

// Largest first: printing takes the first that divides.
constexpr Scale byte_scales[] = {{"g", int64_t{1} << 30}, {"m", int64_t{1} << 20}, {"k", int64_t{1} << 10}, {"", 1}};
constexpr Scale time_scales[] = {{"s", 1000000000}, {"ms", 1000000}, {"us", 1000}, {"ns", 1}, {"", 1000000000}};

// Text of a user's, fit for one line of an explanation.
std::string quoted(std::string_view text)
{
	constexpr size_t longest = 60;
	std::string out = "\"";
	for (char c : text.substr(0, longest)) {
		if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
			out += format("\\x%02x", static_cast<unsigned>(static_cast<unsigned char>(c)));
		else
			out += c;
	}
	return out + (text.size() > longest ? "...\"" : "\"");
}

std::string_view trimmed(std::string_view text)
{
	constexpr std::string_view blanks = " \t\r\n\v\f";
	auto first = text.find_first_not_of(blanks);
	if (first == text.npos)
		return {};
	return text.substr(first, text.find_last_not_of(blanks) - first + 1);
}

std::string lowered(std::string_view text)
{
	std::string out(text);
	std::transform(out.begin(), out.end(), out.begin(), [](unsigned char c) { return std::tolower(c); });
	return out;
}

std::vector<std::string_view> words(std::string_view list)
{
	std::vector<std::string_view> out;
	for (;;) {
		auto bar = list.find('|');
		out.push_back(list.substr(0, bar));
		if (bar == list.npos)
			return out;
		list.remove_prefix(bar + 1);
	}
}

template <size_t n> std::string scaled(int64_t value, const Scale (&scales)[n])
{
	for (const Scale &scale : scales)
		if (value != 0 && value % scale.factor == 0)
			return std::to_string(value / scale.factor) + std::string(scale.suffix);
	return "0";
}

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

// What a number in the range has to be besides; empty: nothing.
const char *rule_of(const Tunable &tunable)
{
	return tunable.kind == Kind::power ? "a power of two" : tunable.kind == Kind::bytes64 ? "a multiple of 64" : "";
}

// The largest number up to this one that keeps to the rule; `value` is at least the minimum.
int64_t ruled(const Tunable &tunable, int64_t value)
{
	switch (tunable.kind) {
	case Kind::power: return static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(value)));
	case Kind::bytes64: return value / 64 * 64;
	default: return value;
	}
}

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

enum class Number { good, malformed, too_large };

// [-]digits[.digits][suffix] in units of the suffix's factor. A fraction is taken only where `fractions` says so, and
// only when it comes out even.
template <size_t n>
Number parse_number(std::string_view text, const Scale (&scales)[n], bool fractions, int64_t &value)
{
	bool negative = !text.empty() && text.front() == '-';
	if (!text.empty() && (text.front() == '-' || text.front() == '+'))
		text.remove_prefix(1);
	auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
	auto whole_end = std::find_if_not(text.begin(), text.end(), is_digit);
	std::string_view whole = text.substr(0, static_cast<size_t>(whole_end - text.begin()));
	text.remove_prefix(whole.size());
	std::string_view fraction;
	if (!text.empty() && text.front() == '.') {
		if (!fractions)
			return Number::malformed;
		text.remove_prefix(1);
		auto end = std::find_if_not(text.begin(), text.end(), is_digit);
		fraction = text.substr(0, static_cast<size_t>(end - text.begin()));
		if (fraction.empty())
			return Number::malformed;
		text.remove_prefix(fraction.size());
	}
	if (whole.empty())
		return Number::malformed;
	std::string suffix = lowered(trimmed(text));
	auto scale = std::find_if(std::begin(scales), std::end(scales), [&](const Scale &s) { return s.suffix == suffix; });
	if (scale == std::end(scales))
		return Number::malformed;

	constexpr int64_t largest = std::numeric_limits<int64_t>::max();
	int64_t total = 0;
	for (char c : whole) {
		int64_t digit = c - '0';
		if (total > (largest - digit) / 10)
			return Number::too_large;
		total = total * 10 + digit;
	}
	if (total > largest / scale->factor)
		return Number::too_large;
	total *= scale->factor;
	int64_t place = scale->factor;
	for (char c : fraction) {
		if (c != '0' && place % 10 != 0)
			return Number::malformed;
		place /= 10;
		int64_t part = place * (c - '0');
		if (total > largest - part)
			return Number::too_large;
		total += part;
	}
	value = negative ? -total : total;
	return Number::good;
}

// Where one value stands, for explanations and pt2p_info.
struct Source {
	Origin origin;
	std::string place; // "FILE:LINE" of a file

	std::string text() const
	{
		switch (origin) {
		case Origin::file: return place;
		case Origin::environment: return "the environment";
		case Origin::argument: return "the options of the call";
		case Origin::built_in: break;
		}
		return "the built-in default";
	}
};

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
		refuse(tunable, value, source, format("not %s, as for instance %s is", rule_of(tunable), written(tunable, below).c_str()));
	return result;
}

// "yes" or "no" for any way of writing that; empty for another word.
std::string_view yes_or_no(const std::string &word)
{
	if (word == "1" || word == "yes" || word == "on" || word == "true")
		return "yes";
	return word == "0" || word == "no" || word == "off" || word == "false" ? "no" : "";
}

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

const Tunable *find(std::string_view name)
{
	auto found = std::find_if(std::begin(table), std::end(table), [&](const Tunable &t) { return name == t.name; });
	return found == std::end(table) ? nullptr : found;
}

// Edits (insert, delete, replace, swap of neighbours) that turn one word into the other.
size_t distance(std::string_view a, std::string_view b)
{
	std::vector<size_t> before(b.size() + 1), last(b.size() + 1), now(b.size() + 1);
	for (size_t j = 0; j <= b.size(); ++j)
		last[j] = j;
	for (size_t i = 1; i <= a.size(); ++i) {
		now[0] = i;
		for (size_t j = 1; j <= b.size(); ++j) {
			now[j] = std::min({last[j] + 1, now[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1])});
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
				now[j] = std::min(now[j], before[j - 2] + 1);
		}
		before.swap(last);
		last.swap(now);
	}
	return last[b.size()];
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

[[noreturn]] void refuse_name(std::string_view name, const Source &source)
{
	if (name == file_variable)
		throw Error(PT2P_ERR_TUNABLE, format("%s in %s: it names the configuration file and counts in the environment "
		                                     "only", file_variable, source.text().c_str()));
	throw Error(PT2P_ERR_TUNABLE, format("%s in %s is not the name of a tunable; did you mean %s?",
	                                     quoted(name).c_str(), source.text().c_str(), nearest(name).name));
}

struct File {
	std::string path;
	std::string text;
};

[[noreturn]] void refuse_file(const std::string &path, bool named, const std::string &why)
{
	throw Error(PT2P_ERR_TUNABLE, format("configuration file %s%s: %s", quoted(path).c_str(),
	                                     named ? ", named by PT2P_CONF" : "", why.c_str()));
}

// False when there is no such file and nobody asked for it by name.
bool read_file(const std::string &path, bool named, File &file)
{
	struct stat status;
	if (stat(path.c_str(), &status) != 0) {
		if (named)
			refuse_file(path, named, "cannot be read, " + errno_text(errno));
		return false;
	}
	// A pipe could block for ever; one that was asked for by name is the user's own wish.
	if (!named && !S_ISREG(status.st_mode))
		refuse_file(path, named, "not a regular file");
	int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		refuse_file(path, named, "cannot be read, " + errno_text(errno));
	file.path = path;
	file.text.clear();
	std::array<char, 4096> piece;
	ssize_t n = 0;
	int error = 0;
	for (;;) {
		n = read(fd, piece.data(), piece.size());
		if (n < 0 && errno == EINTR)
			continue;
		error = n < 0 ? errno : 0;
		if (n <= 0 || file.text.size() > file_limit)
			break;
		file.text.append(piece.data(), static_cast<size_t>(n));
	}
	close(fd);
	if (error != 0)
		refuse_file(path, named, "cannot be read, " + errno_text(error));
	if (file.text.size() > file_limit)
		refuse_file(path, named, "longer than 1 MiB");
	return true;
}

bool find_file(File &file)
{
	if (const char *named = environment(file_variable)) {
		if (*named == '\0')
			throw Error(PT2P_ERR_TUNABLE, "PT2P_CONF is empty; it names the configuration file, /dev/null for none");
		return read_file(named, true, file);
	}
	if (read_file("./pt2p.conf", false, file))
		return true;
	const char *home = environment("HOME");
	if (home != nullptr && *home != '\0' && read_file(std::string(home) + "/.pt2p.conf", false, file))
		return true;
	return read_file("/etc/pt2p.conf", false, file);
}

class Loader {
public:
	Loader()
	{
		sources_.fill(Source{Origin::built_in, {}});
	}

	void take_file()
	{
		File file;
		if (!find_file(file))
			return;
		std::array<size_t, table_size> seen{};
		std::string_view rest = file.text;
		for (size_t number = 1; !rest.empty(); ++number) {
			auto end = rest.find('\n');
			std::string_view line = rest.substr(0, end);
			rest.remove_prefix(end == rest.npos ? rest.size() : end + 1);
			take_line(line, Source{Origin::file, file.path + ":" + std::to_string(number)}, number, seen);
		}
	}

	void take_environment()
	{
		if (environ == nullptr)
			return;
		std::array<bool, table_size> seen{};
		for (char **entry = environ; *entry != nullptr; ++entry) {
			std::string_view text = *entry;
			auto equals = text.find('=');
			std::string_view name = text.substr(0, equals);
			if (!name.starts_with(prefix) || name == file_variable)
				continue;
			Source source{Origin::environment, {}};
			const Tunable *tunable = find(name);
			if (tunable == nullptr)
				refuse_name(name, source);
			// As getenv does: the first of several counts.
			if (std::exchange(seen[position(tunable)], true))
				continue;
			take(*tunable, equals == text.npos ? std::string_view{} : text.substr(equals + 1), source);
		}
	}

	void take_overrides(const char *const *overrides)
	{
		for (; overrides != nullptr && *overrides != nullptr; ++overrides) {
			Source source{Origin::argument, {}};
			std::string_view text = *overrides;
			auto equals = text.find('=');
			if (equals == text.npos)
				throw Error(PT2P_ERR_TUNABLE, format("%s in %s: expected PT2P_NAME=value", quoted(text).c_str(),
				                                     source.text().c_str()));
			std::string_view name = trimmed(text.substr(0, equals));
			const Tunable *tunable = find(name);
			if (tunable == nullptr)
				refuse_name(name, source);
			take(*tunable, text.substr(equals + 1), source);
		}
	}

	// What no tunable shows by itself.
	void check() const
	{
		if (config_.tune != choice::tune::off && config_.tune_cut_above < config_.tune_raise_below)
			contradiction("PT2P_TUNE_CUT_ABOVE", "PT2P_TUNE_RAISE_BELOW", config_.tune_raise_below,
			              "the first may not be below the second, or one latency would let the signal period grow and halve it");
		if (config_.net_ring_slot_bytes > config_.net_message_bytes)
			contradiction("PT2P_NET_RING_SLOT_BYTES", "PT2P_NET_MESSAGE_BYTES", static_cast<int64_t>(config_.net_message_bytes),
			              "the first may not be above the second, as what a slot holds comes from a network buffer");
	}

	ParsedConfig result() const
	{
		ParsedConfig parsed{config_, {}};
		const Config standard;
		for (size_t i = 0; i < table_size; ++i) {
			const Tunable &t = table[i];
			const Source &source = sources_[i];
			parsed.tunables.push_back({t.name, t.kind_name, t.unit, written(t, config_), written(t, standard),
			                           range_of(t), rule_of(t), source.origin, source.place, t.line, t.help});
		}
		return parsed;
	}

private:
	static size_t position(const Tunable *tunable) { return static_cast<size_t>(tunable - table); }

	// `bound`: what the first may be at most, or at least.
	[[noreturn]] void contradiction(const char *first, const char *second, int64_t bound, const char *why) const
	{
		const auto text = [this](const Tunable *t) {
			return format("%s = %s in %s", t->name, written(*t, config_).c_str(), sources_[position(t)].text().c_str());
		};
		const Tunable *a = find(first), *b = find(second);
		throw Error(PT2P_ERR_TUNABLE, format("%s and %s: %s; %s=%s would do", text(a).c_str(), text(b).c_str(), why, a->name,
		                                     written(*a, ruled(*a, bound)).c_str()));
	}

	void take(const Tunable &tunable, std::string_view value, const Source &source)
	{
		assign(config_, tunable, value, source);
		sources_[position(&tunable)] = source;
	}

	void take_line(std::string_view line, const Source &source, size_t number, std::array<size_t, table_size> &seen)
	{
		line = trimmed(line);
		// A comment starts the line or follows a blank: a value may hold the sign.
		for (size_t at = line.find('#'); at != line.npos; at = line.find('#', at + 1))
			if (at == 0 || line[at - 1] == ' ' || line[at - 1] == '\t') {
				line = trimmed(line.substr(0, at));
				break;
			}
		if (line.empty())
			return;
		auto equals = line.find('=');
		if (equals == line.npos || line.find('\0') != line.npos)
			throw Error(PT2P_ERR_TUNABLE, format("%s: expected PT2P_NAME = value, a comment after # or an empty line, "
			                                     "found %s", source.text().c_str(), quoted(line).c_str()));
		std::string_view name = trimmed(line.substr(0, equals));
		const Tunable *tunable = find(name);
		if (tunable == nullptr)
			refuse_name(name, source);
		size_t &first = seen[position(tunable)];
		if (first != 0)
			throw Error(PT2P_ERR_TUNABLE, format("%s: %s has already been set in line %zu", source.text().c_str(),
			                                     tunable->name, first));
		first = number;
		take(*tunable, line.substr(equals + 1), source);
	}

	Config config_;
	std::array<Source, table_size> sources_;
};

} // namespace

ParsedConfig load_config(const char *const *overrides)
{
	Loader loader;
	loader.take_file();
	loader.take_environment();
	loader.take_overrides(overrides);
	loader.check();
	return loader.result();
}

std::vector<TunableInfo> standard_tunables()
{
	return Loader().result().tunables;
}

const char *nearest_tunable(std::string_view name)
{
	return nearest(name).name;
}

const char *environment(const char *name)
{
	return std::getenv(name);
}

} // namespace pt2p
