// Making and ending contexts.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

#include <unistd.h>

#include "api/calls.hpp"
#include "base/clock.hpp"
#include "base/job/open/open_job.hpp"

namespace pt2p {

pt2p_status_t null_argument(const pt2p_context_t *ctx, const char *function, const char *name)
{
	// An explanation changes nothing that a constant context promises.
	return const_cast<pt2p_context_t *>(ctx)->reporter.fail(PT2P_ERR_ARGUMENT, "%s: %s is NULL", function, name);
}

pt2p_status_t bad_rank(const pt2p_context_t *ctx, const char *function, const char *name, int rank)
{
	return const_cast<pt2p_context_t *>(ctx)->reporter.fail(PT2P_ERR_RANK, "%s: %s is %d, the ranks are 0 to %d",
	                                                        function, name, rank, ctx->job->size() - 1);
}

pt2p_status_t bad_length(const pt2p_context_t *ctx, const char *function, size_t length)
{
	return const_cast<pt2p_context_t *>(ctx)->reporter.fail(PT2P_ERR_LENGTH,
	                                                        "%s: the length is %zu, as a signed number %td", function,
	                                                        length, static_cast<ptrdiff_t>(length));
}

std::string wrong_size_text(size_t is, size_t should_be, const char *macro)
{
	return format("options->struct_size is %zu, this library's options have %zu bytes: initialise them with %s and "
	              "rebuild against this pt2p.h",
	              is, should_be, macro);
}

pt2p_status_t not_a_context(const pt2p_context_t *ctx, const char *function) noexcept
{
	const bool forked = ctx && ctx->magic == pt2p_context::forked;
	const pt2p_status_t status = forked ? PT2P_ERR_FORKED : PT2P_ERR_CONTEXT;
	try {
		set_last_error(nullptr, status,
		               forked ? format("%s: the context is that of the process from which this one, %ld, was forked",
		                               function, static_cast<long>(getpid()))
		                      : format("%s: the context is NULL or has been finalized", function));
	} catch (const std::bad_alloc &) { // the status says it without the explanation
	}
	return status;
}

pt2p_status_t caught(const pt2p_context_t *ctx, const char *function) noexcept
{
	Reporter &reporter = const_cast<pt2p_context_t *>(ctx)->reporter;
	try {
		throw;
	} catch (const Error &e) {
		return reporter.fail(e.status(), "%s: %s", function, e.what());
	} catch (const std::bad_alloc &) {
		return reporter.fail(PT2P_ERR_NO_MEMORY, "%s: the process gets no more memory", function);
	} catch (...) {
		return reporter.fail(PT2P_ERR_INTERNAL, "%s: an exception that libpt2p does not know", function);
	}
}

namespace {

// The number of an enumerator: a C caller may have stored anything, and loading that as an enumerator is undefined.
template <class E>
unsigned raw(const E &value)
{
	unsigned number;
	static_assert(sizeof number == sizeof value);
	std::memcpy(&number, &value, sizeof number);
	return number;
}

// What contexts of one call have in common.
struct Settings {
	pt2p_thread_level_t thread_level = PT2P_THREAD_SINGLE;
	ParsedConfig parsed;
};

Settings read_options(const pt2p_options_t *options)
{
	Settings s;
	if (options) {
		if (options->struct_size != sizeof *options)
			throw Error(PT2P_ERR_ARGUMENT, wrong_size_text(options->struct_size, sizeof *options, "PT2P_OPTIONS_INIT"));
		const unsigned level = raw(options->thread_level);
		if (level > PT2P_THREAD_MULTIPLE)
			throw Error(PT2P_ERR_ARGUMENT, format("options->thread_level is %u, the levels are 0 to 2", level));
		s.thread_level = options->thread_level;
	}
	s.parsed = load_config(options ? options->tunables : nullptr);
	return s;
}

LogLevel log_level_of(choice::log_level level)
{
	switch (level) {
	case choice::log_level::error: return LogLevel::error;
	case choice::log_level::warning: break;
	case choice::log_level::info: return LogLevel::info;
	case choice::log_level::debug: return LogLevel::debug;
	}
	return LogLevel::warning;
}

// Makes everything but the job, which the caller has put in.
void build(pt2p_context &ctx, const Settings &settings)
{
	ctx.thread_level = settings.thread_level;
	if (!ctx.config.dct_initiators)
		ctx.config.dct_initiators = initiators_for(ctx.config, ctx.job->device_sharers());
	const Config &config = ctx.config;
	ctx.reporter.identify(log_level_of(config.log_level), ctx.job->rank(), ctx.topology.host);
	ctx.engine = std::make_unique<Engine>(config, ctx.reporter, *ctx.job);
	ctx.router = std::make_unique<Router>(config, ctx.topology, ctx.reporter, *ctx.job, *ctx.engine, *ctx.engine);
	Progress::Settings progress;
	progress.cores = ctx.topology.usable_cpus / ctx.job->host_size();
	Relay *relay = ctx.router->relay();
	progress.thread_calls_back = config.progress_thread == choice::progress_thread::yes;
	progress.thread =
	    progress.thread_calls_back || (config.progress_thread == choice::progress_thread::automatic && relay);
	if (relay)
		relay->set_only_in_calls(!progress.thread && !ctx.job->step());
	progress.locking = settings.thread_level == PT2P_THREAD_MULTIPLE || progress.thread;
	ctx.progress = std::make_unique<Progress>(config, ctx.reporter, *ctx.job, *ctx.engine, progress);
	for (Transport *layer : ctx.router->layers())
		ctx.progress->add(*layer);
	ctx.engine->use(*ctx.router, *ctx.progress, &ctx);
	ctx.onesided =
	    std::make_unique<onesided::OneSided>(ctx.router->environment(), *ctx.engine, *ctx.router, *ctx.progress);
	ctx.rpc = std::make_unique<rpc::Rpc>(config, ctx.reporter, *ctx.engine, *ctx.onesided, ctx.job->size(), &ctx);
	ctx.inspector = std::make_unique<Inspector>(*ctx.engine, *ctx.router, *ctx.job, ctx.reporter);
	ctx.progress->dump = [&ctx](const char *reason) { write_to_stderr(ctx.inspector->dump(reason)); };
	ctx.progress->start_thread();
}

// Runs code that sets up or ends a context, for the public function `name`, and turns what it throws into a status.
template <class F>
pt2p_status_t guarded(const char *name, F &&function)
{
	try {
		function();
		return PT2P_OK;
	} catch (const Error &e) {
		set_last_error(nullptr, e.status(), e.what());
		return e.status();
	} catch (const std::bad_alloc &) {
		set_last_error(nullptr, PT2P_ERR_NO_MEMORY, name);
		return PT2P_ERR_NO_MEMORY;
	} catch (const std::exception &e) {
		set_last_error(nullptr, PT2P_ERR_INTERNAL, e.what());
		return PT2P_ERR_INTERNAL;
	}
}

// Longest wait of a rank that leaves for addresses of those that get a goodbye, ns.
constexpr int64_t max_lookup = 1'000'000'000;

pt2p_status_t bad_argument(const char *explanation)
{
	set_last_error(nullptr, PT2P_ERR_ARGUMENT, explanation);
	return PT2P_ERR_ARGUMENT;
}

} // namespace

} // namespace pt2p

using namespace pt2p;

pt2p_status_t pt2p_init(const pt2p_options_t *options, pt2p_context_t **ctx)
{
	if (!ctx)
		return bad_argument("pt2p_init: ctx is NULL");
	*ctx = nullptr;
	return guarded(__func__, [&] {
		const Settings settings = read_options(options);
		auto context = std::make_unique<pt2p_context>();
		context->config = settings.parsed.config;
		context->topology = read_topology();
		if (place_is_taken())
			throw Error(PT2P_ERR_FORKED,
			            format("process %ld was forked from one that is a rank of a launcher's job, and there is "
			                   "no second place for it",
			                   static_cast<long>(getpid())));
		context->job = join_job(context->config, context->topology, context->reporter);
		build(*context, settings);
		*ctx = context.release();
	});
}

pt2p_status_t pt2p_init_inprocess(int size, pt2p_inprocess_mode_t mode, const pt2p_options_t *options,
                                  pt2p_context_t **ctx)
{
	if (!ctx)
		return bad_argument("pt2p_init_inprocess: ctx is NULL");
	if (size < 1 || size > 4096)
		return bad_argument("pt2p_init_inprocess: size is not between 1 and 4096");
	std::fill(ctx, ctx + size, nullptr);
	if (raw(mode) > PT2P_INPROCESS_COOPERATIVE)
		return bad_argument("pt2p_init_inprocess: mode is neither threads nor cooperative");
	return guarded(__func__, [&] {
		const Settings settings = read_options(options);
		auto siblings = std::make_shared<Siblings>();
		std::function<void(int)> step;
		if (mode == PT2P_INPROCESS_COOPERATIVE)
			step = [siblings](int rank) {
				if (siblings->stepping)
					return;
				siblings->stepping = true;
				for (size_t i = 0; i < siblings->contexts.size(); ++i)
					if (pt2p_context *other = siblings->contexts[i]; other && static_cast<int>(i) != rank)
						other->progress->poll_if_free();
				siblings->stepping = false;
			};
		auto jobs = make_inprocess_jobs(size, settings.parsed.config, step);
		std::vector<std::unique_ptr<pt2p_context>> contexts;
		const Topology topology = read_topology();
		for (auto &job : jobs) {
			contexts.push_back(std::make_unique<pt2p_context>());
			pt2p_context &c = *contexts.back();
			c.config = settings.parsed.config;
			c.topology = topology;
			c.job = std::move(job);
			build(c, settings);
		}
		if (mode == PT2P_INPROCESS_COOPERATIVE) {
			for (auto &c : contexts) {
				siblings->contexts.push_back(c.get());
				c->siblings = siblings;
			}
		}
		for (size_t i = 0; i < contexts.size(); ++i)
			ctx[i] = contexts[i].release();
	});
}

pt2p_status_t pt2p_init_open(const pt2p_options_t *options, pt2p_context_t **ctx)
{
	if (!ctx)
		return bad_argument("pt2p_init_open: ctx is NULL");
	*ctx = nullptr;
	return guarded(__func__, [&] {
		const Settings settings = read_options(options);
		auto context = std::make_unique<pt2p_context>();
		context->config = settings.parsed.config;
		context->topology = read_topology();
		context->job = std::make_unique<OpenJob>(context->config, context->reporter);
		build(*context, settings);
		*ctx = context.release();
	});
}

pt2p_status_t pt2p_finalize(pt2p_context_t *ctx)
{
	PT2P_CHECK_CONTEXT(ctx);
	{
		Progress::Guard guard(*ctx->progress);
		PT2P_NOT_IN_HANDLER(ctx);
		if (ctx->engine->callbacks().serves())
			return in_handler(ctx, __func__);
	}
	std::unique_ptr<pt2p_context> context(ctx);
	std::string unfinished;
	pt2p_status_t status = guarded(__func__, [&] {
		ctx->progress->stop_thread();
		Progress::Guard guard(*ctx->progress);
		Engine &engine = *ctx->engine;
		// Together the waits take at most PT2P_FINALIZE_TIME, and then a moment each.
		constexpr int64_t moment = 100'000'000; // ns
		const int64_t limit = ctx->config.finalize_time, end = now_ns() + limit;
		const auto time_left = [&] { return std::max(end - now_ns(), std::min(limit, moment)); };
		ctx->rpc->services().leave();
		ctx->progress->poll(); // a rank that has said goodbye needs none
		if (engine.pending())
			ctx->progress->wait_for(time_left(), [&] { return !engine.pending(); });
		// The order of leaving:
		// 1. Forwarded messages and goodbyes of this rank are answered, and nobody needs it as a forwarder (relay.hpp).
		// 2. Ranks that have sent something directly get a connection for its goodbye.
		// 3. What connections hold arrives.
		// 4. Each transport says goodbye to all that it has endpoints to.
		// No step causes a message of an earlier one.
		if (Relay *relay = ctx->router->relay()) {
			relay->say_goodbye();
			ctx->progress->wait_for(time_left(), [&] { return relay->may_leave(); });
		}
		ctx->progress->wait_for(max_lookup, [&] { return ctx->router->connect_senders(); });
		ctx->progress->wait_for(time_left(), [&] {
			bool settled = true;
			for (Transport *layer : ctx->router->layers())
				settled &= layer->settle();
			return settled;
		});
		ctx->rpc->services().leave_datagrams();
		unfinished = engine.unfinished();
		engine.end_detached();
		for (Transport *layer : ctx->router->layers())
			layer->leave();
		if (ctx->config.summary)
			write_to_stderr(ctx->inspector->summary());
		if (ctx->config.report)
			write_to_stderr(ctx->inspector->report());
	});
	if (ctx->siblings)
		ctx->siblings->contexts[static_cast<size_t>(ctx->job->rank())] = nullptr;
	const pt2p_status_t left = guarded(__func__, [&] { ctx->job->leave(); });
	if (status == PT2P_OK)
		status = left;
	if (status != PT2P_OK)
		return status;
	if (unfinished.empty())
		return PT2P_OK;
	set_last_error(nullptr, PT2P_ERR_UNFINISHED, unfinished);
	return PT2P_ERR_UNFINISHED;
}

void pt2p_abort(pt2p_context_t *ctx, int code, const char *message)
{
	if (code < 1 || code > 255)
		code = 1;
	if (!valid(ctx)) {
		if (not_a_context(ctx, __func__) == PT2P_ERR_FORKED)
			end_process(code); // what waits in the buffers of stdio is the parent's
		exit(code);
	}
	ctx->job->abort(code, message);
}
