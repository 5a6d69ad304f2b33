/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The steps of bench/net_steps.h with libpt2p, through one transport. Run by bench/callgrind_net.
 *
 *     net_pt2p TRANSPORT MESSAGES
 */
#include <pt2p.h>

#include "bench/net_steps.h"

static pt2p_context_t *context[2];
static pt2p_request_t *sends[LARGEST_WINDOW], *receives[LARGEST_WINDOW];

static void must(int end, const char *what, pt2p_status_t status)
{
	if (__builtin_expect(status != PT2P_OK, 0))
		give_up(what, pt2p_last_error(context[end]));
}

static void post_receive(int end, int slot, int64_t *to)
{
	must(end, "pt2p_irecv", pt2p_irecv(context[end], to, sizeof *to, 1 - end, 7, PT2P_TAG_EXACT, &receives[slot]));
}

static void post_send(int end, int slot, const int64_t *from)
{
	must(end, "pt2p_isend", pt2p_isend(context[end], from, sizeof *from, 1 - end, 7, &sends[slot]));
}

static void end_receive(int end, int slot) { must(end, "pt2p_wait", pt2p_wait(context[end], receives[slot], NULL)); }
static void end_send(int end, int slot) { must(end, "pt2p_wait", pt2p_wait(context[end], sends[slot], NULL)); }

/* What one turn leaves in the queue, the next one finds before the receives: there is one queue for both. */
static int turn(int end)
{
	must(end, "pt2p_progress", pt2p_progress(context[end]));
	return 0;
}

int main(int argc, char **argv)
{
	const long messages = argc == 3 ? atol(argv[2]) : 0;
	if (messages < 1) {
		fprintf(stderr, "usage: net_pt2p TRANSPORT MESSAGES\n");
		return 2;
	}
	open_crank();
	char list[64];
	snprintf(list, sizeof list, "PT2P_TRANSPORTS=self,%s", argv[1]);
	const char *tunables[] = {list, NULL};
	pt2p_options_t options = PT2P_OPTIONS_INIT;
	options.tunables = tunables;
	must(0, "pt2p_init_inprocess", pt2p_init_inprocess(2, PT2P_INPROCESS_COOPERATIVE, &options, context));
	/* The connection is made by the first message. */
	int64_t sent = SENT_FROM, received = 0;
	post_receive(1, 0, &received);
	post_send(0, 0, &sent);
	end_receive(1, 0);
	end_send(0, 0);
	pt2p_peer_info_t peer;
	must(0, "pt2p_peer_query", pt2p_peer_query(context[0], 1, &peer));
	if (strcmp(peer.transport, argv[1]) != 0)
		give_up("net_pt2p: the messages go by", peer.transport);
	measure(messages);
	must(0, "pt2p_finalize", pt2p_finalize(context[0]));
	must(1, "pt2p_finalize", pt2p_finalize(context[1]));
	return 0;
}
