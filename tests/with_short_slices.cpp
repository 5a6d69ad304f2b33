// SPDX-License-Identifier: BSD-3-Clause
// with_short_slices COMMAND...: runs it with time slices of 0.1 ms, where the kernel has them (Linux 6.12).
//
// make check runs two tests at a time, and their threads wait for each other all the time. On a busy CPU each hand-over
// takes a time slice, which is some ms by default.
#include <cerrno>
#include <cstdio>
#include <cstring>

#include <unistd.h>

#include "progress/time_slice.hpp"

int main(int argc, char **argv)
{
	if (argc < 2) {
		std::fprintf(stderr, "usage: with_short_slices COMMAND...\n");
		return 2;
	}
	pt2p::ask_for_time_slice(100'000);
	execvp(argv[1], argv + 1);
	std::fprintf(stderr, "%s: %s\n", argv[1], std::strerror(errno));
	return 126;
}
