/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What a message costs while other receives are posted: 0, 100 and 10,000 of them. Both sides in one thread.
 *
 *   others   every message has one tag, the other receives wait for other tags
 *   spread   every message goes to a receive picked at random among all, which is posted again
 *   wild     as spread, from any source
 *
 * Prints nanoseconds for a message (irecv, isend, both waits) and the ratio to no other receives: medians over rounds
 * that take the cases in turn.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <pt2p.h>

enum { MOST = 10000, MESSAGES = 20000, ROUNDS = 9, CASES = 3, PATTERNS = 3 };

static const int posted[CASES] = {0, 100, 10000};
static pt2p_context_t *ctx[2];
static pt2p_request_t *receives[MOST + 1];
static int64_t buffers[MOST + 1];

static void check(pt2p_context_t *c, pt2p_status_t status)
{
	if (status == PT2P_OK)
		return;
	fprintf(stderr, "%s\n", pt2p_last_error(c));
	exit(1);
}

static double nanoseconds(void)
{
	struct timespec t;
	timespec_get(&t, TIME_UTC);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static int source;

static void post(int k)
{
	check(ctx[1],
	      pt2p_irecv(ctx[1], &buffers[k], sizeof buffers[k], source, (uint64_t)k, PT2P_TAG_EXACT, &receives[k]));
}

static double run(int pattern, int others)
{
	uint64_t random = 12345;
	double start = 0;
	source = pattern == 2 ? PT2P_ANY_SOURCE : 0;
	for (int k = 0; k < others; ++k) /* the receive of tag `others` is posted for each message */
		post(k);
	if (pattern)
		post(others);
	for (int i = -MESSAGES / 10; i < MESSAGES; ++i) { /* the first warm up */
		if (i == 0)
			start = nanoseconds();
		int tag = others;
		random = random * 6364136223846793005u + 1442695040888963407u;
		if (pattern)
			tag = (int)((random >> 33) % (uint64_t)(others + 1));
		else
			post(tag);
		const int64_t payload = i;
		pt2p_request_t *send;
		check(ctx[0], pt2p_isend(ctx[0], &payload, sizeof payload, 1, (uint64_t)tag, &send));
		check(ctx[0], pt2p_wait(ctx[0], send, NULL));
		check(ctx[1], pt2p_wait(ctx[1], receives[tag], NULL));
		if (buffers[tag] != payload) {
			fprintf(stderr, "a message met the wrong receive\n");
			exit(1);
		}
		if (pattern)
			post(tag);
	}
	const double each = (nanoseconds() - start) / MESSAGES;
	for (int k = 0; k < others + (pattern != 0); ++k) {
		check(ctx[1], pt2p_cancel(ctx[1], receives[k]));
		if (pt2p_wait(ctx[1], receives[k], NULL) != PT2P_ERR_CANCELLED) {
			fprintf(stderr, "a receive that nothing was sent to was not cancelled\n");
			exit(1);
		}
	}
	return each;
}

static int ascending(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

int main(void)
{
	static double values[PATTERNS][CASES][ROUNDS], ratios[PATTERNS][CASES][ROUNDS];
	static const char *const names[PATTERNS] = {"others", "spread", "wild"};
	if (pt2p_init_inprocess(2, PT2P_INPROCESS_COOPERATIVE, NULL, ctx) != PT2P_OK) {
		fprintf(stderr, "%s\n", pt2p_last_error(NULL));
		return 1;
	}
	for (int r = 0; r < ROUNDS; ++r)
		for (int p = 0; p < PATTERNS; ++p)
			for (int c = 0; c < CASES; ++c) {
				values[p][c][r] = run(p, posted[c]);
				ratios[p][c][r] = values[p][c][r] / values[p][0][r];
			}
	printf("%-8s %10s %12s %8s\n", "pattern", "posted", "ns/message", "ratio");
	for (int p = 0; p < PATTERNS; ++p)
		for (int c = 0; c < CASES; ++c) {
			qsort(values[p][c], ROUNDS, sizeof(double), ascending);
			qsort(ratios[p][c], ROUNDS, sizeof(double), ascending);
			printf("%-8s %10d %12.1f %8.2f\n", names[p], posted[c], values[p][c][ROUNDS / 2], ratios[p][c][ROUNDS / 2]);
		}
	check(ctx[1], pt2p_finalize(ctx[0]));
	check(NULL, pt2p_finalize(ctx[1]));
	return 0;
}
