// The objects of verbs that verbs_load loads a device with. They are kept to the end of the program.
#pragma once

#include <cstdint>
#include <cstring>
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <string>
#include <sys/mman.h>

#include "softhca/studies/programs/verbs_load_plan.hpp"

namespace verbs_load {

template <class T>
T *must(T *made, const char *what)
{
	if (!made)
		fail(std::string("cannot make ") + what);
	return made;
}
inline void must(int error, const char *what)
{
	if (error)
		fail(std::string(what) + ": " + std::strerror(error));
}

inline constexpr uint64_t dc_key = 0x5eed;
inline constexpr uint32_t qkey = 0x1111;
inline constexpr int access_all =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

// One thread's view of a device.
struct Port {
	explicit Port(unsigned machine)
	{
		int n = 0;
		ibv_device **list = must(ibv_get_device_list(&n), "a list of devices");
		if (machine >= static_cast<unsigned>(n))
			fail("there are only " + std::to_string(n) + " devices");
		context = must(ibv_open_device(list[machine]), "a context");
		ibv_free_device_list(list);
		pd = must(ibv_alloc_pd(context), "a protection domain");
		ibv_port_attr port;
		must(ibv_query_port(context, 1, &port), "ibv_query_port");
		lid = port.lid;
	}
	ibv_cq *cq(unsigned entries) const
	{
		return must(ibv_create_cq(context, static_cast<int>(entries), nullptr, nullptr, 0), "a completion queue");
	}

	ibv_context *context;
	ibv_pd *pd;
	uint16_t lid;
};

struct Memory {
	Memory(const Port &port, size_t size) : bytes(size)
	{
		void *mapped = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (mapped == MAP_FAILED)
			fail("no memory");
		data = static_cast<uint8_t *>(mapped);
		mr = must(ibv_reg_mr(port.pd, data, size, access_all), "a memory region");
	}
	// The same for queue pairs of another context.
	uint32_t key_for(const Port &port) const
	{
		return must(ibv_reg_mr(port.pd, data, bytes, access_all), "a memory region")->rkey;
	}
	uint64_t at(size_t offset) const { return reinterpret_cast<uintptr_t>(data) + offset; }
	size_t bytes;
	uint8_t *data;
	ibv_mr *mr;
};

inline ibv_ah_attr path_to(uint16_t lid)
{
	ibv_ah_attr path{};
	path.dlid = lid;
	path.port_num = 1;
	return path;
}

inline void modify(ibv_qp *qp, ibv_qp_attr attributes, int mask)
{
	must(ibv_modify_qp(qp, &attributes, mask), "ibv_modify_qp");
}

inline void to_init(ibv_qp *qp, int right)
{
	ibv_qp_attr a{};
	a.qp_state = IBV_QPS_INIT;
	a.port_num = 1;
	a.qkey = qkey;
	a.qp_access_flags = access_all;
	modify(qp, a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | right);
}

inline void to_ready(ibv_qp *qp, const Plan &plan, unsigned transport, uint16_t lid, uint32_t number)
{
	ibv_qp_attr a{};
	a.qp_state = IBV_QPS_RTR;
	a.path_mtu = IBV_MTU_4096;
	a.max_dest_rd_atomic = 16;
	a.min_rnr_timer = 1;
	a.ah_attr = path_to(lid);
	a.dest_qp_num = number;
	constexpr int connected = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
	                          IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	modify(qp, a, IBV_QP_STATE | (transport == rc ? connected : transport == dc ? IBV_QP_PATH_MTU : 0));
	a.qp_state = IBV_QPS_RTS;
	a.timeout = 20;
	a.retry_cnt = a.rnr_retry = 7;
	a.max_rd_atomic = static_cast<uint8_t>(plan.depth);
	constexpr int reliable = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
	modify(qp, a, IBV_QP_STATE | IBV_QP_SQ_PSN | (transport == ud ? 0 : reliable));
}

inline ibv_qp *make_qp(const Port &port, const Plan &plan, ibv_cq *cq, ibv_srq *srq, unsigned send_depth)
{
	ibv_qp_init_attr_ex a{};
	a.send_cq = a.recv_cq = cq;
	a.srq = srq;
	a.cap = {send_depth, srq ? 0u : 1u, 1, srq ? 0u : 1u, plan.in_line ? plan.bytes : 0};
	a.comp_mask = IBV_QP_INIT_ATTR_PD;
	a.pd = port.pd;
	ibv_qp *qp;
	if (plan.transport == dc) {
		a.qp_type = IBV_QPT_DRIVER;
		a.cap.max_recv_wr = a.cap.max_recv_sge = 0;
		a.srq = nullptr;
		a.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
		a.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_READ |
		                   IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
		mlx5dv_qp_init_attr driver{};
		driver.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC | MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS;
		driver.create_flags = MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE;
		driver.dc_init_attr.dc_type = MLX5DV_DCTYPE_DCI;
		qp = mlx5dv_create_qp(port.context, &a, &driver);
	} else {
		a.qp_type = plan.transport == rc ? IBV_QPT_RC : IBV_QPT_UD;
		mlx5dv_qp_init_attr driver{};
		driver.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS;
		driver.create_flags = MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE;
		qp = mlx5dv_create_qp(port.context, &a, &driver);
	}
	must(qp, "a queue pair");
	to_init(qp, plan.transport == rc ? IBV_QP_ACCESS_FLAGS : plan.transport == ud ? IBV_QP_QKEY : 0);
	if (plan.transport != rc)
		to_ready(qp, plan, plan.transport, 0, 0);
	return qp;
}

inline ibv_qp *make_dct(const Port &port, ibv_cq *cq, ibv_srq *srq)
{
	ibv_qp_init_attr_ex a{};
	a.qp_type = IBV_QPT_DRIVER;
	a.comp_mask = IBV_QP_INIT_ATTR_PD;
	a.pd = port.pd;
	a.send_cq = a.recv_cq = cq;
	a.srq = srq;
	mlx5dv_qp_init_attr driver{};
	driver.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC;
	driver.dc_init_attr.dc_type = MLX5DV_DCTYPE_DCT;
	driver.dc_init_attr.dct_access_key = dc_key;
	ibv_qp *qp = must(mlx5dv_create_qp(port.context, &a, &driver), "a DC target");
	to_init(qp, IBV_QP_ACCESS_FLAGS);
	ibv_qp_attr b{};
	b.qp_state = IBV_QPS_RTR;
	b.path_mtu = IBV_MTU_4096;
	b.min_rnr_timer = 1;
	b.ah_attr = path_to(0);
	modify(qp, b, IBV_QP_STATE | IBV_QP_MIN_RNR_TIMER | IBV_QP_AV | IBV_QP_PATH_MTU);
	return qp;
}

} // namespace verbs_load
