#include "base/job/pmix/events.hpp"

#include <array>
#include <iterator>
#include <map>
#include <mutex>
#include <vector>

namespace pt2p {

namespace {

// The listeners that events may go to. A handler stays registered until PMIx_Finalize, since to deregister it is one
// more message to the server, which is slow. So PMIx holds a number, looked up here, and no pointer.
class Listeners {
public:
	uintptr_t add(EventListener &listener)
	{
		std::lock_guard lock(mutex_);
		listeners_[++last_] = &listener;
		return last_;
	}
	void remove(uintptr_t token)
	{
		std::lock_guard lock(mutex_);
		listeners_.erase(token);
	}
	template <typename Action>
	void with(uintptr_t token, Action action)
	{
		std::lock_guard lock(mutex_);
		if (const auto found = listeners_.find(token); found != listeners_.end())
			action(*found->second);
	}

private:
	std::mutex mutex_;
	uintptr_t last_ = 0;
	std::map<uintptr_t, EventListener *> listeners_;
};

Listeners &listeners()
{
	// Never destroyed: PMIx's thread may outlive the destructors of static objects.
	static auto *all = new Listeners;
	return *all;
}

// What an event says of processes.
struct Affected {
	uintptr_t token = 0;
	std::vector<pmix_proc_t> processes;
	bool failed = true;
};

Affected read_event(const pmix_proc_t *source, const pmix_info_t info[], size_t count)
{
	Affected affected;
	const pmix_proc_t *one = source;
	for (size_t i = 0; i < count; i++) {
		const pmix_value_t &value = info[i].value;
		if (PMIX_CHECK_KEY(&info[i], PMIX_EVENT_RETURN_OBJECT))
			affected.token = reinterpret_cast<uintptr_t>(value.data.ptr);
		else if (PMIX_CHECK_KEY(&info[i], PMIX_EVENT_AFFECTED_PROC) && value.type == PMIX_PROC)
			one = value.data.proc;
		else if (PMIX_CHECK_KEY(&info[i], PMIX_EVENT_AFFECTED_PROCS) && value.type == PMIX_DATA_ARRAY &&
		         value.data.darray && value.data.darray->type == PMIX_PROC)
			affected.processes.assign(static_cast<pmix_proc_t *>(value.data.darray->array),
			                          static_cast<pmix_proc_t *>(value.data.darray->array) + value.data.darray->size);
		else if (PMIX_CHECK_KEY(&info[i], PMIX_EXIT_CODE) && value.type == PMIX_INT)
			affected.failed = value.data.integer != 0;
	}
	if (affected.processes.empty() && one)
		affected.processes.push_back(*one);
	return affected;
}

// Runs on PMIx's thread.
void on_event(size_t, pmix_status_t status, const pmix_proc_t *source, pmix_info_t info[], size_t count, pmix_info_t *,
              size_t, pmix_event_notification_cbfunc_fn_t done, void *data)
{
	const Affected affected = read_event(source, info, count);
	// A rank that ends in order says so itself; the launcher's word counts only when it tells of a failure.
	const bool in_order = (status == PMIX_EVENT_PROC_TERMINATED || status == PMIX_PROC_TERMINATED) && !affected.failed;
	listeners().with(affected.token, [&](EventListener &listener) {
		if (status == PMIX_ERR_LOST_CONNECTION)
			listener.on_server_lost();
		else if (!in_order)
			for (const auto &process : affected.processes)
				listener.on_lost(process, status);
	});
	// Handlers of others in this process come next.
	if (done)
		done(PMIX_SUCCESS, nullptr, 0, nullptr, nullptr, data);
}

} // namespace

pmix_status_t listen(EventListener &listener, uintptr_t &token)
{
	std::array<pmix_status_t, std::size(loss_codes) + 1> codes;
	for (size_t i = 0; i < std::size(loss_codes); i++)
		codes[i] = loss_codes[i].code;
	codes.back() = PMIX_ERR_LOST_CONNECTION;
	token = listeners().add(listener);
	pmix_info_t info[1];
	void *object = reinterpret_cast<void *>(token);
	PMIX_INFO_LOAD(&info[0], PMIX_EVENT_RETURN_OBJECT, object, PMIX_POINTER);
	// Without a callback the call waits and returns the number of the handler.
	const pmix_status_t status =
	    PMIx_Register_event_handler(codes.data(), codes.size(), info, 1, on_event, nullptr, nullptr);
	PMIX_INFO_DESTRUCT(&info[0]);
	return status;
}

void unlisten(uintptr_t token) { listeners().remove(token); }

} // namespace pt2p
