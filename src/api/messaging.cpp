// Two-sided messages at the C boundary: arguments are checked, the lock is taken, the engine does the rest.
#include <utility>

#include "api/context.hpp"

using namespace pt2p;

namespace {

// Below this many eager sends in a row the sender hears from nobody; see Engine::stop_eager.
constexpr int32_t sends_between_polls = 32;
// Turns at once while much is coming in: a word to stop may stand behind a ring full of messages.
constexpr int polls_at_once = 8;
constexpr unsigned much = 32;

Request *from_handle(pt2p_context_t *ctx, pt2p_request_t *req)
{
	return ctx->engine->find(reinterpret_cast<uint64_t>(req));
}

[[gnu::cold]] pt2p_status_t bad_request(pt2p_context_t *ctx, const char *function, const pt2p_request_t *req)
{
	return ctx->reporter.fail(PT2P_ERR_REQUEST, "%s: %s", function,
	                          req ? "the request has finished already or is not one of this context's"
	                              : "the request is NULL");
}

[[gnu::cold]] pt2p_status_t bad_transfer(pt2p_context_t *ctx, const char *function, size_t length, int rank,
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

[[gnu::noinline, gnu::cold]] void poll_now(pt2p_context_t *ctx)
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

// Null requests of a list are skipped; a dead one is an error before anything is waited for. `pending` is set when one
// has not completed. Looks at those from `first` on.
pt2p_status_t check_list(pt2p_context_t *ctx, const char *function, size_t first, size_t count, pt2p_request_t **reqs,
                         bool &pending)
{
	if (count && !reqs)
		return null_argument(ctx, function, "reqs");
	pending = false;
	for (size_t i = first; i < count; ++i) {
		if (!reqs[i])
			continue;
		const Request *r = from_handle(ctx, reqs[i]);
		if (__builtin_expect(!r, 0))
			return ctx->reporter.fail(PT2P_ERR_REQUEST, "%s: request %zu of the list has finished already or is not one of "
			                          "this context's", function, i);
		pending |= !r->done();
	}
	return PT2P_OK;
}

// Frees all requests of a list, waiting for those that have not completed; the first status that is not OK. The list is
// checked from the first request on that would be waited for: a list of completed requests is walked once.
pt2p_status_t collect_all(pt2p_context_t *ctx, const char *function, size_t count, pt2p_request_t **reqs,
                          pt2p_result_t *results)
{
	if (count && !reqs)
		return null_argument(ctx, function, "reqs");
	pt2p_status_t first = PT2P_OK;
	bool checked = false, pending;
	for (size_t i = 0; i < count; ++i) {
		pt2p_result_t *result = results ? &results[i] : nullptr;
		pt2p_status_t status = PT2P_OK;
		if (__builtin_expect(!reqs[i], 0)) {
			if (result)
				*result = {PT2P_OK, PT2P_ANY_SOURCE, 0, 0};
		} else {
			Request *r = from_handle(ctx, reqs[i]);
			if (__builtin_expect(!r || !r->done(), 0)) {
				if (!checked && (status = check_list(ctx, function, i, count, reqs, pending)) != PT2P_OK)
					return status;
				checked = true;
				if (r)
					wait_for(ctx, r);
				r = from_handle(ctx, reqs[i]); // another thread may have waited for it, too
			}
			status = __builtin_expect(r != nullptr, 1) ? ctx->engine->collect(r, result)
			                                           : bad_request(ctx, function, reqs[i]); // or twice in the list
		}
		reqs[i] = nullptr;
		if (__builtin_expect(first == PT2P_OK, 1))
			first = status;
	}
	return first;
}

// The first request of a list that has completed; count when there is none, PT2P_NO_INDEX when all are NULL.
size_t find_done(pt2p_context_t *ctx, size_t count, pt2p_request_t **reqs)
{
	bool any = false;
	for (size_t i = 0; i < count; ++i) {
		if (!reqs[i])
			continue;
		any = true;
		const Request *r = from_handle(ctx, reqs[i]);
		if (!r || r->done())
			return i;
	}
	return any ? count : PT2P_NO_INDEX;
}

// The first request of a list that completes, collected; without `wait`, one that has completed by now.
pt2p_status_t take_any(pt2p_context_t *ctx, const char *function, size_t count, pt2p_request_t **reqs, size_t *index,
                       pt2p_result_t *result, bool wait)
{
	if (!index)
		return null_argument(ctx, function, "index");
	*index = PT2P_NO_INDEX;
	bool pending;
	const pt2p_status_t status = check_list(ctx, function, 0, count, reqs, pending);
	if (status != PT2P_OK)
		return status;
	size_t i = find_done(ctx, count, reqs);
	if (i == count && wait) {
		wait_until(ctx, [&] { return (i = find_done(ctx, count, reqs)) != count; });
	} else if (i == count) {
		poll(ctx);
		i = find_done(ctx, count, reqs);
	}
	if (i == PT2P_NO_INDEX && wait && result)
		*result = {PT2P_OK, PT2P_ANY_SOURCE, 0, 0};
	if (i == count || i == PT2P_NO_INDEX)
		return PT2P_OK;
	*index = i;
	pt2p_request_t *handle = std::exchange(reqs[i], nullptr);
	Request *r = from_handle(ctx, handle);
	return r ? ctx->engine->collect(r, result) : bad_request(ctx, function, handle); // another thread was faster
}

// Each of the calls that programs make for every short message has two ways. The short one is taken when nothing is out of
// the ordinary; it takes no lock and gets no memory. The other one does everything.

bool ordinary(const pt2p_context_t *ctx) { return valid(ctx) && !ctx->progress->locks(); }

[[gnu::noinline]] pt2p_status_t send_fully(pt2p_context_t *ctx, const void *buffer, size_t length, int dest,
                                           uint64_t tag)
try {
	PT2P_CHECK_CONTEXT_IN(ctx, "pt2p_send");
	Progress::Guard guard(*ctx->progress);
	if (bad_send(ctx, buffer, length, dest))
		return bad_transfer(ctx, "pt2p_send", length, dest, false);
	if (ctx->engine->send_at_once(buffer, length, dest, tag)) {
		poll_now_and_then(ctx);
		return PT2P_OK;
	}
	pt2p_status_t status = PT2P_OK;
	Request *r = ctx->engine->isend(buffer, length, dest, tag, status);
	if (!r)
		return status;
	wait_for(ctx, r);
	return ctx->engine->collect(r, nullptr);
}
PT2P_CATCH_IN("pt2p_send")

[[gnu::noinline]] pt2p_status_t isend_fully(pt2p_context_t *ctx, const void *buffer, size_t length, int dest,
                                            uint64_t tag, pt2p_request_t **req)
try {
	PT2P_CHECK_CONTEXT_IN(ctx, "pt2p_isend");
	Progress::Guard guard(*ctx->progress);
	if (!req)
		return null_argument(ctx, "pt2p_isend", "req");
	*req = nullptr;
	if (bad_send(ctx, buffer, length, dest))
		return bad_transfer(ctx, "pt2p_isend", length, dest, false);
	pt2p_status_t status = PT2P_OK;
	Request *r = ctx->engine->isend(buffer, length, dest, tag, status);
	if (!r)
		return status;
	*req = to_handle(r);
	poll_now_and_then(ctx);
	return PT2P_OK;
}
PT2P_CATCH_IN("pt2p_isend")

[[gnu::noinline]] pt2p_status_t irecv_fully(pt2p_context_t *ctx, void *buffer, size_t capacity, int source,
                                            uint64_t tag, uint64_t mask, pt2p_request_t **req)
try {
	PT2P_CHECK_CONTEXT_IN(ctx, "pt2p_irecv");
	Progress::Guard guard(*ctx->progress);
	if (!req)
		return null_argument(ctx, "pt2p_irecv", "req");
	*req = nullptr;
	if (bad_recv(ctx, buffer, capacity, source))
		return bad_transfer(ctx, "pt2p_irecv", capacity, source, true);
	pt2p_status_t status = PT2P_OK;
	Request *r = ctx->engine->irecv(buffer, capacity, source, tag, mask, status);
	if (!r)
		return status;
	*req = to_handle(r);
	return PT2P_OK;
}
PT2P_CATCH_IN("pt2p_irecv")

[[gnu::noinline]] pt2p_status_t wait_fully(pt2p_context_t *ctx, pt2p_request_t *req, pt2p_result_t *result)
try {
	PT2P_CHECK_CONTEXT_IN(ctx, "pt2p_wait");
	Progress::Guard guard(*ctx->progress);
	Request *r = from_handle(ctx, req);
	if (!r)
		return bad_request(ctx, "pt2p_wait", req);
	wait_for(ctx, r);
	return ctx->engine->collect(r, result);
}
PT2P_CATCH_IN("pt2p_wait")

} // namespace

pt2p_status_t pt2p_send(pt2p_context_t *ctx, const void *buffer, size_t length, int dest, uint64_t tag)
try {
	if (__builtin_expect(ordinary(ctx) && !bad_send(ctx, buffer, length, dest) &&
	                         ctx->engine->send_at_once(buffer, length, dest, tag), 1)) {
		poll_now_and_then(ctx);
		return PT2P_OK;
	}
	return send_fully(ctx, buffer, length, dest, tag);
}
PT2P_CATCH

pt2p_status_t pt2p_isend(pt2p_context_t *ctx, const void *buffer, size_t length, int dest, uint64_t tag,
                         pt2p_request_t **req)
try {
	if (__builtin_expect(ordinary(ctx) && req && !bad_send(ctx, buffer, length, dest) &&
	                         ctx->engine->isend_at_once(buffer, length, dest, tag, req), 1)) {
		poll_now_and_then(ctx);
		return PT2P_OK;
	}
	return isend_fully(ctx, buffer, length, dest, tag, req);
}
PT2P_CATCH

pt2p_status_t pt2p_irecv(pt2p_context_t *ctx, void *buffer, size_t capacity, int source, uint64_t tag, uint64_t mask,
                         pt2p_request_t **req)
{
	if (__builtin_expect(ordinary(ctx) && req && !bad_recv(ctx, buffer, capacity, source), 1)) {
		if (Request *r = ctx->engine->irecv_at_once(buffer, capacity, source, tag, mask);
		    __builtin_expect(r != nullptr, 1)) {
			*req = to_handle(r);
			return PT2P_OK;
		}
	}
	return irecv_fully(ctx, buffer, capacity, source, tag, mask, req);
}

pt2p_status_t pt2p_wait(pt2p_context_t *ctx, pt2p_request_t *req, pt2p_result_t *result)
{
	if (__builtin_expect(ordinary(ctx), 1)) {
		Request *r = from_handle(ctx, req);
		if (__builtin_expect(r && r->done() && r->status == PT2P_OK, 1))
			return ctx->engine->collect(r, result);
	}
	return wait_fully(ctx, req, result);
}

pt2p_status_t pt2p_recv(pt2p_context_t *ctx, void *buffer, size_t capacity, int source, uint64_t tag, uint64_t mask,
                        pt2p_result_t *result)
try {
	PT2P_CHECK_CONTEXT(ctx);
	Progress::Guard guard(*ctx->progress);
	if (__builtin_expect(bad_recv(ctx, buffer, capacity, source), 0))
		return bad_transfer(ctx, __func__, capacity, source, true);
	pt2p_status_t status = PT2P_OK;
	Request *r = ctx->engine->irecv_at_once(buffer, capacity, source, tag, mask);
	if (__builtin_expect(!r, 0))
		r = ctx->engine->irecv(buffer, capacity, source, tag, mask, status);
	if (!r) {
		if (result)
			*result = {status, source, tag, 0};
		return status;
	}
	wait_for(ctx, r);
	return ctx->engine->collect(r, result);
}
PT2P_CATCH

pt2p_status_t pt2p_sendrecv(pt2p_context_t *ctx, const void *send_buffer, size_t send_length, int dest,
                            uint64_t send_tag, void *recv_buffer, size_t recv_capacity, int source, uint64_t recv_tag,
                            uint64_t recv_mask, pt2p_result_t *result)
try {
	PT2P_CHECK_CONTEXT(ctx);
	Progress::Guard guard(*ctx->progress);
	if (bad_send(ctx, send_buffer, send_length, dest))
		return bad_transfer(ctx, __func__, send_length, dest, false);
	if (bad_recv(ctx, recv_buffer, recv_capacity, source))
		return bad_transfer(ctx, __func__, recv_capacity, source, true);
	pt2p_status_t status = PT2P_OK;
	Request *in = ctx->engine->irecv(recv_buffer, recv_capacity, source, recv_tag, recv_mask, status);
	if (!in)
		return status;
	Request *out = ctx->engine->isend(send_buffer, send_length, dest, send_tag, status);
	if (!out) {
		// Nothing was sent: the receive must not stay behind with the caller's buffer.
		ctx->engine->cancel(*in);
		wait_for(ctx, in);
		ctx->engine->release(in);
		return status;
	}
	wait_for(ctx, out);
	status = ctx->engine->collect(out, nullptr);
	if (status != PT2P_OK)
		ctx->engine->cancel(*in);
	wait_for(ctx, in);
	if (status != PT2P_OK) {
		ctx->engine->release(in);
		return status;
	}
	return ctx->engine->collect(in, result);
}
PT2P_CATCH

pt2p_status_t pt2p_probe(pt2p_context_t *ctx, int source, uint64_t tag, uint64_t mask, pt2p_result_t *result)
try {
	PT2P_CHECK_CONTEXT(ctx);
	Progress::Guard guard(*ctx->progress);
	if (bad_recv(ctx, nullptr, 0, source))
		return bad_transfer(ctx, __func__, 0, source, true);
	pt2p_result_t found{};
	pt2p_status_t status = PT2P_OK;
	const unsigned losses = ctx->engine->losses_told();
	const auto finished = [&] {
		if (ctx->engine->find_unexpected(source, tag, mask, found))
			return true;
		status = ctx->engine->awaited_status(source, losses);
		return status != PT2P_OK;
	};
	if (!finished())
		wait_until(ctx, finished);
	if (result)
		*result = status == PT2P_OK ? found : pt2p_result_t{status, source, tag, 0};
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
	if (!ctx->engine->find_unexpected(source, tag, mask, r)) {
		poll(ctx);
		if (!ctx->engine->find_unexpected(source, tag, mask, r))
			return ctx->engine->awaited_status(source, ctx->engine->losses_told());
	}
	*found = 1;
	if (result)
		*result = r;
	return PT2P_OK;
}
PT2P_CATCH

pt2p_status_t pt2p_test(pt2p_context_t *ctx, pt2p_request_t *req, int *done, pt2p_result_t *result)
try {
	PT2P_CHECK_CONTEXT(ctx);
	Progress::Guard guard(*ctx->progress);
	if (!done)
		return null_argument(ctx, __func__, "done");
	*done = 0;
	Request *r = from_handle(ctx, req);
	if (!r)
		return bad_request(ctx, __func__, req);
	if (!r->done())
		poll(ctx);
	if (!r->done())
		return PT2P_OK;
	*done = 1;
	return ctx->engine->collect(r, result);
}
PT2P_CATCH

pt2p_status_t pt2p_waitall(pt2p_context_t *ctx, size_t count, pt2p_request_t **reqs, pt2p_result_t *results)
try {
	PT2P_CHECK_CONTEXT(ctx);
	Progress::Guard guard(*ctx->progress);
	return collect_all(ctx, __func__, count, reqs, results);
}
PT2P_CATCH

pt2p_status_t pt2p_waitany(pt2p_context_t *ctx, size_t count, pt2p_request_t **reqs, size_t *index,
                           pt2p_result_t *result)
try {
	PT2P_CHECK_CONTEXT(ctx);
	Progress::Guard guard(*ctx->progress);
	return take_any(ctx, __func__, count, reqs, index, result, true);
}
PT2P_CATCH

pt2p_status_t pt2p_testany(pt2p_context_t *ctx, size_t count, pt2p_request_t **reqs, size_t *index,
                           pt2p_result_t *result)
try {
	PT2P_CHECK_CONTEXT(ctx);
	Progress::Guard guard(*ctx->progress);
	return take_any(ctx, __func__, count, reqs, index, result, false);
}
PT2P_CATCH

pt2p_status_t pt2p_testall(pt2p_context_t *ctx, size_t count, pt2p_request_t **reqs, int *done,
                           pt2p_result_t *results)
try {
	PT2P_CHECK_CONTEXT(ctx);
	Progress::Guard guard(*ctx->progress);
	if (!done)
		return null_argument(ctx, __func__, "done");
	*done = 0;
	bool pending;
	pt2p_status_t status = check_list(ctx, __func__, 0, count, reqs, pending);
	if (status != PT2P_OK)
		return status;
	if (pending) {
		poll(ctx);
		status = check_list(ctx, __func__, 0, count, reqs, pending);
		if (status != PT2P_OK || pending)
			return status;
	}
	*done = 1;
	return collect_all(ctx, __func__, count, reqs, results);
}
PT2P_CATCH

pt2p_status_t pt2p_cancel(pt2p_context_t *ctx, pt2p_request_t *req)
try {
	PT2P_CHECK_CONTEXT(ctx);
	Progress::Guard guard(*ctx->progress);
	Request *r = from_handle(ctx, req);
	if (!r)
		return bad_request(ctx, __func__, req);
	if (r->is_send || r->is_one_sided())
		return ctx->reporter.fail(PT2P_ERR_ARGUMENT, "%s: the request is a %s; only receives can be cancelled", __func__,
		                          r->is_send ? "send" : r->operation);
	ctx->engine->cancel(*r);
	return PT2P_OK;
}
PT2P_CATCH

pt2p_status_t pt2p_barrier(pt2p_context_t *ctx)
try {
	PT2P_CHECK_CONTEXT(ctx);
	Progress::Guard guard(*ctx->progress);
	return ctx->engine->barrier();
}
PT2P_CATCH

pt2p_status_t pt2p_progress(pt2p_context_t *ctx)
try {
	PT2P_CHECK_CONTEXT(ctx);
	Progress::Guard guard(*ctx->progress);
	poll(ctx);
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
		return ctx->reporter.fail(PT2P_ERR_ARGUMENT, "%s: there is no delivery %d", __func__, static_cast<int>(delivery));
	return ctx->engine->set_delivery(rank, delivery);
}
PT2P_CATCH
