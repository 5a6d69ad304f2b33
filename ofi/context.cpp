// How endpoints get a context, share it, and leave it.
#include "ofi/context.hpp"

#include <algorithm>
#include <chrono>
#include <memory>
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
	for (const Endpoint *other : e.domain->endpoints)
		if (other->enabled && other->context->owner == other && other->in_job == e.in_job &&
		    other->caps & (FI_REMOTE_READ | FI_REMOTE_WRITE) && !(e.caps & ~other->caps & (FI_RMA | FI_ATOMIC)) &&
		    other->listen.sin_addr.s_addr == e.listen.sin_addr.s_addr && (other->context->has_thread || !thread))
			return other->context;
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
	made->owner = &e;
	made->has_thread = thread;
	if (locks)
		made->lock.enable();
	e.context = made.release();
	return 0;
}

// From now on nobody who asks gets memory by this context.
void take_memory_back(Context &context)
{
	pt2p_context_t *ctx = context.handle;
	const std::lock_guard guard(context.domain->mutex);
	context.closing = true;
	for (const auto &[key, mr] : context.domain->memories) {
		std::erase_if(mr->asked, [ctx](const auto &who) { return who.first == ctx; });
		const auto found = mr->handles.find(ctx);
		if (found == mr->handles.end())
			continue;
		pt2p_memory_release(ctx, found->second);
		mr->handles.erase(found);
	}
}

void end(Context *context)
{
	take_memory_back(*context);
	const pt2p_status_t status = pt2p_finalize(context->handle);
	if (status != PT2P_OK)
		PT2P_OFI_INFO(FI_LOG_EP_CTRL, "%s\n", pt2p_last_error(nullptr));
	delete context;
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
		context = find_shared(*this, thread);
		if (context)
			++context->users;
		locks = context ? context->lock.enabled() : domain->several_threads || thread;
		if (locks)
			enable_locks();
	}
	if (!context)
		if (const int error = make(*this, thread, locks))
			return error;
	// It may have got counters meanwhile.
	const std::lock_guard members(domain->members);
	ctx = context->handle;
	for_each_queue([this](Cq &cq) { cq.reporters.add(ctx); });
	for (Counter *counter : counters)
		counter->reporters.add(ctx);
	return 0;
}

bool Endpoint::operations_end()
{
	for (const auto begin = std::chrono::steady_clock::now(); has_operations(); sched_yield()) {
		if (std::chrono::steady_clock::now() - begin > closing_time)
			return false;
		pt2p_progress(ctx);
	}
	return true;
}

int Endpoint::close()
{
	const bool owns = context && context->owner == this;
	if (context && !owns && !operations_end()) {
		PT2P_OFI_WARN(FI_LOG_EP_CTRL, "operations of the endpoint are still under way\n");
		return -FI_EBUSY;
	}
	{
		const std::lock_guard guard(domain->members);
		if (owns && context->users > 1) {
			PT2P_OFI_WARN(FI_LOG_EP_CTRL, "%d other endpoints share the context: close them first\n",
			              context->users - 1);
			return -FI_EBUSY;
		}
		std::erase(domain->endpoints, this);
		if (ctx) {
			for_each_queue([this](Cq &cq) { cq.reporters.remove(ctx); });
			for (Counter *counter : counters)
				counter->reporters.remove(ctx);
		}
		if (context)
			--context->users;
	}
	if (owns)
		end(context);
	if (av) {
		const Locked locked(av->lock);
		std::erase(av->endpoints, this);
	}
	// Operations may have ended until now.
	for (Cq *cq : {tx_cq, rx_cq})
		if (cq)
			--cq->users;
	for (Counter *counter : bound_counters)
		--counter->users;
	--domain->users;
	return 0;
}

} // namespace pt2p_ofi
