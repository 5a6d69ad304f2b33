/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A file service. Rank 0 keeps files in a directory; every other rank writes a file there and reads it back. The bytes
 * do not travel in the calls: callers lend windows of memory, from which rank 0 pulls and to which it pushes, piece by
 * piece, while it writes and reads the pieces before and after. Calls have a deadline.
 *
 *     mpirun -n 4 ./files [bytes for each rank]
 */
#define _XOPEN_SOURCE 700
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <pt2p.h>

enum { MOVE = 1, FINISHED = 2 }; /* services of rank 0 */
enum { PIECE = 1 << 18 };        /* bytes */

/* The input of MOVE. The reply is the number of bytes that were moved, and a text if something went wrong. */
struct order {
	uint64_t offset; /* in the file */
	int write;       /* 1: from the window `give` to the file; 0: from the file to the window `take` */
	char name[36];
};

static int directory; /* of rank 0 */
static char pieces[2][PIECE];

/* Ends the whole job when a call fails, and says why. */
#define CHECK(call)                                                                                                    \
	do {                                                                                                               \
		if ((call) != PT2P_OK) {                                                                                       \
			fprintf(stderr, "%s\n", pt2p_last_error(ctx));                                                             \
			pt2p_abort(ctx, 1, #call);                                                                                 \
		}                                                                                                              \
	} while (0)

static size_t smaller(size_t a, size_t b) { return a < b ? a : b; }

/* From the window to the file; the next piece is on its way while one is written. Returns how many bytes were written.
 * `reason`, which is 0, gets an error number if something fails. */
static size_t store(pt2p_context_t *ctx, pt2p_call_t *call, int file, uint64_t offset, size_t total, int *reason)
{
	pt2p_request_t *pull = NULL;
	pt2p_status_t status = pt2p_call_pull(ctx, call, pieces[0], 0, smaller(PIECE, total), &pull);
	size_t at = 0;
	for (int n = 0; status == PT2P_OK && *reason == 0 && at < total; n = !n) {
		const size_t length = smaller(PIECE, total - at), next = at + length;
		status = pt2p_wait(ctx, pull, NULL);
		pull = NULL;
		if (status == PT2P_OK && next < total)
			status = pt2p_call_pull(ctx, call, pieces[!n], next, smaller(PIECE, total - next), &pull);
		if (status != PT2P_OK)
			break;
		errno = 0;
		if (pwrite(file, pieces[n], length, (off_t)(offset + at)) == (ssize_t)length)
			at = next;
		else
			*reason = errno ? errno : ENOSPC;
	}
	if (pull && pt2p_wait(ctx, pull, NULL) != PT2P_OK)
		status = PT2P_ERR_SYSTEM;
	if (status != PT2P_OK)
		*reason = ECANCELED; /* the caller has given up, or is gone */
	return at;
}

/* From the file to the window, as far as the file goes; one piece is on its way while the next is read. */
static size_t load(pt2p_context_t *ctx, pt2p_call_t *call, int file, uint64_t offset, size_t total, int *reason)
{
	pt2p_request_t *push[2] = {NULL, NULL};
	pt2p_status_t status = PT2P_OK;
	size_t at = 0;
	for (int n = 0; status == PT2P_OK && at < total; n = !n) {
		if (push[n]) /* its piece is where this one goes */
			status = pt2p_wait(ctx, push[n], NULL), push[n] = NULL;
		const ssize_t got = pread(file, pieces[n], smaller(PIECE, total - at), (off_t)(offset + at));
		if (got < 0)
			*reason = errno;
		if (got <= 0)
			break;
		if (status == PT2P_OK)
			status = pt2p_call_push(ctx, call, pieces[n], at, (size_t)got, &push[n]);
		at += (size_t)got;
	}
	for (int n = 0; n < 2; ++n)
		if (push[n] && pt2p_wait(ctx, push[n], NULL) != PT2P_OK)
			status = PT2P_ERR_SYSTEM;
	if (status != PT2P_OK)
		*reason = ECANCELED;
	return at;
}

static void serve_move(pt2p_context_t *ctx, pt2p_call_t *call, const void *input, size_t length, void *argument)
{
	(void)argument;
	pt2p_call_info_t info;
	struct order order;
	CHECK(pt2p_call_query(ctx, call, &info));
	if (length != sizeof order) {
		CHECK(pt2p_call_abandon(ctx, call));
		return;
	}
	memcpy(&order, input, sizeof order);
	size_t moved = 0;
	int reason = 0;
	const int file = openat(directory, order.name, order.write ? O_WRONLY | O_CREAT : O_RDONLY, 0600);
	if (file < 0) {
		reason = errno;
	} else {
		moved = order.write ? store(ctx, call, file, order.offset, info.give, &reason)
		                    : load(ctx, call, file, order.offset, info.take, &reason);
		close(file);
	}
	const char *text = reason ? strerror(reason) : "";
	CHECK(pt2p_reply(ctx, call, moved, text, strlen(text)));
}

static void count(pt2p_context_t *ctx, pt2p_call_t *call, const void *input, size_t length, void *finished)
{
	(void)ctx, (void)call, (void)input, (void)length;
	++*(int *)finished;
}

/* Calls rank 0. Returns how many bytes were moved; `text`, of 100 bytes, gets what went wrong. */
static size_t call_server(pt2p_context_t *ctx, const char *name, int write, void *memory, size_t bytes, char *text)
{
	struct order order = {0, write, ""};
	snprintf(order.name, sizeof order.name, "%s", name);
	pt2p_call_options_t options = PT2P_CALL_OPTIONS_INIT;
	options.deadline = INT64_C(60) * 1000000000;
	*(write ? &options.give : &options.take) = (pt2p_window_t){memory, bytes};
	pt2p_result_t result;
	memset(text, 0, 100);
	CHECK(pt2p_call(ctx, 0, MOVE, &order, sizeof order, text, 99, &options, &result));
	return result.tag;
}

static void use_files(pt2p_context_t *ctx, size_t bytes)
{
	char name[36], text[100];
	unsigned char *out = malloc(bytes + 1), *in = calloc(1, bytes + 1);
	for (size_t i = 0; i < bytes; ++i)
		out[i] = (unsigned char)(i * 7 + i / 251 + (size_t)pt2p_rank(ctx));
	snprintf(name, sizeof name, "of-rank-%d", pt2p_rank(ctx));
	if (call_server(ctx, name, 1, out, bytes, text) != bytes || *text)
		pt2p_abort(ctx, 1, *text ? text : "fewer bytes were written");
	if (call_server(ctx, name, 0, in, bytes, text) != bytes || memcmp(in, out, bytes) != 0)
		pt2p_abort(ctx, 1, *text ? text : "the bytes that were read are not those that were written");
	if (call_server(ctx, "no-such-file", 0, in, bytes, text) != 0 || !*text)
		pt2p_abort(ctx, 1, "a file that does not exist was read");
	printf("rank %d: %zu bytes written and read\n", pt2p_rank(ctx), bytes);
	CHECK(pt2p_notify(ctx, 0, FINISHED, NULL, 0, NULL));
	free(out);
	free(in);
}

/* Until every other rank has finished. */
static void serve_files(pt2p_context_t *ctx, pt2p_service_t *service, const int *finished)
{
	char path[] = "/tmp/pt2p-files-XXXXXX", name[36];
	if (!mkdtemp(path) || (directory = open(path, O_RDONLY | O_DIRECTORY)) < 0)
		pt2p_abort(ctx, 1, strerror(errno));
	while (*finished < pt2p_size(ctx) - 1)
		CHECK(pt2p_serve(ctx, service, 0, 16, 10000000, NULL));
	for (int rank = 1; rank < pt2p_size(ctx); ++rank) {
		snprintf(name, sizeof name, "of-rank-%d", rank);
		unlinkat(directory, name, 0);
	}
	close(directory);
	rmdir(path);
}

int main(int argc, char **argv)
{
	const size_t bytes = argc > 1 ? strtoull(argv[1], NULL, 10) : 3000001;
	pt2p_context_t *ctx = NULL;
	CHECK(pt2p_init(NULL, &ctx));
	int finished = 0;
	pt2p_service_t *files = NULL, *end = NULL;
	if (pt2p_rank(ctx) == 0) {
		pt2p_service_options_t options = PT2P_SERVICE_OPTIONS_INIT;
		options.lanes = 1; /* the handler waits for transfers */
		CHECK(pt2p_service_open(ctx, MOVE, serve_move, NULL, &options, &files));
		CHECK(pt2p_service_open(ctx, FINISHED, count, &finished, NULL, &end));
	}
	CHECK(pt2p_barrier(ctx));
	if (pt2p_rank(ctx) == 0)
		serve_files(ctx, files, &finished);
	else
		use_files(ctx, bytes);
	CHECK(pt2p_barrier(ctx));
	return pt2p_finalize(ctx) != PT2P_OK;
}
