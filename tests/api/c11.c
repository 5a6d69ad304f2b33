/* The first program of the README in strict C11, and the address of every function. Run without a launcher. */
#include <pt2p.h>

#include <stdio.h>
#include <string.h>

static int first_program(void)
{
	pt2p_context_t *ctx;
	if (pt2p_init(NULL, &ctx) != PT2P_OK) {
		fprintf(stderr, "%s\n", pt2p_last_error(NULL));
		return 1;
	}
	int me = pt2p_rank(ctx), n = pt2p_size(ctx);
	double mine = me, left = -1;
	pt2p_request_t *req;
	pt2p_irecv(ctx, &left, sizeof left, (me + n - 1) % n, 7, PT2P_TAG_EXACT, &req);
	pt2p_send(ctx, &mine, sizeof mine, (me + 1) % n, 7);
	pt2p_result_t result;
	pt2p_wait(ctx, req, &result);
	if (result.status != PT2P_OK || result.source != (me + n - 1) % n || result.tag != 7 ||
	    result.length != sizeof left || left != (me + n - 1) % n)
		return 1;
	return pt2p_finalize(ctx) == PT2P_OK ? 0 : 1;
}

/* A synchronous message to this rank itself, received through its handle. */
static int matched(void)
{
	pt2p_context_t *ctx;
	pt2p_request_t *send, *receive;
	pt2p_message_t *message;
	pt2p_result_t result;
	char text[16] = "";
	int done = 1;
	if (pt2p_init(NULL, &ctx) != PT2P_OK)
		return 1;
	int me = pt2p_rank(ctx);
	if (pt2p_issend(ctx, "matched", 8, me, 3, &send) != PT2P_OK ||
	    pt2p_improbe(ctx, PT2P_ANY_SOURCE, 3, PT2P_TAG_EXACT, &message, &result) != PT2P_OK || !message ||
	    result.length != 8 || pt2p_test(ctx, send, &done, NULL) != PT2P_OK || done ||
	    pt2p_imrecv(ctx, text, sizeof text, message, &receive) != PT2P_OK || pt2p_wait(ctx, send, NULL) != PT2P_OK ||
	    pt2p_wait(ctx, receive, &result) != PT2P_OK || result.source != me || strcmp(text, "matched") != 0)
		return 1;
	return pt2p_finalize(ctx) == PT2P_OK ? 0 : 1;
}

/* A counter and a message in memory of this rank itself. */
static int one_sided(void)
{
	pt2p_context_t *ctx;
	pt2p_memory_t *mem;
	pt2p_remote_t *remote;
	pt2p_remote_info_t info;
	void *address;
	char blob[PT2P_EXPORT_MAX], text[16] = "";
	size_t length;
	uint64_t was = 9;
	if (pt2p_init(NULL, &ctx) != PT2P_OK)
		return 1;
	int me = pt2p_rank(ctx);
	if (pt2p_memory_allocate(ctx, 4096, &mem, &address) != PT2P_OK ||
	    pt2p_memory_export(ctx, mem, blob, sizeof blob, &length) != PT2P_OK ||
	    pt2p_memory_import(ctx, me, blob, length, &remote) != PT2P_OK ||
	    pt2p_remote_query(ctx, remote, &info) != PT2P_OK || info.length != 4096 || info.rank != me)
		return 1;
	if (pt2p_put_signal(ctx, "signal", 7, remote, 64, remote, 0, PT2P_SIGNAL_ADD, 3, NULL) != PT2P_OK ||
	    pt2p_signal_wait(ctx, address, 3, me) != PT2P_OK || strcmp((char *)address + 64, "signal") != 0 ||
	    pt2p_fetch_add64(ctx, remote, 0, 1, &was, NULL) != PT2P_OK || pt2p_fence(ctx, me) != PT2P_OK ||
	    pt2p_get(ctx, text, 7, remote, 64, NULL) != PT2P_OK || pt2p_flush(ctx, me) != PT2P_OK || was != 3 ||
	    strcmp(text, "signal") != 0)
		return 1;
	if (pt2p_remote_release(ctx, remote) != PT2P_OK || pt2p_memory_release(ctx, mem) != PT2P_OK)
		return 1;
	return pt2p_finalize(ctx) == PT2P_OK ? 0 : 1;
}

static void count(pt2p_context_t *ctx, const pt2p_result_t *result, void *argument)
{
	*(int *)argument += result->status == PT2P_OK && pt2p_rank(ctx) >= 0;
}

/* A message from two segments into two others, with callbacks. */
static int segments(void)
{
	pt2p_context_t *ctx;
	char in[6] = "";
	pt2p_iovec_t out[2] = {{"ab", 2}, {"cde", 3}}, to[2] = {{in + 1, 4}, {in, 1}};
	pt2p_request_t *req;
	int calls = 0;
	if (pt2p_init(NULL, &ctx) != PT2P_OK)
		return 1;
	int me = pt2p_rank(ctx);
	if (pt2p_irecvv(ctx, to, 2, me, 1, PT2P_TAG_EXACT, &req) != PT2P_OK ||
	    pt2p_request_callback(ctx, req, count, &calls) != PT2P_OK || pt2p_sendv(ctx, out, 2, me, 1) != PT2P_OK)
		return 1;
	while (!calls)
		if (pt2p_progress(ctx) != PT2P_OK)
			return 1;
	if (calls != 1 || strcmp(in, "eabcd") != 0)
		return 1;
	return pt2p_finalize(ctx) == PT2P_OK ? 0 : 1;
}

typedef void (*function)(void);

int main(void)
{
	const function functions[] = {
	    (function)pt2p_version,
	    (function)pt2p_init,
	    (function)pt2p_init_inprocess,
	    (function)pt2p_finalize,
	    (function)pt2p_abort,
	    (function)pt2p_rank,
	    (function)pt2p_size,
	    (function)pt2p_query,
	    (function)pt2p_peer_query,
	    (function)pt2p_set_delivery,
	    (function)pt2p_send,
	    (function)pt2p_recv,
	    (function)pt2p_isend,
	    (function)pt2p_irecv,
	    (function)pt2p_sendrecv,
	    (function)pt2p_probe,
	    (function)pt2p_iprobe,
	    (function)pt2p_ssend,
	    (function)pt2p_issend,
	    (function)pt2p_mprobe,
	    (function)pt2p_improbe,
	    (function)pt2p_mrecv,
	    (function)pt2p_imrecv,
	    (function)pt2p_wait,
	    (function)pt2p_test,
	    (function)pt2p_waitall,
	    (function)pt2p_waitany,
	    (function)pt2p_testany,
	    (function)pt2p_testall,
	    (function)pt2p_cancel,
	    (function)pt2p_barrier,
	    (function)pt2p_progress,
	    (function)pt2p_strerror,
	    (function)pt2p_last_error,
	    (function)pt2p_counter_count,
	    (function)pt2p_counter_name,
	    (function)pt2p_counter_help,
	    (function)pt2p_counter_read,
	    (function)pt2p_summary,
	    (function)pt2p_report,
	    (function)pt2p_dump,
	    (function)pt2p_memory_register,
	    (function)pt2p_memory_allocate,
	    (function)pt2p_memory_release,
	    (function)pt2p_memory_export,
	    (function)pt2p_memory_import,
	    (function)pt2p_memory_gone,
	    (function)pt2p_remote_release,
	    (function)pt2p_remote_query,
	    (function)pt2p_put,
	    (function)pt2p_get,
	    (function)pt2p_put_signal,
	    (function)pt2p_fetch_add32,
	    (function)pt2p_fetch_add64,
	    (function)pt2p_swap32,
	    (function)pt2p_swap64,
	    (function)pt2p_compare_swap32,
	    (function)pt2p_compare_swap64,
	    (function)pt2p_flush,
	    (function)pt2p_flush_all,
	    (function)pt2p_fence,
	    (function)pt2p_signal_wait,
	    (function)pt2p_waitsome,
	    (function)pt2p_testsome,
	    (function)pt2p_request_query,
	    (function)pt2p_request_free,
	    (function)pt2p_request_callback,
	    (function)pt2p_isend_callback,
	    (function)pt2p_irecv_callback,
	    (function)pt2p_put_callback,
	    (function)pt2p_get_callback,
	    (function)pt2p_isendv,
	    (function)pt2p_irecvv,
	    (function)pt2p_sendv,
	    (function)pt2p_recvv,
	    (function)pt2p_remote_address,
	};
	for (size_t i = 0; i < sizeof functions / sizeof *functions; ++i)
		if (!functions[i])
			return 1;
	pt2p_options_t options = PT2P_OPTIONS_INIT;
	if (options.struct_size != sizeof options || options.thread_level != PT2P_THREAD_SINGLE || options.tunables)
		return 1;
	if (strcmp(pt2p_version(), "0.1.0") != 0) {
		fprintf(stderr, "version %s\n", pt2p_version());
		return 1;
	}
	return first_program() || matched() || one_sided() || segments();
}
