// Two-sided messages at the C boundary: arguments are checked, the lock is taken, the engine does the rest.
#include "api/calls.hpp"

using namespace pt2p;

namespace {

[[gnu::noinline]] pt2p_status_t send_fully(pt2p_context_t *ctx, const void *buffer, size_t length, int dest,
                                           uint64_t tag)
try {
	Progress::Guard guard(*ctx->progress);
	PT2P_NOT_IN_HANDLER_IN(ctx, "pt2p_send");
	if (bad_send(ctx, buffer, length, dest))
		return bad_transfer(ctx, "pt2p_send", length, dest, false);
	if (ctx->engine->send_at_once(buffer, length, dest, tag)) {
		poll_now_and_then(ctx);
		return PT2P_OK;
	}
	pt2p_status_t status = PT2P_OK;
	Request *r = ctx->engine->sends().isend(buffer, length, dest, tag, status);
	if (!r)
		return status;
	wait_for(ctx, r);
	return ctx->engine->requests().collect(r, nullptr);
}
PT2P_CATCH_IN("pt2p_send")

// The ordinary cases of isend and irecv, in any thread that holds the lock, if there is one. The arguments are checked.
inline bool start_at_once(pt2p_context_t *ctx, const void *buffer, size_t length, int dest, uint64_t tag,
                          pt2p_request_t **req)
{
	if (__builtin_expect(!ctx->engine->isend_at_once(buffer, length, dest, tag, req), 0))
		return false;
	poll_now_and_then(ctx);
	return true;
}

[[gnu::always_inline]] inline bool post_at_once(pt2p_context_t *ctx, void *buffer, size_t capacity, int source,
                                                uint64_t tag, uint64_t mask, pt2p_request_t **req)
{
	Request *const r = ctx->engine->irecv_at_once(buffer, capacity, source, tag, mask);
	if (__builtin_expect(!r, 0))
		return false;
	*req = to_handle(r);
	return true;
}

// With the guard held.
pt2p_status_t isend_now(pt2p_context_t *ctx, const void *buffer, size_t length, int dest, uint64_t tag,
                        pt2p_request_t **req)
{
	if (!req)
		return null_argument(ctx, "pt2p_isend", "req");
	*req = nullptr;
	if (bad_send(ctx, buffer, length, dest))
		return bad_transfer(ctx, "pt2p_isend", length, dest, false);
	if (start_at_once(ctx, buffer, length, dest, tag, req))
		return PT2P_OK;
	pt2p_status_t status = PT2P_OK;
	Request *r = ctx->engine->sends().isend(buffer, length, dest, tag, status);
	if (!r)
		return status;
	*req = to_handle(r);
	poll_now_and_then(ctx);
	return PT2P_OK;
}

pt2p_status_t irecv_now(pt2p_context_t *ctx, void *buffer, size_t capacity, int source, uint64_t tag, uint64_t mask,
                        pt2p_request_t **req)
{
	if (!req)
		return null_argument(ctx, "pt2p_irecv", "req");
	*req = nullptr;
	if (bad_recv(ctx, buffer, capacity, source))
		return bad_transfer(ctx, "pt2p_irecv", capacity, source, true);
	if (post_at_once(ctx, buffer, capacity, source, tag, mask, req))
		return PT2P_OK;
	pt2p_status_t status = PT2P_OK;
	Request *r = ctx->engine->receives().irecv(buffer, capacity, source, tag, mask, status);
	if (!r)
		return status;
	*req = to_handle(r);
	return PT2P_OK;
}

[[gnu::noinline]] pt2p_status_t isend_fully(pt2p_context_t *ctx, const void *buffer, size_t length, int dest,
                                            uint64_t tag, pt2p_request_t **req)
try {
	return start_among_threads(ctx, [=] { return isend_now(ctx, buffer, length, dest, tag, req); });
}
PT2P_CATCH_IN("pt2p_isend")

[[gnu::noinline]] pt2p_status_t irecv_fully(pt2p_context_t *ctx, void *buffer, size_t capacity, int source,
                                            uint64_t tag, uint64_t mask, pt2p_request_t **req)
try {
	if (ordinary(ctx) && req && !bad_recv(ctx, buffer, capacity, source))
		if (Request *const r = ctx->engine->irecv_like_others(buffer, capacity, source, tag, mask)) {
			*req = to_handle(r);
			return PT2P_OK;
		}
	return start_among_threads(ctx, [=] { return irecv_now(ctx, buffer, capacity, source, tag, mask, req); });
}
PT2P_CATCH_IN("pt2p_irecv")

// The ordinary cases at thread level multiple, if no other thread holds the lock.
[[gnu::noinline]] pt2p_status_t isend_among_threads(pt2p_context_t *ctx, const void *buffer, size_t length, int dest,
                                                    uint64_t tag, pt2p_request_t **req)
try {
	if (req && !bad_send(ctx, buffer, length, dest) && ctx->progress->try_lock()) {
		const Progress::Guard guard(*ctx->progress, std::adopt_lock);
		if (start_at_once(ctx, buffer, length, dest, tag, req))
			return PT2P_OK;
	}
	return isend_fully(ctx, buffer, length, dest, tag, req);
}
PT2P_CATCH_IN("pt2p_isend")

[[gnu::noinline]] pt2p_status_t irecv_among_threads(pt2p_context_t *ctx, void *buffer, size_t capacity, int source,
                                                    uint64_t tag, uint64_t mask, pt2p_request_t **req)
{
	if (req && !bad_recv(ctx, buffer, capacity, source) && ctx->progress->try_lock()) {
		const Progress::Guard guard(*ctx->progress, std::adopt_lock);
		if (post_at_once(ctx, buffer, capacity, source, tag, mask, req))
			return PT2P_OK;
	}
	return irecv_fully(ctx, buffer, capacity, source, tag, mask, req);
}

// send(): the engine's, whether the message has left.
template <class F>
[[gnu::noinline]] pt2p_status_t try_send_fully(pt2p_context_t *ctx, const char *function, const void *buffer,
                                               size_t length, int dest, int *sent, const F &send)
{
	Progress::Guard guard(*ctx->progress);
	if (!sent)
		return null_argument(ctx, function, "sent");
	*sent = 0;
	if (bad_send(ctx, buffer, length, dest))
		return bad_transfer(ctx, function, length, dest, false);
	*sent = send();
	poll_now_and_then(ctx);
	return PT2P_OK;
}

template <class F>
[[gnu::always_inline]] inline pt2p_status_t try_send(pt2p_context_t *ctx, const char *function, const void *buffer,
                                                     size_t length, int dest, int *sent, const F &send)
{
	PT2P_CHECK_CONTEXT_IN(ctx, function);
	if (__builtin_expect(!ordinary(ctx) || !sent || bad_send(ctx, buffer, length, dest), 0))
		return try_send_fully(ctx, function, buffer, length, dest, sent, send);
	*sent = send();
	poll_now_and_then(ctx);
	return PT2P_OK;
}

[[gnu::noinline]] pt2p_status_t irecv_callback_fully(pt2p_context_t *ctx, void *buffer, size_t capacity, int source,
                                                     uint64_t tag, uint64_t mask, pt2p_callback_t done, void *argument)
{
	Progress::Guard guard(*ctx->progress);
	pt2p_status_t status = check_callback(ctx, "pt2p_irecv_callback", done);
	if (status != PT2P_OK)
		return status;
	if (bad_recv(ctx, buffer, capacity, source))
		return bad_transfer(ctx, "pt2p_irecv_callback", capacity, source, true);
	Request *r = ctx->engine->receives().irecv(buffer, capacity, source, tag, mask, status);
	if (!r)
		return status;
	ctx->engine->callbacks().detach(*r, done, argument);
	return PT2P_OK;
}

[[gnu::noinline]] pt2p_status_t progress_fully(pt2p_context_t *ctx)
{
	Progress::Guard guard(*ctx->progress);
	PT2P_NOT_IN_HANDLER_IN(ctx, "pt2p_progress");
	poll_or_yield(ctx);
	return PT2P_OK;
}

} // namespace

pt2p_status_t pt2p_send(pt2p_context_t *ctx, const void *buffer, size_t length, int dest, uint64_t tag)
try {
	PT2P_CHECK_CONTEXT(ctx);
	if (__builtin_expect(ordinary(ctx) && !bad_send(ctx, buffer, length, dest) &&
	                         ctx->engine->send_at_once(buffer, length, dest, tag),
	                     1)) {
		poll_now_and_then(ctx);
		return PT2P_OK;
	}
	return send_fully(ctx, buffer, length, dest, tag);
}
PT2P_CATCH

pt2p_status_t pt2p_try_send(pt2p_context_t *ctx, const void *buffer, size_t length, int dest, uint64_t tag, int *sent)
try {
	return try_send(ctx, __func__, buffer, length, dest, sent,
	                [=] { return ctx->engine->send_at_once(buffer, length, dest, tag); });
}
PT2P_CATCH

pt2p_status_t pt2p_try_send_data(pt2p_context_t *ctx, const void *buffer, size_t length, int dest, uint64_t tag,
                                 uint64_t data, int *sent)
try {
	return try_send(ctx, __func__, buffer, length, dest, sent,
	                [=] { return ctx->engine->send_at_once(data, buffer, length, dest, tag); });
}
PT2P_CATCH

pt2p_status_t pt2p_isend(pt2p_context_t *ctx, const void *buffer, size_t length, int dest, uint64_t tag,
                         pt2p_request_t **req)
try {
	PT2P_CHECK_CONTEXT(ctx);
	if (__builtin_expect(!ordinary(ctx), 0))
		return isend_among_threads(ctx, buffer, length, dest, tag, req);
	if (__builtin_expect(
	        req && !bad_send(ctx, buffer, length, dest) && start_at_once(ctx, buffer, length, dest, tag, req), 1))
		return PT2P_OK;
	return isend_fully(ctx, buffer, length, dest, tag, req);
}
PT2P_CATCH

pt2p_status_t pt2p_irecv(pt2p_context_t *ctx, void *buffer, size_t capacity, int source, uint64_t tag, uint64_t mask,
                         pt2p_request_t **req)
{
	PT2P_CHECK_CONTEXT(ctx);
	if (__builtin_expect(!ordinary(ctx), 0))
		return irecv_among_threads(ctx, buffer, capacity, source, tag, mask, req);
	if (__builtin_expect(req && !bad_recv(ctx, buffer, capacity, source) &&
	                         post_at_once(ctx, buffer, capacity, source, tag, mask, req),
	                     1))
		return PT2P_OK;
	return irecv_fully(ctx, buffer, capacity, source, tag, mask, req);
}

pt2p_status_t pt2p_isend_callback(pt2p_context_t *ctx, const void *buffer, size_t length, int dest, uint64_t tag,
                                  pt2p_callback_t done, void *argument)
try {
	PT2P_CHECK_CONTEXT(ctx);
	Progress::Guard guard(*ctx->progress);
	pt2p_status_t status = check_callback(ctx, __func__, done);
	if (status != PT2P_OK)
		return status;
	if (bad_send(ctx, buffer, length, dest))
		return bad_transfer(ctx, __func__, length, dest, false);
	Request *r = ctx->engine->sends().isend(buffer, length, dest, tag, status);
	if (!r)
		return status;
	ctx->engine->callbacks().detach(*r, done, argument);
	poll_now_and_then(ctx);
	return PT2P_OK;
}
PT2P_CATCH

pt2p_status_t pt2p_irecv_callback(pt2p_context_t *ctx, void *buffer, size_t capacity, int source, uint64_t tag,
                                  uint64_t mask, pt2p_callback_t done, void *argument)
try {
	PT2P_CHECK_CONTEXT(ctx);
	Callbacks &callbacks = ctx->engine->callbacks();
	if (__builtin_expect(ordinary(ctx) && done && !callbacks.ended() && !bad_recv(ctx, buffer, capacity, source), 1)) {
		Request *r = ctx->engine->irecv_at_once(buffer, capacity, source, tag, mask);
		if (!r)
			r = ctx->engine->irecv_like_others(buffer, capacity, source, tag, mask);
		if (__builtin_expect(r != nullptr, 1)) {
			callbacks.detach(*r, done, argument);
			return PT2P_OK;
		}
	}
	return irecv_callback_fully(ctx, buffer, capacity, source, tag, mask, done, argument);
}
PT2P_CATCH

pt2p_status_t pt2p_recv(pt2p_context_t *ctx, void *buffer, size_t capacity, int source, uint64_t tag, uint64_t mask,
                        pt2p_result_t *result)
try {
	PT2P_CHECK_CONTEXT(ctx);
	pt2p_request_t *req = nullptr;
	pt2p_status_t status = PT2P_OK;
	if (start_and_wait(ctx, req, result, status, [&] {
		    return !bad_recv(ctx, buffer, capacity, source) && !ctx->engine->callbacks().in_handler() &&
		           irecv_now(ctx, buffer, capacity, source, tag, mask, &req) == PT2P_OK;
	    }))
		return status;
	const Progress::Guard guard(*ctx->progress, std::adopt_lock);
	PT2P_NOT_IN_HANDLER(ctx);
	if (__builtin_expect(bad_recv(ctx, buffer, capacity, source), 0))
		return bad_transfer(ctx, __func__, capacity, source, true);
	Request *r = ctx->engine->irecv_at_once(buffer, capacity, source, tag, mask);
	if (__builtin_expect(!r, 0))
		r = ctx->engine->receives().irecv(buffer, capacity, source, tag, mask, status);
	if (!r) {
		if (result)
			*result = {status, source, tag, 0, 0, 0};
		return status;
	}
	wait_for(ctx, r);
	return ctx->engine->requests().collect(r, result);
}
PT2P_CATCH

pt2p_status_t pt2p_sendrecv(pt2p_context_t *ctx, const void *send_buffer, size_t send_length, int dest,
                            uint64_t send_tag, void *recv_buffer, size_t recv_capacity, int source, uint64_t recv_tag,
                            uint64_t recv_mask, pt2p_result_t *result)
try {
	PT2P_CHECK_CONTEXT(ctx);
	Progress::Guard guard(*ctx->progress);
	PT2P_NOT_IN_HANDLER(ctx);
	if (bad_send(ctx, send_buffer, send_length, dest))
		return bad_transfer(ctx, __func__, send_length, dest, false);
	if (bad_recv(ctx, recv_buffer, recv_capacity, source))
		return bad_transfer(ctx, __func__, recv_capacity, source, true);
	pt2p_status_t status = PT2P_OK;
	if (!ctx->engine->channels().reach(dest, status))
		return status; // before the receive takes a message
	Request *in = ctx->engine->receives().irecv(recv_buffer, recv_capacity, source, recv_tag, recv_mask, status);
	if (!in)
		return status;
	Request *out = ctx->engine->sends().isend(send_buffer, send_length, dest, send_tag, status);
	if (out) {
		wait_for(ctx, out);
		status = ctx->engine->requests().collect(out, nullptr);
	}
	// The receive must not stay behind with the caller's buffer. A message that has matched it already is the caller's.
	if (status != PT2P_OK)
		ctx->engine->receives().cancel(*in);
	wait_for(ctx, in);
	if (status == PT2P_OK)
		return ctx->engine->requests().collect(in, result);
	if (result)
		*result = ctx->engine->requests().result_of(*in);
	ctx->engine->requests().discard(*in);
	return status;
}
PT2P_CATCH

pt2p_status_t pt2p_probe(pt2p_context_t *ctx, int source, uint64_t tag, uint64_t mask, pt2p_result_t *result)
try {
	PT2P_CHECK_CONTEXT(ctx);
	Progress::Guard guard(*ctx->progress);
	PT2P_NOT_IN_HANDLER(ctx);
	if (bad_recv(ctx, nullptr, 0, source))
		return bad_transfer(ctx, __func__, 0, source, true);
	pt2p_result_t found{};
	pt2p_status_t status = PT2P_OK;
	const unsigned losses = ctx->engine->losses().told();
	const auto finished = [&] {
		if (ctx->engine->receives().find_unexpected(source, tag, mask, found))
			return true;
		status = awaited_status(ctx, source, losses);
		return status != PT2P_OK;
	};
	if (!finished()) {
		const AwaitedPeers::Awaiting awaiting(ctx->engine->awaited(), source);
		wait_until(ctx, finished);
	}
	if (result)
		*result = status == PT2P_OK ? found : pt2p_result_t{status, source, tag, 0, 0, 0};
	return status;
}
PT2P_CATCH

pt2p_status_t pt2p_iprobe(pt2p_context_t *ctx, int source, uint64_t tag, uint64_t mask, int *found,
                          pt2p_result_t *result)
try {
	PT2P_CHECK_CONTEXT(ctx);
	Progress::Guard guard(*ctx->progress);
	if (!found)
		return null_argument(ctx, __func__, "found");
	*found = 0;
	if (bad_recv(ctx, nullptr, 0, source))
		return bad_transfer(ctx, __func__, 0, source, true);
	pt2p_result_t r{};
	if (!ctx->engine->receives().find_unexpected(source, tag, mask, r)) {
		poll_or_yield(ctx);
		if (!ctx->engine->receives().find_unexpected(source, tag, mask, r))
			return awaited_status(ctx, source, ctx->engine->losses().told());
	}
	*found = 1;
	if (result)
		*result = r;
	return PT2P_OK;
}
PT2P_CATCH

pt2p_status_t pt2p_barrier(pt2p_context_t *ctx)
try {
	PT2P_CHECK_CONTEXT(ctx);
	Progress::Guard guard(*ctx->progress);
	PT2P_NOT_IN_HANDLER(ctx);
	if (ctx->job->open())
		return ctx->reporter.fail(PT2P_ERR_UNSUPPORTED,
		                          "%s: peers of an open context come and go, so there is no \"all\"; send a message to "
		                          "those that are meant, and await theirs",
		                          __func__);
	return ctx->engine->barrier().enter();
}
PT2P_CATCH

pt2p_status_t pt2p_progress(pt2p_context_t *ctx)
try {
	PT2P_CHECK_CONTEXT(ctx);
	if (__builtin_expect(!ordinary(ctx), 0))
		return progress_fully(ctx);
	poll_or_yield(ctx);
	return PT2P_OK;
}
PT2P_CATCH

pt2p_status_t pt2p_set_delivery(pt2p_context_t *ctx, int rank, pt2p_delivery_t delivery)
try {
	PT2P_CHECK_CONTEXT(ctx);
	Progress::Guard guard(*ctx->progress);
	if (!is_rank(ctx, rank))
		return bad_rank(ctx, __func__, "the rank", rank);
	if (delivery < PT2P_DELIVERY_AUTO || delivery > PT2P_DELIVERY_READ)
		return ctx->reporter.fail(PT2P_ERR_ARGUMENT, "%s: there is no delivery %d", __func__,
		                          static_cast<int>(delivery));
	return ctx->engine->set_delivery(rank, delivery);
}
PT2P_CATCH
