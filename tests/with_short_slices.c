/* SPDX-License-Identifier: BSD-3-Clause
 * with_short_slices COMMAND...: runs it with time slices of 0.1 ms, where the kernel has them (Linux 6.12).
 *
 * make check runs two tests at a time. Their threads wait for each other all the time, and with the usual slices of
 * some ms each hand-over on a busy CPU takes so long. */
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	/* sched_setattr(2), as of its first version. */
	struct {
		uint32_t size, policy;
		uint64_t flags;
		int32_t nice;
		uint32_t priority;
		uint64_t time_slice, deadline, period; /* ns */
	} attributes = {0};
	if (argc < 2)
		return 2;
	if (syscall(SYS_sched_getattr, 0, &attributes, sizeof attributes, 0) == 0 && attributes.policy == SCHED_OTHER) {
		attributes.time_slice = 100000;
		syscall(SYS_sched_setattr, 0, &attributes, 0); /* or as before */
	}
	execvp(argv[1], argv + 1);
	fprintf(stderr, "%s: %s\n", argv[1], strerror(errno));
	return 126;
}
