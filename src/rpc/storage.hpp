// Bytes of a call that are kept.
#pragma once

#include <cstddef>
#include <new>

#include "base/memory/pool.hpp"

namespace pt2p::rpc {

// Bytes from a pool, or from `small` when they are few.
struct Storage {
	Storage() = default;
	~Storage() { ::operator delete(memory); } // of a call that has not ended: as the pool would
	Storage(const Storage &) = delete;
	Storage &operator=(const Storage &) = delete;

	unsigned char *take(BufferPool &pool, size_t length)
	{
		if (__builtin_expect(length <= sizeof small, 1))
			return small;
		memory = pool.take(length);
		bytes = length;
		return static_cast<unsigned char *>(memory);
	}
	bool holds(const void *at)
	{
		const auto *byte = static_cast<const unsigned char *>(at);
		return byte >= data() && byte < data() + (memory ? bytes : sizeof small);
	}
	unsigned char *data() { return memory ? static_cast<unsigned char *>(memory) : small; }
	void give(BufferPool &pool)
	{
		if (__builtin_expect(memory != nullptr, 0))
			give_memory(pool);
	}

private:
	[[gnu::noinline]] void give_memory(BufferPool &pool)
	{
		pool.give(memory, bytes);
		memory = nullptr;
	}

	void *memory = nullptr;
	size_t bytes = 0;
	alignas(16) unsigned char small[64];
};

} // namespace pt2p::rpc
