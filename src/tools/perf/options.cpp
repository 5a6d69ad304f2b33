// SPDX-License-Identifier: BSD-3-Clause
// The command line of pt2p_perf.
#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <string_view>

#include "tools/perf/perf.hpp"

namespace pt2p::perf {

namespace {

constexpr Test kTests[] = {Test::lat,  Test::bw,   Test::bibw,     Test::rate,
                           Test::echo, Test::call, Test::callrate, Test::windows};

std::vector<std::string> split(const std::string &list)
{
	std::vector<std::string> parts;
	size_t begin = 0;
	for (;;) {
		const size_t comma = list.find(',', begin);
		parts.push_back(list.substr(begin, comma == std::string::npos ? comma : comma - begin));
		if (comma == std::string::npos)
			return parts;
		begin = comma + 1;
	}
}

bool parse_number(const std::string &text, uint64_t maximum, uint64_t &value)
{
	if (text.empty() || !isdigit(static_cast<unsigned char>(text[0])))
		return false;
	char *end = nullptr;
	errno = 0;
	value = strtoull(text.c_str(), &end, 10);
	unsigned shift = 0;
	switch (tolower(static_cast<unsigned char>(*end))) {
	case 'k': shift = 10; break;
	case 'm': shift = 20; break;
	case 'g': shift = 30; break;
	default: break;
	}
	if (shift)
		++end;
	if (errno || *end || value > (maximum >> shift))
		return false;
	value <<= shift;
	return true;
}

bool parse_sizes(const std::string &list, std::vector<size_t> &sizes)
{
	constexpr uint64_t kMax = uint64_t{1} << 36;
	for (const std::string &part : split(list)) {
		const size_t colon = part.find(':');
		uint64_t first = 0, last = 0;
		if (!parse_number(part.substr(0, colon), kMax, first))
			return false;
		last = first;
		if (colon != std::string::npos && (!parse_number(part.substr(colon + 1), kMax, last) || last < first))
			return false;
		for (uint64_t size = first; size <= last; size = size ? 2 * size : 1)
			sizes.push_back(size);
	}
	return true;
}

bool parse_tests(const std::string &list, std::vector<Test> &tests)
{
	for (const std::string &part : split(list)) {
		bool known = false;
		for (Test test : kTests)
			if (part == test_name(test)) {
				tests.push_back(test);
				known = true;
			}
		if (!known)
			return false;
	}
	return true;
}

bool parse_seconds(const std::string &text, double &seconds)
{
	char *end = nullptr;
	seconds = strtod(text.c_str(), &end);
	return !text.empty() && *end == 0 && std::isfinite(seconds) && seconds >= 0.001 && seconds <= 3600;
}

} // namespace

const char *test_name(Test test)
{
	switch (test) {
	case Test::lat: return "lat";
	case Test::bw: return "bw";
	case Test::bibw: return "bibw";
	case Test::rate: return "rate";
	case Test::echo: return "echo";
	case Test::call: return "call";
	case Test::windows: return "windows";
	default: return "callrate";
	}
}

const char *usage_text()
{
	return "usage: mpirun -n N pt2p_perf [options]\n"
	       "Measures libpt2p between ranks: rank i with rank i+N/2, all pairs at once; a single rank with itself.\n"
	       "  --test LIST       lat, bw, bibw, rate, echo, call, callrate, windows, split by commas\n"
	       "                    (default: all)\n"
	       "                      lat       one-way latency in us: half a round trip\n"
	       "                      bw        one-way bandwidth in MB/s (10^6 bytes): windows of sends, each answered\n"
	       "                      bibw      the same in both directions at once\n"
	       "                      rate      messages a second in one direction, in millions\n"
	       "                      echo      messages that are each answered by one with as many bytes, millions a "
	       "second\n"
	       "                      call      round trip of a call in us; the reply has as many bytes as the input\n"
	       "                      callrate  calls a second, in millions\n"
	       "                      windows   round trip of a call in us whose handler pulls the bytes and pushes them "
	       "back\n"
	       "  --sizes LIST      bytes with k, m, g (powers of 1024); 1:4m doubles from 1 to 4m (default: by test)\n"
	       "  --window N        messages or calls in flight, but for lat, call, windows (default: 64)\n"
	       "  --iterations N    round trips or windows in one repetition (default: as many as fit the time)\n"
	       "  --repetitions N   repetitions of each point; the table shows their median (default: 51, fewer if slow)\n"
	       "  --time SECONDS    time for each point, warm-up not counted (default: 0.2)\n"
	       "  --check           verify every payload; a mismatch ends the run with status 1\n"
	       "  --spoil           damage a byte of every message of the leading ranks, to see that --check notices\n"
	       "  --one-server      the last rank serves the calls of all others; for call, callrate, windows\n"
	       "  --baseline        alternate the latency test with the bare hand-off of a cache line\n"
	       "  --json            one JSON object instead of the table\n"
	       "  --demo            a short readable summary\n"
	       "  --routes          measure nothing; messages between all ranks, and a table of the routes that they took\n"
	       "  --tune-trace FILE write what the tuner of rank 0 observes to FILE, as lines of comma-separated values;\n"
	       "                    that of rank N to FILE.N\n"
	       "  --tune-draw FILE  measure nothing; draw such a FILE as a picture in the format SVG\n"
	       "  --output FILE     file for the picture, - for standard output (default: the other FILE with .svg behind "
	       "it)\n"
	       "  --help            this text\n"
	       "Tunables (PT2P_*) come from the environment, see pt2p_info --config.\n";
}

std::string parse_options(int argc, char **argv, Options &options)
{
	for (int i = 1; i < argc; ++i) {
		const std::string_view argument = argv[i];
		const size_t equals = argument.find('=');
		const std::string name(argument.substr(0, equals));
		const auto flag = [&](const char *wanted, bool &value) {
			if (argument != wanted)
				return false;
			value = true;
			return true;
		};
		if (argument == "-h")
			options.help = true;
		if (argument == "-h" || flag("--check", options.check) || flag("--spoil", options.spoil) ||
		    flag("--json", options.json) || flag("--baseline", options.baseline) || flag("--demo", options.demo) ||
		    flag("--routes", options.routes) || flag("--one-server", options.one_server) ||
		    flag("--help", options.help))
			continue;
		if (name != "--test" && name != "--sizes" && name != "--window" && name != "--iterations" &&
		    name != "--repetitions" && name != "--time" && name != "--tune-trace" && name != "--tune-draw" &&
		    name != "--output")
			return "unknown option " + std::string(argument);
		if (equals == std::string_view::npos && i + 1 == argc)
			return name + " needs a value";
		const std::string value(equals == std::string_view::npos ? argv[++i] : argument.substr(equals + 1).data());
		uint64_t number = 0;
		bool good = false;
		if (name == "--test")
			good = parse_tests(value, options.tests);
		else if (name == "--sizes")
			good = parse_sizes(value, options.sizes);
		else if (name == "--tune-trace" || name == "--tune-draw")
			good = !((name == "--tune-trace" ? options.trace : options.draw) = value).empty();
		else if (name == "--output")
			good = !(options.output = value).empty();
		else if (name == "--time")
			good = parse_seconds(value, options.time);
		else if (name == "--window")
			good = parse_number(value, 65536, number) && (options.window = number) > 0;
		else if (name == "--iterations")
			good = parse_number(value, UINT32_MAX, number) && (options.iterations = number) > 0;
		else
			good = parse_number(value, 100000, number) && (options.repetitions = static_cast<int>(number)) > 0;
		if (!good)
			return name + " does not understand \"" + value + "\"";
	}
	if (options.spoil && !options.check)
		return "--spoil makes sense only with --check";
	if (options.routes && (options.json || options.demo))
		return "--routes makes no sense with --json or --demo";
	if (!options.output.empty() && options.draw.empty())
		return "--output makes sense only with --tune-draw";
	if (options.one_server && options.tests.empty())
		options.tests = {Test::call, Test::callrate, Test::windows};
	if (options.one_server && (options.demo || options.routes || options.baseline ||
	                           !std::all_of(options.tests.begin(), options.tests.end(), is_call)))
		return "--one-server makes sense only with the tests call, callrate and windows";
	if (options.tests.empty())
		options.tests.assign(std::begin(kTests), std::end(kTests));
	return "";
}

} // namespace pt2p::perf
