// The key-value store of kv.hpp with UCX: a context and a worker for each rank, each on a device of its own.
//
//   UCX_MEM_EVENTS=n UCX_TLS=rc_x,self softhca --model connectx5 --devices 16 ucx_load nodes=16 workload=b
//
// UCX_MEM_EVENTS=n: UCX would interpose mmap() and hide the devices' doorbells from softhca.
#include <cstdlib>
#include <thread>

#include <ucp/api/ucp.h>

#include "softhca/studies/programs/kv.hpp"

// UCX would measure the rate of the processor's time stamp counter before it is virtual, or take it from the
// processor's name.
extern "C" double ucs_arch_get_clocks_per_sec() { return 1e9; }

// The ids of workers, by which UCX decides between two that connect to each other at once. It would make them of the
// process id, which differs in each run.
extern "C" uint64_t ucs_generate_uuid(uint64_t)
{
	static uint64_t last;
	return kv::Keys::hash(++last);
}

namespace {

using namespace study;

void check(ucs_status_t status, const char *what)
{
	if (status != UCS_OK)
		give_up("%s: %s", what, ucs_status_string(status));
}

// A rank's context and worker.
class Worker {
public:
	Worker(size_t rank, size_t ranks) : rank(rank)
	{
		ucp_config_t *config;
		check(ucp_config_read(nullptr, nullptr, &config), "ucp_config_read");
		const std::string device = "mlx5_" + std::to_string(rank) + ":1";
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
		ucp_worker_release_address(worker, address);
		ucp_worker_destroy(worker);
		ucp_cleanup(context_);
	}

	const size_t rank;
	ucp_worker_h worker;
	ucp_address_t *address;

private:
	ucp_context_h context_;
};
using Workers = std::vector<std::unique_ptr<Worker>>;

// Tags say who has sent a message.
class UcxMessenger final : public kv::Messenger {
public:
	UcxMessenger(const Workers &all, size_t rank, const kv::Load &load, size_t &arrived)
	    : all_(all), me_(*all[rank]), arrived_(arrived), peers_(all.size()), receives_(load.receives),
	      sends_(load.sends)
	{
	}

	void receive(size_t place, void *buffer, size_t room) override
	{
		// Only a request says whose message it was.
		ucp_request_param_t param{};
		param.op_attr_mask = UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
		receives_[place] = started(ucp_tag_recv_nbx(me_.worker, buffer, room, 0, 0, &param), "ucp_tag_recv_nbx");
	}
	std::optional<size_t> received(size_t place) override
	{
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
		const bool found = ucp_worker_progress(me_.worker) != 0;
		look_ -= found ? 1 : idle_turn;
		if (look_ > 0)
			return;
		look_ = turns;
		softhca_polled(static_cast<int>(me_.rank), found);
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
	kv::Study study(argc, argv, {});
	softhca_time_trap_counter();
	if (const char *events = std::getenv("UCX_MEM_EVENTS"); !events || *events != 'n')
		give_up("UCX_MEM_EVENTS is to be n");
	if (study.per_node() != 1)
		give_up("one rank on each node");
	const size_t ranks = study.load.ranks;
	{
		Worker once(0, 1); // memory that all contexts share is not counted
	}
	study.begin();
	Workers workers;
	for (size_t i = 0; i < ranks; ++i)
		workers.push_back(std::make_unique<Worker>(i, ranks));
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
