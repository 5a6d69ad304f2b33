// What the calls on messages and requests have in common at the C boundary.
#pragma once

#include "api/context.hpp"

namespace pt2p {

// Eager sends in a row until a sender polls; see wire.hpp.
inline constexpr int32_t sends_between_polls = 32;
// Turns at once while much arrives: a request to stop may be behind a ring full of messages.
inline constexpr int polls_at_once = 8;
inline constexpr unsigned much = 32;

inline Request *from_handle(pt2p_context_t *ctx, pt2p_request_t *req)
{
	return ctx->engine->requests().find(reinterpret_cast<uint64_t>(req));
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

// As PeerLosses::awaited_status, and in an open job whether somebody has the number at all.
inline pt2p_status_t awaited_status(pt2p_context_t *ctx, int source, unsigned since)
{
	const pt2p_status_t status = ctx->engine->losses().awaited_status(source, since);
	if (status != PT2P_OK || !ctx->job->open() || source < 0 || !ctx->job->nobody_has(source))
		return status;
	return ctx->reporter.fail(PT2P_ERR_RANK, "no peer of this context has the number %d", source);
}

// For calls that only start something, at thread level multiple: if another thread holds the lock, that one executes
// `start`. A start that fails has changed nothing. The thread itself tries it again then, because the explanation is
// kept for it.
template <class F>
[[gnu::noinline]] pt2p_status_t start_among_threads(pt2p_context_t *ctx, const F &start)
{
	if (ctx->progress->combine_or_lock([&] { return start() == PT2P_OK; }))
		return PT2P_OK;
	const Progress::Guard guard(*ctx->progress, std::adopt_lock);
	return start();
}

// The status of a call that waits, made by a callback.
[[gnu::cold]] inline pt2p_status_t in_handler(pt2p_context_t *ctx, const char *function)
{
	return ctx->reporter.fail(PT2P_ERR_IN_HANDLER,
	                          "%s waits, and was called by a callback or a handler of this context", function);
}

// PT2P_OK when a callback may be asked for.
inline pt2p_status_t check_callback(pt2p_context_t *ctx, const char *function, pt2p_callback_t done)
{
	if (!done)
		return null_argument(ctx, function, "done");
	if (ctx->engine->callbacks().ended())
		return ctx->reporter.fail(PT2P_ERR_UNFINISHED,
		                          "%s: pt2p_finalize has given up waiting; nothing can be started any more", function);
	return PT2P_OK;
}

inline bool bad_send(const pt2p_context_t *ctx, const void *buffer, size_t length, int dest)
{
	return !ctx->engine->is_rank(dest) || length > PTRDIFF_MAX || (!buffer && length);
}

inline bool bad_recv(const pt2p_context_t *ctx, const void *buffer, size_t capacity, int source)
{
	return bad_send(ctx, buffer, capacity, source == PT2P_ANY_SOURCE ? 0 : source);
}

// All progress goes through these. They restart the count first, because what arrives may ask for a poll soon.
inline unsigned poll(pt2p_context_t *ctx)
{
	ctx->engine->sends_until_poll = sends_between_polls;
	return ctx->progress->poll();
}

// For a call that tests or makes progress, and does not wait.
inline void poll_or_yield(pt2p_context_t *ctx)
{
	ctx->engine->sends_until_poll = sends_between_polls;
	ctx->progress->poll_or_yield();
}

template <class Done>
inline void wait_until(pt2p_context_t *ctx, Done &&done)
{
	ctx->engine->sends_until_poll = sends_between_polls;
	ctx->progress->wait(done);
}

// For a call that waits.
inline void turn(pt2p_context_t *ctx)
{
	ctx->engine->sends_until_poll = sends_between_polls;
	ctx->progress->step();
}

// For a request that no other thread or callback knows.
inline void wait_for(pt2p_context_t *ctx, const Request *r)
{
	if (!r->done())
		wait_until(ctx, [r] { return r->done(); });
}

// A request that is not dead, once it has completed; null when another thread or a callback ends it meanwhile.
inline Request *wait_for_shared(pt2p_context_t *ctx, Request *r)
{
	const uint64_t handle = r->handle;
	if (!r->done())
		wait_until(ctx, [r, handle] { return r->done() || r->handle != handle; });
	return r->handle == handle ? r : nullptr;
}

// The same for a handle; null also when it is dead.
inline Request *wait_for(pt2p_context_t *ctx, pt2p_request_t *req)
{
	Request *const r = from_handle(ctx, req);
	return r ? wait_for_shared(ctx, r) : nullptr;
}

// pt2p_wait, in all cases. Without the guard: at thread level multiple, whoever has it may collect the result.
[[gnu::noinline]] pt2p_status_t wait_fully(pt2p_context_t *ctx, pt2p_request_t *req, pt2p_result_t *result);

// At thread level multiple, under the lock, by whoever has it: collects the result of a request that has completed. A
// failure is for the thread that waits, which keeps the explanation.
struct Collecting {
	pt2p_context_t *ctx;
	pt2p_request_t *&req;
	pt2p_result_t *result;
	bool collected = false;
	bool operator()(); // true: the wait is over
};

// For calls that start something and wait for it, at thread level multiple: if another thread holds the lock, that one
// executes `start`. False: this thread has the lock, if there is one, and nothing is started.
template <class F>
inline bool start_and_wait(pt2p_context_t *ctx, pt2p_request_t *&req, pt2p_result_t *result, pt2p_status_t &status,
                           F &&start)
{
	if (__builtin_expect(!ctx->progress->locking(), 1))
		return false;
	Collecting over{ctx, req, result};
	if (!ctx->progress->combine_and_wait_or_lock(start, over))
		return false;
	status = over.collected ? PT2P_OK : wait_fully(ctx, req, result);
	return true;
}

[[gnu::noinline, gnu::cold]] inline void poll_now(pt2p_context_t *ctx)
{
	const Callbacks::Hold none(ctx->engine->callbacks()); // within a call that starts something
	for (int i = 0; i < polls_at_once && poll(ctx) >= much; ++i)
		;
}

// Polls from time to time while the program only sends.
inline void poll_now_and_then(pt2p_context_t *ctx)
{
	if (__builtin_expect(--ctx->engine->sends_until_poll <= 0, 0))
		poll_now(ctx);
}

// The calls that programs make for every short message have two paths. The short path is for ordinary cases: it takes
// no lock and allocates nothing. The other path handles everything; it is given a valid context.
inline bool ordinary(const pt2p_context_t *ctx) { return !ctx->progress->careful(); }

} // namespace pt2p

// Calls that wait begin with this, once they hold the guard.
#define PT2P_NOT_IN_HANDLER(ctx) PT2P_NOT_IN_HANDLER_IN(ctx, __func__)
#define PT2P_NOT_IN_HANDLER_IN(ctx, name)                                                                              \
	do {                                                                                                               \
		if (__builtin_expect((ctx)->engine->callbacks().in_handler(), 0))                                              \
			return pt2p::in_handler(ctx, name);                                                                        \
	} while (0)
