/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A board on which processes pin notes, without a launcher. The server tells its address; clients come and go.
 *
 *   board                          serves, and prints its address
 *   board ADDRESS PLACE            reads the note at a place, 0 to 99
 *   board ADDRESS PLACE TEXT       pins a note there
 */
#include <pt2p.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { service_read = 1, service_pin, places = 100, note_bytes = 120 };

struct pin {
	int place;
	char text[note_bytes];
};

static pt2p_context_t *ctx;
static char board[places][note_bytes];

static void must(pt2p_status_t status)
{
	if (status == PT2P_OK)
		return;
	fprintf(stderr, "board: %s\n", pt2p_last_error(ctx));
	exit(1);
}

/* The word of a reply says whether there is such a place. */
static void read_note(pt2p_context_t *c, pt2p_call_t *call, const void *input, size_t length, void *unused)
{
	const int *place = input;
	int known = length == sizeof *place && *place >= 0 && *place < places;
	(void)unused;
	pt2p_reply(c, call, known, known ? board[*place] : NULL, known ? note_bytes : 0);
}

static void pin_note(pt2p_context_t *c, pt2p_call_t *call, const void *input, size_t length, void *unused)
{
	const struct pin *pin = input;
	int known = length == sizeof *pin && pin->place >= 0 && pin->place < places;
	(void)unused;
	if (known)
		snprintf(board[pin->place], note_bytes, "%.*s", note_bytes - 1, pin->text);
	pt2p_reply(c, call, known, NULL, 0);
}

static void serve(void)
{
	pt2p_service_t *reads, *pins;
	char address[128];
	must(pt2p_service_open(ctx, service_read, read_note, NULL, NULL, &reads));
	must(pt2p_service_open(ctx, service_pin, pin_note, NULL, NULL, &pins));
	must(pt2p_address(ctx, address, sizeof address, NULL));
	printf("%s\n", address);
	fflush(stdout);
	for (;;) /* calls are served while this waits for a message, which nobody sends */
		must(pt2p_recv(ctx, NULL, 0, PT2P_ANY_SOURCE, 0, PT2P_TAG_ANY, NULL));
}

int main(int argc, char **argv)
{
	struct pin note = {0};
	pt2p_result_t result;
	int server;
	must(pt2p_init_open(NULL, &ctx));
	if (argc == 1)
		serve();
	note.place = argc > 2 ? atoi(argv[2]) : -1;
	snprintf(note.text, sizeof note.text, "%s", argc > 3 ? argv[3] : "");
	must(pt2p_peer_add(ctx, argv[1], &server));
	if (argc > 3)
		must(pt2p_call(ctx, server, service_pin, &note, sizeof note, NULL, 0, NULL, &result));
	else
		must(pt2p_call(ctx, server, service_read, &note.place, sizeof note.place, note.text, sizeof note.text, NULL,
		               &result));
	if (!result.tag)
		fprintf(stderr, "board: the places are 0 to %d\n", places - 1);
	else if (argc == 3)
		printf("%s\n", note.text);
	must(pt2p_finalize(ctx));
	return result.tag ? 0 : 1;
}
