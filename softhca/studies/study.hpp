// What the programs of the studies have in common: an in-process job in virtual time, settings on the command line, counters.
#pragma once

#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include <pt2p.h>

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

inline void check(pt2p_context_t *ctx, pt2p_status_t status, const char *what)
{
	if (status != PT2P_OK)
		give_up("rank %d: %s: %s", pt2p_rank(ctx), what, pt2p_last_error(ctx));
}

// Virtual nanoseconds; to look costs the program nothing.
inline double now() { return static_cast<double>(softhca_time_now()) / 1000; }
// The program computes for so long.
inline void compute(double ns) { softhca_time_charge(static_cast<uint64_t>(ns * 1000)); }
// What has happened by now can be seen from here on.
inline void catch_up() { softhca_time_sync(); }

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

// A job of that many ranks, so many on each node, each node with a device of its own.
class InprocessJob {
public:
	InprocessJob(size_t ranks, size_t ranks_per_node, const std::vector<std::string> &tunables) : contexts_(ranks)
	{
		std::vector<std::string> all = {"PT2P_RANKS_PER_NODE=" + std::to_string(ranks_per_node), "PT2P_NET_DEVICE=each",
		                                "PT2P_PROGRESS_THREAD=no", "PT2P_SLEEP=no"};
		all.insert(all.end(), tunables.begin(), tunables.end());
		std::vector<const char *> list;
		for (const std::string &t : all)
			list.push_back(t.c_str());
		list.push_back(nullptr);
		pt2p_options_t options = PT2P_OPTIONS_INIT;
		options.tunables = list.data();
		options.thread_level =
		    PT2P_THREAD_SERIALIZED; // a context is driven by a thread of its own, not by the one that makes it
		if (pt2p_init_inprocess(static_cast<int>(ranks), PT2P_INPROCESS_THREADS, &options, contexts_.data()) != PT2P_OK)
			give_up("pt2p_init_inprocess: %s", pt2p_last_error(nullptr));
	}
	InprocessJob(const InprocessJob &) = delete;
	InprocessJob &operator=(const InprocessJob &) = delete;
	// All at the same time: one waits until the others have confirmed what they have passed on, which they do when they are
	// called.
	~InprocessJob() { run(pt2p_finalize); }
	// Each rank in a thread of its own, until all have returned.
	void run(const std::function<void(pt2p_context_t *)> &rank) const
	{
		std::vector<std::thread> threads;
		for (pt2p_context_t *ctx : contexts_)
			threads.emplace_back([&rank, ctx] { rank(ctx); });
		for (std::thread &t : threads)
			t.join();
	}
	// Of all ranks together.
	uint64_t counter(const std::string &name) const
	{
		uint64_t sum = 0;
		for (int i = 0; i < pt2p_counter_count(); ++i)
			for (pt2p_context_t *ctx : contexts_)
				if (uint64_t value; name == pt2p_counter_name(i) && pt2p_counter_read(ctx, i, &value) == PT2P_OK)
					sum += value;
		return sum;
	}

private:
	std::vector<pt2p_context_t *> contexts_;
};

// Of all devices together.
inline uint64_t device_counter(const char *name)
{
	uint64_t value = 0;
	if (softhca_counter(name, -1, 0, &value) != 0)
		give_up("no counter %s", name);
	return value;
}

// Queue pairs that there are, or have been.
inline size_t queue_pairs()
{
	constexpr uint32_t most = 1 << 17; // numbers, in virtual time
	size_t n = 0;
	for (uint32_t number = 1; number < most; ++number)
		if (uint64_t value; softhca_counter("wqes", -1, number, &value) == 0)
			++n;
	return n;
}

} // namespace study
