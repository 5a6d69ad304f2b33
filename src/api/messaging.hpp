// What the functions for two-sided messages have in common: handles and arguments checked, progress made.
#pragma once

#include "api/context.hpp"

namespace pt2p {

// Below this many eager sends in a row the sender hears from nobody; see Engine::stop_eager.
inline constexpr int32_t sends_between_polls = 32;
// Turns at once while much is coming in: a word to stop may stand behind a ring full of messages.
inline constexpr int polls_at_once = 8;
inline constexpr unsigned much = 32;

inline Request *from_handle(pt2p_context_t *ctx, pt2p_request_t *req)
{
	return ctx->engine->find(reinterpret_cast<uint64_t>(req));
}

[[gnu::cold]] inline pt2p_status_t bad_request(pt2p_context_t *ctx, const char *function, const pt2p_request_t *req)
{
	return ctx->reporter.fail(PT2P_ERR_REQUEST, "%s: %s", function,
	                          req ? "the request has finished already or is not one of this context's"
	                              : "the request is NULL");
}

[[gnu::cold]] inline pt2p_status_t bad_transfer(pt2p_context_t *ctx, const char *function, size_t length, int rank,
                                                bool any)
{
	if (!(any && rank == PT2P_ANY_SOURCE) && !is_rank(ctx, rank))
		return bad_rank(ctx, function, any ? "source" : "dest", rank);
	if (length > PTRDIFF_MAX)
		return bad_length(ctx, function, length);
	return ctx->reporter.fail(PT2P_ERR_ARGUMENT, "%s: the buffer is NULL, the length %zu", function, length);
}

inline bool bad_send(const pt2p_context_t *ctx, const void *buffer, size_t length, int dest)
{
	return !ctx->engine->is_rank(dest) || length > PTRDIFF_MAX || (!buffer && length);
}

inline bool bad_recv(const pt2p_context_t *ctx, const void *buffer, size_t capacity, int source)
{
	return bad_send(ctx, buffer, capacity, source == PT2P_ANY_SOURCE ? 0 : source);
}

// Progress is made through these two. They begin to count anew first: what is found may ask for a look soon.
inline unsigned poll(pt2p_context_t *ctx)
{
	ctx->engine->sends_until_poll = sends_between_polls;
	return ctx->progress->poll();
}

template <class Done>
inline void wait_until(pt2p_context_t *ctx, Done &&done)
{
	ctx->engine->sends_until_poll = sends_between_polls;
	ctx->progress->wait(done);
}

inline void wait_for(pt2p_context_t *ctx, const Request *r)
{
	if (!r->done())
		wait_until(ctx, [r] { return r->done(); });
}

[[gnu::noinline, gnu::cold]] inline void poll_now(pt2p_context_t *ctx)
{
	for (int i = 0; i < polls_at_once && poll(ctx) >= much; ++i)
		;
}

// Lets news in from time to time while the program only sends.
inline void poll_now_and_then(pt2p_context_t *ctx)
{
	if (__builtin_expect(--ctx->engine->sends_until_poll <= 0, 0))
		poll_now(ctx);
}

} // namespace pt2p
