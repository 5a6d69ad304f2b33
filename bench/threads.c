/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Messages of many threads at thread level multiple: thread i of rank 0 exchanges messages with thread i of rank 1.
 *
 *     threads THREADS WINDOW BYTES ROUNDS
 *
 * In a round, each thread starts WINDOW receives and WINDOW sends, and waits for all of them. Prints how many millions
 * of messages arrive in a second, at both ranks together. THREADS 0: one thread at thread level single.
 *
 * Compiled as it is for libpt2p, with -DWITH_MPI for MPI, with -DWITH_UCX for UCX (one worker; the program forks).
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_WINDOW = 256, MAX_BYTES = 4096, MAX_THREADS = 256 };

static int threads, window, bytes;
static long rounds;

static void give_up(const char *what, const char *why)
{
	fprintf(stderr, "threads: %s: %s\n", what, why);
	exit(1);
}

/* ---- the library: start, one round of a thread, a barrier of the two ranks, end
 * -------------------------------------- */

#if defined WITH_MPI
#include <mpi.h>

static int start(int *argc, char ***argv, int multiple)
{
	int rank, level;
	MPI_Init_thread(argc, argv, multiple ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &level);
	if (multiple && level != MPI_THREAD_MULTIPLE)
		give_up("MPI_Init_thread", "no MPI_THREAD_MULTIPLE");
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	return rank;
}

static void exchange(int peer, int tag, char *in, char *out)
{
	MPI_Request requests[2 * MAX_WINDOW];
	for (int i = 0; i < window; ++i)
		MPI_Irecv(in + i * bytes, bytes, MPI_BYTE, peer, tag, MPI_COMM_WORLD, &requests[i]);
	for (int i = 0; i < window; ++i)
		MPI_Isend(out, bytes, MPI_BYTE, peer, tag, MPI_COMM_WORLD, &requests[window + i]);
	MPI_Waitall(2 * window, requests, MPI_STATUSES_IGNORE);
}

static void barrier(void) { MPI_Barrier(MPI_COMM_WORLD); }

static void end(void) { MPI_Finalize(); }

#elif defined WITH_UCX
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <ucp/api/ucp.h>
#include <unistd.h>

static ucp_context_h context;
static ucp_worker_h worker;
static ucp_ep_h endpoint;
static int fd, is_child;

static void must(const char *what, ucs_status_t status)
{
	if (status != UCS_OK)
		give_up(what, ucs_status_string(status));
}

static void swap(const void *mine, size_t length, void *theirs, size_t their_length)
{
	if (write(fd, mine, length) != (ssize_t)length || recv(fd, theirs, their_length, MSG_WAITALL) < 1)
		give_up("socket", "the other process is gone");
}

static void barrier(void)
{
	char byte = 0;
	swap(&byte, 1, &byte, 1);
}

static int start(int *argc, char ***argv, int multiple)
{
	int fds[2];
	(void)argc, (void)argv;
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, fds))
		give_up("socketpair", "failed");
	is_child = fork() == 0;
	if (is_child)
		prctl(PR_SET_PDEATHSIG, SIGKILL);
	fd = fds[is_child];
	const ucp_params_t parameters = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_TAG};
	const ucp_worker_params_t mode = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
	                                  .thread_mode = multiple ? UCS_THREAD_MODE_MULTI : UCS_THREAD_MODE_SINGLE};
	ucp_address_t *address;
	size_t length, their_length;
	must("ucp_init", ucp_init(&parameters, NULL, &context));
	must("ucp_worker_create", ucp_worker_create(context, &mode, &worker));
	ucp_worker_attr_t is = {.field_mask = UCP_WORKER_ATTR_FIELD_THREAD_MODE};
	must("ucp_worker_query", ucp_worker_query(worker, &is));
	if (multiple && is.thread_mode != UCS_THREAD_MODE_MULTI)
		give_up("ucp_worker_create", "this UCX was configured without --enable-mt");
	must("ucp_worker_get_address", ucp_worker_get_address(worker, &address, &length));
	swap(&length, sizeof length, &their_length, sizeof their_length);
	char *theirs = malloc(their_length);
	swap(address, length, theirs, their_length);
	const ucp_ep_params_t to = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS, .address = (ucp_address_t *)theirs};
	must("ucp_ep_create", ucp_ep_create(worker, &to, &endpoint));
	return is_child;
}

static void received(void *request, ucs_status_t status, const ucp_tag_recv_info_t *info, void *argument)
{
	(void)request, (void)status, (void)info, (void)argument;
}

static void finish(ucs_status_ptr_t request)
{
	if (UCS_PTR_IS_ERR(request))
		must("request", UCS_PTR_STATUS(request));
	if (!request)
		return;
	while (ucp_request_check_status(request) == UCS_INPROGRESS)
		ucp_worker_progress(worker);
	ucp_request_free(request);
}

static void exchange(int peer, int tag, char *in, char *out)
{
	ucs_status_ptr_t requests[2 * MAX_WINDOW];
	const ucp_request_param_t send = {.op_attr_mask = 0};
	const ucp_request_param_t receive = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK, .cb.recv = received};
	(void)peer;
	for (int i = 0; i < window; ++i)
		requests[i] = ucp_tag_recv_nbx(worker, in + i * bytes, (size_t)bytes, (ucp_tag_t)tag, ~UINT64_C(0), &receive);
	for (int i = 0; i < window; ++i)
		requests[window + i] = ucp_tag_send_nbx(endpoint, out, (size_t)bytes, (ucp_tag_t)tag, &send);
	for (int i = 0; i < 2 * window; ++i)
		finish(requests[i]);
}

static void end(void)
{
	const ucp_request_param_t none = {.op_attr_mask = 0};
	finish(ucp_ep_close_nbx(endpoint, &none));
	barrier();
	ucp_worker_destroy(worker);
	ucp_cleanup(context);
}

#else
#include <pt2p.h>

static pt2p_context_t *ctx;

static void must(const char *what, pt2p_status_t status)
{
	if (status != PT2P_OK)
		give_up(what, pt2p_last_error(ctx));
}

static int start(int *argc, char ***argv, int multiple)
{
	pt2p_options_t options = PT2P_OPTIONS_INIT;
	(void)argc, (void)argv;
	options.thread_level = multiple ? PT2P_THREAD_MULTIPLE : PT2P_THREAD_SINGLE;
	must("pt2p_init", pt2p_init(&options, &ctx));
	return pt2p_rank(ctx);
}

static void exchange(int peer, int tag, char *in, char *out)
{
	pt2p_request_t *requests[2 * MAX_WINDOW];
	for (int i = 0; i < window; ++i)
		must("pt2p_irecv",
		     pt2p_irecv(ctx, in + i * bytes, (size_t)bytes, peer, (uint64_t)tag, PT2P_TAG_EXACT, &requests[i]));
	for (int i = 0; i < window; ++i)
		must("pt2p_isend", pt2p_isend(ctx, out, (size_t)bytes, peer, (uint64_t)tag, &requests[window + i]));
	must("pt2p_waitall", pt2p_waitall(ctx, 2 * (size_t)window, requests, NULL));
}

static void barrier(void) { must("pt2p_barrier", pt2p_barrier(ctx)); }

static void end(void) { must("pt2p_finalize", pt2p_finalize(ctx)); }
#endif

/* ---- the measurement
 * -------------------------------------------------------------------------------------------------- */

static int rank;

static void *run(void *number)
{
	const int tag = (int)(intptr_t)number;
	char *in = calloc((size_t)window, (size_t)bytes), *out = calloc(1, (size_t)bytes);
	for (long i = 0; i < rounds; ++i) {
		memset(out, (int)i & 127, (size_t)bytes);
		exchange(1 - rank, tag, in, out);
		for (int w = 0; w < window; ++w)
			if (in[w * bytes] != (char)(i & 127))
				give_up("exchange", "wrong bytes");
	}
	free(in);
	free(out);
	return NULL;
}

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int main(int argc, char **argv)
{
	pthread_t ids[MAX_THREADS];
	if (argc != 5 || (threads = atoi(argv[1])) < 0 || threads > MAX_THREADS || (window = atoi(argv[2])) < 1 ||
	    window > MAX_WINDOW || (bytes = atoi(argv[3])) < 1 || bytes > MAX_BYTES || (rounds = atol(argv[4])) < 1)
		give_up("usage", "threads THREADS WINDOW BYTES ROUNDS");
	rank = start(&argc, &argv, threads > 0);
	const int n = threads ? threads : 1;
	barrier();
	const double begin = now();
	if (!threads)
		run(NULL);
	for (intptr_t i = 0; i < threads; ++i)
		if (pthread_create(&ids[i], NULL, run, (void *)i))
			give_up("pthread_create", "failed");
	for (int i = 0; i < threads; ++i)
		pthread_join(ids[i], NULL);
	barrier();
	if (rank == 0)
		printf("%d threads %d window %d bytes %.4f M/s\n", n, window, bytes,
		       2e-6 * (double)n * (double)window * (double)rounds / (now() - begin));
	fflush(stdout);
	end();
	return 0;
}
