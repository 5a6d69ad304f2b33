// Messages from and to several places, at the C boundary.
#include "api/calls.hpp"

using namespace pt2p;

namespace {

constexpr size_t max_segments = size_t{1} << 24; // of a list

// PT2P_OK and the sum of the lengths.
pt2p_status_t check_list(pt2p_context_t *ctx, const char *function, const pt2p_iovec_t *list, size_t count,
                         size_t &length)
{
	length = 0;
	if (count && !list)
		return null_argument(ctx, function, "list");
	if (count > max_segments)
		return ctx->reporter.fail(PT2P_ERR_ARGUMENT, "%s: count is %zu; there may be %zu segments", function, count,
		                          max_segments);
	for (size_t i = 0; i < count; ++i) {
		if (list[i].length > PTRDIFF_MAX - length)
			return ctx->reporter.fail(PT2P_ERR_LENGTH, "%s: with segment %zu of %zu bytes the sum is above PTRDIFF_MAX",
			                          function, i, list[i].length);
		if (list[i].length && !list[i].base)
			return ctx->reporter.fail(PT2P_ERR_ARGUMENT, "%s: the base of segment %zu is NULL, its length %zu",
			                          function, i, list[i].length);
		length += list[i].length;
	}
	return PT2P_OK;
}

Request *start_send(pt2p_context_t *ctx, const char *function, const pt2p_iovec_t *list, size_t count, int dest,
                    uint64_t tag, pt2p_status_t &status)
{
	size_t length;
	status = check_list(ctx, function, list, count, length);
	if (status == PT2P_OK && !is_rank(ctx, dest))
		status = bad_rank(ctx, function, "dest", dest);
	return status == PT2P_OK ? ctx->engine->sends().isend(list, count, length, dest, tag, status) : nullptr;
}

Request *start_receive(pt2p_context_t *ctx, const char *function, const pt2p_iovec_t *list, size_t count, int source,
                       uint64_t tag, uint64_t mask, pt2p_status_t &status)
{
	size_t capacity;
	status = check_list(ctx, function, list, count, capacity);
	if (status == PT2P_OK && source != PT2P_ANY_SOURCE && !is_rank(ctx, source))
		status = bad_rank(ctx, function, "source", source);
	return status == PT2P_OK ? ctx->engine->receives().irecv(list, count, capacity, source, tag, mask, status)
	                         : nullptr;
}

// A short message that can leave at once and that nobody needs to know of: no request is needed. False: nothing has
// happened.
bool sends_and_forgets(pt2p_context_t *ctx, const pt2p_iovec_t *list, size_t count, int dest, uint64_t tag,
                       const pt2p_send_options_t &o)
{
	if (count != 1 || o.struct_size != sizeof o || !o.buffered || o.synchronous ||
	    bad_send(ctx, list->base, list->length, dest))
		return false;
	return o.has_data ? ctx->engine->send_at_once(o.data, list->base, list->length, dest, tag)
	                  : ctx->engine->send_at_once(list->base, list->length, dest, tag);
}

} // namespace

pt2p_status_t pt2p_isendv(pt2p_context_t *ctx, const pt2p_iovec_t *list, size_t count, int dest, uint64_t tag,
                          pt2p_request_t **req)
try {
	PT2P_CHECK_CONTEXT(ctx);
	Progress::Guard guard(*ctx->progress);
	if (!req)
		return null_argument(ctx, __func__, "req");
	*req = nullptr;
	pt2p_status_t status;
	Request *r = start_send(ctx, __func__, list, count, dest, tag, status);
	if (!r)
		return status;
	*req = to_handle(r);
	poll_now_and_then(ctx);
	return PT2P_OK;
}
PT2P_CATCH

pt2p_status_t pt2p_isend_with(pt2p_context_t *ctx, const pt2p_iovec_t *list, size_t count, int dest, uint64_t tag,
                              const pt2p_send_options_t *options, pt2p_request_t **req)
try {
	PT2P_CHECK_CONTEXT(ctx);
	Progress::Guard guard(*ctx->progress);
	if (req)
		*req = nullptr;
	if (!options) {
		static const pt2p_send_options_t none = PT2P_SEND_OPTIONS_INIT;
		options = &none;
	}
	const bool forgets = !req && !options->done;
	if (forgets && sends_and_forgets(ctx, list, count, dest, tag, *options)) {
		poll_now_and_then(ctx);
		return PT2P_OK;
	}
	if (options->struct_size != sizeof *options)
		return ctx->reporter.fail(
		    PT2P_ERR_ARGUMENT, "%s: %s", __func__,
		    wrong_size_text(options->struct_size, sizeof *options, "PT2P_SEND_OPTIONS_INIT").c_str());
	if ((req && options->done) || (forgets && !options->buffered))
		return ctx->reporter.fail(PT2P_ERR_ARGUMENT, "%s: %s", __func__,
		                          req ? "there is a request or options->done, not both" : "req is NULL");
	size_t length = 0;
	pt2p_status_t status = options->done ? check_callback(ctx, __func__, options->done) : PT2P_OK;
	if (status == PT2P_OK)
		status = check_list(ctx, __func__, list, count, length);
	if (status != PT2P_OK)
		return status;
	if (!is_rank(ctx, dest))
		return bad_rank(ctx, __func__, "dest", dest);
	Request *r = ctx->engine->sends().isend_with(
	    list, count, length, dest, tag,
	    {options->synchronous != 0, options->buffered != 0, options->has_data ? &options->data : nullptr}, status);
	if (!r)
		return status;
	if (req)
		*req = to_handle(r);
	else if (forgets && r->done())
		ctx->engine->requests().discard(*r);
	else
		ctx->engine->callbacks().detach(*r, options->done, options->argument);
	poll_now_and_then(ctx);
	return PT2P_OK;
}
PT2P_CATCH

pt2p_status_t pt2p_irecvv(pt2p_context_t *ctx, const pt2p_iovec_t *list, size_t count, int source, uint64_t tag,
                          uint64_t mask, pt2p_request_t **req)
try {
	PT2P_CHECK_CONTEXT(ctx);
	Progress::Guard guard(*ctx->progress);
	if (!req)
		return null_argument(ctx, __func__, "req");
	*req = nullptr;
	pt2p_status_t status;
	Request *r = start_receive(ctx, __func__, list, count, source, tag, mask, status);
	if (!r)
		return status;
	*req = to_handle(r);
	return PT2P_OK;
}
PT2P_CATCH

pt2p_status_t pt2p_sendv(pt2p_context_t *ctx, const pt2p_iovec_t *list, size_t count, int dest, uint64_t tag)
try {
	PT2P_CHECK_CONTEXT(ctx);
	Progress::Guard guard(*ctx->progress);
	PT2P_NOT_IN_HANDLER(ctx);
	pt2p_status_t status;
	Request *r = start_send(ctx, __func__, list, count, dest, tag, status);
	if (!r)
		return status;
	poll_now_and_then(ctx);
	wait_for(ctx, r);
	return ctx->engine->requests().collect(r, nullptr);
}
PT2P_CATCH

pt2p_status_t pt2p_recvv(pt2p_context_t *ctx, const pt2p_iovec_t *list, size_t count, int source, uint64_t tag,
                         uint64_t mask, pt2p_result_t *result)
try {
	PT2P_CHECK_CONTEXT(ctx);
	Progress::Guard guard(*ctx->progress);
	PT2P_NOT_IN_HANDLER(ctx);
	pt2p_status_t status;
	Request *r = start_receive(ctx, __func__, list, count, source, tag, mask, status);
	if (!r) {
		if (result)
			*result = {status, source, tag, 0, 0, 0};
		return status;
	}
	wait_for(ctx, r);
	return ctx->engine->requests().collect(r, result);
}
PT2P_CATCH
