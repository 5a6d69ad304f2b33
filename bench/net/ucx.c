/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The steps of bench/net/steps.h with UCX: tagged sends and receives, or active messages whose handler replies with
 * another one; two workers for one thread each. The transport is what UCX_TLS says. Compiled and run by
 * bench/net/callgrind.
 *
 *     net_ucx MESSAGES [message|call]        of 32 bytes, with a reply of as many; default: messages of 8
 */
#include <ucp/api/ucp.h>

#include "bench/net/steps.h"

static ucp_context_h context;
static ucp_worker_h worker[2];
static ucp_ep_h to_other[2];
static void *sends[LARGEST_WINDOW], *receives[LARGEST_WINDOW];

enum { ID_CALL = 1, ID_REPLY = 2 };
typedef struct {
	int64_t words[WORDS];
} bytes32;
static struct {
	uint64_t number; /* of the slot: the header of a call */
	bytes32 *to;     /* NULL: the reply is there */
	struct {
		uint64_t number, word;
	} head; /* of the reply */
	bytes32 reply;
} slots[LARGEST_WINDOW];

static void must(const char *what, ucs_status_t status)
{
	if (__builtin_expect(status != UCS_OK, 0))
		give_up(what, ucs_status_string(status));
}

/* Only buffer, length and tag: UCX's shortest path. */
static const ucp_request_param_t plain;

static void post_receive(int end, int slot, void *to)
{
	receives[slot] = ucp_tag_recv_nbx(worker[end], to, message_bytes, 7, ~UINT64_C(0), &plain);
	if (__builtin_expect(UCS_PTR_IS_ERR(receives[slot]), 0))
		must("ucp_tag_recv_nbx", UCS_PTR_STATUS(receives[slot]));
}

static void post_send(int end, int slot, const void *from)
{
	sends[slot] = ucp_tag_send_nbx(to_other[end], from, message_bytes, 7, &plain);
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

static void make_call(int slot, const void *input, void *reply)
{
	slots[slot].number = (uint64_t)slot;
	slots[slot].to = reply;
	sends[slot] = ucp_am_send_nbx(to_other[0], ID_CALL, &slots[slot].number, sizeof slots[slot].number, input,
	                              sizeof(bytes32), &plain);
	if (__builtin_expect(UCS_PTR_IS_ERR(sends[slot]), 0))
		must("ucp_am_send_nbx", UCS_PTR_STATUS(sends[slot]));
}

static void end_call(int slot)
{
	while (slots[slot].to)
		if (!turn(0))
			turn(1);
	end_send(0, slot);
}

static void reply_sent(void *request, ucs_status_t status, void *argument)
{
	(void)argument;
	must("reply", status);
	ucp_request_free(request);
}

/* The end that serves keeps the reply until the slot is used again. */
static ucs_status_t on_call(void *argument, const void *header, size_t header_length, void *data, size_t length,
                            const ucp_am_recv_param_t *param)
{
	static const ucp_request_param_t unattended = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK, .cb.send = reply_sent};
	const uint64_t slot = *(const uint64_t *)header;
	(void)argument;
	if (header_length != sizeof slot || slot >= LARGEST_WINDOW || length != sizeof(bytes32) ||
	    (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV))
		give_up("call", "wrong header or length");
	slots[slot].head.number = slot;
	slots[slot].head.word = ++served;
	slots[slot].reply = *(const bytes32 *)data;
	void *sent = ucp_am_send_nbx(to_other[1], ID_REPLY, &slots[slot].head, sizeof slots[slot].head, &slots[slot].reply,
	                             sizeof slots[slot].reply, &unattended);
	if (UCS_PTR_IS_ERR(sent))
		must("ucp_am_send_nbx", UCS_PTR_STATUS(sent));
	return UCS_OK;
}

static ucs_status_t on_reply(void *argument, const void *header, size_t header_length, void *data, size_t length,
                             const ucp_am_recv_param_t *param)
{
	const uint64_t slot = *(const uint64_t *)header;
	(void)argument;
	if (header_length != sizeof slots[slot].head || slot >= LARGEST_WINDOW || length != sizeof(bytes32) ||
	    (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV))
		give_up("reply", "wrong header or length");
	*slots[slot].to = *(const bytes32 *)data;
	slots[slot].to = NULL;
	return UCS_OK;
}

static void handle(int end, unsigned id, ucp_am_recv_callback_t callback)
{
	const ucp_am_handler_param_t param = {
	    .field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB, .id = id, .cb = callback};
	must("ucp_worker_set_am_recv_handler", ucp_worker_set_am_recv_handler(worker[end], &param));
}

static void both_turn(void)
{
	turn(0);
	turn(1);
	settle(); /* the device's thread would have to wait for us: UCX never yields */
}

int main(int argc, char **argv)
{
	const long messages = argc == 2 || argc == 3 ? atol(argv[1]) : 0;
	if (messages < 1) {
		fprintf(stderr, "usage: net_ucx MESSAGES [message|call]\n");
		return 2;
	}
	const int calls = calls_asked_for(argv[2]);
	open_crank();
	ucp_params_t parameters = {.field_mask = UCP_PARAM_FIELD_FEATURES,
	                           .features = UCP_FEATURE_TAG | (calls ? UCP_FEATURE_AM : 0)};
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
	if (calls) {
		handle(1, ID_CALL, on_call);
		handle(0, ID_REPLY, on_reply);
	}
	/* Connections are made by the first messages. */
	for (int i = 0; i < 2; ++i) {
		const int64_t sent[WORDS] = {SENT_FROM};
		int64_t received[WORDS];
		post_receive(1 - i, 0, received);
		post_send(i, 0, sent);
		while ((receives[0] && ucp_request_check_status(receives[0]) == UCS_INPROGRESS) ||
		       (sends[0] && ucp_request_check_status(sends[0]) == UCS_INPROGRESS))
			both_turn();
		end_receive(1 - i, 0);
		end_send(i, 0);
	}
	measure(calls, messages);
	for (int i = 0; i < 2; ++i)
		ucp_worker_release_address(worker[i], address[i]);
	return 0;
}
