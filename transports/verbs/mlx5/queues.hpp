// The queues of an mlx5 device, accessed directly in the memory that the device shares. The formats are those of the
// adapters' Programmer's Reference Manual and infiniband/mlx5dv.h.
//
// libibverbs creates, modifies and destroys the queues. Once one of these classes has a queue, no verb posts to it or
// polls it, and one thread at a time uses it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <endian.h>
#include <infiniband/mlx5dv.h>
#include <memory>
#include <vector>

#include "transports/verbs/mlx5/wqe.hpp"

namespace pt2p::verbs::mlx5 {

// Memory barriers.
//   before_record    the queue is written before its doorbell record
//   before_register  both are written before the doorbell
//   after_register   the doorbell leaves the processor; doorbell registers are mapped write-combining
//   after_ownership  the fields of a CQE are read after its owner bit
#if defined(__x86_64__)
inline constexpr bool supported = true;
inline void before_record() { asm volatile("" ::: "memory"); }
inline void before_register() { asm volatile("sfence" ::: "memory"); }
inline void after_register() { asm volatile("sfence" ::: "memory"); }
inline void after_ownership() { asm volatile("" ::: "memory"); }
#elif defined(__aarch64__)
inline constexpr bool supported = true;
inline void before_record() { asm volatile("dmb oshst" ::: "memory"); }
inline void before_register() { asm volatile("dmb oshst" ::: "memory"); }
inline void after_register() { asm volatile("dsb st" ::: "memory"); }
inline void after_ownership() { asm volatile("dmb oshld" ::: "memory"); }
#else
inline constexpr bool supported = false;
inline void before_record() {}
inline void before_register() {}
inline void after_register() {}
inline void after_ownership() {}
#endif

// A doorbell register of a UAR: two BlueFlame buffers, used in turn. Queue pairs may share a register.
struct DoorbellRegister {
	const uintptr_t address;
	const uint32_t buffer_bytes;
	const uint32_t blueflame_bytes; // longest WQE that a doorbell can carry; 0: none
	uintptr_t next = address;       // buffer
};

class SendWorkQueue {
public:
	// All queue pairs of an ibv_context share `registers`. `blueflame`: whether a doorbell may carry a WQE.
	SendWorkQueue(ibv_qp *qp, std::vector<std::unique_ptr<DoorbellRegister>> &registers, bool blueflame);

	uint32_t wqebbs() const { return mask_ + 1; }
	// The queue pair has been reset.
	void reset() { producer_ = 0; }

	// The caller encodes a WQE of up to max_bytes at begin(). end() writes its control segment and returns its index,
	// as a CQE has it; `bytes` is the length of the whole WQE.
	static constexpr uint32_t max_wqebbs = 3;
	static constexpr size_t max_bytes = max_wqebbs * wqebb_bytes;
	unsigned char *begin() { return wqe_ = __builtin_expect(is_contiguous(max_wqebbs), 1) ? at(producer_) : aside_; }
	uint16_t end(uint8_t opcode, bool signalled, uint32_t bytes, uint32_t immediate = 0)
	{
		const auto index = static_cast<uint16_t>(producer_);
		write_control(wqe_, producer_, opcode, signalled, bytes, immediate);
		bytes_ = bytes;
		const uint32_t count = wqebbs_of(bytes);
		if (__builtin_expect(wqe_ == aside_, 0))
			copy_from_aside(count);
		producer_ += count;
		return index;
	}
	// Rings the doorbell for all WQEs since the last time. The doorbell carries a single WQE if it fits.
	void ring_doorbell(bool single)
	{
		write_doorbell(wqe_, producer_, wqebbs_of(bytes_), single && bytes_ <= register_->blueflame_bytes);
	}

	// The short path: ends a WQE of so many WQEBBs at `wqe`, which is at(producer()), and rings a doorbell that carries
	// it. The WQE must be contiguous and at most max_blueflame() long, and no other WQE may wait for a doorbell.
	template <uint32_t wqebbs>
	void end_and_ring(unsigned char *wqe, uint32_t producer, uint8_t opcode, bool signalled, uint32_t bytes)
	{
		write_control(wqe, producer, opcode, signalled, bytes);
		producer_ = producer + wqebbs;
		write_doorbell(wqe, producer + wqebbs, wqebbs, true);
	}
	bool is_contiguous(uint32_t wqebbs) const { return (producer_ & mask_) + wqebbs <= mask_ + 1; }
	uint32_t max_blueflame() const { return register_->blueflame_bytes; }
	uint32_t producer() const { return producer_; }
	unsigned char *at(uint32_t index) const { return buffer_ + (index & mask_) * wqebb_bytes; }

	// The index of the WQE after this one.
	uint16_t after(uint16_t index) const
	{
		const uint32_t sixteenths = at(index)[offsetof(mlx5_wqe_ctrl_seg, qpn_ds) + 3];
		return static_cast<uint16_t>(index + wqebbs_of(sixteenths * 16));
	}
	// Copies the first bytes of a WQE, up to max_bytes.
	void read(uint16_t index, unsigned char *to, size_t bytes) const
	{
		for (size_t n = 0; n < bytes; n += wqebb_bytes)
			std::memcpy(to + n, at(static_cast<uint32_t>(index + n / wqebb_bytes)), std::min(wqebb_bytes, bytes - n));
	}

private:
	static uint32_t wqebbs_of(uint32_t bytes) { return (bytes + wqebb_bytes - 1) / wqebb_bytes; }
	void write_control(unsigned char *wqe, uint32_t index, uint8_t opcode, bool signalled, uint32_t bytes,
	                   uint32_t immediate = 0) const
	{
		store(wqe, htobe32((index & 0xffff) << 8 | opcode));
		store(wqe + 4, number_ | htobe32((bytes + 15) / 16));
		store(wqe + 8, signalled ? htobe32(MLX5_WQE_CTRL_CQ_UPDATE) : 0u);
		store(wqe + offsetof(mlx5_wqe_ctrl_seg, imm), htobe32(immediate));
	}
	// The doorbell carries the last WQE as a whole (BlueFlame), or its first 8 bytes.
	void write_doorbell(const unsigned char *wqe, uint32_t producer, uint32_t wqebbs, bool whole)
	{
		DoorbellRegister &r = *register_;
		before_record();
		*record_ = htobe32(producer & 0xffff);
		before_register();
		auto *to = reinterpret_cast<unsigned char *>(r.next);
		if (__builtin_expect(whole, 1)) {
			copy(to, wqe, wqebbs);
		} else {
			uint64_t control;
			std::memcpy(&control, wqe, sizeof control);
			*reinterpret_cast<volatile uint64_t *>(to) = control;
		}
		after_register();
		r.next ^= r.buffer_bytes; // a register is aligned to both buffers together
	}
	using Quarter = uint64_t __attribute__((vector_size(16), may_alias));
	static void copy(unsigned char *to, const unsigned char *from, uint32_t wqebbs)
	{
		for (;; to += wqebb_bytes, from += wqebb_bytes) {
			auto *destination = reinterpret_cast<volatile Quarter *>(to);
			const auto *source = reinterpret_cast<const Quarter *>(from);
			destination[0] = source[0];
			destination[1] = source[1];
			destination[2] = source[2];
			destination[3] = source[3];
			if (__builtin_expect(--wqebbs == 0, 1))
				return;
		}
	}
	// Into the queue, across its end.
	[[gnu::noinline]] void copy_from_aside(uint32_t wqebbs);

	unsigned char *buffer_;
	unsigned char *wqe_; // the last WQE
	uint32_t mask_;
	uint32_t number_;       // queue pair, as in a control segment
	uint32_t producer_ = 0; // producer index: WQEBBs so far
	uint32_t bytes_ = 0;    // of the last WQE
	volatile uint32_t *record_;
	DoorbellRegister *register_ = nullptr;
	alignas(wqebb_bytes) unsigned char aside_[max_bytes]; // for a WQE that would cross the end of the queue
};

// A shared receive queue in which WQE n always has buffer n. It has one WQE more than the device gets. The WQEs are a
// linked list: a free WQE is linked behind the last one, and the device may use that last one from then on.
class SharedReceiveQueue {
public:
	// The device has `count` of `count` + 1 buffers. Buffer n begins at `memory` + n * `bytes`.
	SharedReceiveQueue(ibv_srq *srq, uint32_t count, unsigned char *memory, uint32_t bytes, uint32_t key);

	// The buffer is free again; the device sees this after publish(). `number` is big endian, as in a CQE.
	void give(uint16_t number)
	{
		store(wqe(last_) + offsetof(mlx5_wqe_srq_next_seg, next_wqe_index), number);
		last_ = be16toh(number);
		++given_;
	}
	void publish()
	{
		before_record();
		*record_ = htobe32(given_ & 0xffff);
	}

private:
	unsigned char *wqe(uint32_t number) const { return buffer_ + size_t{number} * stride_; }

	unsigned char *buffer_;
	volatile uint32_t *record_;
	uint32_t stride_, last_, given_; // bytes of a WQE; last WQE of the list; producer index
};

class CqBuffer {
public:
	explicit CqBuffer(ibv_cq *cq);

	// The next CQE, valid until pop(), and its op_own field in `kind`. Null: none has come.
	mlx5_cqe64 *next(uint8_t &kind) const
	{
		kind = __atomic_load_n(&next_->op_own, __ATOMIC_RELAXED);
		if ((kind ^ owner_) & 1)
			return nullptr;
		after_ownership();
		return next_;
	}
	// Whether more than `n` CQEs have come; there are more than `n` in all.
	bool has_more_than(uint32_t n) const
	{
		const uint32_t last = consumer_ + n;
		return !((__atomic_load_n(&at(last)->op_own, __ATOMIC_RELAXED) ^ ((last & count_) != 0)) & 1);
	}
	void pop()
	{
		++consumer_;
		next_ = at(consumer_);
		owner_ = (consumer_ & count_) != 0; // changes with each round
	}
	bool empty() const
	{
		uint8_t kind;
		return !next(kind);
	}
	// CQEs that were taken so far. The last ones are still there: how many of those tell of a message that has come,
	// and its bytes.
	struct Taken {
		uint64_t all = 0, seen = 0, receives = 0, bytes = 0;
	};
	void add_taken(Taken &taken) const;
	// Publishes the consumer index: the device may overwrite the CQEs that were taken.
	void publish()
	{
		before_record();
		record_[0] = htobe32(consumer_ & 0xffffff);
	}

	// Asks for an event with the next CQE. event_taken() follows each event.
	void arm();
	void event_taken() { ++armed_; }
	// This queue pair was reset: marks the CQEs of its send side to be skipped.
	void skip(uint32_t queue_pair);
	static constexpr uint8_t skipped = MLX5_CQE_NO_PACKET; // an opcode that no queue pair here completes with

private:
	[[gnu::returns_nonnull]] mlx5_cqe64 *at(uint32_t n) const
	{
		return reinterpret_cast<mlx5_cqe64 *>(buffer_ + (size_t{n & mask_} << shift_));
	}

	unsigned char *buffer_;     // fields of the first CQE, which are the last 64 bytes of a CQE of 128
	volatile uint32_t *record_; // consumer index; request for an event
	uint32_t count_, mask_, shift_, number_;
	mlx5_cqe64 *next_; // at consumer_
	uint32_t consumer_ = 0, armed_ = 0;
	uint8_t owner_ = 0; // the lowest bit of op_own in a CQE of this round
	unsigned char *registers_;
};

// Of the op_own field.
inline uint8_t opcode(uint8_t kind) { return kind >> 4; }
inline uint32_t queue_pair(const mlx5_cqe64 &c) { return be32toh(c.sop_drop_qpn) & 0xffffff; }
// A short message that the device scattered to the CQE; null: it is in its buffer.
inline const unsigned char *scattered(const mlx5_cqe64 &c, uint8_t kind)
{
	if (__builtin_expect(!(kind & (MLX5_INLINE_SCATTER_32 | MLX5_INLINE_SCATTER_64)), 1))
		return nullptr;
	const auto *fields = reinterpret_cast<const unsigned char *>(&c);
	return kind & MLX5_INLINE_SCATTER_32 ? fields : fields - 64;
}
// Of a CQE with an error.
ibv_wc_status status_of(const mlx5_cqe64 &c);

} // namespace pt2p::verbs::mlx5
