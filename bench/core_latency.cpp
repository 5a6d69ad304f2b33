// SPDX-License-Identifier: BSD-3-Clause
// The core-to-core latency of two CPUs: half a round trip of a cache line between two threads, in us. Tells bench/run
// where the two CPUs are, on machines that move them.
//
//     core_latency CPU CPU
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#include <sched.h>

#include "tools/perf/perf.hpp"

using namespace pt2p::perf;

namespace {

constexpr uint64_t round_trips = 20000;

void run_on(const char *cpu)
{
	cpu_set_t set;
	CPU_ZERO(&set);
	CPU_SET(static_cast<size_t>(std::atoi(cpu)), &set);
	if (sched_setaffinity(0, sizeof set, &set) != 0)
		throw Failure{std::string("CPU ") + cpu + ": " + std::strerror(errno)};
}

double measure(const char *first, const char *second)
{
	run_on(second); // here, as a thread cannot report that it may not
	run_on(first);
	Handoff here, there;
	int pid, fd;
	std::string failure = here.make(pid, fd);
	if (failure.empty())
		failure = there.open(pid, fd);
	if (!failure.empty())
		throw Failure{failure};
	std::thread answers([&] {
		run_on(second);
		there.follow(false, 2 * round_trips);
	});
	here.lead(false, round_trips); // warms up
	const double seconds = here.lead(false, round_trips);
	answers.join();
	return seconds / (2.0 * round_trips);
}

} // namespace

int main(int argc, char **argv)
{
	if (argc != 3) {
		std::fprintf(stderr, "usage: core_latency CPU CPU\n");
		return 2;
	}
	try {
		std::printf("%.4f\n", measure(argv[1], argv[2]) * 1e6);
	} catch (const Failure &failure) {
		std::fprintf(stderr, "core_latency: %s\n", failure.text.c_str());
		return 1;
	}
}
