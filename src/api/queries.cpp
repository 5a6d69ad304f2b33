// Queries at the C boundary: who, where, how, and what went wrong.
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "api/context.hpp"

using namespace pt2p;

namespace {

// What a context tells of itself.
pt2p_status_t write_text(pt2p_context_t *ctx, const char *function, std::string (Inspector::*say)() const, char *text,
                         size_t capacity, size_t *needed)
{
	PT2P_CHECK_CONTEXT_IN(ctx, function);
	if (!text && capacity)
		return null_argument(ctx, function, "text");
	Progress::Guard guard(*ctx->progress);
	const std::string all = (ctx->inspector.get()->*say)();
	copy_text(text, capacity, all);
	if (needed)
		*needed = all.size() + 1;
	return PT2P_OK;
}

} // namespace

int pt2p_rank(const pt2p_context_t *ctx) { return valid(ctx) ? ctx->job->rank() : -1; }

int pt2p_size(const pt2p_context_t *ctx) { return valid(ctx) ? ctx->job->size() : -1; }

pt2p_status_t pt2p_query(const pt2p_context_t *ctx, pt2p_info_t *info)
try {
	PT2P_CHECK_CONTEXT(ctx);
	if (!info)
		return null_argument(ctx, __func__, "info");
	*info = {};
	info->rank = ctx->job->rank();
	info->size = ctx->job->size();
	info->local_rank = ctx->job->local_rank();
	info->local_size = ctx->job->local_size();
	info->cpus = ctx->topology.cpus;
	info->core = ctx->topology.core;
	info->numa_node = ctx->topology.numa_node;
	info->oversubscribed = oversubscribed(ctx->topology, ctx->job->host_size());
	info->thread_level = ctx->thread_level;
	copy_text(info->host, sizeof info->host, ctx->topology.host);
	return PT2P_OK;
}
PT2P_CATCH

pt2p_status_t pt2p_peer_query(pt2p_context_t *ctx, int rank, pt2p_peer_info_t *info)
try {
	PT2P_CHECK_CONTEXT(ctx);
	if (!info)
		return null_argument(ctx, __func__, "info");
	Progress::Guard guard(*ctx->progress);
	if (!is_rank(ctx, rank))
		return bad_rank(ctx, __func__, "the rank", rank);
	*info = {};
	info->rank = rank;
	info->same_node = ctx->job->local_index(rank) >= 0;
	info->state = ctx->engine->channels().state(rank);
	ctx->inspector->inspect(*info);
	return PT2P_OK;
}
PT2P_CATCH

const char *pt2p_last_error(const pt2p_context_t *ctx) { return last_error(valid(ctx) ? &ctx->reporter : nullptr); }

pt2p_status_t pt2p_counter_read(const pt2p_context_t *ctx, int counter, uint64_t *value)
try {
	PT2P_CHECK_CONTEXT(ctx);
	if (!value)
		return null_argument(ctx, __func__, "value");
	Progress::Guard guard(*ctx->progress);
	if (counter < 0 || counter >= static_cast<int>(Counter::count))
		return const_cast<pt2p_context_t *>(ctx)->reporter.fail(PT2P_ERR_ARGUMENT,
		                                                        "%s: the counter is %d, there are 0 to %d", __func__,
		                                                        counter, static_cast<int>(Counter::count) - 1);
	*value = ctx->reporter.read(static_cast<Counter>(counter));
	return PT2P_OK;
}
PT2P_CATCH

pt2p_status_t pt2p_summary(pt2p_context_t *ctx, char *text, size_t capacity, size_t *needed)
try {
	return write_text(ctx, __func__, &Inspector::summary, text, capacity, needed);
}
PT2P_CATCH

pt2p_status_t pt2p_report(pt2p_context_t *ctx, char *text, size_t capacity, size_t *needed)
try {
	return write_text(ctx, __func__, &Inspector::report, text, capacity, needed);
}
PT2P_CATCH

pt2p_status_t pt2p_dump(pt2p_context_t *ctx)
try {
	PT2P_CHECK_CONTEXT(ctx);
	Progress::Guard guard(*ctx->progress);
	write_to_stderr(ctx->inspector->dump("asked by the program"));
	return PT2P_OK;
}
PT2P_CATCH
