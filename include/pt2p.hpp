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

#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

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
concept sendable = std::is_trivially_copyable_v<T> && !std::is_pointer_v<T> && !detail::is_span<std::remove_cv_t<T>>;

namespace detail {
template <sendable T>
std::span<const std::byte> bytes(const T &value)
{
	return std::as_bytes(std::span<const T, 1>(&value, 1));
}
template <sendable T, std::size_t N>
std::span<const std::byte> bytes(std::span<T, N> data)
{
	return std::as_bytes(data);
}
} // namespace detail

/** One value, or the elements of a span. */
template <class T>
concept payload = requires(const T &data)
{
	detail::bytes(data);
};

/** An operation in flight. Moves only; wait() or test() end it. A request that is destroyed before is cancelled if it
 * is a receive or a call, and waited for: the buffer is the caller's again. */
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
	/** True when the operation has finished, which wait() or test() still have to tell; see pt2p_request_query. */
	bool query(pt2p_result_t *result = nullptr)
	{
		int done = 0;
		check(pt2p_request_query(ctx_, handle_, &done, result), ctx_);
		return done != 0;
	}
	/** Gives the operation up: it goes on, and nobody is told of its end; see pt2p_request_free. */
	void detach() { check(pt2p_request_free(ctx_, std::exchange(handle_, nullptr)), ctx_); }
	/** The same, and calls `done` with the result at the end; see pt2p_request_callback for what it may do. The
	 * callable is moved to the heap. An exception that leaves it ends the program. */
	template <std::invocable<const pt2p_result_t &> F>
	void then(F done)
	{
		auto kept = std::make_unique<F>(std::move(done));
		check(pt2p_request_callback(
		          ctx_, handle_,
		          [](pt2p_context_t *, const pt2p_result_t *result, void *argument) noexcept {
			          const std::unique_ptr<F> callable(static_cast<F *>(argument));
			          (*callable)(*result);
		          },
		          kept.get()),
		      ctx_);
		kept.release();
		handle_ = nullptr;
	}
	/** Withdraws a receive that nothing has matched yet, or a call; see pt2p_cancel. wait() then throws
	 * PT2P_ERR_CANCELLED. */
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
		pt2p_cancel(ctx_, handle_); /* refused for all but receives and calls */
		pt2p_wait(ctx_, std::exchange(handle_, nullptr), nullptr);
	}

	pt2p_context_t *ctx_ = nullptr;
	pt2p_request_t *handle_ = nullptr;
};

/** A message that a matched probe has taken: nobody else receives it. Moves only; recv() or irecv() ends it. One that
 * is destroyed before is received into nothing. The context must outlive it. */
class message {
public:
	message() = default;
	message(pt2p_context_t *ctx, pt2p_message_t *handle, const pt2p_result_t &result) noexcept
	    : ctx_(ctx), handle_(handle), result_(result)
	{
	}
	message(message &&other) noexcept
	    : ctx_(other.ctx_), handle_(std::exchange(other.handle_, nullptr)), result_(other.result_)
	{
	}
	message &operator=(message &&other) noexcept
	{
		if (this != &other) {
			drop();
			ctx_ = other.ctx_;
			handle_ = std::exchange(other.handle_, nullptr);
			result_ = other.result_;
		}
		return *this;
	}
	~message() { drop(); }

	/** Whether there is a message to receive. */
	explicit operator bool() const noexcept { return handle_ != nullptr; }
	int source() const noexcept { return result_.source; }
	uint64_t tag() const noexcept { return result_.tag; }
	/** Bytes. */
	std::size_t length() const noexcept { return result_.length; }

	/** Receives it into the span; see pt2p_mrecv. */
	template <sendable T, std::size_t N>
	requires(!std::is_const_v<T>) pt2p_result_t recv(std::span<T, N> data)
	{
		pt2p_result_t result{};
		check(pt2p_mrecv(ctx_, data.data(), data.size_bytes(), std::exchange(handle_, nullptr), &result), ctx_);
		return result;
	}
	/** Starts to; the span stays valid and untouched until the request has finished. */
	template <sendable T, std::size_t N>
	requires(!std::is_const_v<T>) [[nodiscard]] request irecv(std::span<T, N> data)
	{
		pt2p_request_t *handle = nullptr;
		check(pt2p_imrecv(ctx_, data.data(), data.size_bytes(), std::exchange(handle_, nullptr), &handle), ctx_);
		return {ctx_, handle};
	}

private:
	void drop() noexcept
	{
		if (handle_)
			pt2p_mrecv(ctx_, nullptr, 0, std::exchange(handle_, nullptr), nullptr);
	}

	pt2p_context_t *ctx_ = nullptr;
	pt2p_message_t *handle_ = nullptr;
	pt2p_result_t result_{};
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
	requires(!std::is_const_v<T>) void send(std::span<T> data, int dest, uint64_t tag)
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
	pt2p_result_t recv(std::span<T> data, int source = PT2P_ANY_SOURCE, uint64_t tag = 0,
	                   uint64_t mask = PT2P_TAG_EXACT)
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
	requires(!std::is_const_v<T>) [[nodiscard]] request isend(std::span<T> data, int dest, uint64_t tag)
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
	/** Starts a send of data in several places, or a receive into them; the data stays valid until the request has
	 * finished, the list is copied; see pt2p_isendv. */
	[[nodiscard]] request isendv(std::span<const pt2p_iovec_t> segments, int dest, uint64_t tag)
	{
		pt2p_request_t *handle = nullptr;
		check(pt2p_isendv(ctx_, segments.data(), segments.size(), dest, tag, &handle), ctx_);
		return {ctx_, handle};
	}
	/** As isendv with options, which name no callback; see pt2p_isend_with. */
	[[nodiscard]] request isend_with(std::span<const pt2p_iovec_t> segments, int dest, uint64_t tag,
	                                 const pt2p_send_options_t &options)
	{
		pt2p_request_t *handle = nullptr;
		check(pt2p_isend_with(ctx_, segments.data(), segments.size(), dest, tag, &options, &handle), ctx_);
		return {ctx_, handle};
	}
	[[nodiscard]] request irecvv(std::span<const pt2p_iovec_t> segments, int source = PT2P_ANY_SOURCE, uint64_t tag = 0,
	                             uint64_t mask = PT2P_TAG_EXACT)
	{
		pt2p_request_t *handle = nullptr;
		check(pt2p_irecvv(ctx_, segments.data(), segments.size(), source, tag, mask, &handle), ctx_);
		return {ctx_, handle};
	}
	/** Waits for a message and describes it without receiving it; see pt2p_probe. */
	pt2p_result_t probe(int source = PT2P_ANY_SOURCE, uint64_t tag = 0, uint64_t mask = PT2P_TAG_EXACT)
	{
		pt2p_result_t result{};
		check(pt2p_probe(ctx_, source, tag, mask, &result), ctx_);
		return result;
	}
	/** Sends the span's elements, and returns when a receive has matched them; see pt2p_ssend. */
	template <sendable T, std::size_t N>
	void ssend(std::span<T, N> data, int dest, uint64_t tag)
	{
		check(pt2p_ssend(ctx_, data.data(), data.size_bytes(), dest, tag), ctx_);
	}
	/** Starts such a send; the span stays valid until the request has finished. */
	template <sendable T, std::size_t N>
	[[nodiscard]] request issend(std::span<T, N> data, int dest, uint64_t tag)
	{
		pt2p_request_t *handle = nullptr;
		check(pt2p_issend(ctx_, data.data(), data.size_bytes(), dest, tag, &handle), ctx_);
		return {ctx_, handle};
	}
	/** Waits for a message and takes it, so that nobody else receives it; see pt2p_mprobe. */
	[[nodiscard]] message mprobe(int source = PT2P_ANY_SOURCE, uint64_t tag = 0, uint64_t mask = PT2P_TAG_EXACT)
	{
		pt2p_message_t *handle = nullptr;
		pt2p_result_t result{};
		check(pt2p_mprobe(ctx_, source, tag, mask, &handle, &result), ctx_);
		return {ctx_, handle, result};
	}
	/** The same without waiting: false, as a condition, when there is no such message. */
	[[nodiscard]] message improbe(int source = PT2P_ANY_SOURCE, uint64_t tag = 0, uint64_t mask = PT2P_TAG_EXACT)
	{
		pt2p_message_t *handle = nullptr;
		pt2p_result_t result{};
		check(pt2p_improbe(ctx_, source, tag, mask, &handle, &result), ctx_);
		return {ctx_, handle, result};
	}
	/** Calls service `id` of a rank with one value or the elements of a span, and waits. Returns the reply as a value
	 * of type R. Without R: the result, whose tag is the reply's word; a reply with bytes is then cut, and throws. See
	 * pt2p_call. */
	template <class R = void, payload T>
	requires(std::is_void_v<R> || sendable<R>) auto call(int rank, uint32_t id, const T &input,
	                                                     const pt2p_call_options_t *options = nullptr)
	{
		return call_with<R>(rank, id, detail::bytes(input), options);
	}
	/** The same without input. */
	template <class R = void>
	requires(std::is_void_v<R> || sendable<R>) auto call(int rank, uint32_t id)
	{
		return call_with<R>(rank, id, {}, nullptr);
	}
	/** Starts a call; both spans stay valid and untouched until the request has finished; see pt2p_icall. */
	template <sendable T, std::size_t N, sendable R, std::size_t M>
	requires(!std::is_const_v<R>) [[nodiscard]] request
	    icall(int rank, uint32_t id, std::span<T, N> input, std::span<R, M> reply,
	          const pt2p_call_options_t *options = nullptr)
	{
		pt2p_request_t *handle = nullptr;
		check(pt2p_icall(ctx_, rank, id, input.data(), input.size_bytes(), reply.data(), reply.size_bytes(), options,
		                 &handle),
		      ctx_);
		return {ctx_, handle};
	}
	/** A call without a reply, of one value or the elements of a span; see pt2p_notify. */
	template <payload T>
	void notify(int rank, uint32_t id, const T &input, const pt2p_call_options_t *options = nullptr)
	{
		const std::span<const std::byte> data = detail::bytes(input);
		check(pt2p_notify(ctx_, rank, id, data.data(), data.size(), options), ctx_);
	}
	/** Waits until all one-sided operations on memory of `rank`, or of all ranks, are done; see pt2p_flush. */
	void flush(int rank) { check(pt2p_flush(ctx_, rank), ctx_); }
	void flush() { check(pt2p_flush_all(ctx_), ctx_); }
	/** Orders later one-sided operations on memory of `rank` after earlier ones; see pt2p_fence. */
	void fence(int rank) { check(pt2p_fence(ctx_, rank), ctx_); }
	/** Waits until a word of this rank's memory is at least `value`; see pt2p_signal_wait. */
	void signal_wait(const uint64_t &word, uint64_t value, int source = PT2P_ANY_SOURCE)
	{
		check(pt2p_signal_wait(ctx_, &word, value, source), ctx_);
	}
	/** Waits for all requests of the list, and throws the first failure by index when all have finished; see
	 * pt2p_waitall. */
	void wait_all(std::span<request> requests)
	{
		handles of(requests);
		of.settle(pt2p_waitall(ctx_, of.list.size(), of.list.data(), nullptr), ctx_);
	}
	/** A request of a list that has finished: its index, and its result, whose status may be a failure. */
	struct finished {
		std::size_t index;
		pt2p_result_t result;
	};
	/** Waits until at least one request of the list has finished, and tells all that have, in order; they are empty
	 * then. Nothing when all were empty before. Failures of operations are told, not thrown. See pt2p_waitsome. */
	[[nodiscard]] std::vector<finished> wait_some(std::span<request> requests) { return some(requests, pt2p_waitsome); }
	/** The same without waiting. */
	[[nodiscard]] std::vector<finished> test_some(std::span<request> requests) { return some(requests, pt2p_testsome); }
	/** Returns when every rank has entered. */
	void barrier() { check(pt2p_barrier(ctx_), ctx_); }
	/** Moves communication forward without waiting. */
	void progress() { check(pt2p_progress(ctx_), ctx_); }
	/** What limits each channel through a network device, for people; see pt2p_report. */
	std::string report()
	{
		std::string text(4096, 0);
		for (;;) {
			std::size_t needed = 0;
			check(pt2p_report(ctx_, text.data(), text.size(), &needed), ctx_);
			const bool whole = needed <= text.size();
			text.resize(whole ? needed - 1 : 2 * needed);
			if (whole)
				return text;
		}
	}

private:
	template <class R>
	auto call_with(int rank, uint32_t id, std::span<const std::byte> input, const pt2p_call_options_t *options)
	{
		pt2p_result_t result{};
		const auto call = [&](void *reply, std::size_t capacity) {
			check(pt2p_call(ctx_, rank, id, input.data(), input.size(), reply, capacity, options, &result), ctx_);
		};
		if constexpr (std::is_void_v<R>) {
			call(nullptr, 0);
			return result;
		} else {
			std::array<std::byte, sizeof(R)> reply;
			call(reply.data(), reply.size());
			if (result.length != reply.size())
				throw error(PT2P_ERR_LENGTH, "the reply to a call is shorter than the value that is expected");
			return std::bit_cast<std::remove_cv_t<R>>(reply);
		}
	}

	/* The handles of a list of requests, which get back those that are left. */
	struct handles {
		explicit handles(std::span<request> requests) : requests(requests), list(requests.size())
		{
			for (std::size_t i = 0; i < list.size(); ++i)
				list[i] = requests[i].release();
		}
		void settle(pt2p_status_t status, pt2p_context_t *ctx)
		{
			for (std::size_t i = 0; i < list.size(); ++i)
				requests[i] = request(ctx, std::exchange(list[i], nullptr));
			check(status, ctx);
		}
		std::span<request> requests;
		std::vector<pt2p_request_t *> list;
	};
	template <class F>
	std::vector<finished> some(std::span<request> requests, F &&call)
	{
		std::size_t n = 0;
		std::vector<std::size_t> indices(requests.size());
		std::vector<pt2p_result_t> results(requests.size());
		std::vector<finished> all;
		all.reserve(requests.size());
		handles of(requests);
		const pt2p_status_t status = call(ctx_, of.list.size(), of.list.data(), &n, indices.data(), results.data());
		of.settle(n ? PT2P_OK : status, ctx_);
		for (std::size_t i = 0; i < n; ++i)
			all.push_back({indices[i], results[i]});
		return all;
	}

	pt2p_context_t *ctx_ = nullptr;
};

} // namespace pt2p

#include <pt2p_calls.hpp>
#include <pt2p_onesided.hpp>

#endif
