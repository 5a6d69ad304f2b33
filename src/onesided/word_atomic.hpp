// Atomic operations on one word: by a processor, or by a device that knows 64-bit fetch-and-add and compare-and-swap
// only.
#pragma once

#include <cstdint>
#include <cstring>

#include "transports/transport.hpp"

namespace pt2p::onesided {

enum class AtomicKind : uint32_t { add, swap, compare_swap };
constexpr uint32_t atomic_kinds = 3;

struct AtomicRequest {
	AtomicKind kind = AtomicKind::add;
	uint32_t width = 8; // bytes, 4 or 8
	uint64_t operand = 0, compare = 0;

	// Puts a value of the word where the caller wants it; null: nowhere.
	void store(uint64_t value, void *result) const
	{
		if (!result)
			return;
		const auto half = static_cast<uint32_t>(value);
		if (width == 4)
			std::memcpy(result, &half, 4);
		else
			std::memcpy(result, &value, 8);
	}
};

// What the operation makes of a value.
inline uint64_t after(const AtomicRequest &a, uint64_t value)
{
	switch (a.kind) {
	case AtomicKind::add: return value + a.operand;
	case AtomicKind::swap: return a.operand;
	default: return value == a.compare ? a.operand : value;
	}
}

template <class Word>
uint64_t apply_as(const AtomicRequest &a, void *at)
{
	auto *word = static_cast<Word *>(at);
	const auto operand = static_cast<Word>(a.operand);
	auto compare = static_cast<Word>(a.compare);
	switch (a.kind) {
	case AtomicKind::add: return __atomic_fetch_add(word, operand, __ATOMIC_SEQ_CST);
	case AtomicKind::swap: return __atomic_exchange_n(word, operand, __ATOMIC_SEQ_CST);
	default:
		__atomic_compare_exchange_n(word, &compare, operand, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
		return compare;
	}
}

// By this processor; returns what was there before. `at` is aligned.
inline uint64_t apply(const AtomicRequest &a, void *at)
{
	return a.width == 4 ? apply_as<uint32_t>(a, at) : apply_as<uint64_t>(a, at);
}

// By a device. What it has no operation for is repeated compare-and-swaps of the aligned 64-bit word around it,
// starting from a guess: one that is wrong costs a round trip and tells what is there.
class DeviceAtomic {
public:
	DeviceAtomic() = default;
	DeviceAtomic(const AtomicRequest &a, uint64_t address) : request_(a), word_(address & ~UINT64_C(7))
	{
		if (a.width == 4) {
			shift_ = (address & 4) ? 32 : 0;
			mask_ = UINT64_C(0xffffffff) << shift_;
		}
	}

	uint64_t word() const { return word_; } // its address
	AtomicOperation operation() const
	{
		return plain_add() ? AtomicOperation::fetch_add : AtomicOperation::compare_swap;
	}
	// For Transport::atomic.
	uint64_t operand() const { return plain_add() ? request_.operand : next(); }
	uint64_t compare() const { return plain_compare() ? request_.compare : expected_; }
	// After the device has told what was there. True: the operation is done, and `result` is its value; else once more.
	bool finished(uint64_t was, uint64_t &result)
	{
		result = part(was);
		if (plain_add() || plain_compare() || was == expected_)
			return true;
		expected_ = was;
		return request_.kind == AtomicKind::compare_swap && result != request_.compare; // nothing to write
	}

private:
	bool plain_add() const { return request_.width == 8 && request_.kind == AtomicKind::add; }
	bool plain_compare() const { return request_.width == 8 && request_.kind == AtomicKind::compare_swap; }
	uint64_t part(uint64_t word) const { return (word & mask_) >> shift_; }
	uint64_t next() const
	{
		if (plain_compare())
			return request_.operand;
		return (expected_ & ~mask_) | ((after(request_, part(expected_)) << shift_) & mask_);
	}

	AtomicRequest request_;
	uint64_t word_ = 0, expected_ = 0, mask_ = ~UINT64_C(0);
	unsigned shift_ = 0;
};

} // namespace pt2p::onesided
