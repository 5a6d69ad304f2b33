// Open contexts at the C boundary: their addresses and their peers. lifecycle.cpp makes them.
#include "api/calls.hpp"
#include "base/job/open/open_job.hpp"

using namespace pt2p;

namespace {

OpenJob *open_job_of(pt2p_context_t *ctx)
{
	return ctx->job->open() ? static_cast<OpenJob *>(ctx->job.get()) : nullptr;
}

pt2p_status_t not_open(pt2p_context_t *ctx, const char *function)
{
	return ctx->reporter.fail(PT2P_ERR_UNSUPPORTED,
	                          "%s: this context belongs to a job, whose ranks know each other; pt2p_init_open makes "
	                          "contexts with addresses",
	                          function);
}

pt2p_status_t tell_address(pt2p_context_t *ctx, const char *function, int rank, char *text, size_t capacity,
                           size_t *needed)
{
	if (!text && capacity)
		return null_argument(ctx, function, "text");
	const OpenJob *job = open_job_of(ctx);
	if (!job)
		return not_open(ctx, function);
	if (!is_rank(ctx, rank))
		return bad_rank(ctx, function, "rank", rank);
	const std::string address = job->address_of(rank);
	if (address.empty())
		return ctx->reporter.fail(PT2P_ERR_RANK, "%s: nobody has number %d", function, rank);
	copy_text(text, capacity, address);
	if (needed)
		*needed = address.size() + 1;
	return PT2P_OK;
}

} // namespace

pt2p_status_t pt2p_address(pt2p_context_t *ctx, char *text, size_t capacity, size_t *needed)
try {
	PT2P_CHECK_CONTEXT(ctx);
	return tell_address(ctx, __func__, 0, text, capacity, needed);
}
PT2P_CATCH

pt2p_status_t pt2p_peer_address(pt2p_context_t *ctx, int rank, char *text, size_t capacity, size_t *needed)
try {
	PT2P_CHECK_CONTEXT(ctx);
	return tell_address(ctx, __func__, rank, text, capacity, needed);
}
PT2P_CATCH

pt2p_status_t pt2p_peer_add(pt2p_context_t *ctx, const char *address, int *rank)
try {
	PT2P_CHECK_CONTEXT(ctx);
	if (!address || !rank)
		return null_argument(ctx, __func__, address ? "rank" : "address");
	OpenJob *job = open_job_of(ctx);
	if (!job)
		return not_open(ctx, __func__);
	{
		Progress::Guard guard(*ctx->progress);
		PT2P_NOT_IN_HANDLER(ctx);
	}
	try {
		*rank = job->add(address);
	} catch (const Error &e) {
		if (e.status() != PT2P_ERR_NO_NUMBER)
			throw;
		{
			// Some may have become free since the last call.
			Progress::Guard guard(*ctx->progress);
			ctx->engine->check();
		}
		*rank = job->add(address);
	}
	return PT2P_OK;
}
PT2P_CATCH

pt2p_status_t pt2p_peer_remove(pt2p_context_t *ctx, int rank)
try {
	PT2P_CHECK_CONTEXT(ctx);
	OpenJob *job = open_job_of(ctx);
	if (!job)
		return not_open(ctx, __func__);
	Progress::Guard guard(*ctx->progress);
	PT2P_NOT_IN_HANDLER(ctx);
	bool was_live = false;
	if (const std::string wrong = job->remove(rank, was_live); !wrong.empty())
		return ctx->reporter.fail(PT2P_ERR_RANK, "%s: the rank is %d: %s", __func__, rank, wrong.c_str());
	ctx->engine->channels().declare_down(rank, PT2P_ERR_PEER_FINALIZED, "pt2p_peer_remove has removed it");
	if (was_live)
		job->disconnect(rank);
	return PT2P_OK;
}
PT2P_CATCH
