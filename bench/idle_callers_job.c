/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A server that each of some callers has called once, and then turns of the server in which nothing comes, so that an
 * instruction counter sees what idle callers cost. Run by bench/idle_callers.
 *
 *     idle_callers_job CALLERS TURNS [hot]       hot: from the first turn on, before the rings of idle callers doze
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <pt2p.h>

static void count(pt2p_context_t *ctx, pt2p_call_t *call, const void *input, size_t length, void *argument)
{
	(void)input;
	(void)length;
	pt2p_reply(ctx, call, ++*(uint64_t *)argument, NULL, 0);
}

/* 0 when the call has gone well. */
static int call_once(pt2p_context_t *from, pt2p_context_t *server)
{
	pt2p_request_t *call;
	return pt2p_icall(from, 0, 1, NULL, 0, NULL, 0, NULL, &call) != PT2P_OK || pt2p_progress(server) != PT2P_OK ||
	       pt2p_wait(from, call, NULL) != PT2P_OK;
}

int main(int argc, char **argv)
{
	const long callers = argc >= 3 ? atol(argv[1]) : 0, turns = argc >= 3 ? atol(argv[2]) : -1;
	const int hot = argc == 4 && strcmp(argv[3], "hot") == 0;
	if (callers < 1 || turns < 0 || argc > 3 + hot) {
		fprintf(stderr, "usage: idle_callers_job CALLERS TURNS [hot]\n");
		return 2;
	}
	pt2p_context_t **ctx = calloc((size_t)callers + 1, sizeof *ctx);
	if (!ctx || pt2p_init_inprocess((int)callers + 1, PT2P_INPROCESS_COOPERATIVE, NULL, ctx) != PT2P_OK) {
		fprintf(stderr, "%s\n", pt2p_last_error(NULL));
		return 1;
	}
	uint64_t calls = 0;
	pt2p_service_t *service = NULL;
	int good = pt2p_service_open(ctx[0], 1, count, &calls, NULL, &service) == PT2P_OK;
	for (long i = 1; good && i <= callers; ++i) {
		good = !call_once(ctx[i], ctx[0]);
		if (!good)
			fprintf(stderr, "caller %ld: %s%s\n", i, pt2p_last_error(ctx[i]), pt2p_last_error(ctx[0]));
	}
	/* Rings without traffic doze after two sweeps of 8192 turns. */
	for (long i = 0; good && i < (hot ? 0 : 20000) + turns; ++i)
		good = pt2p_progress(ctx[0]) == PT2P_OK;
	good = good && calls == (uint64_t)callers;
	/* They are heard nevertheless. */
	for (long i = 1; good && i <= callers; i += callers > 9 ? callers / 9 : 1)
		good = !call_once(ctx[i], ctx[0]);
	for (long i = 0; i <= callers; ++i)
		good &= pt2p_finalize(ctx[i]) == PT2P_OK;
	free(ctx);
	return good ? 0 : 1;
}
