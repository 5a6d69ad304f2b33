// Shared by the programs that use UCX in virtual time: what UCX must not see or measure itself, and a worker for each
// rank. For one source file of a program, as it replaces functions of UCX.
#pragma once

#include <cstdlib>
#include <dlfcn.h>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <ucp/api/ucp.h>
#include <ucs/async/async_fwd.h>

#include "examples/kv/ycsb.hpp"
#include "softhca/studies/programs/study.hpp"

// UCX would measure the rate of the processor's time stamp counter before it is virtual, or take it from the
// processor's name.
extern "C" double ucs_arch_get_clocks_per_sec() { return 1e9; }

// The ids of workers, by which UCX decides between two that connect to each other at once. It would make them of the
// process id, which differs in each run.
extern "C" uint64_t ucs_generate_uuid(uint64_t)
{
	static uint64_t last;
	return ycsb::hash(++last);
}

namespace study {

inline size_t node_that_calls;
inline std::map<int, size_t> node_of_handler; // of events and timers

// Before a call of UCX. Fibres change only between calls.
inline void call_from_node(size_t node) { node_that_calls = node; }

template <class F>
F *next_of(const char *name)
{
	return reinterpret_cast<F *>(dlsym(RTLD_NEXT, name));
}

} // namespace study

// UCX reaches through shared memory whom it finds on a host with its own id. Here a host is one of the pretended nodes.
extern "C" uint64_t ucs_get_system_id() { return 1 + study::node_that_calls; }

// UCX connects in a thread of its own that serves all workers. A handler acts for the node that has set it.
extern "C" ucs_status_t ucs_async_set_event_handler(ucs_async_mode_t mode, int event_fd, ucs_event_set_types_t events,
                                                    ucs_async_event_cb_t cb, void *arg, ucs_async_context_t *async)
{
	static auto *const real = study::next_of<decltype(ucs_async_set_event_handler)>("ucs_async_set_event_handler");
	study::node_of_handler[event_fd] = study::node_that_calls;
	return real(mode, event_fd, events, cb, arg, async);
}
extern "C" ucs_status_t ucs_async_add_timer(ucs_async_mode_t mode, ucs_time_t interval, ucs_async_event_cb_t cb,
                                            void *arg, ucs_async_context_t *async, int *timer_id)
{
	static auto *const real = study::next_of<decltype(ucs_async_add_timer)>("ucs_async_add_timer");
	const ucs_status_t status = real(mode, interval, cb, arg, async, timer_id);
	study::node_of_handler[*timer_id] = study::node_that_calls;
	return status;
}
extern "C" ucs_status_t ucs_async_dispatch_handlers(int *ids, size_t count, ucs_event_set_types_t events)
{
	static auto *const real = study::next_of<decltype(ucs_async_dispatch_handlers)>("ucs_async_dispatch_handlers");
	const size_t before = study::node_that_calls;
	ucs_status_t status = UCS_OK;
	for (size_t i = 0; i < count; ++i) {
		study::call_from_node(study::node_of_handler[ids[i]]);
		if (const ucs_status_t each = real(ids + i, 1, events); each != UCS_OK)
			status = each;
	}
	study::call_from_node(before);
	return status;
}

namespace study {

inline void check(ucs_status_t status, const char *what)
{
	if (status != UCS_OK)
		give_up("%s: %s", what, ucs_status_string(status));
}

// A rank's context and worker.
class Worker {
public:
	// `features`: UCP_FEATURE_...
	Worker(size_t rank, size_t node, size_t ranks, uint64_t features) : rank(rank), node(node)
	{
		call_from_node(node);
		ucp_config_t *config;
		check(ucp_config_read(nullptr, nullptr, &config), "ucp_config_read");
		const std::string device = "mlx5_" + std::to_string(node) + ":1";
		check(ucp_config_modify(config, "NET_DEVICES", device.c_str()), device.c_str());
		ucp_params_t params{};
		params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_ESTIMATED_NUM_EPS;
		params.features = features;
		params.estimated_num_eps = ranks;
		check(ucp_init(&params, config, &context_), "ucp_init");
		ucp_config_release(config);
		ucp_worker_params_t worker_params{};
		worker_params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
		worker_params.thread_mode = UCS_THREAD_MODE_SINGLE;
		check(ucp_worker_create(context_, &worker_params, &worker), "ucp_worker_create");
		size_t bytes;
		check(ucp_worker_get_address(worker, &address, &bytes), "ucp_worker_get_address");
	}
	Worker(const Worker &) = delete;
	Worker &operator=(const Worker &) = delete;
	~Worker()
	{
		call_from_node(node);
		ucp_worker_release_address(worker, address);
		ucp_worker_destroy(worker);
		ucp_cleanup(context_);
	}

	// What was found takes its time, and time passes, as often as with libpt2p (Net::take_wireup): now and then, and
	// when several turns in a row have found nothing. After one of them the load may have another request to send.
	void progress()
	{
		constexpr int turns = 64, idle_turn = 16;
		call_from_node(node);
		const bool found = ucp_worker_progress(worker) != 0;
		look_ -= found ? 1 : idle_turn;
		if (look_ > 0)
			return;
		look_ = turns;
		softhca_polled(static_cast<int>(node), found);
	}

	const size_t rank, node;
	ucp_worker_h worker;
	ucp_address_t *address;

private:
	ucp_context_h context_;
	int look_ = 0;
};
using Workers = std::vector<std::unique_ptr<Worker>>;

// Before the first worker. Ranks stand for processes. They do not compete for UCX's locks, though they share some here.
inline void begin_ucx(uint64_t features)
{
	softhca_time_trap_counter();
	softhca_queue_pairs(-1); // the model sets its own costs when it begins
	softhca_time_locks(0, 0);
	if (const char *events = std::getenv("UCX_MEM_EVENTS"); !events || *events != 'n')
		give_up("UCX_MEM_EVENTS is to be n");
	Worker once(0, 0, 1, features); // memory that all contexts share is not counted
}

} // namespace study
