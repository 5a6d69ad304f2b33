// SPDX-License-Identifier: BSD-3-Clause
#include "base/config/config.hpp"

#include <array>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "base/config/config_file.hpp"
#include "base/config/text.hpp"
#include "base/config/tunable.hpp"
#include "base/report/report.hpp"

extern char **environ;

namespace pt2p {

namespace {

using namespace tunables;

constexpr std::string_view prefix = "PT2P_";

[[noreturn]] void refuse_name(std::string_view name, const Source &source)
{
	if (name == file_variable)
		throw Error(PT2P_ERR_TUNABLE, format("%s in %s: it names the configuration file and counts in the environment "
		                                     "only",
		                                     file_variable, source.text().c_str()));
	throw Error(PT2P_ERR_TUNABLE, format("%s in %s is not the name of a tunable; did you mean %s?",
	                                     quoted(name).c_str(), source.text().c_str(), nearest(name).name));
}

class Loader {
public:
	Loader() { sources_.fill(Source{Origin::built_in, {}}); }

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
				throw Error(PT2P_ERR_TUNABLE,
				            format("%s in %s: expected PT2P_NAME=value", quoted(text).c_str(), source.text().c_str()));
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
			              "the first may not be below the second, or one latency would let the window grow and shrink");
		if (config_.net_ring_slot_bytes > config_.net_message_bytes)
			contradiction("PT2P_NET_RING_SLOT_BYTES", "PT2P_NET_MESSAGE_BYTES",
			              static_cast<int64_t>(config_.net_message_bytes),
			              "the first may not be above the second, as what a slot holds comes from a network buffer");
	}

	ParsedConfig result() const
	{
		ParsedConfig parsed{config_, {}};
		const Config standard;
		for (size_t i = 0; i < table_size; ++i) {
			const Tunable &t = all()[i];
			const Source &source = sources_[i];
			parsed.tunables.push_back({t.name, t.kind_name, t.unit, written(t, config_), written(t, standard),
			                           range_of(t), rule_of(t), source.origin, source.place, t.line, t.help});
		}
		return parsed;
	}

private:
	static size_t position(const Tunable *tunable) { return static_cast<size_t>(tunable - all().data()); }

	// `bound`: what the first may be at most, or at least.
	[[noreturn]] void contradiction(const char *first, const char *second, int64_t bound, const char *why) const
	{
		const auto text = [this](const Tunable *t) {
			return format("%s = %s in %s", t->name, written(*t, config_).c_str(), sources_[position(t)].text().c_str());
		};
		const Tunable *a = find(first), *b = find(second);
		throw Error(PT2P_ERR_TUNABLE, format("%s and %s: %s; %s=%s would do", text(a).c_str(), text(b).c_str(), why,
		                                     a->name, written(*a, ruled(*a, bound)).c_str()));
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
			                                     "found %s",
			                                     source.text().c_str(), quoted(line).c_str()));
		std::string_view name = trimmed(line.substr(0, equals));
		const Tunable *tunable = find(name);
		if (tunable == nullptr)
			refuse_name(name, source);
		size_t &first = seen[position(tunable)];
		if (first != 0)
			throw Error(PT2P_ERR_TUNABLE,
			            format("%s: %s has already been set in line %zu", source.text().c_str(), tunable->name, first));
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

std::vector<TunableInfo> standard_tunables() { return Loader().result().tunables; }

const char *nearest_tunable(std::string_view name) { return nearest(name).name; }

const char *environment(const char *name) { return std::getenv(name); }

} // namespace pt2p
