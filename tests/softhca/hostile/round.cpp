#include "tests/softhca/hostile/round.hpp"

#include <cstdio>
#include <cstdlib>

namespace hostile {

[[noreturn]] void fail(const char *what)
{
	std::fprintf(stderr, "fuzz: %s\n", what);
	std::abort();
}

void check(bool ok, const char *what)
{
	if (!ok)
		fail(what);
}

std::minstd_rand engine;

uint32_t Round::hostile_number = 0;

Round::Round(ibv_context *c, ibv_pd *p, Arena &a, bool patience) : context(c), pd(p), arena(a), patient(patience)
{
	ibv_port_attr port;
	check(ibv_query_port(c, 1, &port) == 0, "no port");
	lid = port.lid;
	cq = ibv_create_cq(c, 4095, nullptr, nullptr, 0);
	check(cq, "no completion queue");
	ibv_srq_init_attr attributes{};
	attributes.attr.max_wr = 64;
	attributes.attr.max_sge = 2;
	srq = ibv_create_srq(p, &attributes);
	ibv_ah_attr path{};
	path.dlid = lid;
	path.port_num = 1;
	ah = ibv_create_ah(p, &path);
	check(srq && ah, "no shared receive queue or address handle");
	one = create(IBV_QPT_RC, nullptr);
	other = create(IBV_QPT_RC, nullptr);
	shared = create(IBV_QPT_RC, srq);
	datagrams = create(IBV_QPT_UD, nullptr);
	dct = create_dc(MLX5DV_DCTYPE_DCT);
	dci = create_dc(MLX5DV_DCTYPE_DCI);
	connect(one, other->qp_num);
	connect(other, one->qp_num);
	connect(shared, hostile_number);
	start_datagrams();
	start_dct();
	start_dci();
}

Round::~Round()
{
	for (ibv_qp *qp : {one, other, shared, datagrams, dct, dci})
		check(ibv_destroy_qp(qp) == 0, "a queue pair does not go");
	check(ibv_destroy_ah(ah) == 0 && ibv_destroy_srq(srq) == 0, "a shared receive queue does not go");
	check(ibv_destroy_cq(cq) == 0, "a completion queue does not go");
}

ibv_qp *Round::create(ibv_qp_type type, ibv_srq *with)
{
	ibv_qp_init_attr a{};
	a.qp_type = type;
	a.send_cq = a.recv_cq = cq;
	a.srq = with;
	a.cap = {64, with ? 0u : 32u, 4, with ? 0u : 2u, 64};
	ibv_qp *qp = ibv_create_qp(pd, &a);
	check(qp, "no queue pair");
	return qp;
}

ibv_qp *Round::create_dc(mlx5dv_dc_type type)
{
	ibv_qp_init_attr_ex a{};
	a.qp_type = IBV_QPT_DRIVER;
	a.comp_mask = IBV_QP_INIT_ATTR_PD;
	a.pd = pd;
	a.send_cq = a.recv_cq = cq;
	mlx5dv_qp_init_attr driver{};
	driver.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC;
	driver.dc_init_attr.dc_type = type;
	if (type == MLX5DV_DCTYPE_DCT) {
		a.srq = srq;
		driver.dc_init_attr.dct_access_key = dc_key;
	} else {
		a.cap.max_send_wr = 64;
		a.cap.max_send_sge = 4;
		a.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
		a.send_ops_flags = IBV_QP_EX_WITH_SEND;
		driver.comp_mask |= MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS;
		driver.create_flags = MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE;
	}
	ibv_qp *qp = mlx5dv_create_qp(context, &a, &driver);
	check(qp, "no dynamically connected queue pair");
	return qp;
}

void Round::step(ibv_qp *qp, ibv_qp_state to, int mask)
{
	attributes.qp_state = to;
	check(ibv_modify_qp(qp, &attributes, IBV_QP_STATE | mask) == 0, "a step is refused");
}

ibv_qp_attr &Round::defaults()
{
	attributes = {};
	attributes.port_num = 1;
	attributes.qp_access_flags = static_cast<unsigned>(all_access);
	attributes.path_mtu = mtu;
	attributes.max_dest_rd_atomic = attributes.max_rd_atomic = 16;
	attributes.min_rnr_timer = 1;
	attributes.timeout = patient ? 17 : 8;
	attributes.retry_cnt = patient ? 7 : 1;
	attributes.rnr_retry = 1;
	attributes.qkey = 0x11;
	attributes.ah_attr.dlid = lid;
	attributes.ah_attr.port_num = 1;
	return attributes;
}

void Round::connect(ibv_qp *qp, uint32_t destination)
{
	defaults().dest_qp_num = destination;
	step(qp, IBV_QPS_RESET, 0);
	step(qp, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	step(qp, IBV_QPS_RTR, rtr | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC);
	step(qp, IBV_QPS_RTS, rts);
}

void Round::start_datagrams()
{
	defaults();
	step(datagrams, IBV_QPS_RESET, 0);
	step(datagrams, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);
	step(datagrams, IBV_QPS_RTR, 0);
	step(datagrams, IBV_QPS_RTS, IBV_QP_SQ_PSN);
}

void Round::start_dct()
{
	defaults();
	step(dct, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	step(dct, IBV_QPS_RTR, rtr);
}

void Round::start_dci()
{
	defaults();
	step(dci, IBV_QPS_RESET, 0);
	step(dci, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT);
	step(dci, IBV_QPS_RTR, IBV_QP_PATH_MTU);
	step(dci, IBV_QPS_RTS, rts);
}

void Round::poll(unsigned times)
{
	ibv_wc wcs[64];
	while (times--)
		check(ibv_poll_cq(cq, 64, wcs) >= 0, "polling fails");
}

void Round::post_receives()
{
	for (int i = 0; i < 4; ++i) {
		ibv_sge pieces[] = {{arena.address(), random_below(5000), arena.key()},
		                    {arena.address(), random_below(500), arena.key()}};
		ibv_recv_wr wr{}, *bad;
		wr.sg_list = pieces;
		wr.num_sge = static_cast<int>(random_below(3));
		for (ibv_qp *qp : {one, other, datagrams})
			ibv_post_recv(qp, &wr, &bad); // may fail: the ring may be full
		if (!srq_spoiled)
			ibv_post_srq_recv(srq, &wr, &bad);
	}
}

} // namespace hostile
