/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A counter as a service. Rank 0 gives out numbers, and every rank draws some by calls. A number is given out once, so
 * in the end the numbers add up to what the counter has counted.
 *
 *     mpirun -n 4 ./counter [numbers for each rank]
 */
#include <stdio.h>
#include <stdlib.h>

#include <pt2p.h>

enum { NEXT = 1, SUM = 2 }; /* services of rank 0 */

/* Ends the whole job when a call fails, and says why. */
#define CHECK(call)                                                                                                    \
	do {                                                                                                               \
		if ((call) != PT2P_OK) {                                                                                       \
			fprintf(stderr, "%s\n", pt2p_last_error(ctx));                                                             \
			pt2p_abort(ctx, 1, #call);                                                                                 \
		}                                                                                                              \
	} while (0)

static void give_out(pt2p_context_t *ctx, pt2p_call_t *call, const void *input, size_t length, void *counter)
{
	(void)input, (void)length;
	CHECK(pt2p_reply(ctx, call, (*(uint64_t *)counter)++, NULL, 0));
}

static void add_up(pt2p_context_t *ctx, pt2p_call_t *call, const void *input, size_t length, void *sum)
{
	(void)length;
	CHECK(pt2p_reply(ctx, call, *(uint64_t *)sum += *(const uint64_t *)input, NULL, 0));
}

int main(int argc, char **argv)
{
	const int numbers = argc > 1 ? atoi(argv[1]) : 1000;
	pt2p_context_t *ctx = NULL;
	CHECK(pt2p_init(NULL, &ctx));
	uint64_t counter = 0, total = 0, mine = 0;
	pt2p_service_t *service; /* pt2p_finalize closes both */
	if (pt2p_rank(ctx) == 0) {
		CHECK(pt2p_service_open(ctx, NEXT, give_out, &counter, NULL, &service));
		CHECK(pt2p_service_open(ctx, SUM, add_up, &total, NULL, &service));
	}
	CHECK(pt2p_barrier(ctx));
	for (int i = 0; i < numbers; ++i) {
		pt2p_result_t drawn;
		CHECK(pt2p_call(ctx, 0, NEXT, NULL, 0, NULL, 0, NULL, &drawn));
		mine += drawn.tag;
	}
	CHECK(pt2p_call(ctx, 0, SUM, &mine, sizeof mine, NULL, 0, NULL, NULL));
	CHECK(pt2p_barrier(ctx));
	const int good = pt2p_rank(ctx) != 0 || total == counter * (counter - 1) / 2;
	if (pt2p_rank(ctx) == 0)
		printf("%llu numbers: %s\n", (unsigned long long)counter, good ? "verified" : "WRONG");
	CHECK(pt2p_finalize(ctx));
	return !good;
}
