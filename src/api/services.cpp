// Services and calls at the C boundary.
#include <algorithm>

#include "api/calls.hpp"
#include "base/clock.hpp"

using namespace pt2p;
using rpc::Incoming;
using rpc::Service;

namespace {

[[gnu::cold]] pt2p_status_t dead_service(pt2p_context_t *ctx, const char *function, const pt2p_service_t *service)
{
	return ctx->reporter.fail(PT2P_ERR_ARGUMENT, "%s: the service %s", function,
	                          service ? "has been closed or is not one of this context's" : "is NULL");
}

[[gnu::cold]] pt2p_status_t dead_call(pt2p_context_t *ctx, const char *function, const pt2p_call_t *call)
{
	return ctx->reporter.fail(PT2P_ERR_CALL, "%s: the call %s", function,
	                          call ? "has its reply, is a notice, or is not one of this context's" : "is NULL");
}

[[gnu::cold]] pt2p_status_t wrong_size(pt2p_context_t *ctx, const char *function, size_t is, size_t should_be,
                                       const char *macro)
{
	return ctx->reporter.fail(PT2P_ERR_ARGUMENT, "%s: %s", function, wrong_size_text(is, should_be, macro).c_str());
}

// A call that needs a reply; null: it is none.
Incoming *unreplied(pt2p_context_t *ctx, const pt2p_call_t *call)
{
	Incoming *in = ctx->rpc->services().find_running(call);
	return in && !in->notice ? in : nullptr;
}

Service *service_of(pt2p_context_t *ctx, const pt2p_service_t *service)
{
	return ctx->rpc->services().find(reinterpret_cast<uint64_t>(service));
}

bool is_delivery_of_inputs(pt2p_delivery_t delivery)
{
	return delivery == PT2P_DELIVERY_AUTO || delivery == PT2P_DELIVERY_SEND || delivery == PT2P_DELIVERY_WRITE ||
	       delivery == PT2P_DELIVERY_DATAGRAM;
}

bool is_delivery_of_replies(pt2p_delivery_t delivery)
{
	return is_delivery_of_inputs(delivery) || delivery == PT2P_DELIVERY_READ;
}

// PT2P_OK, and what is asked for, when the options of a call are good.
pt2p_status_t check_options(pt2p_context_t *ctx, const char *function, const pt2p_call_options_t &options,
                            rpc::CallWork &work)
{
	if (options.struct_size != sizeof options)
		return wrong_size(ctx, function, options.struct_size, sizeof options, "PT2P_CALL_OPTIONS_INIT");
	if (options.deadline < 0)
		return ctx->reporter.fail(PT2P_ERR_ARGUMENT, "%s: options->deadline is %lld ns", function,
		                          static_cast<long long>(options.deadline));
	if (!is_delivery_of_inputs(options.input_by))
		return ctx->reporter.fail(PT2P_ERR_ARGUMENT, "%s: options->input_by is %d, which is no way for inputs",
		                          function, static_cast<int>(options.input_by));
	if (!is_delivery_of_replies(options.reply_by))
		return ctx->reporter.fail(PT2P_ERR_ARGUMENT, "%s: options->reply_by is %d, which is no way for replies",
		                          function, static_cast<int>(options.reply_by));
	for (const pt2p_window_t *window : {&options.give, &options.take}) {
		if (window->length > PTRDIFF_MAX)
			return bad_length(ctx, function, window->length);
		if (!window->address && window->length)
			return null_argument(ctx, function, "the address of a window");
	}
	if (options.give.length || options.take.length || options.room)
		work.rare = &options;
	work.lane = options.lane;
	if (options.deadline)
		work.deadline = options.deadline;
	if (options.input_by)
		work.by.input = static_cast<uint8_t>(options.input_by);
	if (options.reply_by)
		work.by.reply = static_cast<uint8_t>(options.reply_by);
	return PT2P_OK;
}

// PT2P_OK, and what is asked for, when the arguments of a call are good.
pt2p_status_t check_call(pt2p_context_t *ctx, const char *function, const pt2p_call_options_t *options,
                         rpc::CallWork &work)
{
	if (!is_rank(ctx, work.rank))
		return bad_rank(ctx, function, "rank", work.rank);
	if (work.length > PTRDIFF_MAX || work.capacity > PTRDIFF_MAX)
		return bad_length(ctx, function, std::max(work.length, work.capacity));
	if (!work.input && work.length)
		return null_argument(ctx, function, "input");
	if (!work.reply && work.capacity)
		return null_argument(ctx, function, "reply");
	const rpc::CallDefaults &defaults = ctx->rpc->peers().defaults_of(work.rank);
	work.deadline = defaults.deadline;
	work.by = defaults.by;
	return options ? check_options(ctx, function, *options, work) : PT2P_OK;
}

// Moves bytes between a window of the caller, or a long input, and this rank's memory.
pt2p_status_t start_transfer(pt2p_context_t *ctx, const char *function, const pt2p_call_t *call, rpc::Window window,
                             void *memory, size_t offset, size_t length, pt2p_request_t **req)
{
	if (req)
		*req = nullptr;
	Incoming *in = unreplied(ctx, call);
	if (!in)
		return dead_call(ctx, function, call);
	if (window == rpc::give_window && !in->has(window) && in->withheld)
		window = rpc::input_window;
	else if (!in->has(window))
		return ctx->reporter.fail(PT2P_ERR_ARGUMENT, "%s: the caller lends nothing to move", function);
	if (!memory && length)
		return null_argument(ctx, function, "the memory");
	const size_t bytes = window == rpc::input_window ? in->length : in->reach->lent[window].length;
	if (offset > bytes || length > bytes - offset)
		return ctx->reporter.fail(PT2P_ERR_BOUNDS, "%s: %zu bytes at offset %zu of %zu", function, length, offset,
		                          bytes);
	if (in->late)
		return ctx->reporter.fail(PT2P_ERR_DEADLINE, "%s: the caller, rank %d, has given up waiting", function,
		                          in->caller);
	rpc::Services &services = ctx->rpc->services();
	return window == rpc::take_window ? services.push(*in, memory, offset, length, req)
	                                  : services.pull(*in, window, memory, offset, length, req);
}

// Starts a call. Null: `status` says why not.
Request *start_call(pt2p_context_t *ctx, const char *function, const pt2p_call_options_t *options, rpc::CallWork work,
                    pt2p_status_t &status)
{
	status = check_call(ctx, function, options, work);
	return status == PT2P_OK ? ctx->rpc->calls().call(work, status) : nullptr;
}

// The thread that makes a call, with the lock held; not 0.
uintptr_t caller(pt2p_context_t *ctx) { return static_cast<uintptr_t>(ctx->progress->caller()); }

// The calls below, with the lock held.
[[gnu::always_inline]] inline pt2p_status_t icall_now(pt2p_context_t *ctx, int rank, uint32_t service,
                                                      const void *input, size_t length, void *reply, size_t capacity,
                                                      const pt2p_call_options_t *options, pt2p_request_t **req,
                                                      uintptr_t thread)
{
	if (req)
		*req = nullptr;
	const pt2p_callback_t done = options ? options->done : nullptr;
	pt2p_status_t status = PT2P_OK;
	if (done)
		status = check_callback(ctx, "pt2p_icall", done);
	else if (!req)
		return null_argument(ctx, "pt2p_icall", "req");
	if (status != PT2P_OK)
		return status;
	Request *r =
	    start_call(ctx, "pt2p_icall", options, {rank, service, input, length, reply, capacity, thread}, status);
	if (!r)
		return status;
	if (done)
		ctx->engine->callbacks().detach(*r, done, options->argument);
	else
		*req = to_handle(r);
	poll_now_and_then(ctx);
	return PT2P_OK;
}

pt2p_status_t notify_now(pt2p_context_t *ctx, int rank, uint32_t service, const void *input, size_t length,
                         const pt2p_call_options_t *options)
{
	rpc::CallWork work{rank, service, input, length};
	if (const pt2p_status_t status = check_call(ctx, "pt2p_notify", options, work); status != PT2P_OK)
		return status;
	if (work.rare || (options && options->done))
		return ctx->reporter.fail(PT2P_ERR_ARGUMENT, "pt2p_notify: windows, room and done are for calls with a reply");
	const pt2p_status_t status = ctx->rpc->calls().notice(work);
	poll_now_and_then(ctx);
	return status;
}

[[gnu::always_inline]] inline pt2p_status_t reply_now(pt2p_context_t *ctx, pt2p_call_t *call, uint64_t word,
                                                      const void *data, size_t length)
{
	Incoming *in = unreplied(ctx, call);
	if (!in)
		return dead_call(ctx, "pt2p_reply", call);
	if (length > PTRDIFF_MAX)
		return bad_length(ctx, "pt2p_reply", length);
	if (!data && length)
		return null_argument(ctx, "pt2p_reply", "data");
	ctx->rpc->services().reply(*in, word, data, length);
	return PT2P_OK;
}

} // namespace

// ---- serving --------------------------------------------------------------------------------------------------------

pt2p_status_t pt2p_service_open(pt2p_context_t *ctx, uint32_t id, pt2p_handler_t handler, void *argument,
                                const pt2p_service_options_t *options, pt2p_service_t **service)
try {
	PT2P_CHECK_CONTEXT(ctx);
	Progress::Guard guard(*ctx->progress);
	if (!service)
		return null_argument(ctx, __func__, "service");
	*service = nullptr;
	if (!handler)
		return null_argument(ctx, __func__, "handler");
	const pt2p_service_options_t standard = PT2P_SERVICE_OPTIONS_INIT;
	const pt2p_service_options_t &o = options ? *options : standard;
	if (o.struct_size != sizeof o)
		return wrong_size(ctx, __func__, o.struct_size, sizeof o, "PT2P_SERVICE_OPTIONS_INIT");
	if (o.lanes > rpc::max_lanes)
		return ctx->reporter.fail(PT2P_ERR_ARGUMENT, "%s: options->lanes is %u, at most %u are possible", __func__,
		                          o.lanes, rpc::max_lanes);
	if (o.input_max > PTRDIFF_MAX)
		return bad_length(ctx, __func__, o.input_max);
	// A reply by datagram may be lost, so only a caller that repeats its call can ask for it.
	if (!is_delivery_of_replies(o.reply_by) || o.reply_by == PT2P_DELIVERY_DATAGRAM)
		return ctx->reporter.fail(PT2P_ERR_ARGUMENT, "%s: options->reply_by is %d, which is no way for replies",
		                          __func__, static_cast<int>(o.reply_by));
	const Service *opened = ctx->rpc->services().open(id, handler, argument, o);
	if (!opened)
		return ctx->reporter.fail(PT2P_ERR_ARGUMENT, "%s: service %u is open already", __func__, id);
	*service = reinterpret_cast<pt2p_service_t *>(opened->handle);
	return PT2P_OK;
}
PT2P_CATCH

pt2p_status_t pt2p_service_close(pt2p_context_t *ctx, pt2p_service_t *service)
try {
	PT2P_CHECK_CONTEXT(ctx);
	Progress::Guard guard(*ctx->progress);
	PT2P_NOT_IN_HANDLER(ctx);
	if (ctx->engine->callbacks().serves()) // it would wait for its own handler
		return in_handler(ctx, __func__);
	Service *s = service_of(ctx, service);
	if (!s)
		return dead_service(ctx, __func__, service);
	rpc::Services &services = ctx->rpc->services();
	services.refuse_all(*s);
	if (s->in_use())
		wait_until(ctx, [s] { return !s->in_use(); });
	services.close(*s);
	return PT2P_OK;
}
PT2P_CATCH

pt2p_status_t pt2p_serve(pt2p_context_t *ctx, pt2p_service_t *service, uint32_t lane, size_t most, int64_t timeout,
                         size_t *served)
try {
	PT2P_CHECK_CONTEXT(ctx);
	Progress::Guard guard(*ctx->progress);
	PT2P_NOT_IN_HANDLER(ctx);
	if (served)
		*served = 0;
	Service *s = service_of(ctx, service);
	if (!s)
		return dead_service(ctx, __func__, service);
	if (lane >= s->lanes.size())
		return ctx->reporter.fail(PT2P_ERR_ARGUMENT, "%s: lane %u of a service that has %zu", __func__, lane,
		                          s->lanes.size());
	if (!most)
		return ctx->reporter.fail(PT2P_ERR_ARGUMENT, "%s: most is 0", __func__);
	const rpc::Service::User user(*s);
	rpc::Services &services = ctx->rpc->services();
	const auto ready = [&] { return !s->open || !s->lane(lane).queue.empty(); };
	const auto call = [ctx](const auto &function) noexcept {
		const pt2p::Callbacks::Serving serving(ctx->engine->callbacks());
		const Progress::Callback section(*ctx->progress);
		function();
	};
	const int64_t end = timeout > 0 ? now_ns() + std::min(timeout, INT64_MAX / 2) : 0;
	poll(ctx);
	for (size_t n = 0; n < most; ++n) {
		while (s->open && !services.serve(*s, lane, call)) {
			if (n || !timeout)
				return PT2P_OK;
			if (timeout < 0)
				wait_until(ctx, ready);
			else if (const int64_t left = end - now_ns(); left <= 0 || !ctx->progress->wait_for(left, ready))
				return PT2P_OK; // late calls may have come meanwhile
		}
		if (!s->open)
			return n ? PT2P_OK : dead_service(ctx, __func__, service);
		if (served)
			*served = n + 1;
	}
	return PT2P_OK;
}
PT2P_CATCH

pt2p_status_t pt2p_reply(pt2p_context_t *ctx, pt2p_call_t *call, uint64_t word, const void *data, size_t length)
try {
	PT2P_CHECK_CONTEXT(ctx);
	if (__builtin_expect(!ctx->progress->locking(), 1))
		return reply_now(ctx, call, word, data, length);
	return start_among_threads(ctx, [=] { return reply_now(ctx, call, word, data, length); });
}
PT2P_CATCH

pt2p_status_t pt2p_reply_room(pt2p_context_t *ctx, pt2p_call_t *call, size_t length, void **room)
try {
	PT2P_CHECK_CONTEXT(ctx);
	Progress::Guard guard(*ctx->progress);
	if (!room)
		return null_argument(ctx, __func__, "room");
	*room = nullptr;
	Incoming *in = unreplied(ctx, call);
	if (!in)
		return dead_call(ctx, __func__, call);
	if (length > PTRDIFF_MAX)
		return bad_length(ctx, __func__, length);
	*room = ctx->rpc->services().room(*in, length);
	return PT2P_OK;
}
PT2P_CATCH

pt2p_status_t pt2p_call_abandon(pt2p_context_t *ctx, pt2p_call_t *call)
try {
	PT2P_CHECK_CONTEXT(ctx);
	Progress::Guard guard(*ctx->progress);
	Incoming *in = unreplied(ctx, call);
	if (!in)
		return dead_call(ctx, __func__, call);
	ctx->rpc->services().abandon(*in);
	return PT2P_OK;
}
PT2P_CATCH

pt2p_status_t pt2p_call_pull(pt2p_context_t *ctx, pt2p_call_t *call, void *to, size_t offset, size_t length,
                             pt2p_request_t **req)
try {
	PT2P_CHECK_CONTEXT(ctx);
	Progress::Guard guard(*ctx->progress);
	return start_transfer(ctx, __func__, call, rpc::give_window, to, offset, length, req);
}
PT2P_CATCH

pt2p_status_t pt2p_call_push(pt2p_context_t *ctx, pt2p_call_t *call, const void *from, size_t offset, size_t length,
                             pt2p_request_t **req)
try {
	PT2P_CHECK_CONTEXT(ctx);
	Progress::Guard guard(*ctx->progress);
	return start_transfer(ctx, __func__, call, rpc::take_window, const_cast<void *>(from), offset, length, req);
}
PT2P_CATCH

pt2p_status_t pt2p_call_keep(pt2p_context_t *ctx, pt2p_call_t *call, const void **input)
try {
	PT2P_CHECK_CONTEXT(ctx);
	Progress::Guard guard(*ctx->progress);
	Incoming *in = unreplied(ctx, call);
	if (!in)
		return dead_call(ctx, __func__, call);
	if (input)
		*input = in->visible();
	return PT2P_OK;
}
PT2P_CATCH

pt2p_status_t pt2p_call_query(pt2p_context_t *ctx, pt2p_call_t *call, pt2p_call_info_t *info)
try {
	PT2P_CHECK_CONTEXT(ctx);
	Progress::Guard guard(*ctx->progress);
	if (!info)
		return null_argument(ctx, __func__, "info");
	const Incoming *in = ctx->rpc->services().find_running(call);
	if (!in)
		return dead_call(ctx, __func__, call);
	info->caller = in->caller;
	info->service = in->service->id;
	info->lane = in->lanes.service;
	info->notice = in->notice;
	info->cancelled = in->cancelled;
	info->length = in->length;
	info->give = in->has(rpc::give_window) ? in->reach->lent[rpc::give_window].length : 0;
	info->take = in->has(rpc::take_window) ? in->reach->lent[rpc::take_window].length : 0;
	info->remaining = in->deadline ? std::max<int64_t>(in->deadline - now_ns(), 0) : INT64_MAX;
	return PT2P_OK;
}
PT2P_CATCH

pt2p_status_t pt2p_calls_query(pt2p_context_t *ctx, int rank, pt2p_calls_info_t *info)
try {
	PT2P_CHECK_CONTEXT(ctx);
	Progress::Guard guard(*ctx->progress);
	if (!is_rank(ctx, rank))
		return bad_rank(ctx, __func__, "rank", rank);
	if (!info)
		return null_argument(ctx, __func__, "info");
	if (info->struct_size != sizeof *info)
		return wrong_size(ctx, __func__, info->struct_size, sizeof *info, "PT2P_CALLS_INFO_INIT");
	ctx->rpc->describe(rank, *info);
	return PT2P_OK;
}
PT2P_CATCH

// ---- calling --------------------------------------------------------------------------------------------------------

pt2p_status_t pt2p_icall(pt2p_context_t *ctx, int rank, uint32_t service, const void *input, size_t length, void *reply,
                         size_t capacity, const pt2p_call_options_t *options, pt2p_request_t **req)
try {
	PT2P_CHECK_CONTEXT(ctx);
	if (__builtin_expect(!ctx->progress->locking(), 1))
		return icall_now(ctx, rank, service, input, length, reply, capacity, options, req, 0);
	return start_among_threads(
	    ctx, [=] { return icall_now(ctx, rank, service, input, length, reply, capacity, options, req, caller(ctx)); });
}
PT2P_CATCH

pt2p_status_t pt2p_call(pt2p_context_t *ctx, int rank, uint32_t service, const void *input, size_t length, void *reply,
                        size_t capacity, const pt2p_call_options_t *options, pt2p_result_t *result)
try {
	PT2P_CHECK_CONTEXT(ctx);
	pt2p_request_t *req = nullptr;
	pt2p_status_t status = PT2P_OK;
	if (start_and_wait(ctx, req, result, status, [&] {
		    return !(options && options->done) && !ctx->engine->callbacks().in_handler() &&
		           icall_now(ctx, rank, service, input, length, reply, capacity, options, &req, caller(ctx)) == PT2P_OK;
	    }))
		return status;
	const Progress::Guard guard(*ctx->progress, std::adopt_lock);
	PT2P_NOT_IN_HANDLER(ctx);
	if (options && options->done)
		return ctx->reporter.fail(PT2P_ERR_ARGUMENT, "%s: options->done is for pt2p_icall", __func__);
	const uintptr_t thread = __builtin_expect(ctx->progress->locking(), 0) ? caller(ctx) : 0;
	Request *r = start_call(ctx, __func__, options, {rank, service, input, length, reply, capacity, thread}, status);
	if (!r) {
		if (result)
			*result = {status, rank, 0, 0, 0, 0};
		return status;
	}
	wait_for(ctx, r);
	return ctx->engine->requests().collect(r, result);
}
PT2P_CATCH

pt2p_status_t pt2p_set_calls(pt2p_context_t *ctx, int rank, const pt2p_call_options_t *options)
try {
	PT2P_CHECK_CONTEXT(ctx);
	Progress::Guard guard(*ctx->progress);
	if (rank != PT2P_ANY_SOURCE && !is_rank(ctx, rank))
		return bad_rank(ctx, __func__, "rank", rank);
	const rpc::CallDefaults standard = rpc::Rpc::standard(ctx->config);
	rpc::CallWork work{rank, 0, nullptr, 0};
	work.deadline = standard.deadline;
	work.by = standard.by;
	if (options) {
		const pt2p_status_t status = check_options(ctx, __func__, *options, work);
		if (status != PT2P_OK)
			return status;
		if (work.rare || options->done || options->lane)
			return ctx->reporter.fail(PT2P_ERR_ARGUMENT,
			                          "%s: only deadline, input_by and reply_by can be set for all calls", __func__);
	}
	rpc::Peers &peers = ctx->rpc->peers();
	const rpc::CallDefaults defaults{work.deadline, work.by};
	if (rank == PT2P_ANY_SOURCE)
		peers.defaults() = defaults;
	else if (options)
		peers.at(rank).make_extras().defaults = std::make_unique<rpc::CallDefaults>(defaults);
	else if (rpc::Peer *peer = peers.find(rank); peer && peer->extras)
		peer->extras->defaults.reset();
	return PT2P_OK;
}
PT2P_CATCH

pt2p_status_t pt2p_notify(pt2p_context_t *ctx, int rank, uint32_t service, const void *input, size_t length,
                          const pt2p_call_options_t *options)
try {
	PT2P_CHECK_CONTEXT(ctx);
	return start_among_threads(ctx, [=] { return notify_now(ctx, rank, service, input, length, options); });
}
PT2P_CATCH
