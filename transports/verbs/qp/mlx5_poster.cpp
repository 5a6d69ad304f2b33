#include "transports/verbs/qp/mlx5_poster.hpp"

#include <array>

namespace pt2p::verbs {

namespace {

using mlx5::WqeEncoder;

constexpr std::array<uint8_t, 8> opcodes = {MLX5_OPCODE_SEND,       MLX5_OPCODE_RDMA_WRITE, MLX5_OPCODE_RDMA_WRITE,
                                            MLX5_OPCODE_RDMA_WRITE, MLX5_OPCODE_RDMA_READ,  MLX5_OPCODE_RDMA_WRITE,
                                            MLX5_OPCODE_ATOMIC_FA,  MLX5_OPCODE_ATOMIC_CS};

// The longest WQE: an inline message into a write ring through DC.
static_assert(WqeEncoder::control_bytes + sizeof(mlx5_wqe_av) + sizeof(mlx5_wqe_raddr_seg) +
                  sizeof(mlx5_wqe_inl_data_seg) + WorkRequest::max_inline <=
              mlx5::SendWorkQueue::max_bytes);

} // namespace

void Mlx5Poster::post(const WorkRequest &request, uint32_t number, bool signalled)
{
	WqeEncoder wqe(queue_.begin());
	if (request.target->remote)
		wqe.address_vector(request.target->remote->av);
	if (__builtin_expect(request.kind != Kind::send, 0))
		wqe.remote_address(request.remote_address, request.remote_key);
	if (__builtin_expect(request.is_atomic(), 0))
		wqe.operands(request.operand(), request.compare());
	uint32_t immediate = 0;
	if (__builtin_expect(datagrams_ && !request.length, 0))
		immediate = request.number; // no payload: control and address fill one WQEBB
	else if (__builtin_expect(request.is_inline(), 1))
		std::memcpy(wqe.inline_payload(request.length), request.bytes, request.length);
	else if (request.payload != Payload::none)
		wqe.payload_at(request.local_address, request.local_key, request.length);
	const uint32_t before = queue_.producer();
	const uint8_t opcode = datagrams_ ? uint8_t{MLX5_OPCODE_SEND_IMM} : opcodes[static_cast<size_t>(request.kind)];
	const uint16_t index = queue_.end(opcode, signalled, wqe.bytes(), immediate);
	if (signalled)
		number_of(index) = number;
	++request.target->encoded.wqes;
	request.target->encoded.wqebbs += queue_.producer() - before;
}

uint16_t Mlx5Poster::keep(uint16_t wqe, WorkRequest &request) const
{
	if (request.kind == Kind::send && request.is_inline() && request.length) {
		const size_t front = WqeEncoder::control_bytes + (request.target->remote ? sizeof(mlx5_wqe_av) : 0) +
		                     sizeof(mlx5_wqe_inl_data_seg);
		unsigned char bytes[mlx5::SendWorkQueue::max_bytes];
		queue_.read(wqe, bytes, front + request.length);
		std::memcpy(request.bytes, bytes + front, request.length);
	}
	return queue_.after(wqe);
}

} // namespace pt2p::verbs
