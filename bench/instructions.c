/* SPDX-License-Identifier: BSD-3-Clause
 *
 * N times an 8-byte tagged irecv, isend and their waits, both sides in one thread, so that an instruction counter sees
 * all of it. Or N times a call with 32 bytes and a reply with as many. Run by bench/callgrind.
 *
 *     instructions N shm|self [multiple|call]        multiple: at that thread level, where each call takes a lock
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <pt2p.h>

static void echo(pt2p_context_t *ctx, pt2p_call_t *call, const void *input, size_t length, void *argument)
{
	(void)argument;
	pt2p_reply(ctx, call, 0, input, length);
}

/* 0 when message `i` has gone well. */
static int send_one(pt2p_context_t *from, pt2p_context_t *to, int dest, long i)
{
	const int64_t sent = i;
	int64_t received = -1;
	pt2p_request_t *send, *receive;
	return pt2p_irecv(to, &received, sizeof received, 0, 7, PT2P_TAG_EXACT, &receive) != PT2P_OK ||
	       pt2p_isend(from, &sent, sizeof sent, dest, 7, &send) != PT2P_OK || pt2p_wait(from, send, NULL) != PT2P_OK ||
	       pt2p_wait(to, receive, NULL) != PT2P_OK || received != sent;
}

/* The same for a call. */
static int call_one(pt2p_context_t *from, pt2p_context_t *to, int dest, long i)
{
	const int64_t sent[4] = {i};
	int64_t received[4] = {-1};
	pt2p_request_t *call;
	return pt2p_icall(from, dest, 1, sent, sizeof sent, received, sizeof received, NULL, &call) != PT2P_OK ||
	       pt2p_progress(to) != PT2P_OK || pt2p_wait(from, call, NULL) != PT2P_OK || received[0] != i;
}

int main(int argc, char **argv)
{
	const long count = argc >= 3 ? atol(argv[1]) : 0;
	const int self = argc >= 3 && strcmp(argv[2], "self") == 0;
	const int multiple = argc == 4 && strcmp(argv[3], "multiple") == 0;
	const int calls = argc == 4 && strcmp(argv[3], "call") == 0;
	if (count < 1 || (!self && strcmp(argv[2], "shm") != 0) || argc > 3 + (multiple || calls)) {
		fprintf(stderr, "usage: instructions N shm|self [multiple|call]\n");
		return 2;
	}
	pt2p_options_t options = PT2P_OPTIONS_INIT;
	options.thread_level = multiple ? PT2P_THREAD_MULTIPLE : PT2P_THREAD_SINGLE;
	pt2p_context_t *ctx[2] = {NULL, NULL};
	if (pt2p_init_inprocess(self ? 1 : 2, PT2P_INPROCESS_COOPERATIVE, &options, ctx) != PT2P_OK) {
		fprintf(stderr, "%s\n", pt2p_last_error(NULL));
		return 1;
	}
	pt2p_context_t *from = ctx[0], *to = ctx[self ? 0 : 1];
	const int dest = self ? 0 : 1;
	pt2p_service_t *service = NULL;
	int good = !calls || pt2p_service_open(to, 1, echo, NULL, NULL, &service) == PT2P_OK;
	for (long i = 0; good && i < count; ++i) {
		good = calls ? !call_one(from, to, dest, i) : !send_one(from, to, dest, i);
		if (!good)
			fprintf(stderr, "message %ld: %s%s\n", i, pt2p_last_error(from), pt2p_last_error(to));
	}
	good = good && (!calls || pt2p_service_close(to, service) == PT2P_OK);
	pt2p_peer_info_t peer;
	const int known = pt2p_peer_query(from, dest, &peer) == PT2P_OK && strcmp(peer.transport, argv[2]) == 0;
	if (!known)
		fprintf(stderr, "the messages did not travel by %s\n", argv[2]);
	int left = pt2p_finalize(ctx[0]) != PT2P_OK;
	if (!self)
		left |= pt2p_finalize(ctx[1]) != PT2P_OK;
	return known && good && !left ? 0 : 1;
}
