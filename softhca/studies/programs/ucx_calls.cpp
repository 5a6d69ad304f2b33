// Calls with UCX's active messages: clients draw numbers from a counter of one server, and every history is checked, as
// by pt2p_sequencer.
//
//   UCX_MEM_EVENTS=n UCX_TLS=rc_x,self softhca --model connectib --devices 73 ucx_calls clients=72 window=16
//
// Rank 0 is the server, and each rank has a node. A request is an active message with its slot as header and an
// endpoint for the reply; the server replies from the callback, with the slot and the number as header. A client has
// `window` draws under way, and waits for the oldest. Those from 10 to 80 % of `calls` are measured: M/s, mean and
// 99th percentile in ns.
#include <cstring>
#include <thread>

#include "softhca/studies/programs/counter_history.hpp"
#include "softhca/studies/programs/ucx_job.hpp"

namespace {

using namespace study;

constexpr unsigned request_id = 1, reply_id = 2;

struct Plan {
	size_t clients, window, calls, warm;
	size_t each() const { return calls / clients; } // of one client
};

// Headers.
struct Request {
	uint32_t client, slot;
};
struct Reply {
	uint64_t slot, number;
};

struct Shared {
	const Plan &plan;
	Workers workers{};
	uint64_t counter = 0;
	bool ready = false;
	History history{plan.clients, plan.warm, plan.each()};
	std::vector<Reply> replies{}; // one for each slot of each client: UCX reads headers until they have left
};

void handle(Worker &worker, unsigned id, ucp_am_recv_callback_t callback, void *argument)
{
	ucp_am_handler_param_t param{};
	param.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
	param.id = id;
	param.cb = callback;
	param.arg = argument;
	check(ucp_worker_set_am_recv_handler(worker.worker, &param), "ucp_worker_set_am_recv_handler");
}

void on_sent(void *request, ucs_status_t status, void *)
{
	check(status, "send");
	ucp_request_free(request);
}

void send(ucp_ep_h to, unsigned id, const void *header, size_t bytes, uint32_t flags)
{
	ucp_request_param_t param{};
	param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_CALLBACK;
	param.flags = flags;
	param.cb.send = on_sent;
	const ucs_status_ptr_t request = ucp_am_send_nbx(to, id, header, bytes, nullptr, 0, &param);
	if (UCS_PTR_IS_ERR(request))
		check(UCS_PTR_STATUS(request), "ucp_am_send_nbx");
}

ucs_status_t on_request(void *argument, const void *header, size_t, void *, size_t, const ucp_am_recv_param_t *param)
{
	Shared &shared = *static_cast<Shared *>(argument);
	Request request;
	std::memcpy(&request, header, sizeof request);
	catch_up(); // what others have drawn before now is there
	Reply &reply = shared.replies.at(request.client * shared.plan.window + request.slot);
	reply = {request.slot, shared.counter++};
	send(param->reply_ep, reply_id, &reply, sizeof reply, 0);
	return UCS_OK;
}

class Client {
public:
	Client(Shared &shared, size_t rank) : shared_(shared), me_(*shared.workers[rank]), slots_(shared.plan.window)
	{
		call_from_node(me_.node);
		handle(me_, reply_id, on_reply, this);
		ucp_ep_params_t params{};
		params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
		params.address = shared.workers[0]->address;
		check(ucp_ep_create(me_.worker, &params, &server_), "ucp_ep_create");
		for (uint32_t i = 0; i < slots_.size(); ++i)
			slots_[i].request = {static_cast<uint32_t>(rank - 1), i};
	}
	// Until all numbers are drawn.
	void draw()
	{
		size_t i = 0;
		for (; shared_.history.begin(); ++i) {
			Slot &slot = slots_[i % slots_.size()];
			finish(slot);
			slot.under_way = true;
			slot.replied = false;
			slot.draw.began = now();
			call_from_node(me_.node);
			send(server_, request_id, &slot.request, sizeof slot.request, UCP_AM_SEND_FLAG_REPLY);
			catch_up();
		}
		for (size_t k = 0; k < slots_.size(); ++k)
			finish(slots_[(i + k) % slots_.size()]);
	}

private:
	struct Slot {
		bool under_way = false, replied = false;
		Request request{};
		Draw draw{};
	};
	static ucs_status_t on_reply(void *argument, const void *header, size_t, void *, size_t,
	                             const ucp_am_recv_param_t *)
	{
		Reply reply;
		std::memcpy(&reply, header, sizeof reply);
		Slot &slot = static_cast<Client *>(argument)->slots_.at(reply.slot);
		slot.replied = true;
		slot.draw.number = reply.number;
		return UCS_OK;
	}
	void finish(Slot &slot)
	{
		if (!slot.under_way)
			return;
		while (!slot.replied)
			me_.progress();
		slot.under_way = false;
		catch_up();
		slot.draw.ended = now();
		shared_.history.add(slot.draw);
	}

	Shared &shared_;
	Worker &me_;
	ucp_ep_h server_;
	std::vector<Slot> slots_;
};

void run(Shared &shared, size_t rank)
{
	Worker &me = *shared.workers[rank];
	if (!rank) {
		call_from_node(me.node);
		handle(me, request_id, on_request, &shared);
		shared.ready = true;
		while (!shared.history.over())
			me.progress();
		return;
	}
	while (!shared.ready)
		me.progress();
	Client client(shared, rank);
	client.draw();
	while (!shared.history.over())
		me.progress();
}

} // namespace

int main(int argc, char **argv)
{
	const Settings settings(argc, argv,
	                        {{"clients", "72"}, {"window", "16"}, {"calls", "40000"}, {"warm", "100"}, {"name", "?"}});
	const Plan plan{settings.count("clients"), settings.count("window"), settings.count("calls"),
	                settings.count("warm")};
	if (!plan.clients || !plan.window || plan.each() < plan.window)
		give_up("clients and window are at least 1, calls at least as many as are under way");
	begin_ucx(UCP_FEATURE_AM);
	Shared shared{plan};
	shared.replies.resize(plan.clients * plan.window);
	for (size_t rank = 0; rank <= plan.clients; ++rank)
		shared.workers.push_back(std::make_unique<Worker>(rank, rank, plan.clients + 1, UCP_FEATURE_AM));
	std::vector<std::thread> threads;
	for (size_t rank = 0; rank <= plan.clients; ++rank)
		threads.emplace_back([&shared, rank] { run(shared, rank); });
	for (std::thread &thread : threads)
		thread.join();
	shared.history.check(shared.counter);
	std::printf("%s,%zu,%zu,", settings.text("name").c_str(), plan.clients, plan.window);
	shared.history.print();
	std::puts("");
}
