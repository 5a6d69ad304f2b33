/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Two ranks throw messages of growing size at each other and check what they catch.
 *
 *     cc pingpong.c $(pkg-config --cflags --libs pt2p) -o pingpong && mpirun -n 2 ./pingpong
 */
#define _POSIX_C_SOURCE 200809L /* clock_gettime */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <pt2p.h>

enum { TAG = 7, ROUNDS = 200, LONGEST = 1 << 20 };

/* Every call returns a status. After a failure, pt2p_last_error tells what happened and what helps. pt2p_abort ends the
 * other ranks, too: they would wait for this one for ever. */
#define CHECK(call)                                                                                                    \
	do {                                                                                                               \
		if ((call) != PT2P_OK) {                                                                                       \
			fprintf(stderr, "%s\n", pt2p_last_error(ctx));                                                             \
			pt2p_abort(ctx, 1, #call);                                                                                 \
		}                                                                                                              \
	} while (0)

static double seconds(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

int main(void)
{
	pt2p_context_t *ctx;
	if (pt2p_init(NULL, &ctx) != PT2P_OK) { /* NULL: default options, tunables from the environment */
		fprintf(stderr, "%s\n", pt2p_last_error(NULL));
		return 1;
	}
	const int me = pt2p_rank(ctx); /* ranks above 1 only take part in the barrier */
	if (pt2p_size(ctx) < 2) {
		fprintf(stderr, "pingpong needs two ranks: mpirun -n 2 ./pingpong\n");
		pt2p_finalize(ctx);
		return 1;
	}

	unsigned char *ball = malloc(LONGEST), *caught = malloc(LONGEST);
	if (!ball || !caught)
		pt2p_abort(ctx, 1, "no memory");

	if (me == 0)
		printf("%10s %14s %14s\n", "bytes", "one way, us", "MB/s");
	for (size_t length = 1; length <= LONGEST && me < 2; length *= 4) {
		pt2p_result_t result; /* source, tag, length and status of what was received */
		double start = 0;
		for (int round = -ROUNDS / 10; round < ROUNDS; ++round) { /* the first rounds warm up */
			if (round == 0)
				start = seconds();
			if (me == 0) {
				memset(ball, round & 0xff, length);
				CHECK(pt2p_send(ctx, ball, length, 1, TAG));
				CHECK(pt2p_recv(ctx, caught, LONGEST, 1, TAG, PT2P_TAG_EXACT, &result));
				if (result.length != length || memcmp(ball, caught, length) != 0) {
					fprintf(stderr, "%zu bytes came back wrong\n", length);
					pt2p_abort(ctx, 1, "wrong payload");
				}
			} else {
				CHECK(pt2p_recv(ctx, caught, LONGEST, 0, TAG, PT2P_TAG_EXACT, &result));
				CHECK(pt2p_send(ctx, caught, result.length, 0, TAG));
			}
		}
		const double one_way = (seconds() - start) / ROUNDS / 2;
		if (me == 0)
			printf("%10zu %14.3f %14.1f\n", length, one_way * 1e6, (double)length / one_way / 1e6);
	}
	free(ball);
	free(caught);

	CHECK(pt2p_barrier(ctx)); /* no rank leaves while another is still playing */
	if (pt2p_finalize(ctx) != PT2P_OK) {
		fprintf(stderr, "%s\n", pt2p_last_error(NULL));
		return 1;
	}
	if (me == 0)
		printf("all payloads came back whole\n");
	return 0;
}
