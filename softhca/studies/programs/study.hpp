// Shared by the programs of the studies: virtual time, settings on the command line, counters.
#pragma once

#include <algorithm>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "softhca/softhca.h"
#include "softhca/time/virtual_time.h"

namespace study {

[[noreturn, gnu::format(printf, 1, 2)]] inline void give_up(const char *format, ...)
{
	va_list list;
	va_start(list, format);
	std::vfprintf(stderr, format, list);
	va_end(list);
	std::fputc('\n', stderr);
	std::fflush(nullptr);
	std::_Exit(1);
}

// Virtual nanoseconds; reading the clock takes no time.
inline double now() { return static_cast<double>(softhca_time_now()) / 1000; }
// The program computes for so long.
inline void compute(double ns) { softhca_time_compute(static_cast<uint64_t>(ns * 1000)); }
// Everything up to now has happened afterwards.
inline void catch_up() { softhca_time_sync(); }

// Of latencies, ns; all 0 where there are none.
struct Latencies {
	double mean = 0, median = 0, p99 = 0;
	explicit Latencies(std::vector<double> all)
	{
		if (all.empty())
			return;
		std::sort(all.begin(), all.end());
		mean = std::accumulate(all.begin(), all.end(), 0.0) / static_cast<double>(all.size());
		median = all[all.size() / 2];
		p99 = all[all.size() * 99 / 100];
	}
};

// name=value of the command line: those named PT2P_... are tunables, the others the program's.
class Settings {
public:
	Settings(int argc, char **argv, std::map<std::string, std::string> defaults) : values_(std::move(defaults))
	{
		for (int i = 1; i < argc; ++i) {
			const std::string argument = argv[i];
			const size_t equals = argument.find('=');
			const std::string name = argument.substr(0, equals);
			if (argument.starts_with("PT2P_"))
				tunables.push_back(argument);
			else if (equals == std::string::npos || !values_.count(name))
				usage(argv[0], argument);
			else
				values_[name] = argument.substr(equals + 1);
		}
		if (!softhca_time_now || !softhca_counter)
			give_up("%s runs in virtual time: softhca --model PROFILE --devices N %s ...", argv[0], argv[0]);
	}
	const std::string &text(const char *name) const { return values_.at(name); }
	double number(const char *name) const
	{
		char *end;
		const double value = std::strtod(text(name).c_str(), &end);
		if (*end || text(name).empty())
			give_up("%s=%s is no number", name, text(name).c_str());
		return value;
	}
	size_t count(const char *name) const { return static_cast<size_t>(number(name)); }

	std::vector<std::string> tunables;

private:
	[[noreturn]] void usage(const char *program, const std::string &argument) const
	{
		std::string all;
		for (const auto &[name, value] : values_)
			all += " " + name + "=" + value;
		give_up("%s: %s?\n%s%s [PT2P_NAME=value ...]", program, argument.c_str(), program, all.c_str());
	}
	std::map<std::string, std::string> values_;
};

// Of all devices together.
inline uint64_t device_counter(const char *name)
{
	uint64_t value = 0;
	if (softhca_counter(name, -1, 0, &value) != 0)
		give_up("no counter %s", name);
	return value;
}

} // namespace study
