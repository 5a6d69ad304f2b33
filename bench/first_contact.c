/*
 * First contact: what it costs to talk to a rank for the first time. All ranks exchange 1 KiB with all others, first
 * after initialisation and a barrier, then again and again. Every rank prints when it began and ended each step, in
 * nanoseconds:
 *
 *   step NAME BEGIN END
 *
 * Made twice: with libpt2p, and with MPI (-DUSE_MPI). bench/contact runs both and prints ratios.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifdef USE_MPI
#include <mpi.h>
#else
#include <pt2p.h>
#endif

enum { message = 1024, rounds = 9 };

static int me, ranks;
static unsigned char *in, *out;

static long long now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ll + t.tv_nsec;
}

static void need(int ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "first_contact: rank %d: %s\n", me, what);
	exit(1);
}

#ifdef USE_MPI
static MPI_Request *requests;

static void begin(void)
{
	need(MPI_Init(NULL, NULL) == MPI_SUCCESS, "MPI_Init");
	MPI_Comm_rank(MPI_COMM_WORLD, &me);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
}

static void barrier(void) { need(MPI_Barrier(MPI_COMM_WORLD) == MPI_SUCCESS, "MPI_Barrier"); }
static void end(void) { MPI_Finalize(); }

static void receive_from(int peer, int n)
{
	need(MPI_Irecv(in + (size_t)peer * message, message, MPI_BYTE, peer, 1, MPI_COMM_WORLD, &requests[n]) ==
	         MPI_SUCCESS,
	     "MPI_Irecv");
}

static void send_to(int peer, int n)
{
	need(MPI_Isend(out, message, MPI_BYTE, peer, 1, MPI_COMM_WORLD, &requests[n]) == MPI_SUCCESS, "MPI_Isend");
}

static void wait_for(int n) { need(MPI_Waitall(n, requests, MPI_STATUSES_IGNORE) == MPI_SUCCESS, "MPI_Waitall"); }
#else
static pt2p_context_t *ctx;
static pt2p_request_t **requests;

static void begin(void)
{
	need(pt2p_init(NULL, &ctx) == PT2P_OK, pt2p_last_error(NULL));
	me = pt2p_rank(ctx);
	ranks = pt2p_size(ctx);
}

static void barrier(void) { need(pt2p_barrier(ctx) == PT2P_OK, pt2p_last_error(ctx)); }
static void end(void) { need(pt2p_finalize(ctx) == PT2P_OK, pt2p_last_error(NULL)); }

static void receive_from(int peer, int n)
{
	need(pt2p_irecv(ctx, in + (size_t)peer * message, message, peer, 1, PT2P_TAG_EXACT, &requests[n]) == PT2P_OK,
	     pt2p_last_error(ctx));
}

static void send_to(int peer, int n)
{
	need(pt2p_isend(ctx, out, message, peer, 1, &requests[n]) == PT2P_OK, pt2p_last_error(ctx));
}

static void wait_for(int n) { need(pt2p_waitall(ctx, (size_t)n, requests, NULL) == PT2P_OK, pt2p_last_error(ctx)); }
#endif

static void all_to_all(unsigned char mark)
{
	memset(out, mark, message);
	out[0] = (unsigned char)me;
	int n = 0;
	for (int i = 1; i < ranks; i++)
		receive_from((me + ranks - i) % ranks, n++);
	for (int i = 1; i < ranks; i++)
		send_to((me + i) % ranks, n++);
	wait_for(n);
	for (int i = 1; i < ranks; i++) {
		const int peer = (me + i) % ranks;
		const unsigned char *got = in + (size_t)peer * message;
		need(got[0] == (unsigned char)peer && got[message - 1] == mark, "a message is wrong");
	}
}

int main(void)
{
	const long long started = now();
	begin();
	in = malloc((size_t)ranks * message);
	out = malloc(message);
	requests = malloc(2 * (size_t)ranks * sizeof *requests);
	need(in && out && requests, "out of memory");
	memset(in, 0, (size_t)ranks * message);
	barrier();
	long long exchange[rounds][2];
	const long long ready = now();
	for (int i = 0; i < rounds; i++) {
		exchange[i][0] = now();
		all_to_all((unsigned char)(i + 1));
		exchange[i][1] = now();
		barrier();
	}
	/* One write for each rank: launchers cut lines of several writes apart. */
	char text[4096];
	int used = snprintf(text, sizeof text, "step start %lld %lld\n", started, ready);
	for (int i = 0; i < rounds; i++)
		used += snprintf(text + used, sizeof text - (size_t)used, "step %s %lld %lld\n", i ? "later" : "first",
		                 exchange[i][0], exchange[i][1]);
	fwrite(text, 1, (size_t)used, stdout);
	fflush(stdout);
	end();
	free(in);
	free(out);
	free(requests);
	return 0;
}
