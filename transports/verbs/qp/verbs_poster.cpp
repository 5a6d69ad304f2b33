#include "transports/verbs/qp/verbs_poster.hpp"

namespace pt2p::verbs {

void VerbsPoster::post(const WorkRequest &request, uint64_t id, bool signalled)
{
	if (!started_)
		ibv_wr_start(qp_);
	started_ = true;
	const bool is_inline = request.is_inline();
	qp_->wr_id = id;
	qp_->wr_flags = (signalled ? unsigned{IBV_SEND_SIGNALED} : 0) | (is_inline ? unsigned{IBV_SEND_INLINE} : 0);
	const uint32_t key = request.remote_key;
	const uint64_t address = request.remote_address;
	switch (request.kind) {
	case Kind::send:
		if (datagrams_)
			ibv_wr_send_imm(qp_, htobe32(request.length ? 0 : request.number));
		else
			ibv_wr_send(qp_);
		break;
	case Kind::ring_write:
	case Kind::consumer_index:
	case Kind::probe:
	case Kind::write: ibv_wr_rdma_write(qp_, key, address); break;
	case Kind::read: ibv_wr_rdma_read(qp_, key, address); break;
	case Kind::fetch_add: ibv_wr_atomic_fetch_add(qp_, key, address, request.operand()); break;
	case Kind::compare_swap: ibv_wr_atomic_cmp_swp(qp_, key, address, request.compare(), request.operand()); break;
	}
	if (const RemoteQueue *to = request.target->remote) {
		if (dc_)
			mlx5dv_wr_set_dc_addr(dc_, to->path, to->number, to->key);
		else
			ibv_wr_set_ud_addr(qp_, to->path, to->number, static_cast<uint32_t>(to->key));
	}
	if (request.payload == Payload::none || !request.length)
		ibv_wr_set_sge_list(qp_, 0, nullptr);
	else if (is_inline)
		ibv_wr_set_inline_data(qp_, const_cast<unsigned char *>(request.bytes), request.length);
	else
		ibv_wr_set_sge(qp_, request.local_key, request.local_address, request.length);
}

} // namespace pt2p::verbs
