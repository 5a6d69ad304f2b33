/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The steps of bench/net/steps.h with UCX: tagged sends and receives, two workers for one thread each. The transport is
 * what UCX_TLS says. Compiled and run by bench/net/callgrind.
 *
 *     net_ucx MESSAGES
 */
#include <ucp/api/ucp.h>

#include "bench/net/steps.h"

static ucp_context_h context;
static ucp_worker_h worker[2];
static ucp_ep_h to_other[2];
static void *sends[LARGEST_WINDOW], *receives[LARGEST_WINDOW];

static void must(const char *what, ucs_status_t status)
{
	if (__builtin_expect(status != UCS_OK, 0))
		give_up(what, ucs_status_string(status));
}

/* Only buffer, length and tag: UCX's shortest path. */
static const ucp_request_param_t plain;

static void post_receive(int end, int slot, int64_t *to)
{
	receives[slot] = ucp_tag_recv_nbx(worker[end], to, sizeof *to, 7, ~UINT64_C(0), &plain);
	if (__builtin_expect(UCS_PTR_IS_ERR(receives[slot]), 0))
		must("ucp_tag_recv_nbx", UCS_PTR_STATUS(receives[slot]));
}

static void post_send(int end, int slot, const int64_t *from)
{
	sends[slot] = ucp_tag_send_nbx(to_other[end], from, sizeof *from, 7, &plain);
	if (__builtin_expect(UCS_PTR_IS_ERR(sends[slot]), 0))
		must("ucp_tag_send_nbx", UCS_PTR_STATUS(sends[slot]));
}

/* NULL: it completed at once. */
static void end_request(int end, void *request)
{
	ucs_status_t status;
	if (!request)
		return;
	while ((status = ucp_request_check_status(request)) == UCS_INPROGRESS)
		ucp_worker_progress(worker[end]);
	must("request", status);
	ucp_request_free(request);
}

static void end_receive(int end, int slot) { end_request(end, receives[slot]); }
static void end_send(int end, int slot) { end_request(end, sends[slot]); }
static int turn(int end) { return ucp_worker_progress(worker[end]) != 0; }

static void both_turn(void)
{
	turn(0);
	turn(1);
	settle(); /* the device's thread would have to wait for us: UCX never yields */
}

int main(int argc, char **argv)
{
	const long messages = argc == 2 ? atol(argv[1]) : 0;
	if (messages < 1) {
		fprintf(stderr, "usage: net_ucx MESSAGES\n");
		return 2;
	}
	open_crank();
	ucp_params_t parameters = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_TAG};
	must("ucp_init", ucp_init(&parameters, NULL, &context));
	ucp_worker_params_t single = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
	                              .thread_mode = UCS_THREAD_MODE_SINGLE};
	ucp_address_t *address[2];
	size_t length;
	for (int i = 0; i < 2; ++i) {
		must("ucp_worker_create", ucp_worker_create(context, &single, &worker[i]));
		must("ucp_worker_get_address", ucp_worker_get_address(worker[i], &address[i], &length));
	}
	for (int i = 0; i < 2; ++i) {
		ucp_ep_params_t other = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS, .address = address[1 - i]};
		must("ucp_ep_create", ucp_ep_create(worker[i], &other, &to_other[i]));
	}
	/* Connections are made by the first messages. */
	for (int i = 0; i < 2; ++i) {
		int64_t sent = SENT_FROM, received = 0;
		post_receive(1 - i, 0, &received);
		post_send(i, 0, &sent);
		while ((receives[0] && ucp_request_check_status(receives[0]) == UCS_INPROGRESS) ||
		       (sends[0] && ucp_request_check_status(sends[0]) == UCS_INPROGRESS))
			both_turn();
		end_receive(1 - i, 0);
		end_send(i, 0);
	}
	measure(messages);
	for (int i = 0; i < 2; ++i)
		ucp_worker_release_address(worker[i], address[i]);
	return 0;
}
