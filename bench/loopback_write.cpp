// Time for an 8-byte WRITE from one queue pair to another of the same process, beside a number of idle queue pairs.
// softhca has to poll those.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <infiniband/verbs.h>
#include <unistd.h>

namespace {

[[noreturn]] void fail(const char *what)
{
	std::perror(what);
	std::exit(1);
}

struct Pair {
	ibv_context *context = nullptr;
	ibv_pd *pd = nullptr;
	ibv_cq *cq = nullptr;
	ibv_port_attr port{};

	Pair()
	{
		ibv_device **list = ibv_get_device_list(nullptr);
		if (!list || !list[0])
			fail("no device: run this under softhca");
		context = ibv_open_device(list[0]);
		pd = context ? ibv_alloc_pd(context) : nullptr;
		cq = pd ? ibv_create_cq(context, 64, nullptr, nullptr, 0) : nullptr;
		if (!cq || ibv_query_port(context, 1, &port))
			fail("device");
	}
	ibv_qp *make() const
	{
		ibv_qp_init_attr attr{};
		attr.send_cq = attr.recv_cq = cq;
		attr.qp_type = IBV_QPT_RC;
		attr.cap = {16, 16, 1, 1, 64};
		ibv_qp *qp = ibv_create_qp(pd, &attr);
		if (!qp)
			fail("ibv_create_qp");
		return qp;
	}
	void connect(ibv_qp *qp, const ibv_qp *to) const
	{
		ibv_qp_attr attr{};
		attr.qp_state = IBV_QPS_INIT;
		attr.port_num = 1;
		attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
		int error = ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS);
		attr.qp_state = IBV_QPS_RTR;
		attr.path_mtu = IBV_MTU_4096;
		attr.dest_qp_num = to->qp_num;
		attr.ah_attr.dlid = port.lid;
		attr.ah_attr.port_num = 1;
		attr.min_rnr_timer = 1;
		error |= ibv_modify_qp(qp, &attr,
		                       IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		                           IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
		attr.qp_state = IBV_QPS_RTS;
		attr.timeout = 14;
		attr.retry_cnt = attr.rnr_retry = 7;
		error |= ibv_modify_qp(qp, &attr,
		                       IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
		                           IBV_QP_MAX_QP_RD_ATOMIC);
		if (error)
			fail("ibv_modify_qp");
	}
	ibv_qp *add() const
	{
		ibv_qp *a = make(), *b = make();
		connect(a, b);
		connect(b, a);
		return a;
	}
};

} // namespace

int main(int argc, char **argv)
{
	const int idle = argc > 1 ? std::atoi(argv[1]) : 0;
	const Pair pair;
	ibv_qp *qp = pair.add();
	for (int i = 0; i < idle; i += 2)
		pair.add();
	static char memory[128];
	ibv_mr *mr = ibv_reg_mr(pair.pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	if (!mr)
		fail("ibv_reg_mr");
	constexpr int rounds = 20000;
	const auto start = std::chrono::steady_clock::now();
	for (int i = 0; i < rounds; ++i) {
		ibv_sge piece{reinterpret_cast<uintptr_t>(memory), 8, mr->lkey};
		ibv_send_wr request{}, *bad;
		request.sg_list = &piece;
		request.num_sge = 1;
		request.opcode = IBV_WR_RDMA_WRITE;
		request.send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;
		request.wr.rdma.remote_addr = reinterpret_cast<uintptr_t>(memory + 64);
		request.wr.rdma.rkey = mr->rkey;
		if (ibv_post_send(qp, &request, &bad))
			fail("ibv_post_send");
		ibv_wc completion;
		while (ibv_poll_cq(pair.cq, 1, &completion) == 0)
			;
		if (completion.status != IBV_WC_SUCCESS)
			fail(ibv_wc_status_str(completion.status));
	}
	const std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - start;
	std::printf("%.3f\n", time.count() / rounds);
	std::fflush(stdout);
	_exit(0); // the operating system takes thousands of queue pairs down faster
}
