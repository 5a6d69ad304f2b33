/* SPDX-License-Identifier: BSD-3-Clause */
/* A process with an open context, for processes.sh: a server that answers whoever sends, and clients. */
#define _DEFAULT_SOURCE /* usleep, beside C11 */
#include <pt2p.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { tag_question = 1, tag_answer, tag_watch, tag_end, long_message = 200000 };

static pt2p_context_t *ctx;
static unsigned char buffer[long_message];

static void must(pt2p_status_t status, const char *what)
{
	if (status == PT2P_OK)
		return;
	fprintf(stderr, "%s: %s\n", what, pt2p_last_error(ctx));
	exit(1);
}

/* Prints its address, answers each message with one of the same bytes, and says how those end that ask for it. */
static int serve(void)
{
	char address[128];
	must(pt2p_address(ctx, address, sizeof address, NULL), "pt2p_address");
	printf("%s\n", address);
	fflush(stdout);
	for (;;) {
		pt2p_result_t result;
		must(pt2p_recv(ctx, buffer, sizeof buffer, PT2P_ANY_SOURCE, 0, PT2P_TAG_ANY, &result), "pt2p_recv");
		if (result.tag == tag_question)
			must(pt2p_send(ctx, buffer, result.length, result.source, tag_answer), "pt2p_send");
		if (result.tag == tag_watch) {
			int never;
			pt2p_status_t status = pt2p_recv(ctx, &never, sizeof never, result.source, 99, PT2P_TAG_EXACT, NULL);
			printf("%d %s\n", result.source,
			       status == PT2P_ERR_PEER_LOST        ? "lost"
			       : status == PT2P_ERR_PEER_FINALIZED ? "finalized"
			                                           : "?");
			fflush(stdout);
		}
		if (result.tag == tag_end)
			return pt2p_finalize(ctx) == PT2P_OK ? 0 : 1;
	}
}

static void ask(int server, size_t length, unsigned seed)
{
	static unsigned char question[long_message];
	pt2p_result_t result;
	for (size_t i = 0; i < length; ++i)
		question[i] = (unsigned char)(i * 31 + seed);
	must(pt2p_send(ctx, question, length, server, tag_question), "pt2p_send");
	must(pt2p_recv(ctx, buffer, sizeof buffer, server, tag_answer, PT2P_TAG_EXACT, &result), "pt2p_recv");
	if (result.length != length || memcmp(buffer, question, length)) {
		fprintf(stderr, "the answer differs\n");
		exit(1);
	}
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";
	int server = -1;
	must(pt2p_init_open(NULL, &ctx), "pt2p_init_open");
	if (!strcmp(what, "serve"))
		return serve();
	if (argc < 3)
		return 2;
	must(pt2p_peer_add(ctx, argv[2], &server), "pt2p_peer_add");
	for (unsigned i = 0; i < 50; ++i) {
		ask(server, 8, i);
		ask(server, i * 997, i);
	}
	ask(server, long_message, 5);
	if (!strcmp(what, "watched") || !strcmp(what, "killed"))
		must(pt2p_send(ctx, &server, sizeof server, server, tag_watch), "pt2p_send");
	if (!strcmp(what, "killed")) {
		usleep(200000);
		raise(SIGKILL);
	}
	if (!strcmp(what, "end"))
		must(pt2p_send(ctx, &server, sizeof server, server, tag_end), "pt2p_send");
	return pt2p_finalize(ctx) == PT2P_OK ? 0 : 1;
}
