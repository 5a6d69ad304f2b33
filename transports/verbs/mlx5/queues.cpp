#include "transports/verbs/mlx5/queues.hpp"

#include "transports/verbs/device/device.hpp"

namespace pt2p::verbs::mlx5 {

namespace {

// What libmlx5 knows about an object; `place` is the member of mlx5dv_obj for objects of its kind. Throws Error.
template <auto place, class About, class Object>
About reveal(uint64_t kind, Object *object, const char *what)
{
	About about{};
	mlx5dv_obj wanted{};
	(wanted.*place).in = object;
	(wanted.*place).out = &about;
	if (const int error = mlx5dv_init_obj(&wanted, kind))
		fail(what, error);
	return about;
}

} // namespace

// ---- sending --------------------------------------------------------------------------------------------------------

SendWorkQueue::SendWorkQueue(ibv_qp *qp, std::vector<std::unique_ptr<DoorbellRegister>> &registers, bool blueflame)
{
	const auto about = reveal<&mlx5dv_obj::qp, mlx5dv_qp>(MLX5DV_OBJ_QP, qp, "mlx5dv_init_obj (queue pair)");
	buffer_ = static_cast<unsigned char *>(about.sq.buf);
	mask_ = about.sq.wqe_cnt - 1;
	number_ = htobe32(qp->qp_num << 8);
	record_ = &about.dbrec[MLX5_SND_DBR];
	const auto address = reinterpret_cast<uintptr_t>(about.bf.reg);
	for (auto &r : registers)
		if (r->address == address)
			register_ = r.get();
	if (!register_)
		register_ = registers
		                .emplace_back(new DoorbellRegister{.address = address,
		                                                   .buffer_bytes = about.bf.size,
		                                                   .blueflame_bytes = blueflame ? about.bf.size : 0})
		                .get();
}

void SendWorkQueue::copy_from_aside(uint32_t wqebbs)
{
	for (uint32_t i = 0; i < wqebbs; ++i)
		std::memcpy(at(producer_ + i), aside_ + i * wqebb_bytes, wqebb_bytes);
}

namespace {

mlx5_wqe_av address_vector(ibv_ah *path, uint32_t number)
{
	const auto about = reveal<&mlx5dv_obj::ah, mlx5dv_ah>(MLX5DV_OBJ_AH, path, "mlx5dv_init_obj (address handle)");
	mlx5_wqe_av address = *about.av;
	address.dqp_dct = htobe32(number | MLX5_EXTENDED_UD_AV);
	return address;
}

} // namespace

mlx5_wqe_av dc_address_vector(ibv_ah *path, uint32_t target, uint64_t key)
{
	mlx5_wqe_av address = address_vector(path, target);
	address.key.dc_key = htobe64(key);
	return address;
}

mlx5_wqe_av datagram_address_vector(ibv_ah *path, uint32_t number, uint32_t q_key)
{
	mlx5_wqe_av address = address_vector(path, number);
	address.key.qkey = {htobe32(q_key), 0};
	return address;
}

// ---- receiving ------------------------------------------------------------------------------------------------------

SharedReceiveQueue::SharedReceiveQueue(ibv_srq *srq, uint32_t count, unsigned char *memory, uint32_t bytes,
                                       uint32_t key)
    : last_(count), given_(count)
{
	const auto about =
	    reveal<&mlx5dv_obj::srq, mlx5dv_srq>(MLX5DV_OBJ_SRQ, srq, "mlx5dv_init_obj (shared receive queue)");
	buffer_ = static_cast<unsigned char *>(about.buf);
	record_ = about.dbrec;
	stride_ = about.stride;
	for (uint32_t n = 0; n <= count; ++n) {
		mlx5_wqe_srq_next_seg next{};
		next.next_wqe_index = htobe16(static_cast<uint16_t>(n + 1));
		mlx5_wqe_data_seg data{htobe32(bytes), htobe32(key),
		                       htobe64(reinterpret_cast<uintptr_t>(memory + size_t{n} * bytes))};
		std::memcpy(wqe(n), &next, sizeof next);
		std::memcpy(wqe(n) + sizeof next, &data, sizeof data);
		const mlx5_wqe_data_seg none{0, htobe32(MLX5_INVALID_LKEY), 0};
		if (stride_ >= sizeof next + 2 * sizeof data)
			std::memcpy(wqe(n) + sizeof next + sizeof data, &none, sizeof none);
	}
	publish();
}

// ---- completions ----------------------------------------------------------------------------------------------------

CqBuffer::CqBuffer(ibv_cq *cq)
{
	const auto about = reveal<&mlx5dv_obj::cq, mlx5dv_cq>(MLX5DV_OBJ_CQ, cq, "mlx5dv_init_obj (completion queue)");
	shift_ = static_cast<uint32_t>(__builtin_ctz(about.cqe_size));
	buffer_ = static_cast<unsigned char *>(about.buf) + about.cqe_size - sizeof(mlx5_cqe64);
	count_ = about.cqe_cnt;
	mask_ = count_ - 1;
	next_ = at(0);
	record_ = about.dbrec;
	number_ = about.cqn;
	registers_ = static_cast<unsigned char *>(about.cq_uar);
	// Before the first round, the owner bits say that all CQEs belong to the device.
	for (uint32_t n = 0; n < count_; ++n)
		at(n)->op_own |= MLX5_CQE_OWNER_MASK;
}

void CqBuffer::add_taken(Taken &taken) const
{
	constexpr uint32_t looked_at = 64;
	const uint32_t n = std::min({consumer_, looked_at, count_});
	taken.all += consumer_;
	taken.seen += n;
	for (uint32_t i = 1; i <= n; ++i)
		if (const mlx5_cqe64 &c = *at(consumer_ - i);
		    opcode(c.op_own) == MLX5_CQE_RESP_SEND || opcode(c.op_own) == MLX5_CQE_RESP_SEND_IMM) {
			++taken.receives;
			taken.bytes += be32toh(c.byte_cnt);
		}
}

void CqBuffer::arm()
{
	constexpr size_t arm_register = 0x20;
	const uint32_t request = (armed_ & 3) << 28 | (consumer_ & 0xffffff);
	publish();
	record_[1] = htobe32(request);
	before_register();
	*reinterpret_cast<volatile uint64_t *>(registers_ + arm_register) = htobe64(uint64_t{request} << 32 | number_);
	after_register();
}

void CqBuffer::skip(uint32_t which)
{
	CqBuffer ahead(*this);
	for (uint32_t n = 0; n < count_; ++n, ahead.pop()) {
		uint8_t kind;
		mlx5_cqe64 *c = ahead.next(kind);
		if (!c)
			break;
		const uint8_t code = opcode(kind);
		if ((code == MLX5_CQE_REQ || code == MLX5_CQE_REQ_ERR) && queue_pair(*c) == which)
			c->op_own = static_cast<uint8_t>(skipped << 4 | (kind & 0xf));
	}
}

ibv_wc_status status_of(const mlx5_cqe64 &c)
{
	switch (reinterpret_cast<const mlx5_err_cqe &>(c).syndrome) {
	case MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR: return IBV_WC_LOC_LEN_ERR;
	case MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR: return IBV_WC_LOC_QP_OP_ERR;
	case MLX5_CQE_SYNDROME_LOCAL_PROT_ERR: return IBV_WC_LOC_PROT_ERR;
	case MLX5_CQE_SYNDROME_WR_FLUSH_ERR: return IBV_WC_WR_FLUSH_ERR;
	case MLX5_CQE_SYNDROME_MW_BIND_ERR: return IBV_WC_MW_BIND_ERR;
	case MLX5_CQE_SYNDROME_BAD_RESP_ERR: return IBV_WC_BAD_RESP_ERR;
	case MLX5_CQE_SYNDROME_LOCAL_ACCESS_ERR: return IBV_WC_LOC_ACCESS_ERR;
	case MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR: return IBV_WC_REM_INV_REQ_ERR;
	case MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR: return IBV_WC_REM_ACCESS_ERR;
	case MLX5_CQE_SYNDROME_REMOTE_OP_ERR: return IBV_WC_REM_OP_ERR;
	case MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR: return IBV_WC_RETRY_EXC_ERR;
	case MLX5_CQE_SYNDROME_RNR_RETRY_EXC_ERR: return IBV_WC_RNR_RETRY_EXC_ERR;
	case MLX5_CQE_SYNDROME_REMOTE_ABORTED_ERR: return IBV_WC_REM_ABORT_ERR;
	default: return IBV_WC_GENERAL_ERR;
	}
}

} // namespace pt2p::verbs::mlx5
