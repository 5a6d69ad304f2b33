/*
 * libpt2p for C++20: owner types and spans over pt2p.h. Header only.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Failures are thrown as pt2p::error, which carries the status and the explanation. A truncated receive throws as well;
 * receive into a large enough buffer, or ask probe first. Everything else is as in pt2p.h: ownership of buffers, thread
 * levels, order of messages.
 */
#ifndef PT2P_HPP
#define PT2P_HPP

#include <cstddef>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

#include <pt2p.h>

namespace pt2p {

/** A status other than PT2P_OK, with its explanation. */
class error : public std::runtime_error {
public:
	error(pt2p_status_t status, const char *explanation)
	    : std::runtime_error(*explanation ? explanation : pt2p_strerror(status)), status_(status)
	{
	}
	pt2p_status_t status() const noexcept { return status_; }

private:
	pt2p_status_t status_;
};

/** Throws pt2p::error unless status is PT2P_OK. */
inline void check(pt2p_status_t status, const pt2p_context_t *ctx = nullptr)
{
	if (status != PT2P_OK)
		throw error(status, pt2p_last_error(ctx));
}

namespace detail {
template <class T>
inline constexpr bool is_span = false;
template <class T, std::size_t N>
inline constexpr bool is_span<std::span<T, N>> = true;
} // namespace detail

/** A type whose bytes can be sent as they are: no pointer, and no span, which is one in disguise. */
template <class T>
concept sendable =
    std::is_trivially_copyable_v<T> && !std::is_pointer_v<T> && !detail::is_span<std::remove_cv_t<T>>;

/** An operation in flight. Moves only; wait() or test() end it. A request that is destroyed before is cancelled if it is a
 *  receive, and waited for: the buffer is the caller's again. */
class request {
public:
	request() = default;
	request(pt2p_context_t *ctx, pt2p_request_t *handle) noexcept : ctx_(ctx), handle_(handle) {}
	request(request &&other) noexcept : ctx_(other.ctx_), handle_(std::exchange(other.handle_, nullptr)) {}
	request &operator=(request &&other) noexcept
	{
		if (this != &other) {
			drop();
			ctx_ = other.ctx_;
			handle_ = std::exchange(other.handle_, nullptr);
		}
		return *this;
	}
	~request() { drop(); }

	/** Whether there is an operation to wait for. */
	explicit operator bool() const noexcept { return handle_ != nullptr; }

	/** Waits until the operation has finished. */
	pt2p_result_t wait()
	{
		pt2p_result_t result{};
		check(pt2p_wait(ctx_, std::exchange(handle_, nullptr), &result), ctx_);
		return result;
	}
	/** True when the operation has finished; *result is then filled when it is not null. */
	bool test(pt2p_result_t *result = nullptr)
	{
		int done = 0;
		const pt2p_status_t status = pt2p_test(ctx_, handle_, &done, result);
		if (done)
			handle_ = nullptr;
		check(status, ctx_);
		return done != 0;
	}
	/** Withdraws a receive that nothing has matched yet; wait() then throws PT2P_ERR_CANCELLED. */
	void cancel() { check(pt2p_cancel(ctx_, handle_), ctx_); }
	/** The C handle, still owned by this object. */
	pt2p_request_t *get() const noexcept { return handle_; }
	/** Gives the C handle away, for instance to pt2p_waitall. */
	pt2p_request_t *release() noexcept { return std::exchange(handle_, nullptr); }

private:
	void drop() noexcept
	{
		if (!handle_)
			return;
		pt2p_cancel(ctx_, handle_); /* refused for a send */
		pt2p_wait(ctx_, std::exchange(handle_, nullptr), nullptr);
	}

	pt2p_context_t *ctx_ = nullptr;
	pt2p_request_t *handle_ = nullptr;
};

/** One participant of a job; leaves it when destroyed. */
class context {
public:
	/** Joins the launcher's job; see pt2p_init. */
	explicit context(pt2p_thread_level_t level = PT2P_THREAD_SINGLE, const char *const *tunables = nullptr)
	{
		pt2p_options_t options = PT2P_OPTIONS_INIT;
		options.thread_level = level;
		options.tunables = tunables;
		check(pt2p_init(&options, &ctx_));
	}
	/** Takes a C context over. */
	explicit context(pt2p_context_t *ctx) noexcept : ctx_(ctx) {}
	context(context &&other) noexcept : ctx_(std::exchange(other.ctx_, nullptr)) {}
	context &operator=(context &&other) noexcept
	{
		std::swap(ctx_, other.ctx_);
		return *this;
	}
	~context()
	{
		if (ctx_)
			pt2p_finalize(ctx_);
	}

	/** Leaves the job and reports what was left unfinished, which the destructor cannot. */
	void finalize() { check(pt2p_finalize(std::exchange(ctx_, nullptr))); }

	int rank() const noexcept { return pt2p_rank(ctx_); }
	int size() const noexcept { return pt2p_size(ctx_); }
	pt2p_context_t *get() const noexcept { return ctx_; }

	/** Sends the span's elements; see pt2p_send. */
	template <sendable T>
	void send(std::span<const T> data, int dest, uint64_t tag)
	{
		check(pt2p_send(ctx_, data.data(), data.size_bytes(), dest, tag), ctx_);
	}
	template <sendable T>
		requires(!std::is_const_v<T>)
	void send(std::span<T> data, int dest, uint64_t tag)
	{
		send(std::span<const T>(data), dest, tag);
	}
	/** Sends one value. */
	template <sendable T>
	void send(const T &value, int dest, uint64_t tag)
	{
		send(std::span<const T>(&value, 1), dest, tag);
	}
	/** Receives into the span; see pt2p_recv. */
	template <sendable T>
	pt2p_result_t recv(std::span<T> data, int source = PT2P_ANY_SOURCE, uint64_t tag = 0, uint64_t mask = PT2P_TAG_EXACT)
	{
		pt2p_result_t result{};
		check(pt2p_recv(ctx_, data.data(), data.size_bytes(), source, tag, mask, &result), ctx_);
		return result;
	}
	/** Receives one value. */
	template <sendable T>
	pt2p_result_t recv(T &value, int source = PT2P_ANY_SOURCE, uint64_t tag = 0, uint64_t mask = PT2P_TAG_EXACT)
	{
		return recv(std::span<T>(&value, 1), source, tag, mask);
	}
	/** Starts a send; the span stays valid until the request has finished. */
	template <sendable T>
	[[nodiscard]] request isend(std::span<const T> data, int dest, uint64_t tag)
	{
		pt2p_request_t *handle = nullptr;
		check(pt2p_isend(ctx_, data.data(), data.size_bytes(), dest, tag, &handle), ctx_);
		return {ctx_, handle};
	}
	template <sendable T>
		requires(!std::is_const_v<T>)
	[[nodiscard]] request isend(std::span<T> data, int dest, uint64_t tag)
	{
		return isend(std::span<const T>(data), dest, tag);
	}
	/** Starts a receive; the span stays valid and untouched until the request has finished. */
	template <sendable T>
	[[nodiscard]] request irecv(std::span<T> data, int source = PT2P_ANY_SOURCE, uint64_t tag = 0,
	                            uint64_t mask = PT2P_TAG_EXACT)
	{
		pt2p_request_t *handle = nullptr;
		check(pt2p_irecv(ctx_, data.data(), data.size_bytes(), source, tag, mask, &handle), ctx_);
		return {ctx_, handle};
	}
	/** Waits for a message and describes it without receiving it; see pt2p_probe. */
	pt2p_result_t probe(int source = PT2P_ANY_SOURCE, uint64_t tag = 0, uint64_t mask = PT2P_TAG_EXACT)
	{
		pt2p_result_t result{};
		check(pt2p_probe(ctx_, source, tag, mask, &result), ctx_);
		return result;
	}
	/** Returns when every rank has entered. */
	void barrier() { check(pt2p_barrier(ctx_), ctx_); }
	/** Moves communication forward without waiting. */
	void progress() { check(pt2p_progress(ctx_), ctx_); }

private:
	pt2p_context_t *ctx_ = nullptr;
};

} // namespace pt2p

#endif
