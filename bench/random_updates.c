/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Updates of a table that lies spread over all ranks, at random: in each round every rank makes so many, sends each
 * rank those that are that one's, and takes what comes from whoever is first. Small messages, many partners, everybody
 * waits for everybody.
 *
 *     mpirun -n 8 random_updates [rounds [updates]]       default: 300 1024
 *
 * Rank 0 prints the time, and for all ranks together the processor's time, the context switches, and how often a call
 * slept.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include <pt2p.h>

enum { LENGTH_OF_TABLE = 1 << 16 };

static pt2p_context_t *ctx;

static void must(pt2p_status_t status)
{
	if (status == PT2P_OK)
		return;
	fprintf(stderr, "random_updates: %s\n", pt2p_last_error(ctx));
	exit(1);
}

static uint64_t next_random(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	return *state ^= *state << 17;
}

static double seconds(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static uint64_t sleeps(void)
{
	uint64_t value = 0;
	for (int i = 0; i < pt2p_counter_count(); ++i)
		if (!strcmp(pt2p_counter_name(i), "sleeps"))
			must(pt2p_counter_read(ctx, i, &value));
	return value;
}

static double of(struct timeval t) { return (double)t.tv_sec + (double)t.tv_usec * 1e-6; }

static void work(long rounds, size_t updates, uint64_t *table)
{
	const int me = pt2p_rank(ctx), n = pt2p_size(ctx);
	uint64_t *out = malloc((size_t)n * updates * sizeof *out), *in = malloc((size_t)n * updates * sizeof *in);
	size_t *count = malloc((size_t)n * sizeof *count);
	pt2p_request_t **requests = malloc(2 * (size_t)n * sizeof *requests);
	uint64_t state = 0x9e3779b97f4a7c15u * (uint64_t)(me + 1);
	for (long round = 0; round < rounds; ++round) {
		int pending = 0;
		/* A fast rank is at most one round ahead, so two tags are enough. */
		for (int i = 0; i < n - 1; ++i)
			must(pt2p_irecv(ctx, in + (size_t)i * updates, updates * sizeof *in, PT2P_ANY_SOURCE, (uint64_t)round % 2,
			                PT2P_TAG_EXACT, &requests[pending++]));
		memset(count, 0, (size_t)n * sizeof *count);
		for (size_t i = 0; i < updates; ++i) {
			const uint64_t value = next_random(&state);
			const size_t to = value % (uint64_t)n;
			out[to * updates + count[to]++] = value;
		}
		for (int distance = 1; distance < n; ++distance) {
			const int to = (me + distance) % n;
			must(pt2p_isend(ctx, out + (size_t)to * updates, count[to] * sizeof *out, to, (uint64_t)round % 2,
			                &requests[pending++]));
		}
		for (size_t i = 0; i < count[me]; ++i)
			table[out[(size_t)me * updates + i] % LENGTH_OF_TABLE] ^= out[(size_t)me * updates + i];
		for (int i = 0; i < pending; ++i) {
			pt2p_result_t result;
			must(pt2p_wait(ctx, requests[i], &result));
			for (size_t k = 0; i < n - 1 && k < result.length / sizeof *in; ++k)
				table[in[(size_t)i * updates + k] % LENGTH_OF_TABLE] ^= in[(size_t)i * updates + k];
		}
	}
	free(out);
	free(in);
	free(count);
	free(requests);
}

int main(int argc, char **argv)
{
	const long rounds = argc > 1 ? atol(argv[1]) : 300, updates = argc > 2 ? atol(argv[2]) : 1024;
	if (rounds < 1 || updates < 1) {
		fprintf(stderr, "usage: random_updates [rounds [updates]]\n");
		return 2;
	}
	must(pt2p_init(NULL, &ctx));
	uint64_t *table = calloc(LENGTH_OF_TABLE, sizeof *table);
	work(2, (size_t)updates, table);
	must(pt2p_barrier(ctx));
	struct rusage before, after;
	getrusage(RUSAGE_SELF, &before);
	const uint64_t slept = sleeps();
	const double start = seconds();
	work(rounds, (size_t)updates, table);
	must(pt2p_barrier(ctx));
	double mine[4] = {seconds() - start, 0, 0, (double)(sleeps() - slept)}, theirs[4];
	getrusage(RUSAGE_SELF, &after);
	mine[1] = of(after.ru_utime) + of(after.ru_stime) - of(before.ru_utime) - of(before.ru_stime);
	mine[2] = (double)(after.ru_nvcsw + after.ru_nivcsw - before.ru_nvcsw - before.ru_nivcsw);
	for (int i = 1; i < pt2p_size(ctx); ++i) {
		if (pt2p_rank(ctx) == i)
			must(pt2p_send(ctx, mine, sizeof mine, 0, 2));
		if (pt2p_rank(ctx) != 0)
			continue;
		must(pt2p_recv(ctx, theirs, sizeof theirs, i, 2, PT2P_TAG_EXACT, NULL));
		for (int k = 1; k < 4; ++k)
			mine[k] += theirs[k];
	}
	if (pt2p_rank(ctx) == 0)
		printf("%.3f s, processor %.3f s, %.0f context switches, %.0f sleeps\n", mine[0], mine[1], mine[2], mine[3]);
	free(table);
	must(pt2p_finalize(ctx));
	return 0;
}
