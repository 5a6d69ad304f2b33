// Requests at the C boundary: waiting and testing, one and many; cancelling.
#include <utility>

#include "api/calls.hpp"

using namespace pt2p;

bool Collecting::operator()()
{
	ctx->engine->sends_until_poll = sends_between_polls;
	Request *const r = from_handle(ctx, req);
	if (!r || ctx->engine->callbacks().in_handler())
		return true;
	if (!r->done())
		return false;
	collected = r->status == PT2P_OK && ctx->engine->requests().collect(r, result) == PT2P_OK;
	return true;
}

pt2p_status_t pt2p::wait_fully(pt2p_context_t *ctx, pt2p_request_t *req, pt2p_result_t *result)
try {
	if (ctx->progress->locking()) {
		Collecting over{ctx, req, result};
		ctx->progress->wait_unlocked(over);
		if (over.collected)
			return PT2P_OK;
	}
	const Progress::Guard guard(*ctx->progress);
	PT2P_NOT_IN_HANDLER_IN(ctx, "pt2p_wait");
	Request *r = wait_for(ctx, req);
	return r ? ctx->engine->requests().collect(r, result) : bad_request(ctx, "pt2p_wait", req);
}
PT2P_CATCH_IN("pt2p_wait")

namespace {

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
			return ctx->reporter.fail(PT2P_ERR_REQUEST,
			                          "%s: request %zu of the list has finished already or is not one of "
			                          "this context's",
			                          function, i);
		pending |= !r->done();
	}
	return PT2P_OK;
}

// Frees the requests of a list from `begin` on, waiting for those that have not completed; the first status that is not
// OK. The list is checked from the first request on that would be waited for: a list of completed requests is walked
// once.
pt2p_status_t collect_all(pt2p_context_t *ctx, const char *function, size_t begin, size_t count, pt2p_request_t **reqs,
                          pt2p_result_t *results)
{
	if (count && !reqs)
		return null_argument(ctx, function, "reqs");
	pt2p_status_t first = PT2P_OK;
	bool checked = false, pending;
	for (size_t i = begin; i < count; ++i) {
		pt2p_result_t *result = results ? &results[i] : nullptr;
		pt2p_status_t status = PT2P_OK;
		if (__builtin_expect(!reqs[i], 0)) {
			if (result)
				*result = {PT2P_OK, PT2P_ANY_SOURCE, 0, 0, 0, 0};
		} else {
			Request *r = ctx->engine->requests().find_done(reinterpret_cast<uint64_t>(reqs[i]));
			if (__builtin_expect(!r, 0)) {
				if (!checked && (status = check_list(ctx, function, i, count, reqs, pending)) != PT2P_OK)
					return status;
				checked = true;
				r = wait_for(ctx, reqs[i]);
			}
			status = __builtin_expect(r != nullptr, 1) ? ctx->engine->requests().collect(r, result)
			                                           : bad_request(ctx, function, reqs[i]); // or twice in the list
		}
		reqs[i] = nullptr;
		if (__builtin_expect(first == PT2P_OK, 1))
			first = status;
	}
	return first;
}

// Waits at thread level multiple until all requests of a list have completed, and frees them, from the first on, up to
// one that has failed or is dead; returns how many. The thread is woken once.
[[gnu::noinline]] size_t collect_good(pt2p_context_t *ctx, size_t count, pt2p_request_t **reqs, pt2p_result_t *results)
{
	size_t completed = 0, collected = 0;
	bool checked = false;
	ctx->progress->wait_unlocked([&] {
		ctx->engine->sends_until_poll = sends_between_polls;
		for (size_t i = completed; !checked && i < count; ++i)
			if (reqs[i] && !from_handle(ctx, reqs[i]))
				return true;
		checked = true;
		if (ctx->engine->callbacks().in_handler())
			return true;
		for (; completed < count; ++completed)
			if (const Request *r = reqs[completed] ? from_handle(ctx, reqs[completed]) : nullptr; r && !r->done())
				return false;
		for (; collected < count; ++collected) {
			pt2p_result_t none, *const result = results ? &results[collected] : &none;
			if (!reqs[collected]) {
				*result = {PT2P_OK, PT2P_ANY_SOURCE, 0, 0, 0, 0};
				continue;
			}
			Request *const r = from_handle(ctx, reqs[collected]);
			if (!r || r->status != PT2P_OK || ctx->engine->requests().collect(r, result) != PT2P_OK)
				break;
			reqs[collected] = nullptr;
		}
		return true;
	});
	return collected;
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
		poll_or_yield(ctx);
		i = find_done(ctx, count, reqs);
	}
	if (i == PT2P_NO_INDEX && wait && result)
		*result = {PT2P_OK, PT2P_ANY_SOURCE, 0, 0, 0, 0};
	if (i == count || i == PT2P_NO_INDEX)
		return PT2P_OK;
	*index = i;
	pt2p_request_t *handle = std::exchange(reqs[i], nullptr);
	Request *r = from_handle(ctx, handle);
	return r ? ctx->engine->requests().collect(r, result)
	         : bad_request(ctx, function, handle); // another thread was faster
}

// Collects every completed request of a list. A request that another thread has collected first counts as an error.
// Returns the first status that is not OK.
pt2p_status_t collect_some(pt2p_context_t *ctx, const char *function, size_t count, pt2p_request_t **reqs,
                           size_t *completed, size_t *indices, pt2p_result_t *results)
{
	pt2p_status_t first = PT2P_OK;
	for (size_t i = 0; i < count; ++i) {
		if (!reqs[i])
			continue;
		Request *r = from_handle(ctx, reqs[i]);
		if (r && !r->done())
			continue;
		pt2p_result_t result{PT2P_ERR_REQUEST, PT2P_ANY_SOURCE, 0, 0, 0, 0};
		const pt2p_status_t status =
		    r ? ctx->engine->requests().collect(r, &result) : bad_request(ctx, function, reqs[i]);
		reqs[i] = nullptr;
		if (results)
			results[*completed] = result;
		indices[(*completed)++] = i;
		if (first == PT2P_OK)
			first = status;
	}
	return first;
}

// All requests of a list that have completed, collected: with `wait` at least one, unless all are NULL.
pt2p_status_t take_some(pt2p_context_t *ctx, const char *function, size_t count, pt2p_request_t **reqs,
                        size_t *completed, size_t *indices, pt2p_result_t *results, bool wait)
{
	if (!completed)
		return null_argument(ctx, function, "completed");
	*completed = 0;
	if (count && !indices)
		return null_argument(ctx, function, "indices");
	bool pending;
	const pt2p_status_t status = check_list(ctx, function, 0, count, reqs, pending);
	if (status != PT2P_OK)
		return status;
	if (find_done(ctx, count, reqs) == count) {
		if (wait)
			wait_until(ctx, [&] { return find_done(ctx, count, reqs) != count; });
		else
			poll_or_yield(ctx);
	}
	return collect_some(ctx, function, count, reqs, completed, indices, results);
}

// One turn is often enough. A function of its own, so that a wait for what is done need not save registers.
[[gnu::noinline]] pt2p_status_t wait_one_turn(pt2p_context_t *ctx, Request *r, pt2p_request_t *req,
                                              pt2p_result_t *result)
try {
	turn(ctx);
	// A callback may have taken the request.
	if (__builtin_expect(r->done() && r->status == PT2P_OK && to_handle(r) == req, 1))
		return ctx->engine->requests().collect(r, result);
	return wait_fully(ctx, req, result);
}
PT2P_CATCH_IN("pt2p_wait")

// The same at thread level multiple, if no other thread holds the lock.
[[gnu::noinline]] pt2p_status_t wait_among_threads(pt2p_context_t *ctx, pt2p_request_t *req, pt2p_result_t *result)
try {
	if (ctx->progress->try_lock()) {
		const Progress::Guard guard(*ctx->progress, std::adopt_lock);
		Request *const r = ctx->engine->requests().find_any(reinterpret_cast<uint64_t>(req));
		if (r && !ctx->engine->callbacks().running()) {
			if (!r->done())
				turn(ctx);
			if (r->done() && r->status == PT2P_OK && to_handle(r) == req)
				return ctx->engine->requests().collect(r, result);
		}
	}
	return wait_fully(ctx, req, result);
}
PT2P_CATCH_IN("pt2p_wait")

} // namespace

pt2p_status_t pt2p_wait(pt2p_context_t *ctx, pt2p_request_t *req, pt2p_result_t *result)
{
	PT2P_CHECK_CONTEXT(ctx);
	if (__builtin_expect(!ordinary(ctx), 0))
		return wait_among_threads(ctx, req, result);
	if (Request *r = ctx->engine->requests().find_any(reinterpret_cast<uint64_t>(req))) {
		if (!r->done())
			return wait_one_turn(ctx, r, req, result);
		if (__builtin_expect(r->status == PT2P_OK, 1))
			return ctx->engine->requests().collect(r, result);
	}
	return wait_fully(ctx, req, result);
}

pt2p_status_t pt2p_test(pt2p_context_t *ctx, pt2p_request_t *req, int *done, pt2p_result_t *result)
try {
	PT2P_CHECK_CONTEXT(ctx);
	Progress::Guard guard(*ctx->progress);
	if (!done)
		return null_argument(ctx, __func__, "done");
	*done = 0;
	Request *r = from_handle(ctx, req);
	if (r && !r->done()) {
		poll_or_yield(ctx);
		r = from_handle(ctx, req); // another thread may have waited for it meanwhile
	}
	if (!r)
		return bad_request(ctx, __func__, req);
	if (!r->done())
		return PT2P_OK;
	*done = 1;
	return ctx->engine->requests().collect(r, result);
}
PT2P_CATCH

pt2p_status_t pt2p_waitall(pt2p_context_t *ctx, size_t count, pt2p_request_t **reqs, pt2p_result_t *results)
try {
	PT2P_CHECK_CONTEXT(ctx);
	size_t begin = 0;
	if (__builtin_expect(ctx->progress->locking(), 0) && reqs &&
	    (begin = collect_good(ctx, count, reqs, results)) == count)
		return PT2P_OK;
	const Progress::Guard guard(*ctx->progress);
	PT2P_NOT_IN_HANDLER(ctx);
	return collect_all(ctx, __func__, begin, count, reqs, results);
}
PT2P_CATCH

pt2p_status_t pt2p_waitany(pt2p_context_t *ctx, size_t count, pt2p_request_t **reqs, size_t *index,
                           pt2p_result_t *result)
try {
	PT2P_CHECK_CONTEXT(ctx);
	Progress::Guard guard(*ctx->progress);
	PT2P_NOT_IN_HANDLER(ctx);
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

pt2p_status_t pt2p_waitsome(pt2p_context_t *ctx, size_t count, pt2p_request_t **reqs, size_t *completed,
                            size_t *indices, pt2p_result_t *results)
try {
	PT2P_CHECK_CONTEXT(ctx);
	Progress::Guard guard(*ctx->progress);
	PT2P_NOT_IN_HANDLER(ctx);
	return take_some(ctx, __func__, count, reqs, completed, indices, results, true);
}
PT2P_CATCH

pt2p_status_t pt2p_testsome(pt2p_context_t *ctx, size_t count, pt2p_request_t **reqs, size_t *completed,
                            size_t *indices, pt2p_result_t *results)
try {
	PT2P_CHECK_CONTEXT(ctx);
	Progress::Guard guard(*ctx->progress);
	return take_some(ctx, __func__, count, reqs, completed, indices, results, false);
}
PT2P_CATCH

pt2p_status_t pt2p_testall(pt2p_context_t *ctx, size_t count, pt2p_request_t **reqs, int *done, pt2p_result_t *results)
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
		poll_or_yield(ctx);
		status = check_list(ctx, __func__, 0, count, reqs, pending);
		if (status != PT2P_OK || pending)
			return status;
	}
	*done = 1;
	return collect_all(ctx, __func__, 0, count, reqs, results);
}
PT2P_CATCH

pt2p_status_t pt2p_request_query(pt2p_context_t *ctx, pt2p_request_t *req, int *done, pt2p_result_t *result)
try {
	PT2P_CHECK_CONTEXT(ctx);
	Progress::Guard guard(*ctx->progress);
	if (!done)
		return null_argument(ctx, __func__, "done");
	*done = 0;
	const Request *r = from_handle(ctx, req);
	if (r && !r->done()) {
		poll_or_yield(ctx);
		r = from_handle(ctx, req); // another thread may have waited for it meanwhile
	}
	if (!r)
		return bad_request(ctx, __func__, req);
	*done = r->done();
	if (r->done() && result)
		*result = ctx->engine->requests().result_of(*r);
	return PT2P_OK;
}
PT2P_CATCH

pt2p_status_t pt2p_request_free(pt2p_context_t *ctx, pt2p_request_t *req)
try {
	PT2P_CHECK_CONTEXT(ctx);
	Progress::Guard guard(*ctx->progress);
	Request *r = from_handle(ctx, req);
	if (!r)
		return bad_request(ctx, __func__, req);
	if (r->done())
		ctx->engine->requests().discard(*r);
	else
		ctx->engine->callbacks().detach(*r);
	return PT2P_OK;
}
PT2P_CATCH

pt2p_status_t pt2p_request_callback(pt2p_context_t *ctx, pt2p_request_t *req, pt2p_callback_t done, void *argument)
try {
	PT2P_CHECK_CONTEXT(ctx);
	Progress::Guard guard(*ctx->progress);
	const pt2p_status_t status = check_callback(ctx, __func__, done);
	if (status != PT2P_OK)
		return status;
	Request *r = from_handle(ctx, req);
	if (!r)
		return bad_request(ctx, __func__, req);
	ctx->engine->callbacks().detach(*r, done, argument);
	return PT2P_OK;
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
		return ctx->reporter.fail(PT2P_ERR_ARGUMENT,
		                          "%s: the request is a %s; only receives and calls can be cancelled", __func__,
		                          r->is_send ? "send" : r->operation);
	if (r->is_call()) {
		ctx->rpc->calls().cancel(*r);
		return PT2P_OK;
	}
	ctx->engine->receives().cancel(*r);
	return PT2P_OK;
}
PT2P_CATCH

pt2p_status_t pt2p_cancel_callback(pt2p_context_t *ctx, pt2p_callback_t done, void *argument)
try {
	PT2P_CHECK_CONTEXT(ctx);
	Progress::Guard guard(*ctx->progress);
	if (!done)
		return null_argument(ctx, __func__, "done");
	Request *oldest = nullptr;
	ctx->engine->requests().for_each([&](Request &r) {
		if (r.state == Request::State::posted && r.is_detached() && (r.special & Request::with_details) &&
		    r.details->callback == done && r.details->argument == argument && (!oldest || r.order < oldest->order))
			oldest = &r;
	});
	if (!oldest)
		return ctx->reporter.fail(PT2P_ERR_REQUEST, "%s: no receive with this callback waits for a message", __func__);
	ctx->engine->receives().cancel(*oldest);
	return PT2P_OK;
}
PT2P_CATCH
