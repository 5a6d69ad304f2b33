#include "transports/verbs/device/buffers.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <infiniband/mlx5dv.h>

#include "base/report/report.hpp"

namespace pt2p::verbs {

namespace {

// The processor may hold back and combine stores to device memory. This lets them out.
inline void flush_write_combining()
{
#if defined(__x86_64__)
	__builtin_ia32_sfence();
#elif defined(__aarch64__)
	asm volatile("dsb st" ::: "memory");
#else
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
}

} // namespace

DeviceMemory::DeviceMemory(const Device &device, size_t bytes, size_t max_bytes, std::string &why_not)
{
	bytes = std::min<size_t>(bytes, device.device_memory);
	if (bytes < max_bytes) {
		why_not = device.device_memory ? "PT2P_NET_DEVICE_MEMORY is too small" : "the device has no memory to offer";
		return;
	}
	bytes = bytes / max_bytes * max_bytes;
	ibv_alloc_dm_attr attributes{};
	// Other processes may have taken a part of it.
	for (; bytes >= max_bytes && !dm_; bytes = bytes / 2 / max_bytes * max_bytes) {
		attributes.length = bytes;
		dm_.reset(ibv_alloc_dm(device.context.get(), &attributes));
		if (dm_)
			break;
	}
	if (!dm_) {
		why_not = failure("ibv_alloc_dm", errno);
		return;
	}
	mlx5dv_dm view{};
	mlx5dv_obj object{};
	object.dm = {dm_.get(), &view};
	mr_.reset(ibv_reg_dm_mr(device.pd.get(), dm_.get(), 0, bytes, IBV_ACCESS_ZERO_BASED | IBV_ACCESS_LOCAL_WRITE));
	if (!mr_ || mlx5dv_init_obj(&object, MLX5DV_OBJ_DM) != 0 || !view.buf) {
		why_not = failure("ibv_reg_dm_mr", errno);
		mr_.reset();
		dm_.reset();
		return;
	}
	words_ = static_cast<volatile uint64_t *>(view.buf);
	bytes_ = bytes;
	cut(max_bytes);
}

void DeviceMemory::write(uint32_t cell, std::span<const Piece> pieces)
{
	volatile uint64_t *to = words_ + address(cell) / sizeof(uint64_t);
	uint64_t word = 0;
	unsigned filled = 0; // bytes of `word`
	for (const Piece &piece : pieces) {
		const auto *from = static_cast<const unsigned char *>(piece.bytes);
		size_t left = piece.length;
		while (left) {
			if (!filled && left >= sizeof word) {
				uint64_t whole;
				std::memcpy(&whole, from, sizeof whole);
				*to++ = whole;
				from += sizeof whole;
				left -= sizeof whole;
				continue;
			}
			const size_t n = std::min(left, sizeof word - filled);
			std::memcpy(reinterpret_cast<unsigned char *>(&word) + filled, from, n);
			filled += static_cast<unsigned>(n);
			from += n;
			left -= n;
			if (filled == sizeof word) {
				*to++ = word;
				filled = 0;
			}
		}
	}
	if (filled)
		*to = word;
	flush_write_combining();
}

} // namespace pt2p::verbs
