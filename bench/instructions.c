/* SPDX-License-Identifier: BSD-3-Clause
 *
 * N times an 8-byte tagged irecv, isend and their waits, both sides in one thread, so that an instruction counter sees
 * all of it. Run by bench/callgrind.
 *
 *     instructions N shm|self [multiple]        multiple: at that thread level, where each call takes a lock
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <pt2p.h>

int main(int argc, char **argv)
{
	const long count = argc >= 3 ? atol(argv[1]) : 0;
	const int self = argc >= 3 && strcmp(argv[2], "self") == 0;
	const int multiple = argc == 4 && strcmp(argv[3], "multiple") == 0;
	if (count < 1 || (!self && strcmp(argv[2], "shm") != 0) || argc > 3 + multiple) {
		fprintf(stderr, "usage: instructions N shm|self [multiple]\n");
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
	for (long i = 0; i < count; ++i) {
		const int64_t sent = i;
		int64_t received = -1;
		pt2p_request_t *send, *receive;
		if (pt2p_irecv(to, &received, sizeof received, 0, 7, PT2P_TAG_EXACT, &receive) != PT2P_OK ||
		    pt2p_isend(from, &sent, sizeof sent, dest, 7, &send) != PT2P_OK || pt2p_wait(from, send, NULL) != PT2P_OK ||
		    pt2p_wait(to, receive, NULL) != PT2P_OK || received != sent) {
			fprintf(stderr, "message %ld: %s%s\n", i, pt2p_last_error(from), pt2p_last_error(to));
			return 1;
		}
	}
	pt2p_peer_info_t peer;
	const int known = pt2p_peer_query(from, dest, &peer) == PT2P_OK && strcmp(peer.transport, argv[2]) == 0;
	if (!known)
		fprintf(stderr, "the messages did not travel by %s\n", argv[2]);
	int left = pt2p_finalize(ctx[0]) != PT2P_OK;
	if (!self)
		left |= pt2p_finalize(ctx[1]) != PT2P_OK;
	return known && !left ? 0 : 1;
}
