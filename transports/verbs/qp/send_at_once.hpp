// The short way of a short message: inline, into an entry of the device's queue that is written directly. It calls nothing, and
// takes nothing but the entry.
#pragma once

#include "transports/verbs/net.hpp"

namespace pt2p::verbs {

// Like memcpy, without a call.
inline void copy_short(unsigned char *to, const void *from, size_t length)
{
	const auto *bytes = static_cast<const unsigned char *>(from);
	if (__builtin_expect(length == 8, 1)) {
		std::memcpy(to, bytes, 8);
	} else if (length > 8) {
		size_t at = 0;
		do
			std::memcpy(to + at, bytes + at, 8);
		while ((at += 8) + 8 <= length);
		std::memcpy(to + length - 8, bytes + length - 8, 8);
	} else if (length >= 4) {
		std::memcpy(to, bytes, 4);
		std::memcpy(to + length - 4, bytes + length - 4, 4);
	} else {
		for (size_t i = 0; i < length; ++i)
			to[i] = bytes[i];
	}
}

template <bool dc>
[[gnu::always_inline]] inline bool SendQueue::goes_at_once(size_t length) const
{
	return static_cast<int64_t>(length) <= most_at_once_ && room() && (!dc || direct_->in_one_piece(2));
}

template <bool dc>
[[gnu::always_inline]] inline void SendQueue::send_at_once(Peer &peer, uint8_t id, uint64_t header, const void *data, size_t length)
{
	using mlx5::store;
	constexpr size_t front_bytes = mlx5::SendRing::control_bytes + (dc ? sizeof(mlx5_wqe_av) : 0) + sizeof(mlx5_wqe_inl_data_seg);
	constexpr uint32_t blocks = dc ? 2 : 1;
	static_assert(front_bytes + sizeof(MessageHeader) + most_at_once <= blocks * mlx5::block_bytes);

	const uint32_t place = direct_->next();
	unsigned char *const entry = direct_->place_of(place);
	unsigned char *const to = entry + front_bytes;
	if (dc)
		std::memcpy(entry + mlx5::SendRing::control_bytes, &peer.dc_address, sizeof peer.dc_address);
	const auto bytes = static_cast<uint32_t>(sizeof(MessageHeader) + length);
	store(to - sizeof(mlx5_wqe_inl_data_seg), htobe32(MLX5_INLINE_SEG | bytes));
	store(to, header);
	store(to + offsetof(MessageHeader, sequence), static_cast<uint32_t>(peer.next_sequence++));
	store(to + offsetof(MessageHeader, rank_and_id), from_ | id);
	copy_short(to + sizeof(MessageHeader), data, length);

	const uint32_t number = posted_ + 1; // stores behind this one may alias
	next(peer, Kind::message, bytes);
	bool due = false;
	if (__builtin_expect(number == due_, 0)) {
		due = true;
		number_of(place) = number;
		end_period(number);
	}
	direct_->write_alone<blocks>(entry, place, MLX5_OPCODE_SEND, due, static_cast<uint32_t>(front_bytes) + bytes);
}

} // namespace pt2p::verbs
