// The segments of a WQE (mlx5 Programmer's Reference Manual, "Send WQE"):
//
//   control | address vector (DC, datagrams) | remote address (RDMA, atomics) | operands (atomics) | payload: inline or
//   pointer
//
// This is the encoder for all WQEs that are written without libibverbs: on the short path, on the full path, and when
// they are posted again.
#pragma once

#include <cstdint>
#include <cstring>
#include <infiniband/mlx5dv.h>

namespace pt2p::verbs::mlx5 {

constexpr size_t wqebb_bytes = 64; // a WQE takes one or more of these basic blocks

template <class T>
void store(unsigned char *to, T value)
{
	std::memcpy(to, &value, sizeof value);
}

// The address vector of a queue pair: the path to its port, its number and its key. Of a DC target, and of one for
// datagrams.
mlx5_wqe_av dc_address_vector(ibv_ah *path, uint32_t target, uint64_t key);
mlx5_wqe_av datagram_address_vector(ibv_ah *path, uint32_t number, uint32_t q_key);

class WqeEncoder {
public:
	static constexpr size_t control_bytes = sizeof(mlx5_wqe_ctrl_seg);

	// SendWorkQueue writes the control segment, after all others.
	explicit WqeEncoder(unsigned char *wqe) : wqe_(wqe), to_(wqe + control_bytes) {}

	void address_vector(const mlx5_wqe_av &av)
	{
		std::memcpy(to_, &av, sizeof av);
		to_ += sizeof av;
	}
	void remote_address(uint64_t address, uint32_t key)
	{
		store(to_, htobe64(address));
		store(to_ + 8, uint64_t{htobe32(key)});
		to_ += sizeof(mlx5_wqe_raddr_seg);
	}
	// Fetch-and-add: `operand` is added. Compare-and-swap: `operand` is the new value, `compare` the expected one.
	void operands(uint64_t operand, uint64_t compare)
	{
		store(to_, htobe64(operand));
		store(to_ + 8, htobe64(compare));
		to_ += sizeof(mlx5_wqe_atomic_seg);
	}
	// Returns where to write the payload.
	unsigned char *inline_payload(uint32_t bytes)
	{
		store(to_, htobe32(MLX5_INLINE_SEG | bytes));
		unsigned char *const payload = to_ + sizeof(mlx5_wqe_inl_data_seg);
		to_ = payload + bytes;
		return payload;
	}
	void payload_at(uint64_t address, uint32_t key, uint32_t bytes)
	{
		store(to_, htobe32(bytes));
		store(to_ + 4, htobe32(key));
		store(to_ + 8, htobe64(address));
		to_ += sizeof(mlx5_wqe_data_seg);
	}
	// Length so far, including the control segment.
	uint32_t bytes() const { return static_cast<uint32_t>(to_ - wqe_); }

private:
	unsigned char *const wqe_;
	unsigned char *to_;
};

} // namespace pt2p::verbs::mlx5
