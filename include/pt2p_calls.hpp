/*
 * libpt2p for C++20: services, and the calls that they serve. Part of pt2p.hpp, whose context makes calls.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef PT2P_CALLS_HPP
#define PT2P_CALLS_HPP

#include <algorithm>

#include <pt2p.hpp>

namespace pt2p {

/** A call that this rank serves, owned by whoever replies to it: the handler, or who it hands the call to. Moves only;
 * reply() ends it. One that is dropped before is abandoned: its caller gets PT2P_ERR_ABANDONED. Of a notice, which has
 * no reply, nobody learns that. The context must outlive it. */
class served_call {
public:
	served_call() = default;
	served_call(pt2p_context_t *ctx, pt2p_call_t *handle, const void *input, std::size_t length) noexcept
	    : ctx_(ctx), handle_(handle), input_(input), length_(length)
	{
	}
	served_call(served_call &&other) noexcept
	    : ctx_(other.ctx_), handle_(std::exchange(other.handle_, nullptr)), input_(other.input_), length_(other.length_)
	{
	}
	served_call &operator=(served_call &&other) noexcept
	{
		if (this != &other) {
			drop();
			ctx_ = other.ctx_;
			handle_ = std::exchange(other.handle_, nullptr);
			input_ = other.input_;
			length_ = other.length_;
		}
		return *this;
	}
	~served_call() { drop(); }

	/** Whether there is a call to reply to. */
	explicit operator bool() const noexcept { return handle_ != nullptr; }

	/** Of the input, bytes. */
	std::size_t length() const noexcept { return length_; }
	/** The input as elements of a type, as many as are whole. Valid until the handler returns; after keep(), until the
	 * reply. Empty when the input is longer than input_max of the service. */
	template <sendable T = std::byte>
	std::span<const T> input() const noexcept
	{
		static_assert(alignof(T) <= 16);
		return {static_cast<const T *>(input_), input_ ? length_ / sizeof(T) : 0};
	}
	/** The input as one value. Throws PT2P_ERR_LENGTH when it has another length. */
	template <sendable T>
	T as() const
	{
		if (!input_ || length_ != sizeof(T))
			throw error(PT2P_ERR_LENGTH, "the input of a call has not the length of the value that is expected");
		std::array<std::byte, sizeof(T)> value;
		std::copy_n(static_cast<const std::byte *>(input_), value.size(), value.begin());
		return std::bit_cast<std::remove_cv_t<T>>(value);
	}
	/** Keeps the input until the reply; see pt2p_call_keep. */
	void keep() { check(pt2p_call_keep(ctx_, handle_, nullptr), ctx_); }
	/** Who calls, and until when; see pt2p_call_query. */
	pt2p_call_info_t query() const
	{
		pt2p_call_info_t info{};
		check(pt2p_call_query(ctx_, handle_, &info), ctx_);
		return info;
	}

	/** Reads from the caller's window `give`, or from an input that is longer than input_max; see pt2p_call_pull. ipull
	 * and ipush give a request. Those without one end before the reply leaves. */
	template <sendable T, std::size_t N>
	requires(!std::is_const_v<T>) void pull(std::span<T, N> to, std::size_t offset)
	{
		check(pt2p_call_pull(ctx_, handle_, to.data(), offset, to.size_bytes(), nullptr), ctx_);
	}
	template <sendable T, std::size_t N>
	requires(!std::is_const_v<T>) [[nodiscard]] request ipull(std::span<T, N> to, std::size_t offset)
	{
		pt2p_request_t *request = nullptr;
		check(pt2p_call_pull(ctx_, handle_, to.data(), offset, to.size_bytes(), &request), ctx_);
		return {ctx_, request};
	}
	/** Writes to the caller's window `take`; see pt2p_call_push. */
	template <sendable T, std::size_t N>
	void push(std::span<T, N> from, std::size_t offset)
	{
		check(pt2p_call_push(ctx_, handle_, from.data(), offset, from.size_bytes(), nullptr), ctx_);
	}
	template <sendable T, std::size_t N>
	[[nodiscard]] request ipush(std::span<T, N> from, std::size_t offset)
	{
		pt2p_request_t *request = nullptr;
		check(pt2p_call_push(ctx_, handle_, from.data(), offset, from.size_bytes(), &request), ctx_);
		return {ctx_, request};
	}

	/** Memory of the library for so many elements of a reply; see pt2p_reply_room. */
	template <sendable T>
	std::span<T> reply_room(std::size_t count)
	{
		void *room = nullptr;
		check(pt2p_reply_room(ctx_, handle_, count * sizeof(T), &room), ctx_);
		return {static_cast<T *>(room), count};
	}
	/** Replies with a word, and with one value or the elements of a span; see pt2p_reply. */
	void reply_word(uint64_t word) { reply_bytes({}, word); }
	template <payload T>
	void reply(const T &data, uint64_t word = 0)
	{
		reply_bytes(detail::bytes(data), word);
	}
	/** Gives it up: the caller gets PT2P_ERR_ABANDONED. */
	void abandon()
	{
		check(pt2p_call_abandon(ctx_, handle_), ctx_);
		handle_ = nullptr;
	}

	/** The C handle, still owned by this object. */
	pt2p_call_t *get() const noexcept { return handle_; }
	/** Gives the C handle away, for pt2p_reply. */
	pt2p_call_t *release() noexcept { return std::exchange(handle_, nullptr); }

private:
	void reply_bytes(std::span<const std::byte> data, uint64_t word)
	{
		check(pt2p_reply(ctx_, handle_, word, data.data(), data.size()), ctx_);
		handle_ = nullptr; /* after a failure it still needs a reply */
	}
	void drop() noexcept
	{
		pt2p_call_info_t info{};
		if (handle_ && pt2p_call_query(ctx_, handle_, &info) == PT2P_OK && !info.notice)
			pt2p_call_abandon(ctx_, handle_);
		handle_ = nullptr;
	}

	pt2p_context_t *ctx_ = nullptr;
	pt2p_call_t *handle_ = nullptr;
	const void *input_ = nullptr;
	std::size_t length_ = 0;
};

/** A service that this rank has opened; closed when destroyed, which must not happen in a handler. Moves only. The
 * context must outlive it. */
class service {
public:
	service() = default;
	/** Opens it: `handler` is called with each call as a pt2p::served_call; see pt2p_service_open. The callable is
	 * moved to the heap. An exception that leaves it ends the program. */
	template <class F>
	requires std::invocable<F &, served_call> service(context &ctx, uint32_t id, F handler,
	                                                  pt2p_service_options_t options = PT2P_SERVICE_OPTIONS_INIT)
	    : ctx_(ctx.get()), handler_(std::make_shared<F>(std::move(handler)))
	{
		check(pt2p_service_open(
		          ctx_, id,
		          [](pt2p_context_t *c, pt2p_call_t *call, const void *input, std::size_t length,
		             void *argument) noexcept { (*static_cast<F *>(argument))(served_call(c, call, input, length)); },
		          handler_.get(), &options, &handle_),
		      ctx_);
	}
	service(service &&other) noexcept { swap(other); }
	service &operator=(service &&other) noexcept
	{
		service(std::move(other)).swap(*this);
		return *this;
	}
	~service()
	{
		if (handle_)
			pt2p_service_close(ctx_, handle_);
	}

	/** Whether it is open. */
	explicit operator bool() const noexcept { return handle_ != nullptr; }
	/** Handles calls that wait in a lane, and returns how many; see pt2p_serve. */
	std::size_t serve(uint32_t lane, std::size_t most = 1, int64_t timeout = -1)
	{
		std::size_t served = 0;
		check(pt2p_serve(ctx_, handle_, lane, most, timeout, &served), ctx_);
		return served;
	}
	/** Closes it, and throws what the destructor cannot tell; see pt2p_service_close. */
	void close()
	{
		check(pt2p_service_close(ctx_, handle_), ctx_);
		handle_ = nullptr;
	}
	/** The C handle, still owned by this object. */
	pt2p_service_t *get() const noexcept { return handle_; }

private:
	void swap(service &other) noexcept
	{
		std::swap(ctx_, other.ctx_);
		std::swap(handle_, other.handle_);
		handler_.swap(other.handler_);
	}

	pt2p_context_t *ctx_ = nullptr;
	pt2p_service_t *handle_ = nullptr;
	std::shared_ptr<void> handler_;
};

} // namespace pt2p

#endif
