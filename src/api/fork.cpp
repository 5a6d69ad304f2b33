// Contexts in a forked child cannot be used: they share connections, shared memory and the place in the job with the
// parent, which goes on with them. The child finds them marked, and every call refuses them; nothing of them is ended
// in the child.
#include <algorithm>
#include <cstring>
#include <mutex>
#include <vector>

#include <pthread.h>

#include "api/context.hpp"

namespace pt2p {

namespace {

// The contexts of this process, finalized ones excepted.
class Contexts {
public:
	// Never destroyed: contexts may be finalized by destructors of static objects.
	static Contexts &get()
	{
		static auto *contexts = new Contexts;
		return *contexts;
	}
	void add(pt2p_context *ctx)
	{
		const std::lock_guard lock(mutex_);
		all_.push_back(ctx);
	}
	void remove(pt2p_context *ctx)
	{
		const std::lock_guard lock(mutex_);
		std::erase(all_, ctx);
	}
	bool place_is_taken() const { return place_is_taken_; }

private:
	// Another thread may be adding one while this one forks.
	Contexts()
	{
		pthread_atfork([] { get().mutex_.lock(); }, [] { get().mutex_.unlock(); },
		               [] {
			               get().mark();
			               get().mutex_.unlock();
		               });
	}
	void mark()
	{
		for (pt2p_context *ctx : all_) {
			ctx->magic = pt2p_context::forked;
			place_is_taken_ = place_is_taken_ || (ctx->job && !std::strcmp(ctx->job->kind(), "launched"));
		}
	}

	std::mutex mutex_;
	std::vector<pt2p_context *> all_;
	bool place_is_taken_ = false;
};

} // namespace

bool place_is_taken() { return Contexts::get().place_is_taken(); }

} // namespace pt2p

pt2p_context::pt2p_context() { pt2p::Contexts::get().add(this); }

pt2p_context::~pt2p_context()
{
	magic = 0;
	pt2p::Contexts::get().remove(this);
}
