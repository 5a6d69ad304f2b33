/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Calls with UCX's active messages: a message that a handler answers with another one. Measured as the tests call and
 * callrate of pt2p_perf are. The program forks: the parent calls, the child serves. Compiled and run by bench/run.
 *
 *     ucx_calls SECONDS CPU,CPU call|callrate BYTES [call|callrate BYTES ...]
 *
 * A call carries the number of its slot in the header, so that a reply finds its call. The header of a reply has a word
 * of 8 bytes, too. Prints one line for each point: test, bytes, median over the repetitions (us, millions a second).
 */
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <ucp/api/ucp.h>
#include <unistd.h>

enum { WINDOW = 64, REPETITIONS = 51, LONGEST = 4096, ID_CALL = 1, ID_REPLY = 2, ID_STOP = 3 };

typedef struct {
	uint64_t slot, word;
} reply_head;

static ucp_context_h context;
static ucp_worker_h worker;
static ucp_ep_h peer;
/* The server keeps a reply until its slot is called again; the caller has its buffers in the slots. */
static struct {
	reply_head head;
	char data[LONGEST];
	ucs_status_ptr_t request;
} slots[WINDOW];
static char input[LONGEST];
static uint64_t served;
static int awaited, stopped;

static void give_up(const char *what, const char *why)
{
	fprintf(stderr, "ucx_calls: %s: %s\n", what, why);
	exit(1);
}

static void must(const char *what, ucs_status_t status)
{
	if (status != UCS_OK)
		give_up(what, ucs_status_string(status));
}

static void end_request(ucs_status_ptr_t request)
{
	if (UCS_PTR_IS_ERR(request))
		must("ucp_am_send_nbx", UCS_PTR_STATUS(request));
	if (!request)
		return;
	while (ucp_request_check_status(request) == UCS_INPROGRESS)
		ucp_worker_progress(worker);
	must("ucp_am_send_nbx", ucp_request_check_status(request));
	ucp_request_free(request);
}

/* Of a reply: nobody waits for it. */
static void reply_sent(void *request, ucs_status_t status, void *argument)
{
	(void)argument;
	must("reply", status);
	ucp_request_free(request);
}

static ucs_status_t on_call(void *argument, const void *header, size_t header_length, void *data, size_t length,
                            const ucp_am_recv_param_t *param)
{
	static const ucp_request_param_t unattended = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK, .cb.send = reply_sent};
	uint64_t slot;
	(void)argument;
	memcpy(&slot, header, sizeof slot);
	if (header_length != sizeof slot || slot >= WINDOW || length > LONGEST ||
	    (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV))
		give_up("call", "wrong header or length");
	slots[slot].head = (reply_head){slot, ++served};
	memcpy(slots[slot].data, data, length);
	ucs_status_ptr_t sent = ucp_am_send_nbx(peer, ID_REPLY, &slots[slot].head, sizeof slots[slot].head,
	                                        slots[slot].data, length, &unattended);
	if (UCS_PTR_IS_ERR(sent))
		must("ucp_am_send_nbx", UCS_PTR_STATUS(sent));
	return UCS_OK;
}

static ucs_status_t on_reply(void *argument, const void *header, size_t header_length, void *data, size_t length,
                             const ucp_am_recv_param_t *param)
{
	reply_head head;
	(void)argument;
	memcpy(&head, header, sizeof head);
	if (header_length != sizeof head || head.slot >= WINDOW || length > LONGEST ||
	    (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV))
		give_up("reply", "wrong header or length");
	slots[head.slot].head = head;
	memcpy(slots[head.slot].data, data, length);
	--awaited;
	return UCS_OK;
}

static ucs_status_t on_stop(void *argument, const void *header, size_t header_length, void *data, size_t length,
                            const ucp_am_recv_param_t *param)
{
	(void)argument, (void)header, (void)header_length, (void)data, (void)length, (void)param;
	stopped = 1;
	return UCS_OK;
}

static void handle(unsigned id, ucp_am_recv_callback_t callback)
{
	const ucp_am_handler_param_t param = {
	    .field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB, .id = id, .cb = callback};
	must("ucp_worker_set_am_recv_handler", ucp_worker_set_am_recv_handler(worker, &param));
}

static void exchange(int fd, const void *mine, size_t length, void *theirs, size_t theirs_length)
{
	if (write(fd, mine, length) != (ssize_t)length || recv(fd, theirs, theirs_length, MSG_WAITALL) < 1)
		give_up("socket", "the other process is gone");
}

static void connect_to_peer(int fd)
{
	const ucp_params_t parameters = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_AM};
	const ucp_worker_params_t single = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
	                                    .thread_mode = UCS_THREAD_MODE_SINGLE};
	ucp_address_t *address;
	size_t length, their_length;
	must("ucp_init", ucp_init(&parameters, NULL, &context));
	must("ucp_worker_create", ucp_worker_create(context, &single, &worker));
	handle(ID_CALL, on_call);
	handle(ID_REPLY, on_reply);
	handle(ID_STOP, on_stop);
	must("ucp_worker_get_address", ucp_worker_get_address(worker, &address, &length));
	exchange(fd, &length, sizeof length, &their_length, sizeof their_length);
	char *theirs = malloc(their_length);
	if (!theirs)
		give_up("address", "no memory");
	exchange(fd, address, length, theirs, their_length);
	const ucp_ep_params_t other = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS,
	                               .address = (const ucp_address_t *)theirs};
	must("ucp_ep_create", ucp_ep_create(worker, &other, &peer));
	ucp_worker_release_address(worker, address);
	free(theirs);
}

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Seconds for so many windows of calls. */
static double windows(int window, size_t bytes, long iterations)
{
	static const ucp_request_param_t plain;
	static uint64_t numbers[WINDOW];
	const double start = now();
	for (long i = 0; i < iterations; ++i) {
		awaited = window;
		for (int w = 0; w < window; ++w) {
			numbers[w] = (uint64_t)w;
			slots[w].request = ucp_am_send_nbx(peer, ID_CALL, &numbers[w], sizeof numbers[w], input, bytes, &plain);
		}
		while (awaited)
			ucp_worker_progress(worker);
		for (int w = 0; w < window; ++w)
			end_request(slots[w].request);
	}
	return now() - start;
}

static int ascending(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static void measure(const char *test, size_t bytes, double time)
{
	const int window = strcmp(test, "call") == 0 ? 1 : WINDOW;
	const double target = time / REPETITIONS;
	double seconds = 0, values[REPETITIONS];
	long n = 1;
	for (int tries = 0; tries < 40; ++tries) {
		seconds = windows(window, bytes, n);
		const double wanted = target / (seconds > 1e-9 ? seconds : 1e-9);
		if (wanted < 1.5)
			break;
		n = (long)((double)n * (wanted < 10 ? wanted : 10)) + 1;
	}
	for (int r = 0; r < REPETITIONS; ++r) {
		const double each = windows(window, bytes, n) / (double)n;
		values[r] = window == 1 ? each * 1e6 : WINDOW / each / 1e6;
	}
	for (int w = 0; w < window; ++w)
		if (memcmp(slots[w].data, input, bytes) != 0)
			give_up("reply", "it has other bytes than the input");
	qsort(values, REPETITIONS, sizeof *values, ascending);
	printf("%s %zu %.6f\n", test, bytes, values[REPETITIONS / 2]);
}

static void run_on(int cpu)
{
	cpu_set_t set;
	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof set, &set) != 0)
		give_up("sched_setaffinity", "no such CPU");
}

int main(int argc, char **argv)
{
	int cpu[2], fd[2];
	if (argc < 5 || argc % 2 == 0 || sscanf(argv[2], "%d,%d", &cpu[0], &cpu[1]) != 2) {
		fprintf(stderr, "usage: ucx_calls SECONDS CPU,CPU call|callrate BYTES ...\n");
		return 2;
	}
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, fd) != 0)
		give_up("socketpair", "cannot be made");
	const pid_t child = fork();
	if (child < 0)
		give_up("fork", "no process");
	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		run_on(cpu[1]);
		connect_to_peer(fd[1]);
		while (!stopped)
			ucp_worker_progress(worker);
		_exit(0);
	}
	run_on(cpu[0]);
	connect_to_peer(fd[0]);
	for (size_t i = 0; i < LONGEST; ++i)
		input[i] = (char)(31 * i + 7);
	for (int i = 3; i < argc; i += 2) {
		const size_t bytes = (size_t)atol(argv[i + 1]);
		if (bytes > LONGEST || (strcmp(argv[i], "call") != 0 && strcmp(argv[i], "callrate") != 0))
			give_up(argv[i], "not a test, or too many bytes");
		measure(argv[i], bytes, atof(argv[1]));
	}
	const ucp_request_param_t plain = {0};
	end_request(ucp_am_send_nbx(peer, ID_STOP, NULL, 0, NULL, 0, &plain));
	int status;
	while (waitpid(child, &status, WNOHANG) == 0)
		ucp_worker_progress(worker);
	return status != 0;
}
