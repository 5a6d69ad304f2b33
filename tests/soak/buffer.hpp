// SPDX-License-Identifier: BSD-3-Clause
// Memory for messages, at any alignment, with guards around it that nobody may touch.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <new>
#include <sys/mman.h>

#include "rank.hpp"

namespace soak {

class Buffer {
public:
	// Sometimes it has its own mapping, which is removed with it. Then the context has to be told.
	Buffer(pt2p_context_t *ctx, size_t length, Random &random) : ctx_(ctx), length_(length)
	{
		const size_t shift = random.one_in(3) ? 0 : random.below(64);
		size_ = guard + shift + length + guard;
		mapped_ = length > 3000 && random.one_in(3);
		void *p =
		    mapped_ ? mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) : malloc(size_);
		if (!p || p == MAP_FAILED)
			throw std::bad_alloc();
		base_ = static_cast<unsigned char *>(p);
		data_ = base_ + guard + shift;
		memset(data_ - guard, canary, guard);
		memset(data_ + length, canary, guard);
	}
	Buffer(const Buffer &) = delete;
	~Buffer()
	{
#ifdef __SANITIZE_ADDRESS__
		constexpr bool unmaps = true;
#else
		constexpr bool unmaps = false;
#endif
		if (mapped_ || unmaps)
			pt2p_memory_gone(ctx_, base_, size_);
		if (mapped_)
			munmap(base_, size_);
		else
			free(base_);
	}
	unsigned char *data() const { return data_; }
	size_t length() const { return length_; }
	void scribble() { memset(data_, 0xee, length_); }
	void check_guards(const std::string &what) const
	{
		for (size_t i = 0; i < guard; ++i)
			if ((data_ - guard)[i] != canary || data_[length_ + i] != canary)
				fail("bytes beside the buffer of " + what + " have changed");
	}

private:
	static constexpr size_t guard = 32;
	static constexpr unsigned char canary = 0xc5;
	pt2p_context_t *ctx_;
	unsigned char *base_, *data_;
	size_t length_, size_;
	bool mapped_;
};

} // namespace soak
