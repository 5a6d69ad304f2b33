/* SPDX-License-Identifier: BSD-3-Clause
 *
 * How long a cache line takes from one CPU to another: half a round trip of 8 bytes between two threads, in us. Tells
 * bench/run where two CPUs are, on machines that move them.
 *
 *     handoff CPU CPU
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static const long round_trips = 20000;
static alignas(128) atomic_long there;
static alignas(128) atomic_long back;

static int run_on(int cpu)
{
	cpu_set_t set;
	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	return sched_setaffinity(0, sizeof set, &set);
}

static void await(atomic_long *flag, long value)
{
	for (long polls = 0; atomic_load_explicit(flag, memory_order_acquire) != value; ++polls)
		if (polls % 100000 == 99999)
			sched_yield(); /* the other thread may need this CPU */
}

static void *answer(void *cpu)
{
	run_on(*(int *)cpu); /* main has tried it */
	for (long i = 1; i <= 2 * round_trips; ++i) {
		await(&there, i);
		atomic_store_explicit(&back, i, memory_order_release);
	}
	return NULL;
}

static double seconds(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int main(int argc, char **argv)
{
	if (argc != 3) {
		fprintf(stderr, "usage: handoff CPU CPU\n");
		return 2;
	}
	int cpus[2] = {atoi(argv[1]), atoi(argv[2])};
	pthread_t other;
	if (run_on(cpus[1]) != 0 || run_on(cpus[0]) != 0 || pthread_create(&other, NULL, answer, &cpus[1]) != 0) {
		perror("handoff");
		return 1;
	}
	double begin = 0;
	for (long i = 1; i <= 2 * round_trips; ++i) {
		if (i == round_trips + 1)
			begin = seconds(); /* the first half warms up */
		atomic_store_explicit(&there, i, memory_order_release);
		await(&back, i);
	}
	printf("%.4f\n", (seconds() - begin) / (2.0 * (double)round_trips) * 1e6);
	pthread_join(other, NULL);
	return 0;
}
