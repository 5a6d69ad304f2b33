/*
 * libpt2p for C++20: one-sided operations on memory of other ranks. Part of pt2p.hpp.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef PT2P_ONESIDED_HPP
#define PT2P_ONESIDED_HPP

#include <pt2p.hpp>

namespace pt2p {

/** Memory of this rank that other ranks may operate on; released when destroyed. The context must outlive it. */
class memory {
public:
	memory() = default;
	/** Makes `bytes` bytes; see pt2p_memory_allocate. */
	memory(context &ctx, std::size_t bytes) : ctx_(ctx.get()), bytes_(bytes)
	{
		check(pt2p_memory_allocate(ctx_, bytes, &handle_, &address_), ctx_);
	}
	/** Registers the span's elements, which stay the caller's; see pt2p_memory_register. */
	template <sendable T, std::size_t N>
	requires(!std::is_const_v<T>) memory(context &ctx, std::span<T, N> data)
	    : ctx_(ctx.get()), address_(data.data()), bytes_(data.size_bytes())
	{
		check(pt2p_memory_register(ctx_, address_, bytes_, &handle_), ctx_);
	}
	memory(memory &&other) noexcept { swap(other); }
	memory &operator=(memory &&other) noexcept
	{
		swap(other);
		return *this;
	}
	~memory()
	{
		if (handle_)
			pt2p_memory_release(ctx_, handle_);
	}

	/** Its bytes as elements of a type; as many as are whole. */
	template <sendable T>
	std::span<T> as() const noexcept
	{
		return {static_cast<T *>(address_), bytes_ / sizeof(T)};
	}
	/** What another rank needs for pt2p::remote; see pt2p_memory_export. */
	std::vector<std::byte> exported() const
	{
		std::vector<std::byte> blob(PT2P_EXPORT_MAX);
		std::size_t needed = 0;
		check(pt2p_memory_export(ctx_, handle_, blob.data(), blob.size(), &needed), ctx_);
		blob.resize(needed);
		return blob;
	}
	/** The C handle, still owned by this object. */
	pt2p_memory_t *get() const noexcept { return handle_; }

private:
	void swap(memory &other) noexcept
	{
		std::swap(ctx_, other.ctx_);
		std::swap(handle_, other.handle_);
		std::swap(address_, other.address_);
		std::swap(bytes_, other.bytes_);
	}

	pt2p_context_t *ctx_ = nullptr;
	pt2p_memory_t *handle_ = nullptr;
	void *address_ = nullptr;
	std::size_t bytes_ = 0;
};

/** Memory of some rank, as this rank reaches it; given up when destroyed. Offsets are bytes. Each operation comes in
 * two forms: one that gives a request, and one whose end context::flush tells. The context must outlive it. */
class remote {
public:
	remote() = default;
	/** Imports what pt2p::memory::exported gave on `rank`; see pt2p_memory_import. */
	remote(context &ctx, int rank, std::span<const std::byte> exported) : ctx_(ctx.get())
	{
		check(pt2p_memory_import(ctx_, rank, exported.data(), exported.size(), &handle_), ctx_);
	}
	remote(remote &&other) noexcept : ctx_(other.ctx_), handle_(std::exchange(other.handle_, nullptr)) {}
	remote &operator=(remote &&other) noexcept
	{
		std::swap(ctx_, other.ctx_);
		std::swap(handle_, other.handle_);
		return *this;
	}
	~remote()
	{
		if (handle_)
			pt2p_remote_release(ctx_, handle_);
	}

	/** Writes the span's elements, which stay valid until it is done. */
	template <sendable T, std::size_t N>
	[[nodiscard]] request iput(std::span<T, N> data, std::size_t offset)
	{
		return start(
		    [&](pt2p_request_t **r) { return pt2p_put(ctx_, data.data(), data.size_bytes(), handle_, offset, r); });
	}
	template <sendable T, std::size_t N>
	void put(std::span<T, N> data, std::size_t offset)
	{
		check(pt2p_put(ctx_, data.data(), data.size_bytes(), handle_, offset, nullptr), ctx_);
	}
	/** Reads into the span. */
	template <sendable T, std::size_t N>
	requires(!std::is_const_v<T>) [[nodiscard]] request iget(std::span<T, N> data, std::size_t offset)
	{
		return start(
		    [&](pt2p_request_t **r) { return pt2p_get(ctx_, data.data(), data.size_bytes(), handle_, offset, r); });
	}
	template <sendable T, std::size_t N>
	requires(!std::is_const_v<T>) void get(std::span<T, N> data, std::size_t offset)
	{
		check(pt2p_get(ctx_, data.data(), data.size_bytes(), handle_, offset, nullptr), ctx_);
	}
	/** Writes, and then changes the signal word at `signal_offset` of the same memory; see pt2p_put_signal. */
	template <sendable T, std::size_t N>
	void put_signal(std::span<T, N> data, std::size_t offset, std::size_t signal_offset, pt2p_signal_t how,
	                uint64_t value)
	{
		check(pt2p_put_signal(ctx_, data.data(), data.size_bytes(), handle_, offset, handle_, signal_offset, how, value,
		                      nullptr),
		      ctx_);
	}
	/** Atomic operations that wait, for words of 32 or 64 bits; they return what was there before. */
	template <class Word>
	Word fetch_add(std::size_t offset, std::type_identity_t<Word> operand)
	{
		return atomic<Word>([&](Word *result, pt2p_request_t **r) {
			if constexpr (sizeof(Word) == 4)
				return pt2p_fetch_add32(ctx_, handle_, offset, operand, result, r);
			else
				return pt2p_fetch_add64(ctx_, handle_, offset, operand, result, r);
		});
	}
	template <class Word>
	Word swap(std::size_t offset, std::type_identity_t<Word> desired)
	{
		return atomic<Word>([&](Word *result, pt2p_request_t **r) {
			if constexpr (sizeof(Word) == 4)
				return pt2p_swap32(ctx_, handle_, offset, desired, result, r);
			else
				return pt2p_swap64(ctx_, handle_, offset, desired, result, r);
		});
	}
	template <class Word>
	Word compare_swap(std::size_t offset, std::type_identity_t<Word> expected, std::type_identity_t<Word> desired)
	{
		return atomic<Word>([&](Word *result, pt2p_request_t **r) {
			if constexpr (sizeof(Word) == 4)
				return pt2p_compare_swap32(ctx_, handle_, offset, expected, desired, result, r);
			else
				return pt2p_compare_swap64(ctx_, handle_, offset, expected, desired, result, r);
		});
	}
	/** Where the memory lies in this process, as elements of a type; null where it is not mapped. See
	 * pt2p_remote_address. */
	template <sendable T>
	T *address() const
	{
		void *there = nullptr;
		check(pt2p_remote_address(ctx_, handle_, &there), ctx_);
		return static_cast<T *>(there);
	}
	/** The C handle, still owned by this object. */
	pt2p_remote_t *get() const noexcept { return handle_; }

private:
	template <class F>
	request start(F &&call)
	{
		pt2p_request_t *handle = nullptr;
		check(call(&handle), ctx_);
		return {ctx_, handle};
	}
	template <class Word, class F>
	Word atomic(F &&call)
	{
		static_assert(std::is_same_v<Word, uint32_t> || std::is_same_v<Word, uint64_t>);
		Word result = 0;
		start([&](pt2p_request_t **r) { return call(&result, r); }).wait();
		return result;
	}

	pt2p_context_t *ctx_ = nullptr;
	pt2p_remote_t *handle_ = nullptr;
};

} // namespace pt2p

#endif
