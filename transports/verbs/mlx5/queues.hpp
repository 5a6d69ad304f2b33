// Queues of an mlx5 device, written and read where the device has them. A work request or a completion costs what its format
// asks for, and nothing on top of it. The formats are those of the adapters' programmer's reference manual, as
// infiniband/mlx5dv.h has them.
//
// Queues are made, changed and destroyed by verbs; but from the time on that one of these classes has a queue, no verb posts
// to it or polls it, and no other thread uses it at the same time.
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

// Orders stores to memory before what the device is told next, by a store to memory that it reads, or to its registers; and
// makes a store to its registers leave the processor. The registers are mapped write-combining.
#if defined(__x86_64__)
inline constexpr bool supported = true;
inline void before_record() { asm volatile("" ::: "memory"); }
inline void before_register() { asm volatile("sfence" ::: "memory"); }
inline void after_register() { asm volatile("sfence" ::: "memory"); }
inline void after_ownership() { asm volatile("" ::: "memory"); } // of a completion: its other fields are read after this
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

// A register for doorbells: two buffers, written in turn. Queue pairs may share one.
struct DoorbellRegister {
	const uintptr_t address;
	const uint32_t buffer_bytes;
	const uint32_t blueflame_bytes;   // longest entry that goes along with its doorbell; 0: none does
	uintptr_t next = address;     // buffer
};

class SendWorkQueue {
public:
	// `registers` is shared by all queue pairs of an ibv_context. `whole`: whether a doorbell may take an entry with it.
	SendWorkQueue(ibv_qp *qp, std::vector<std::unique_ptr<DoorbellRegister>> &registers, bool whole);

	uint32_t wqebbs() const { return mask_ + 1; }
	// The queue pair has been reset.
	void reset() { next_ = 0; }

	// A WQE of up to max_bytes is encoded between begin() and end(): its control segment is 16 bytes that end() fills,
	// what follows it is the caller's.
	static constexpr uint32_t max_wqebbs = 3;
	static constexpr size_t max_bytes = max_wqebbs * wqebb_bytes;
	unsigned char *begin() { return entry_ = __builtin_expect(in_one_piece(max_wqebbs), 1) ? place_of(next_) : aside_; }
	// `bytes` is its whole length. Returns its number, as a completion gives it.
	uint16_t end(uint8_t opcode, bool signalled, uint32_t bytes)
	{
		const auto number = static_cast<uint16_t>(next_);
		write_control(entry_, next_, opcode, signalled, bytes);
		bytes_ = bytes;
		const uint32_t count = wqebbs_of(bytes);
		if (__builtin_expect(entry_ == aside_, 0))
			copy_from_aside(count);
		next_ += count;
		return number;
	}
	// The same for an entry of so many blocks that goes to the device at once, alone and together with its doorbell: nothing
	// waits to be rung for, it is in_one_piece() and not longer than max_with_doorbell(). `bytes` is its length.
	bool in_one_piece(uint32_t blocks) const { return (next_ & mask_) + blocks <= mask_ + 1; }
	uint32_t max_with_doorbell() const { return register_->blueflame_bytes; }
	uint32_t next() const { return next_; }
	unsigned char *place_of(uint32_t number) const { return ring_ + (number & mask_) * wqebb_bytes; }
	template <uint32_t blocks>
	void write_alone(unsigned char *entry, uint32_t number, uint8_t opcode, bool signalled, uint32_t bytes)
	{
		write_control(entry, number, opcode, signalled, bytes);
		next_ = number + blocks;
		tell(entry, number + blocks, blocks, true);
	}
	// The number of the entry behind this one.
	uint16_t after(uint16_t number) const
	{
		const uint32_t sixteenths = place_of(number)[offsetof(mlx5_wqe_ctrl_seg, qpn_ds) + 3];
		return static_cast<uint16_t>(number + wqebbs_of(sixteenths * 16));
	}
	// Of the entry with this number, up to max_bytes from its beginning on.
	void read(uint16_t number, unsigned char *to, size_t bytes) const
	{
		for (size_t at = 0; at < bytes; at += wqebb_bytes)
			std::memcpy(to + at, place_of(static_cast<uint32_t>(number + at / wqebb_bytes)), std::min(wqebb_bytes, bytes - at));
	}
	// Makes the device see all entries since the last time. One that is `alone` goes to it together with the doorbell.
	void ring(bool alone) { tell(entry_, next_, wqebbs_of(bytes_), alone && bytes_ <= register_->blueflame_bytes); }

private:
	static uint32_t wqebbs_of(uint32_t bytes) { return (bytes + wqebb_bytes - 1) / wqebb_bytes; }
	void write_control(unsigned char *entry, uint32_t at, uint8_t opcode, bool signalled, uint32_t bytes) const
	{
		store(entry, htobe32((at & 0xffff) << 8 | opcode));
		store(entry + 4, number_ | htobe32((bytes + 15) / 16));
		store(entry + 8, signalled ? uint64_t{htobe32(MLX5_WQE_CTRL_CQ_UPDATE)} : 0);
	}
	// The last entry: whole, or its beginning.
	void tell(const unsigned char *entry, uint32_t next, uint32_t blocks, bool whole)
	{
		DoorbellRegister &r = *register_;
		before_record();
		*record_ = htobe32(next & 0xffff);
		before_register();
		auto *to = reinterpret_cast<unsigned char *>(r.next);
		if (__builtin_expect(whole, 1)) {
			copy(to, entry, blocks);
		} else {
			uint64_t control;
			std::memcpy(&control, entry, sizeof control);
			*reinterpret_cast<volatile uint64_t *>(to) = control;
		}
		after_register();
		r.next ^= r.buffer_bytes; // an address is a multiple of both buffers together
	}
	using Quarter = uint64_t __attribute__((vector_size(16), may_alias));
	static void copy(unsigned char *to, const unsigned char *from, uint32_t blocks)
	{
		for (;; to += wqebb_bytes, from += wqebb_bytes) {
			auto *destination = reinterpret_cast<volatile Quarter *>(to);
			const auto *source = reinterpret_cast<const Quarter *>(from);
			destination[0] = source[0];
			destination[1] = source[1];
			destination[2] = source[2];
			destination[3] = source[3];
			if (__builtin_expect(--blocks == 0, 1))
				return;
		}
	}
	// Into the ring, whose end it crosses.
	[[gnu::noinline]] void copy_from_aside(uint32_t count);

	unsigned char *ring_;
	unsigned char *entry_;        // the last
	uint32_t mask_;
	uint32_t number_;             // of the queue pair, as an entry has it
	uint32_t next_ = 0;           // block, counted from the beginning
	uint32_t bytes_ = 0;          // of the last entry
	volatile uint32_t *record_;
	DoorbellRegister *register_ = nullptr;
	alignas(wqebb_bytes) unsigned char aside_[max_bytes];
};

// A shared receive queue whose entries keep their buffers: number n of the queue is always for buffer n. Of count + 1
// entries `count` are with the device; they are a list, and an entry that comes back is linked behind the last, which
// the device then may use.
class SharedReceiveQueue {
public:
	// Buffer n begins at `memory` + n * `bytes`, n from 0 to `count`.
	SharedReceiveQueue(ibv_srq *srq, uint32_t count, unsigned char *memory, uint32_t bytes, uint32_t key);

	// The buffer is free again; the device sees it after publish(). `number` as the completion has it: big endian.
	void give(uint16_t number)
	{
		store(entry(last_) + offsetof(mlx5_wqe_srq_next_seg, next_wqe_index), number);
		last_ = be16toh(number);
		++given_;
	}
	void publish()
	{
		before_record();
		*record_ = htobe32(given_ & 0xffff);
	}

private:
	unsigned char *entry(uint32_t number) const { return ring_ + size_t{number} * stride_; }

	unsigned char *ring_;
	volatile uint32_t *record_;
	uint32_t stride_, last_, given_;
};

class CqBuffer {
public:
	explicit CqBuffer(ibv_cq *cq);

	// The next completion, valid until pop(), and its field that says of which kind it is; null: none has come.
	mlx5_cqe64 *next(uint8_t &kind) const
	{
		mlx5_cqe64 *c = at(next_);
		kind = __atomic_load_n(&c->op_own, __ATOMIC_RELAXED);
		// The owner's bit changes with each round.
		const uint8_t round = (next_ & count_) != 0;
		if ((kind ^ round) & 1)
			return nullptr;
		after_ownership();
		return c;
	}
	void pop() { ++next_; }
	// The device may use the places of what has been taken.
	void publish()
	{
		before_record();
		record_[0] = htobe32(next_ & 0xffffff);
	}

	// Asks for an event with the next completion. After an event, event_taken().
	void arm();
	void event_taken() { ++armed_; }
	// What is in the queue of the send side of this queue pair will be passed over: the queue pair was reset.
	void pass_over(uint32_t queue_pair);
	static constexpr uint8_t passed_over = MLX5_CQE_NO_PACKET; // opcode that no queue pair of ours completes with

private:
	[[gnu::returns_nonnull]] mlx5_cqe64 *at(uint32_t n) const
	{
		return reinterpret_cast<mlx5_cqe64 *>(ring_ + (size_t{n & mask_} << shift_));
	}

	unsigned char *ring_; // the first 64 bytes that have a completion's fields: with 128 bytes each, those are the last
	volatile uint32_t *record_; // what has been read; what an event was asked for with
	uint32_t count_, mask_, shift_, number_;
	uint32_t next_ = 0, armed_ = 0;
	unsigned char *registers_;
};

// Of the field that says of which kind a completion is.
inline uint8_t opcode(uint8_t kind) { return kind >> 4; }
inline uint32_t queue_pair(const mlx5_cqe64 &c) { return be32toh(c.sop_drop_qpn) & 0xffffff; }
// Where a short message may be, instead of in its buffer; null: it is there.
inline const unsigned char *scattered(const mlx5_cqe64 &c, uint8_t kind)
{
	if (__builtin_expect(!(kind & (MLX5_INLINE_SCATTER_32 | MLX5_INLINE_SCATTER_64)), 1))
		return nullptr;
	const auto *fields = reinterpret_cast<const unsigned char *>(&c);
	return kind & MLX5_INLINE_SCATTER_32 ? fields : fields - 64;
}
// Of a completion with an error.
ibv_wc_status status_of(const mlx5_cqe64 &c);

} // namespace pt2p::verbs::mlx5
