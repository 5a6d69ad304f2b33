// A context: everything that one participant of a job holds. There is no other state.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "base/config/config.hpp"
#include "base/job/job.hpp"
#include "base/job/topology.hpp"
#include "base/report/report.hpp"
#include "inspect/inspector.hpp"
#include "message/engine.hpp"
#include "onesided/onesided.hpp"
#include "progress/progress.hpp"
#include "route/route.hpp"
#include "rpc/rpc.hpp"

namespace pt2p {
struct Siblings;
}

struct pt2p_context {
	static constexpr uint64_t alive = UINT64_C(0x7074327063747831); // "pt2pctx1"
	static constexpr uint64_t forked =
	    UINT64_C(0x707432706b696431); // "pt2pkid1": in a child of the process that made it

	pt2p_context();
	~pt2p_context();

	// Order matters: destroyed from the last to the first.
	uint64_t magic = alive;
	pt2p_thread_level_t thread_level = PT2P_THREAD_SINGLE;
	pt2p::Reporter reporter;
	pt2p::Config config;
	pt2p::Topology topology;
	std::unique_ptr<pt2p::Job> job;
	std::unique_ptr<pt2p::Engine> engine;
	std::unique_ptr<pt2p::Router> router;
	std::unique_ptr<pt2p::Progress> progress;
	std::unique_ptr<pt2p::onesided::OneSided> onesided;
	std::unique_ptr<pt2p::rpc::Rpc> rpc;
	std::unique_ptr<pt2p::Inspector> inspector;
	std::shared_ptr<pt2p::Siblings> siblings; // cooperative in-process jobs only
};

namespace pt2p {

// The contexts of a cooperative in-process job, so that one that waits can step the others. Entries become null as
// contexts are finalized.
struct Siblings {
	std::vector<pt2p_context *> contexts;
	bool stepping = false;
};

inline bool valid(const pt2p_context_t *ctx) { return ctx && ctx->magic == pt2p_context::alive; }

// The status for a pointer that is no context, or that of another process; recorded without one.
[[gnu::cold]] pt2p_status_t not_a_context(const pt2p_context_t *ctx, const char *function) noexcept;
// Whether a process that this one descends from has joined a launcher's job in this place.
bool place_is_taken();
// The status for an argument `name` that must not be NULL; recorded.
[[gnu::cold]] pt2p_status_t null_argument(const pt2p_context_t *ctx, const char *function, const char *name);
inline bool is_rank(const pt2p_context_t *ctx, int rank) { return ctx->engine->is_rank(rank); }
// What is wrong with the struct_size of options that `macro` initialises.
std::string wrong_size_text(size_t is, size_t should_be, const char *macro);
// The status for a rank, called `name`, that is none; for a length that cannot be. Recorded.
[[gnu::cold]] pt2p_status_t bad_rank(const pt2p_context_t *ctx, const char *function, const char *name, int rank);
[[gnu::cold]] pt2p_status_t bad_length(const pt2p_context_t *ctx, const char *function, size_t length);
// The status for an exception that reached the C boundary: memory ran out. Call it from a handler.
pt2p_status_t caught(const pt2p_context_t *ctx, const char *function) noexcept;

} // namespace pt2p

// Each public function starts with this: a context that is none is the one thing that cannot be reported through it.
// The second form is for what is done on behalf of the public function of that name.
#define PT2P_CHECK_CONTEXT(ctx) PT2P_CHECK_CONTEXT_IN(ctx, __func__)
#define PT2P_CHECK_CONTEXT_IN(ctx, name)                                                                               \
	do {                                                                                                               \
		if (__builtin_expect(!pt2p::valid(ctx), 0))                                                                    \
			return pt2p::not_a_context(ctx, name);                                                                     \
	} while (0)

// Each ends with this: no exception crosses the C boundary.
#define PT2P_CATCH PT2P_CATCH_IN(__func__)
#define PT2P_CATCH_IN(name)                                                                                            \
	catch (...) { return pt2p::caught(ctx, name); }
