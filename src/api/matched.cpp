// At the C boundary: sends that are done when a receive has matched them, and probes whose message nobody else
// receives.
#include "api/calls.hpp"

using namespace pt2p;

namespace {

UnexpectedMessage *from_handle(pt2p_context_t *ctx, pt2p_message_t *message)
{
	return ctx->engine->receives().find_taken(reinterpret_cast<uint64_t>(message));
}

pt2p_message_t *to_handle(const UnexpectedMessage *m) { return reinterpret_cast<pt2p_message_t *>(m->handle); }

pt2p_status_t bad_message(pt2p_context_t *ctx, const char *function, const pt2p_message_t *message)
{
	return ctx->reporter.fail(PT2P_ERR_REQUEST, "%s: %s", function,
	                          message ? "the message has been received already or is not one of this context's"
	                                  : "the message is NULL");
}

} // namespace

pt2p_status_t pt2p_ssend(pt2p_context_t *ctx, const void *buffer, size_t length, int dest, uint64_t tag)
try {
	PT2P_CHECK_CONTEXT(ctx);
	Progress::Guard guard(*ctx->progress);
	PT2P_NOT_IN_HANDLER(ctx);
	if (bad_send(ctx, buffer, length, dest))
		return bad_transfer(ctx, __func__, length, dest, false);
	pt2p_status_t status = PT2P_OK;
	Request *r = ctx->engine->sends().issend(buffer, length, dest, tag, status);
	if (!r)
		return status;
	wait_for(ctx, r);
	return ctx->engine->requests().collect(r, nullptr);
}
PT2P_CATCH

pt2p_status_t pt2p_issend(pt2p_context_t *ctx, const void *buffer, size_t length, int dest, uint64_t tag,
                          pt2p_request_t **req)
try {
	PT2P_CHECK_CONTEXT(ctx);
	Progress::Guard guard(*ctx->progress);
	if (!req)
		return null_argument(ctx, __func__, "req");
	*req = nullptr;
	if (bad_send(ctx, buffer, length, dest))
		return bad_transfer(ctx, __func__, length, dest, false);
	pt2p_status_t status = PT2P_OK;
	Request *r = ctx->engine->sends().issend(buffer, length, dest, tag, status);
	if (!r)
		return status;
	*req = pt2p::to_handle(r);
	poll_now_and_then(ctx);
	return PT2P_OK;
}
PT2P_CATCH

pt2p_status_t pt2p_mprobe(pt2p_context_t *ctx, int source, uint64_t tag, uint64_t mask, pt2p_message_t **message,
                          pt2p_result_t *result)
try {
	PT2P_CHECK_CONTEXT(ctx);
	Progress::Guard guard(*ctx->progress);
	PT2P_NOT_IN_HANDLER(ctx);
	if (!message)
		return null_argument(ctx, __func__, "message");
	*message = nullptr;
	if (bad_recv(ctx, nullptr, 0, source))
		return bad_transfer(ctx, __func__, 0, source, true);
	pt2p_result_t found{};
	pt2p_status_t status = PT2P_OK;
	const UnexpectedMessage *m = nullptr;
	const unsigned losses = ctx->engine->losses().told();
	const auto finished = [&] {
		m = ctx->engine->receives().take(source, tag, mask, found);
		if (!m)
			status = awaited_status(ctx, source, losses);
		return m || status != PT2P_OK;
	};
	if (!finished()) {
		const AwaitedPeers::Awaiting awaiting(ctx->engine->awaited(), source);
		wait_until(ctx, finished);
	}
	if (m)
		*message = to_handle(m);
	if (result)
		*result = m ? found : pt2p_result_t{status, source, tag, 0, 0, 0};
	return status;
}
PT2P_CATCH

pt2p_status_t pt2p_improbe(pt2p_context_t *ctx, int source, uint64_t tag, uint64_t mask, pt2p_message_t **message,
                           pt2p_result_t *result)
try {
	PT2P_CHECK_CONTEXT(ctx);
	Progress::Guard guard(*ctx->progress);
	if (!message)
		return null_argument(ctx, __func__, "message");
	*message = nullptr;
	if (bad_recv(ctx, nullptr, 0, source))
		return bad_transfer(ctx, __func__, 0, source, true);
	pt2p_result_t found{};
	const UnexpectedMessage *m = ctx->engine->receives().take(source, tag, mask, found);
	if (!m) {
		poll_or_yield(ctx);
		m = ctx->engine->receives().take(source, tag, mask, found);
	}
	if (!m)
		return awaited_status(ctx, source, ctx->engine->losses().told());
	*message = to_handle(m);
	if (result)
		*result = found;
	return PT2P_OK;
}
PT2P_CATCH

pt2p_status_t pt2p_mrecv(pt2p_context_t *ctx, void *buffer, size_t capacity, pt2p_message_t *message,
                         pt2p_result_t *result)
try {
	PT2P_CHECK_CONTEXT(ctx);
	Progress::Guard guard(*ctx->progress);
	PT2P_NOT_IN_HANDLER(ctx);
	UnexpectedMessage *m = from_handle(ctx, message);
	if (!m)
		return bad_message(ctx, __func__, message);
	if (bad_recv(ctx, buffer, capacity, m->source))
		return bad_transfer(ctx, __func__, capacity, m->source, true);
	Request *r = ctx->engine->receives().irecv_taken(buffer, capacity, *m);
	wait_for(ctx, r);
	return ctx->engine->requests().collect(r, result);
}
PT2P_CATCH

pt2p_status_t pt2p_imrecv(pt2p_context_t *ctx, void *buffer, size_t capacity, pt2p_message_t *message,
                          pt2p_request_t **req)
try {
	PT2P_CHECK_CONTEXT(ctx);
	Progress::Guard guard(*ctx->progress);
	if (!req)
		return null_argument(ctx, __func__, "req");
	*req = nullptr;
	UnexpectedMessage *m = from_handle(ctx, message);
	if (!m)
		return bad_message(ctx, __func__, message);
	if (bad_recv(ctx, buffer, capacity, m->source))
		return bad_transfer(ctx, __func__, capacity, m->source, true);
	*req = pt2p::to_handle(ctx->engine->receives().irecv_taken(buffer, capacity, *m));
	return PT2P_OK;
}
PT2P_CATCH
