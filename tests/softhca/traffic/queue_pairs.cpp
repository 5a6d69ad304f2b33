#include "tests/softhca/traffic/queue_pairs.hpp"

namespace {

ibv_ah_attr path_to(uint16_t lid)
{
	ibv_ah_attr path{};
	path.dlid = lid;
	path.port_num = 1;
	return path;
}

} // namespace

Cq::Cq(ibv_context *context, int entries, ibv_comp_channel *channel)
    : cq(ibv_create_cq(context, entries, this, channel, 0))
{
	REQUIRE(cq);
}

Cq::~Cq() { CHECK(ibv_destroy_cq(cq) == 0); }

Srq::Srq(Device &device, uint32_t entries, uint32_t pieces)
{
	ibv_srq_init_attr attributes{};
	attributes.attr.max_wr = entries;
	attributes.attr.max_sge = pieces;
	srq = ibv_create_srq(device.pd, &attributes);
	REQUIRE(srq);
}

Srq::~Srq() { CHECK(ibv_destroy_srq(srq) == 0); }

void Srq::post(const ibv_sge &piece, uint64_t id)
{
	ibv_sge copy = piece;
	ibv_recv_wr wr{}, *bad;
	wr.wr_id = id;
	wr.sg_list = &copy;
	wr.num_sge = 1;
	REQUIRE(ibv_post_srq_recv(srq, &wr, &bad) == 0);
}

uint16_t lid_of(ibv_context *context)
{
	ibv_port_attr port;
	REQUIRE(ibv_query_port(context, 1, &port) == 0);
	return port.lid;
}

Endpoint::Endpoint(Device &d, const Settings &s, ibv_qp_type t) : device(d), settings(s), type(t)
{
	const auto queue = [&](ibv_cq *given) {
		if (given)
			return given;
		own_.push_back(ibv_create_cq(d.context, 512, nullptr, nullptr, 0));
		REQUIRE(own_.back());
		return own_.back();
	};
	send_cq = queue(s.send_cq);
	receive_cq = queue(s.receive_cq);
	ibv_qp_init_attr_ex attributes{};
	attributes.send_cq = send_cq;
	attributes.recv_cq = receive_cq;
	attributes.srq = s.srq;
	attributes.cap = {s.send_wr, s.srq ? 0 : s.receive_wr, s.pieces, s.srq ? 0 : s.pieces, s.inline_bytes};
	attributes.qp_type = t;
	attributes.sq_sig_all = s.signal_all;
	attributes.comp_mask = IBV_QP_INIT_ATTR_PD;
	attributes.pd = d.pd;
	if (s.operations) {
		attributes.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
		attributes.send_ops_flags = s.operations;
	}
	mlx5dv_qp_init_attr driver{};
	driver.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS;
	driver.create_flags = s.create_flags;
	qp = s.create_flags ? mlx5dv_create_qp(d.context, &attributes, &driver) : ibv_create_qp_ex(d.context, &attributes);
	REQUIRE(qp);
}

Endpoint::~Endpoint()
{
	if (qp)
		CHECK(ibv_destroy_qp(qp) == 0);
	for (ibv_cq *cq : own_)
		CHECK(ibv_destroy_cq(cq) == 0);
}

void Endpoint::destroy()
{
	CHECK(ibv_destroy_qp(qp) == 0);
	qp = nullptr;
}

void Endpoint::to_init()
{
	ibv_qp_attr a{};
	a.qp_state = IBV_QPS_INIT;
	a.port_num = 1;
	a.qp_access_flags = static_cast<unsigned>(settings.access);
	a.qkey = settings.qkey;
	REQUIRE(ibv_modify_qp(qp, &a,
	                      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
	                          (type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS)) == 0);
}

void Endpoint::to_rtr(uint32_t destination, uint16_t lid, uint32_t psn)
{
	ibv_qp_attr a{};
	a.qp_state = IBV_QPS_RTR;
	a.path_mtu = settings.mtu;
	a.dest_qp_num = destination;
	a.rq_psn = psn;
	a.max_dest_rd_atomic = settings.dest_rd_atomic;
	a.min_rnr_timer = settings.rnr_timer;
	a.ah_attr = path_to(lid);
	REQUIRE(ibv_modify_qp(qp, &a,
	                      type == IBV_QPT_UD
	                          ? IBV_QP_STATE
	                          : IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
	                                IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0);
}

void Endpoint::to_rts()
{
	ibv_qp_attr a{};
	a.qp_state = IBV_QPS_RTS;
	a.timeout = settings.timeout;
	a.retry_cnt = settings.retries;
	a.rnr_retry = settings.rnr_retries;
	a.sq_psn = settings.psn;
	a.max_rd_atomic = settings.rd_atomic;
	REQUIRE(ibv_modify_qp(qp, &a,
	                      IBV_QP_STATE | IBV_QP_SQ_PSN |
	                          (type == IBV_QPT_UD ? 0
	                                              : IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
	                                                    IBV_QP_MAX_QP_RD_ATOMIC)) == 0);
}

void Endpoint::to(ibv_qp_state state)
{
	ibv_qp_attr a{};
	a.qp_state = state;
	REQUIRE(ibv_modify_qp(qp, &a, IBV_QP_STATE) == 0);
}

ibv_qp_state Endpoint::state() const
{
	ibv_qp_attr a{};
	ibv_qp_init_attr init;
	REQUIRE(ibv_query_qp(qp, &a, IBV_QP_STATE, &init) == 0);
	return a.qp_state;
}

void connect(Endpoint &one, Endpoint &other)
{
	one.to_init();
	other.to_init();
	one.to_rtr(other.number(), lid_of(other.device.context), other.settings.psn);
	other.to_rtr(one.number(), lid_of(one.device.context), one.settings.psn);
	one.to_rts();
	other.to_rts();
}

void reconnect(Endpoint &one, Endpoint &other)
{
	one.to(IBV_QPS_RESET);
	other.to(IBV_QPS_RESET);
	connect(one, other);
}

Datagrams::Datagrams(Device &d, const Settings &s) : Endpoint(d, s, IBV_QPT_UD)
{
	to_init();
	to_rtr(0, 0, 0);
	to_rts();
}

AddressHandle::AddressHandle(Device &device, uint16_t lid, const union ibv_gid *gid)
{
	ibv_ah_attr path = path_to(lid);
	if (gid) {
		path.is_global = 1;
		path.grh.dgid = *gid;
		path.grh.hop_limit = 7;
	}
	ah = ibv_create_ah(device.pd, &path);
	REQUIRE(ah);
}

AddressHandle::~AddressHandle() { CHECK(ibv_destroy_ah(ah) == 0); }

Dct::Dct(Device &device, ibv_srq *srq, ibv_cq *cq, const Settings &s, uint64_t key)
{
	ibv_qp_init_attr_ex attributes{};
	attributes.qp_type = IBV_QPT_DRIVER;
	attributes.comp_mask = IBV_QP_INIT_ATTR_PD;
	attributes.pd = device.pd;
	attributes.send_cq = attributes.recv_cq = cq;
	attributes.srq = srq;
	mlx5dv_qp_init_attr driver{};
	driver.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC;
	driver.dc_init_attr.dc_type = MLX5DV_DCTYPE_DCT;
	driver.dc_init_attr.dct_access_key = key;
	qp = mlx5dv_create_qp(device.context, &attributes, &driver);
	REQUIRE(qp);
	ibv_qp_attr a{};
	a.qp_state = IBV_QPS_INIT;
	a.port_num = 1;
	a.qp_access_flags = static_cast<unsigned>(s.access);
	REQUIRE(ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0);
	a.qp_state = IBV_QPS_RTR;
	a.path_mtu = s.mtu;
	a.min_rnr_timer = s.rnr_timer;
	a.ah_attr = path_to(0);
	REQUIRE(ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_MIN_RNR_TIMER | IBV_QP_AV | IBV_QP_PATH_MTU) == 0);
}

Dct::~Dct() { CHECK(ibv_destroy_qp(qp) == 0); }

Dci::Dci(Device &device, const Settings &s) : settings(s), cq(device.context), peer(device, lid_of(device.context))
{
	ibv_qp_init_attr_ex attributes{};
	attributes.qp_type = IBV_QPT_DRIVER;
	attributes.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	attributes.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_WRITE |
	                            IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ |
	                            IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
	attributes.pd = device.pd;
	attributes.send_cq = attributes.recv_cq = s.send_cq ? s.send_cq : cq.cq;
	attributes.cap.max_send_wr = s.send_wr;
	attributes.cap.max_send_sge = s.pieces;
	mlx5dv_qp_init_attr driver{};
	driver.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC | MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS;
	driver.create_flags = MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE;
	driver.dc_init_attr.dc_type = MLX5DV_DCTYPE_DCI;
	qp = mlx5dv_create_qp(device.context, &attributes, &driver);
	REQUIRE(qp);
	ex = ibv_qp_to_qp_ex(qp);
	dv = mlx5dv_qp_ex_from_ibv_qp_ex(ex);
	to_rts();
}

Dci::~Dci() { CHECK(ibv_destroy_qp(qp) == 0); }

void Dci::to_rts()
{
	ibv_qp_attr a{};
	a.qp_state = IBV_QPS_INIT;
	a.port_num = 1;
	REQUIRE(ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT) == 0);
	a.qp_state = IBV_QPS_RTR;
	a.path_mtu = settings.mtu;
	REQUIRE(ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PATH_MTU) == 0);
	a.qp_state = IBV_QPS_RTS;
	a.timeout = settings.timeout;
	a.retry_cnt = settings.retries;
	a.rnr_retry = settings.rnr_retries;
	a.max_rd_atomic = settings.rd_atomic;
	a.sq_psn = settings.psn;
	REQUIRE(ibv_modify_qp(qp, &a,
	                      IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
	                          IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_SQ_PSN) == 0);
}

void Dci::to(ibv_qp_state state)
{
	ibv_qp_attr a{};
	a.qp_state = state;
	REQUIRE(ibv_modify_qp(qp, &a, IBV_QP_STATE) == 0);
}

void Dci::begin() { ibv_wr_start(ex); }

void Dci::set(uint64_t id, unsigned flags)
{
	ex->wr_id = id;
	ex->wr_flags = flags;
}

void Dci::address(uint32_t dct, uint64_t key, ibv_ah *other)
{
	mlx5dv_wr_set_dc_addr(dv, other ? other : peer.ah, dct, key);
}

void Dci::data(std::initializer_list<ibv_sge> pieces) { ibv_wr_set_sge_list(ex, pieces.size(), pieces.begin()); }

void Dci::complete() { REQUIRE(ibv_wr_complete(ex) == 0); }

// One work request of one piece; `operation` begins it.
template <class Operation>
void Dci::one(const Operation &operation, uint32_t dct, const ibv_sge &piece, uint64_t id, uint64_t key)
{
	begin();
	set(id);
	operation();
	address(dct, key);
	data({piece});
	complete();
}

void Dci::send(uint32_t dct, const ibv_sge &piece, uint64_t id, uint64_t key)
{
	one([&] { ibv_wr_send(ex); }, dct, piece, id, key);
}

void Dci::write(uint32_t dct, const ibv_sge &piece, uint64_t to, uint32_t rkey, uint64_t id)
{
	one([&] { ibv_wr_rdma_write(ex, rkey, to); }, dct, piece, id, dc_key);
}

void Dci::read(uint32_t dct, const ibv_sge &piece, uint64_t from, uint32_t rkey, uint64_t id)
{
	one([&] { ibv_wr_rdma_read(ex, rkey, from); }, dct, piece, id, dc_key);
}
