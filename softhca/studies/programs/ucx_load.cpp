// The loads of traffic.hpp with UCX: a context and a worker for each rank, those of a node on its device.
//
//   UCX_MEM_EVENTS=n UCX_TLS=rc_x,self,posix softhca --model connectx5 --devices 16 ucx_load nodes=16 ranks=4
//   workload=b
//
// posix: the model does not notice stores into System V shared memory. UCX_MEM_EVENTS=n: UCX would interpose mmap() and
// hide the devices' doorbells from softhca.
#include <thread>

#include "softhca/studies/programs/traffic.hpp"
#include "softhca/studies/programs/ucx_job.hpp"

namespace {

using namespace study;

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
	void progress() { me_.progress(); }

	const Workers &all_;
	Worker &me_;
	size_t &arrived_;
	std::vector<ucp_ep_h> peers_;
	std::vector<void *> receives_, sends_; // requests; a send that is complete has none
};

} // namespace

int main(int argc, char **argv)
{
	Study study(argc, argv, {});
	const size_t ranks = study.load.ranks;
	begin_ucx(UCP_FEATURE_TAG);
	study.begin();
	Workers workers;
	for (size_t i = 0; i < ranks; ++i)
		workers.push_back(std::make_unique<Worker>(i, i / study.per_node(), ranks, UCP_FEATURE_TAG));
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
