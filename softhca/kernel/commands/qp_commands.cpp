// Commands for queue pairs.
#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5-abi.h>

#include "softhca/kernel/commands/attributes.hpp"
#include "softhca/kernel/commands/commands.hpp"
#include "softhca/kernel/context.hpp"
#include "softhca/kernel/verbs_hooks.hpp"
#include "softhca/nic/nic.hpp"

namespace softhca::commands {

namespace {

// Of both rings, which lie one after the other.
struct RingBytes {
	uint64_t receive, send;
};

int check_rings(const mlx5_ib_create_qp &driver, RingBytes &bytes)
{
	const auto power = [](uint32_t n) { return n == 0 || std::has_single_bit(n); };
	if (driver.sq_wqe_count > max_queue_entries || driver.rq_wqe_count > max_queue_entries ||
	    !power(driver.sq_wqe_count) || !power(driver.rq_wqe_count) || driver.rq_wqe_shift > 9 ||
	    (driver.rq_wqe_count && driver.rq_wqe_shift < 4))
		return EINVAL;
	bytes = {static_cast<uint64_t>(driver.rq_wqe_count) << driver.rq_wqe_shift, driver.sq_wqe_count * wqebb_bytes};
	if (driver.db_addr % 8 || !accessible(driver.db_addr, 8, true) ||
	    !accessible(driver.buf_addr, bytes.receive + bytes.send, true))
		return EFAULT;
	return 0;
}

// The numbers of the verbs interface.
bool kind_of(uint8_t type, uint32_t flags, QpKind &kind)
{
	constexpr uint8_t rc = 2, ud = 4, driver = 0xff;
	switch (type) {
	case rc: kind = QpKind::rc; return true;
	case ud: kind = QpKind::ud; return true;
	case driver:
		kind = flags & MLX5_QP_FLAG_TYPE_DCT ? QpKind::dct : QpKind::dci;
		return flags & (MLX5_QP_FLAG_TYPE_DCT | MLX5_QP_FLAG_TYPE_DCI);
	}
	return false;
}

// Whether the values that the mask names are valid.
bool possible(const ib_uverbs_modify_qp &m)
{
	const auto has = [&](uint32_t attribute) { return (m.attr_mask & attribute) != 0; };
	constexpr uint8_t last_state = static_cast<uint8_t>(QpState::error);
	constexpr uint8_t min_mtu_code = 1, max_mtu_code = 5;
	constexpr uint16_t first_multicast_lid = 0xc000;
	return !((has(qp_state) && m.qp_state > last_state) || (has(qp_cur_state) && m.cur_qp_state > last_state) ||
	         (has(qp_port) && m.port_num != 1) || (has(qp_pkey_index) && m.pkey_index >= partition_keys) ||
	         (has(qp_path_mtu) && (m.path_mtu < min_mtu_code || m.path_mtu > max_mtu_code)) ||
	         (has(qp_timeout) && m.timeout > 31) || (has(qp_retry_cnt) && m.retry_cnt > 7) ||
	         (has(qp_rnr_retry) && m.rnr_retry > 7) || (has(qp_min_rnr_timer) && m.min_rnr_timer > 31) ||
	         (has(qp_max_rd_atomic) && m.max_rd_atomic > max_rd_atomic) ||
	         (has(qp_max_dest_rd_atomic) && m.max_dest_rd_atomic > max_rd_atomic) ||
	         (has(qp_av) && (m.dest.dlid >= first_multicast_lid || m.dest.sgid_index >= gids ||
	                         (m.dest.port_num != 1 && m.dest.port_num != 0))));
}

void take_over(QpSettings &s, const ib_uverbs_modify_qp &m)
{
	const auto set = [&](uint32_t attribute, auto &value, auto from) {
		if (m.attr_mask & attribute)
			value = from;
	};
	set(qp_access_flags, s.access, m.qp_access_flags);
	set(qp_pkey_index, s.pkey_index, m.pkey_index);
	set(qp_port, s.port, m.port_num);
	set(qp_qkey, s.qkey, m.qkey);
	set(qp_path_mtu, s.mtu, m.path_mtu);
	set(qp_dest_qpn, s.destination, m.dest_qp_num & psn_mask);
	set(qp_rq_psn, s.rq_psn, m.rq_psn & psn_mask);
	set(qp_sq_psn, s.sq_psn, m.sq_psn & psn_mask);
	set(qp_timeout, s.timeout, m.timeout);
	set(qp_retry_cnt, s.retry_count, m.retry_cnt);
	set(qp_rnr_retry, s.rnr_retry, m.rnr_retry);
	set(qp_min_rnr_timer, s.min_rnr_timer, m.min_rnr_timer);
	set(qp_max_rd_atomic, s.max_rd_atomic, m.max_rd_atomic);
	set(qp_max_dest_rd_atomic, s.max_dest_rd_atomic, m.max_dest_rd_atomic);
	set(qp_av, s.path, m.dest);
}

// Which payload comes in CQEs, when libmlx5 asks for that: as the kernel's driver decides.
void choose_payload_in_cqe(Qp &qp, uint32_t flags)
{
	if (!(flags & MLX5_QP_FLAG_SCATTER_CQE))
		return;
	const uint32_t received = payload_room(qp.receive_cq->cqe_bytes), answered = payload_room(qp.send_cq->cqe_bytes);
	constexpr uint32_t beside = 64; // room outside of the CQE's fields
	if (qp.kind == QpKind::rc)
		qp.payload_in_cqe.received = received;
	// A DC target has many senders, which only the CQE's fields name.
	if (qp.kind == QpKind::dct && received == beside)
		qp.payload_in_cqe.received = received;
	// Only a signalled request has a CQE. Unless all are, this needs one more flag.
	if ((qp.kind == QpKind::rc || qp.kind == QpKind::dci) && (flags & MLX5_QP_FLAG_ALLOW_SCATTER_CQE || qp.signal_all))
		qp.payload_in_cqe.answered = answered;
}

} // namespace

namespace {

// The input of CREATE_QP in its newer form. The older one is the same, but for a pointer before it.
int read_request(Attributes &attributes, bool extended, ib_uverbs_ex_create_qp &request)
{
	request = {};
	if (extended)
		return attributes.in(UVERBS_ATTR_CORE_IN, request);
	ib_uverbs_create_qp old;
	if (const int error = attributes.in(UVERBS_ATTR_CORE_IN, old))
		return error;
	std::memcpy(&request, &old.user_handle, offsetof(ib_uverbs_ex_create_qp, comp_mask));
	return 0;
}

// Which kind of queue pair the request wants; EOPNOTSUPP when the device does not have that.
int check_request(const ib_uverbs_ex_create_qp &request, const mlx5_ib_create_qp &driver, QpKind &kind)
{
	constexpr uint32_t known = MLX5_QP_FLAG_SCATTER_CQE | MLX5_QP_FLAG_ALLOW_SCATTER_CQE |
	                           MLX5_QP_FLAG_PACKET_BASED_CREDIT_MODE | MLX5_QP_FLAG_BFREG_INDEX |
	                           MLX5_QP_FLAG_UAR_PAGE_INDEX | MLX5_QP_FLAG_TYPE_DCT | MLX5_QP_FLAG_TYPE_DCI;
	if (request.comp_mask || request.create_flags || driver.flags & ~known ||
	    !kind_of(request.qp_type, driver.flags, kind))
		return EOPNOTSUPP;
	return 0;
}

// Sets the queue pair up as the request says.
int set_up(Qp &qp, const ib_uverbs_ex_create_qp &request, const mlx5_ib_create_qp &driver)
{
	if (request.max_send_wr > max_queue_entries || request.max_recv_wr > max_queue_entries ||
	    request.max_send_sge > max_sge || request.max_recv_sge > max_sge || (qp.kind == QpKind::dct && !qp.srq))
		return EINVAL;
	if (qp.kind != QpKind::dct) {
		RingBytes bytes;
		if (const int error = check_rings(driver, bytes))
			return error;
		const auto *buffer = reinterpret_cast<const uint8_t *>(static_cast<uintptr_t>(driver.buf_addr));
		qp.rings.receive = {buffer, static_cast<size_t>(bytes.receive)};
		qp.rings.send = {buffer + bytes.receive, static_cast<size_t>(bytes.send)};
		qp.rings.receive_stride = 1u << driver.rq_wqe_shift;
		qp.rings.doorbell = reinterpret_cast<uint32_t *>(static_cast<uintptr_t>(driver.db_addr));
	}
	constexpr uint32_t segment = 16;
	qp.user_index = driver.uidx & 0xffffff;
	qp.user_handle = request.user_handle;
	qp.initiators.access_key = qp.kind == QpKind::dct ? driver.access_key : 0;
	qp.signal_all = request.sq_sig_all;
	qp.capacity.send_wr = request.max_send_wr;
	qp.capacity.recv_wr = qp.rings.receive_stride ? driver.rq_wqe_count : 0; // the ring's size, as on hardware
	qp.capacity.send_sge = request.max_send_sge;
	qp.capacity.recv_sge = qp.capacity.recv_wr ? qp.rings.receive_stride / segment : 0;
	qp.capacity.inline_bytes = request.max_inline_data;
	choose_payload_in_cqe(qp, driver.flags);
	return 0;
}

int answer(Attributes &attributes, const ib_uverbs_ex_create_qp &request, const mlx5_ib_create_qp &driver,
           uint32_t handle, uint32_t number)
{
	ib_uverbs_ex_create_qp_resp response{};
	response.base.qp_handle = handle;
	response.base.qpn = number;
	response.base.max_send_wr = request.max_send_wr;
	response.base.max_recv_wr = request.max_recv_wr;
	response.base.max_send_sge = request.max_send_sge;
	response.base.max_recv_sge = request.max_recv_sge;
	response.base.max_inline_data = request.max_inline_data;
	response.response_length = sizeof response;
	mlx5_ib_create_qp_resp driver_response{};
	driver_response.bfreg_index = driver.bfreg_index;
	const int error = attributes.out(UVERBS_ATTR_CORE_OUT, response);
	return error ? error : attributes.out(UVERBS_ATTR_UHW_OUT, driver_response);
}

} // namespace

int create_qp(Context &context, Attributes &attributes, bool extended)
{
	ib_uverbs_ex_create_qp request;
	if (const int error = read_request(attributes, extended, request))
		return error;
	mlx5_ib_create_qp driver;
	if (const int error = attributes.in(UVERBS_ATTR_UHW_IN, driver))
		return error;
	QpKind kind;
	if (const int error = check_request(request, driver, kind))
		return error;
	Objects &objects = context.objects;
	auto qp = std::make_shared<Qp>(context, kind);
	qp->pd = objects.pds.find(request.pd_handle);
	qp->send_cq = objects.cqs.find(request.send_cq_handle);
	qp->receive_cq = objects.cqs.find(request.recv_cq_handle);
	qp->srq = request.is_srq ? objects.srqs.find(request.srq_handle) : nullptr;
	if (!qp->pd || !qp->send_cq || !qp->receive_cq || (request.is_srq && !qp->srq))
		return EINVAL;
	if (const int error = set_up(*qp, request, driver))
		return error;
	context.nic().add(*qp);
	if (!qp->number)
		return errno;
	const uint32_t handle = objects.qps.add(qp);
	++qp->pd->users;
	++qp->send_cq->users;
	++qp->receive_cq->users;
	if (qp->srq)
		++qp->srq->users;
	hook_verbs(qp->send_cq->user_handle);
	hook_verbs(qp->receive_cq->user_handle);
	return answer(attributes, request, driver, handle, qp->number);
}

int modify_qp(Context &context, Attributes &attributes, bool extended)
{
	ib_uverbs_ex_modify_qp request;
	if (const int error = attributes.in(UVERBS_ATTR_CORE_IN, request))
		return error;
	const ib_uverbs_modify_qp &m = request.base;
	const auto qp = context.objects.qps.find(m.qp_handle);
	if (!qp)
		return EINVAL;
	const QpState to = m.attr_mask & qp_state ? static_cast<QpState>(m.qp_state) : qp->state;
	if (!possible(m) || (m.attr_mask & qp_cur_state && static_cast<QpState>(m.cur_qp_state) != qp->state) ||
	    !may_modify(qp->kind, qp->state, to, m.attr_mask))
		return EINVAL;
	Nic &nic = context.nic();
	if (to == QpState::error) {
		qp->enter_error(nic);
	} else if (to == QpState::reset) {
		qp->reset(nic);
	} else {
		take_over(qp->settings, m);
		const QpState from = qp->state;
		// Packets for its earlier life must not arrive in the new one.
		if (to == QpState::rtr && from == QpState::init)
			nic.scheduler().receive_all();
		qp->state = to;
		if (to == QpState::rtr && from == QpState::init)
			qp->responder.begin(qp->settings.path.dlid, qp->settings.destination, qp->settings.rq_psn);
		if (to == QpState::rts && from == QpState::rtr)
			qp->requester.begin(qp->settings.sq_psn);
		if (to == QpState::sqd && from == QpState::rts) {
			qp->drain_event = m.attr_mask & qp_en_sqd_async_notify && m.en_sqd_async_notify;
			qp->requester.check_drained();
		}
		if (to == QpState::rts)
			nic.scheduler().ready(*qp);
	}
	if (qp->rings.doorbell && qp->state != QpState::reset)
		nic.watch(*qp);
	if (!extended)
		return 0;
	ib_uverbs_ex_modify_qp_resp response{};
	response.response_length = sizeof response;
	if (const int error = attributes.out(UVERBS_ATTR_CORE_OUT, response))
		return error;
	mlx5_ib_modify_qp_resp driver{};
	driver.response_length = sizeof driver;
	if (qp->kind == QpKind::dct && to == QpState::rtr)
		driver.dctn = qp->number;
	return attributes.out(UVERBS_ATTR_UHW_OUT, driver);
}

int query_qp(Context &context, Attributes &attributes)
{
	ib_uverbs_query_qp request;
	if (const int error = attributes.in(UVERBS_ATTR_CORE_IN, request))
		return error;
	const auto qp = context.objects.qps.find(request.qp_handle);
	if (!qp)
		return EINVAL;
	const QpSettings &s = qp->settings;
	ib_uverbs_query_qp_resp r{};
	r.dest = s.path;
	r.max_send_wr = qp->capacity.send_wr;
	r.max_recv_wr = qp->capacity.recv_wr;
	r.max_send_sge = qp->capacity.send_sge;
	r.max_recv_sge = qp->capacity.recv_sge;
	r.max_inline_data = qp->capacity.inline_bytes;
	r.qkey = s.qkey;
	r.rq_psn = s.rq_psn;
	r.sq_psn = qp->state >= QpState::rts ? qp->requester.next_psn() : s.sq_psn;
	r.dest_qp_num = s.destination;
	r.qp_access_flags = s.access;
	r.pkey_index = s.pkey_index;
	r.qp_state = r.cur_qp_state = static_cast<uint8_t>(qp->state);
	r.path_mtu = s.mtu;
	r.sq_draining = qp->state == QpState::sqd && !qp->requester.drained();
	r.max_rd_atomic = s.max_rd_atomic;
	r.max_dest_rd_atomic = s.max_dest_rd_atomic;
	r.min_rnr_timer = s.min_rnr_timer;
	r.port_num = s.port;
	r.timeout = s.timeout;
	r.retry_cnt = s.retry_count;
	r.rnr_retry = s.rnr_retry;
	r.sq_sig_all = qp->signal_all;
	return attributes.out(UVERBS_ATTR_CORE_OUT, r);
}

int destroy_qp(Context &context, Attributes &attributes)
{
	ib_uverbs_destroy_qp request;
	if (const int error = attributes.in(UVERBS_ATTR_CORE_IN, request))
		return error;
	const auto qp = context.objects.qps.find(request.qp_handle);
	if (!qp)
		return EINVAL;
	remove_qp(*qp);
	context.objects.qps.remove(request.qp_handle);
	return attributes.out(UVERBS_ATTR_CORE_OUT,
	                      ib_uverbs_destroy_qp_resp{read_events(context, qp->user_handle, qp->async_events)});
}

void remove_qp(Qp &qp)
{
	Nic &nic = qp.context.nic();
	if (nic.find(qp.number) == &qp) // not the parent's, from before fork()
		nic.settle(qp);
	nic.remove(qp);
	--qp.pd->users;
	--qp.send_cq->users;
	--qp.receive_cq->users;
	if (qp.srq)
		--qp.srq->users;
}

} // namespace softhca::commands
