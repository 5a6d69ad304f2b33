// The loads of traffic.hpp with UCX: a context and a worker for each rank, those of a node on its device.
//
//   UCX_MEM_EVENTS=n UCX_TLS=rc_x,self,posix softhca --model connectx5 --devices 16 ucx_load nodes=16 ranks=4
//   workload=b
//
// posix: the model does not notice stores into System V shared memory. UCX_MEM_EVENTS=n: UCX would interpose mmap() and
// hide the devices' doorbells from softhca.
#include <cstdlib>
#include <dlfcn.h>
#include <map>
#include <thread>

#include <ucp/api/ucp.h>
#include <ucs/async/async_fwd.h>

#include "softhca/studies/programs/traffic.hpp"

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

namespace {

using namespace study;

size_t node_that_calls;
std::map<int, size_t> node_of_handler; // of events and timers

// Before a call of UCX. Fibres change only between calls.
void call_from_node(size_t node) { node_that_calls = node; }

template <class F>
F *next(const char *name)
{
	return reinterpret_cast<F *>(dlsym(RTLD_NEXT, name));
}

} // namespace

// UCX reaches through shared memory whom it finds on a host with its own id. Here a host is one of the pretended nodes.
extern "C" uint64_t ucs_get_system_id() { return 1 + node_that_calls; }

// UCX connects in a thread of its own that serves all workers. A handler acts for the node that has set it.
extern "C" ucs_status_t ucs_async_set_event_handler(ucs_async_mode_t mode, int event_fd, ucs_event_set_types_t events,
                                                    ucs_async_event_cb_t cb, void *arg, ucs_async_context_t *async)
{
	static auto *const real = next<decltype(ucs_async_set_event_handler)>("ucs_async_set_event_handler");
	node_of_handler[event_fd] = node_that_calls;
	return real(mode, event_fd, events, cb, arg, async);
}
extern "C" ucs_status_t ucs_async_add_timer(ucs_async_mode_t mode, ucs_time_t interval, ucs_async_event_cb_t cb,
                                            void *arg, ucs_async_context_t *async, int *timer_id)
{
	static auto *const real = next<decltype(ucs_async_add_timer)>("ucs_async_add_timer");
	const ucs_status_t status = real(mode, interval, cb, arg, async, timer_id);
	node_of_handler[*timer_id] = node_that_calls;
	return status;
}
extern "C" ucs_status_t ucs_async_dispatch_handlers(int *ids, size_t count, ucs_event_set_types_t events)
{
	static auto *const real = next<decltype(ucs_async_dispatch_handlers)>("ucs_async_dispatch_handlers");
	const size_t before = node_that_calls;
	ucs_status_t status = UCS_OK;
	for (size_t i = 0; i < count; ++i) {
		call_from_node(node_of_handler[ids[i]]);
		if (const ucs_status_t each = real(ids + i, 1, events); each != UCS_OK)
			status = each;
	}
	call_from_node(before);
	return status;
}

namespace {

void check(ucs_status_t status, const char *what)
{
	if (status != UCS_OK)
		give_up("%s: %s", what, ucs_status_string(status));
}

// A rank's context and worker.
class Worker {
public:
	Worker(size_t rank, size_t node, size_t ranks) : rank(rank), node(node)
	{
		call_from_node(node);
		ucp_config_t *config;
		check(ucp_config_read(nullptr, nullptr, &config), "ucp_config_read");
		const std::string device = "mlx5_" + std::to_string(node) + ":1";
		check(ucp_config_modify(config, "NET_DEVICES", device.c_str()), device.c_str());
		ucp_params_t params{};
		params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_ESTIMATED_NUM_EPS;
		params.features = UCP_FEATURE_TAG;
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

	const size_t rank, node;
	ucp_worker_h worker;
	ucp_address_t *address;

private:
	ucp_context_h context_;
};
using Workers = std::vector<std::unique_ptr<Worker>>;

// Tags say who has sent a message.
class UcxMessenger final : public Messenger {
public:
	UcxMessenger(const Workers &all, size_t rank, const Load &load, size_t &arrived)
	    : all_(all), me_(*all[rank]), arrived_(arrived), peers_(all.size()), receives_(load.receives),
	      sends_(load.sends)
	{
	}

	void receive(size_t place, void *buffer, size_t room) override
	{
		call_from_node(me_.node);
		// Only a request says whose message it was.
		ucp_request_param_t param{};
		param.op_attr_mask = UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
		receives_[place] = started(ucp_tag_recv_nbx(me_.worker, buffer, room, 0, 0, &param), "ucp_tag_recv_nbx");
	}
	std::optional<size_t> received(size_t place) override
	{
		call_from_node(me_.node);
		ucp_tag_recv_info_t info;
		ucs_status_t status = ucp_tag_recv_request_test(receives_[place], &info);
		if (status == UCS_INPROGRESS) {
			progress();
			status = ucp_tag_recv_request_test(receives_[place], &info);
		}
		if (status == UCS_INPROGRESS)
			return std::nullopt;
		check(status, "receive");
		ucp_request_free(receives_[place]);
		return info.sender_tag;
	}
	void send(size_t place, size_t to, const void *buffer, size_t bytes) override
	{
		call_from_node(me_.node);
		ucp_request_param_t param{};
		param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
		param.cb.send = on_sent;
		param.user_data = &sends_[place];
		sends_[place] = started(ucp_tag_send_nbx(peer(to), buffer, bytes, me_.rank, &param), "ucp_tag_send_nbx");
	}
	bool sent(size_t place) override
	{
		if (sends_[place])
			progress();
		return !sends_[place];
	}
	void barrier() override
	{
		const size_t round = arrived_++ / all_.size() + 1;
		while (arrived_ < round * all_.size())
			progress();
	}
	void finish() override
	{
		for (void *receive : receives_) {
			call_from_node(me_.node);
			ucp_request_cancel(me_.worker, receive);
			while (ucp_request_check_status(receive) == UCS_INPROGRESS)
				progress();
			ucp_request_free(receive);
		}
		for (size_t place = 0; place < sends_.size(); ++place)
			while (!sent(place)) {
			}
	}

private:
	static void on_sent(void *request, ucs_status_t status, void *user_data)
	{
		check(status, "send");
		*static_cast<void **>(user_data) = nullptr;
		ucp_request_free(request);
	}
	static void *started(ucs_status_ptr_t request, const char *what)
	{
		if (UCS_PTR_IS_ERR(request))
			check(UCS_PTR_STATUS(request), what);
		return request;
	}
	ucp_ep_h peer(size_t rank)
	{
		if (!peers_[rank]) {
			ucp_ep_params_t params{};
			params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
			params.address = all_[rank]->address;
			check(ucp_ep_create(me_.worker, &params, &peers_[rank]), "ucp_ep_create");
		}
		return peers_[rank];
	}
	// What was found takes its time, and time passes, as often as with libpt2p (Net::take_wireup): now and then, and
	// when several turns in a row have found nothing. After one of them the load may have another request to send.
	void progress()
	{
		constexpr int turns = 64, idle_turn = 16;
		call_from_node(me_.node);
		const bool found = ucp_worker_progress(me_.worker) != 0;
		look_ -= found ? 1 : idle_turn;
		if (look_ > 0)
			return;
		look_ = turns;
		softhca_polled(static_cast<int>(me_.node), found);
	}

	const Workers &all_;
	Worker &me_;
	size_t &arrived_;
	std::vector<ucp_ep_h> peers_;
	std::vector<void *> receives_, sends_; // requests; a send that is complete has none
	int look_ = 0;
};

} // namespace

int main(int argc, char **argv)
{
	Study study(argc, argv, {});
	softhca_time_trap_counter();
	// Ranks stand for processes. They do not compete for UCX's locks, though they share some here.
	softhca_queue_pairs(-1); // the model sets its own costs when it begins
	softhca_time_locks(0, 0);
	if (const char *events = std::getenv("UCX_MEM_EVENTS"); !events || *events != 'n')
		give_up("UCX_MEM_EVENTS is to be n");
	const size_t ranks = study.load.ranks;
	{
		Worker once(0, 0, 1); // memory that all contexts share is not counted
	}
	study.begin();
	Workers workers;
	for (size_t i = 0; i < ranks; ++i)
		workers.push_back(std::make_unique<Worker>(i, i / study.per_node(), ranks));
	size_t arrived = 0;
	std::vector<std::thread> threads;
	for (size_t i = 0; i < ranks; ++i)
		threads.emplace_back([&, i] {
			UcxMessenger messenger(workers, i, study.load, arrived);
			study.run(i, messenger);
		});
	for (std::thread &t : threads)
		t.join();
	study.end();
	study.print(0);
}
