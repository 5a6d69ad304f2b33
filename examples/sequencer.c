/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A sequencer: rank 0 gives out 0, 1, 2, ..., and the other ranks draw numbers as fast as they can, with many calls
 * under way from each. In counter.c each has one call at a time, and only the sum is checked.
 *
 *     mpirun -n 4 ./sequencer [numbers for each rank]
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <pt2p.h>

enum { NEXT = 1, WINDOW = 32 }; /* a service of rank 0; calls under way from each rank */

/* Ends the whole job when a call fails, and says why. */
#define CHECK(call)                                                                                                    \
	do {                                                                                                               \
		if ((call) != PT2P_OK) {                                                                                       \
			fprintf(stderr, "%s\n", pt2p_last_error(ctx));                                                             \
			pt2p_abort(ctx, 1, #call);                                                                                 \
		}                                                                                                              \
	} while (0)

static void give_out(pt2p_context_t *ctx, pt2p_call_t *call, const void *input, size_t length, void *next)
{
	(void)input, (void)length;
	CHECK(pt2p_reply(ctx, call, (*(uint64_t *)next)++, NULL, 0)); /* a word: nobody needs a buffer */
}

static void draw(pt2p_context_t *ctx, uint64_t *numbers, size_t count)
{
	pt2p_request_t *calls[WINDOW];
	for (size_t i = 0; i < count + WINDOW; ++i) {
		pt2p_result_t drawn;
		if (i >= WINDOW) {
			CHECK(pt2p_wait(ctx, calls[i % WINDOW], &drawn));
			numbers[i - WINDOW] = drawn.tag;
		}
		if (i < count)
			CHECK(pt2p_icall(ctx, 0, NEXT, NULL, 0, NULL, 0, NULL, &calls[i % WINDOW]));
	}
}

int main(int argc, char **argv)
{
	const size_t count = argc > 1 ? strtoull(argv[1], NULL, 10) : 100000;
	pt2p_context_t *ctx = NULL;
	CHECK(pt2p_init(NULL, &ctx));
	const int me = pt2p_rank(ctx), ranks = pt2p_size(ctx);
	const size_t all = count * (size_t)(ranks - 1);
	uint64_t next = 0, *numbers = malloc((count + 1) * sizeof *numbers);
	unsigned char *seen = calloc(me ? 1 : all + 1, 1);
	pt2p_service_t *service; /* pt2p_finalize closes it */
	if (!numbers || !seen)
		pt2p_abort(ctx, 1, "no memory");
	if (me == 0)
		CHECK(pt2p_service_open(ctx, NEXT, give_out, &next, NULL, &service));
	struct timespec start, end;
	CHECK(pt2p_barrier(ctx));
	timespec_get(&start, TIME_UTC);
	if (me)
		draw(ctx, numbers, count);
	CHECK(pt2p_barrier(ctx)); /* within it rank 0 serves */
	timespec_get(&end, TIME_UTC);
	if (me)
		CHECK(pt2p_send(ctx, numbers, count * sizeof *numbers, 0, 0));
	int good = me || next == all;
	for (int rank = 1; rank < ranks && me == 0; ++rank) {
		CHECK(pt2p_recv(ctx, numbers, count * sizeof *numbers, rank, 0, PT2P_TAG_EXACT, NULL));
		for (size_t i = 0; i < count && good; ++i) /* a call that begins after another has ended gets a larger number */
			good = numbers[i] < all && !seen[numbers[i]]++ && (i < WINDOW || numbers[i] > numbers[i - WINDOW]);
	}
	const double us = (double)(end.tv_sec - start.tv_sec) * 1e6 + (double)(end.tv_nsec - start.tv_nsec) * 1e-3;
	if (me == 0)
		printf("%zu numbers, %.3f M/s: %s\n", all, (double)all / us, good ? "verified" : "WRONG");
	free(numbers), free(seen);
	CHECK(pt2p_finalize(ctx));
	return !good;
}
