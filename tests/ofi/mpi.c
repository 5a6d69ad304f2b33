/* SPDX-License-Identifier: BSD-3-Clause */
/* An MPI program that knows nothing of libpt2p: every byte that arrives is checked. Ends with "ok" from rank 0. */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int me, ranks;

static unsigned char expected(int from, int number, int i) { return (unsigned char)(from * 31 + number * 7 + i); }

static void fill(unsigned char *buffer, int length, int number)
{
	for (int i = 0; i < length; ++i)
		buffer[i] = expected(me, number, i);
}

static void check(const unsigned char *buffer, int length, int from, int number, const char *what)
{
	for (int i = 0; i < length; ++i)
		if (buffer[i] != expected(from, number, i)) {
			fprintf(stderr, "rank %d: %s from %d: byte %d of %d is wrong\n", me, what, from, i, length);
			MPI_Abort(MPI_COMM_WORLD, 1);
		}
}

/* All lengths to the right, received from the left: in order, in reverse order, from anyone, and after a probe. */
static void around(int synchronous)
{
	static const int lengths[] = {0, 1, 8, 1000, 1025, 20000, 300000, 3000000};
	enum { count = sizeof lengths / sizeof *lengths };
	const int right = (me + 1) % ranks, left = (me + ranks - 1) % ranks;
	unsigned char *out[count], *in[count];
	MPI_Request requests[count];
	for (int round = 0; round < 4; ++round) {
		for (int i = 0; i < count; ++i) {
			out[i] = malloc((size_t)lengths[i] + 1);
			in[i] = malloc((size_t)lengths[i] + 1);
			fill(out[i], lengths[i], i);
			if (synchronous)
				MPI_Issend(out[i], lengths[i], MPI_BYTE, right, i, MPI_COMM_WORLD, &requests[i]);
			else
				MPI_Isend(out[i], lengths[i], MPI_BYTE, right, i, MPI_COMM_WORLD, &requests[i]);
		}
		for (int k = 0; k < count; ++k) {
			const int i = round == 1 ? count - 1 - k : k;
			const int from = round == 2 ? MPI_ANY_SOURCE : left, tag = round == 2 ? MPI_ANY_TAG : i;
			MPI_Status status;
			int length = lengths[i];
			if (round == 3) {
				MPI_Probe(MPI_ANY_SOURCE, i, MPI_COMM_WORLD, &status);
				MPI_Get_count(&status, MPI_BYTE, &length);
			}
			MPI_Recv(in[i], lengths[i], MPI_BYTE, from, tag, MPI_COMM_WORLD, &status);
			if (status.MPI_SOURCE != left || status.MPI_TAG != i || length != lengths[i]) {
				fprintf(stderr, "rank %d: the status of message %d is wrong\n", me, i);
				MPI_Abort(MPI_COMM_WORLD, 1);
			}
			check(in[i], lengths[i], left, i, "a message");
		}
		MPI_Waitall(count, requests, MPI_STATUSES_IGNORE);
		for (int i = 0; i < count; ++i) {
			free(out[i]);
			free(in[i]);
		}
	}
}

/* A second job, and a sum over both. */
static void spawn(const char *program)
{
	enum { children = 2 };
	MPI_Comm parent, between, both;
	MPI_Comm_get_parent(&parent);
	const int is_child = parent != MPI_COMM_NULL;
	if (is_child)
		between = parent;
	else
		MPI_Comm_spawn(program, MPI_ARGV_NULL, children, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &between,
		               MPI_ERRCODES_IGNORE);
	MPI_Intercomm_merge(between, is_child, &both);
	int one = 1, sum = 0, size;
	MPI_Comm_size(both, &size);
	MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, both);
	if (sum != size || (!is_child && size != ranks + children)) {
		fprintf(stderr, "rank %d: the sum of both jobs is wrong\n", me);
		MPI_Abort(MPI_COMM_WORLD, 1);
	}
	MPI_Comm_free(&both);
	MPI_Comm_disconnect(&between);
	if (!me && !is_child)
		puts("ok");
	MPI_Finalize();
	exit(0);
}

/* Rank 1 is killed. */
static void lose(void)
{
	static char out[100000], in[sizeof out];
	for (int i = 0;; ++i) {
		if (me == 1 && i == 500)
			raise(SIGKILL);
		const int length = i % 2 ? (int)sizeof out : 10;
		MPI_Sendrecv(out, length, MPI_BYTE, (me + 1) % ranks, 0, in, length, MPI_BYTE, (me + ranks - 1) % ranks, 0,
		             MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	}
}

/* Arguments: none; "spawn": just the second job; "lose": just the loss of a rank. */
int main(int argc, char **argv)
{
	MPI_Comm parent;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &me);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	MPI_Comm_get_parent(&parent);
	if (argc > 1 && !strcmp(argv[1], "lose"))
		lose();
	if (argc > 1 || parent != MPI_COMM_NULL)
		spawn(argv[0]);
	around(0);
	around(1);
	for (int i = 0; i < 200; ++i) {
		long mine = me + i, sum = 0;
		MPI_Allreduce(&mine, &sum, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
		if (sum != (long)ranks * (ranks - 1) / 2 + (long)ranks * i) {
			fprintf(stderr, "rank %d: a sum is wrong\n", me);
			MPI_Abort(MPI_COMM_WORLD, 1);
		}
	}
	/* One-sided: each rank writes its place in the memory of every other, and adds to a counter of rank 0. */
	long *window, one = 1;
	MPI_Win win;
	MPI_Win_allocate((MPI_Aint)((size_t)ranks + 1) * (MPI_Aint)sizeof *window, sizeof *window, MPI_INFO_NULL,
	                 MPI_COMM_WORLD, &window, &win);
	window[ranks] = 0;
	MPI_Win_fence(0, win);
	long mine = 1000 + me;
	for (int to = 0; to < ranks; ++to)
		MPI_Put(&mine, 1, MPI_LONG, to, me, 1, MPI_LONG, win);
	MPI_Accumulate(&one, 1, MPI_LONG, 0, ranks, 1, MPI_LONG, MPI_SUM, win);
	MPI_Win_fence(0, win);
	for (int from = 0; from < ranks; ++from)
		if (window[from] != 1000 + from || (me == 0 && window[ranks] != ranks)) {
			fprintf(stderr, "rank %d: the window is wrong\n", me);
			MPI_Abort(MPI_COMM_WORLD, 1);
		}
	MPI_Win_free(&win);
	MPI_Barrier(MPI_COMM_WORLD);
	if (!me)
		puts("ok");
	return MPI_Finalize();
}
