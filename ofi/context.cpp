// How endpoints get a context, share it, and leave it.
#include "ofi/context.hpp"

#include <algorithm>
#include <chrono>
#include <string>

#include <sched.h>

#include "ofi/endpoint.hpp"

namespace pt2p_ofi {

namespace {

// How long the operations of an endpoint that shares its context may last when it is closed. pt2p_finalize waits as
// long for those of a whole context, unless PT2P_FINALIZE_TIME says otherwise.
constexpr std::chrono::seconds closing_time{10};

// A context that the endpoint can share; null: there is none. With the lock of the domain's members.
Context *find_shared(const Endpoint &e, bool thread)
{
	if (!e.only_initiates())
		return nullptr;
	for (const Endpoint *other : e.domain->endpoints) {
		Context *context = other->context;
		if (context && other->in_job == e.in_job && context->caps & (FI_REMOTE_READ | FI_REMOTE_WRITE) &&
		    !(e.caps & ~context->caps & (FI_RMA | FI_ATOMIC)) && (context->has_thread || !thread))
			return context;
	}
	return nullptr;
}

// 0, or a negative error.
int make(Endpoint &e, bool thread, bool locks)
{
	pt2p_options_t options = PT2P_OPTIONS_INIT;
	options.thread_level = locks ? PT2P_THREAD_MULTIPLE : PT2P_THREAD_SERIALIZED;
	const char *tunables[3] = {};
	size_t n = 0;
	if (thread)
		tunables[n++] = "PT2P_PROGRESS_THREAD=yes";
	std::string place = "PT2P_OPEN_LISTEN=" + text_of(e.listen);
	if (e.listen.sin_family == AF_INET) {
		if (e.listen.sin_addr.s_addr == INADDR_ANY)
			place = "PT2P_OPEN_LISTEN=:" + std::to_string(ntohs(e.listen.sin_port));
		tunables[n++] = place.c_str();
	}
	options.tunables = tunables;
	auto made = std::make_unique<Context>();
	const pt2p_status_t status =
	    e.in_job ? pt2p_init(&options, &made->handle) : pt2p_init_open(&options, &made->handle);
	if (status != PT2P_OK)
		return failed(status, nullptr, FI_LOG_EP_CTRL);
	made->domain = e.domain;
	made->has_thread = thread;
	made->caps = e.caps;
	made->owner = &e;
	if (locks)
		made->lock.enable();
	int error = e.caps & (FI_RMA | FI_ATOMIC) ? open_rma_services(*made) : 0;
	if (!error && e.caps & FI_ATOMIC)
		error = open_atomic_service(*made);
	if (error) {
		pt2p_finalize(made->handle);
		return error;
	}
	const std::lock_guard guard(e.domain->members);
	e.context = made.release();
	return 0;
}

// Nobody is left.
void end(Context *context)
{
	const std::unique_ptr<Context> ended(context);
	const pt2p_status_t status = pt2p_finalize(context->handle);
	if (status != PT2P_OK)
		PT2P_OFI_INFO(FI_LOG_EP_CTRL, "%s\n", pt2p_last_error(nullptr));
	for (const auto &endpoint : context->unfinished)
		endpoint->let_go();
}

// With the domain's mutex: from now on nobody who asks gets memory by this context.
void take_memory_back(const Context &context)
{
	pt2p_context_t *ctx = context.handle;
	for (const auto &[key, mr] : context.domain->memories) {
		std::erase_if(mr->asked, [ctx](const auto &who) { return who.first == ctx; });
		const auto found = mr->handles.find(ctx);
		if (found == mr->handles.end())
			continue;
		pt2p_memory_release(ctx, found->second);
		mr->handles.erase(found);
	}
}

} // namespace

int Context::open_service(uint32_t id, pt2p_handler_t handler)
{
	pt2p_service_t *service; // closed by pt2p_finalize
	const pt2p_status_t status = pt2p_service_open(handle, id, handler, this, nullptr, &service);
	return status == PT2P_OK ? 0 : failed(status, handle, FI_LOG_EP_CTRL);
}

void Endpoint::enable_locks()
{
	lock.enable();
	for (Cq *cq : {tx_cq, rx_cq})
		if (cq)
			cq->enable_locks();
	for (Counter *counter : counters)
		counter->enable_locks();
}

int Endpoint::make_context()
{
	if (ctx)
		return 0;
	const auto may_wait = [](const auto *object) { return object && object->may_wait; };
	bool thread, locks;
	{
		const std::lock_guard members(domain->members);
		thread = domain->progress_by_thread || may_wait(tx_cq) || may_wait(rx_cq) ||
		         std::any_of(counters.begin(), counters.end(), may_wait);
		Context *shared = find_shared(*this, thread);
		locks = shared ? shared->lock.enabled() : domain->several_threads || thread;
		if (locks)
			enable_locks();
		if (shared) {
			const std::lock_guard guard(domain->mutex);
			++shared->users;
			context = shared;
		}
	}
	if (!context)
		if (const int error = make(*this, thread, locks))
			return error;
	ctx = context->handle;
	return 0;
}

// Whether no operation is under way any more. Receives that have not begun are cancelled.
bool Endpoint::ends_operations()
{
	const auto under_way = [this] {
		const Locked locked(lock);
		size_t free = 0;
		for (const Op *op = free_ops; op; op = op->next)
			++free;
		return free != op_blocks.size() * ops_per_block || has_posted_buffer(*this);
	};
	for (const auto begin = std::chrono::steady_clock::now(); under_way(); sched_yield()) {
		if (std::chrono::steady_clock::now() - begin > closing_time)
			return false;
		cancel_receives(*this);
		pt2p_progress(ctx);
	}
	return true;
}

bool Endpoint::close()
{
	for (Cq *cq : {tx_cq, rx_cq})
		if (cq)
			cq->reporters.remove(&ctx);
	{
		const std::lock_guard guard(domain->members);
		std::erase(domain->endpoints, this);
		for (Counter *counter : counters)
			counter->reporters.remove(&ctx);
	}
	closing = true;
	if (context) {
		bool ended = true, last;
		{
			std::unique_lock guard(domain->mutex);
			if (context->users > 1) {
				if (context->owner == this) {
					const Locked locked(context->lock);
					context->owner = nullptr;
				}
				guard.unlock();
				ended = ends_operations();
				guard.lock();
			}
			last = !--context->users;
			if (last)
				take_memory_back(*context);
			else if (!ended)
				context->unfinished.emplace_back(this);
		}
		if (last)
			end(context);
		else if (!ended)
			return true;
	}
	let_go();
	return false;
}

void Endpoint::let_go()
{
	if (av) {
		const Locked locked(av->lock);
		std::erase(av->endpoints, this);
	}
	for (Cq *cq : {tx_cq, rx_cq})
		if (cq)
			--cq->users;
	for (Counter *counter : bound_counters)
		--counter->users;
	--domain->users;
}

} // namespace pt2p_ofi
