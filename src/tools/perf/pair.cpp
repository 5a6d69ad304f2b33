// SPDX-License-Identifier: BSD-3-Clause
// The patterns that pt2p_perf measures, from the side that keeps the time and from the side that answers.
#include <algorithm>
#include <cstring>

#include "tools/perf/perf.hpp"

namespace pt2p::perf {

namespace {

constexpr uint64_t kTagCommand = 1, kTagReady = 2, kTagAck = 3, kTagHandoff = 4, kTagPayload = 5;
constexpr uint32_t kKindBurst = 0, kKindHandoff = 1, kKindHandoffTight = 2, kKindHandoffPause = 3, kKindDismiss = 4;
constexpr size_t kCheckedBytes = size_t{256} << 20; // the most that the buffers of a checked window take

struct HandoffPlace {
	int pid = 0;
	int fd = -1;
};

uint64_t scramble(uint64_t x)
{
	x += 0x9e3779b97f4a7c15u;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
	return x ^ (x >> 31);
}

uint64_t seed(uint64_t burst, uint64_t iteration, uint64_t slot, int sender)
{
	return scramble(scramble(scramble(burst) + iteration) + slot) + static_cast<uint64_t>(sender) * 0x2545f4914f6cdd1du;
}

// The pattern's 8 bytes at word `index`.
inline uint64_t word(uint64_t seed, uint64_t index) { return (seed + index) * 0x9e3779b97f4a7c15u; }

} // namespace

void must(pt2p_context_t *ctx, const char *what, pt2p_status_t status)
{
	if (status != PT2P_OK)
		throw Failure{std::string(what) + ": " + pt2p_strerror(status) + ": " + pt2p_last_error(ctx)};
}

uint64_t counter(pt2p_context_t *ctx, const char *name)
{
	uint64_t value = 0;
	for (int i = 0; i < pt2p_counter_count(); ++i)
		if (!std::strcmp(pt2p_counter_name(i), name))
			must(ctx, "pt2p_counter_read", pt2p_counter_read(ctx, i, &value));
	return value;
}

Pair::Pair(pt2p_context_t *ctx, const Options &options)
    : ctx_(ctx), rank_(pt2p_rank(ctx)), size_(pt2p_size(ctx)), pairs_(size_ == 1           ? 1
                                                                      : options.one_server ? size_ - 1
                                                                                           : size_ / 2),
      peer_(size_ == 1           ? 0
            : options.one_server ? size_ - 1
            : rank_ < pairs_     ? rank_ + pairs_
                                 : rank_ - pairs_),
      check_(options.check), spoil_(options.spoil), one_server_(options.one_server)
{
}

void Pair::signal(int to, uint64_t tag) { must(ctx_, "pt2p_send", pt2p_send(ctx_, nullptr, 0, to, tag)); }

void Pair::await(int from, uint64_t tag)
{
	must(ctx_, "pt2p_recv", pt2p_recv(ctx_, nullptr, 0, from, tag, PT2P_TAG_EXACT, nullptr));
}

void Pair::command(const Command &c) { must(ctx_, "pt2p_send", pt2p_send(ctx_, &c, sizeof c, peer_, kTagCommand)); }

size_t Pair::usable_window(size_t size, size_t window) const
{
	if (!check_ || size == 0)
		return window;
	return std::clamp<size_t>(kCheckedBytes / size, 1, window);
}

void Pair::reserve(Test test, size_t size, size_t window)
{
	const size_t slots = one_at_a_time(test) ? 1 : window;
	// A message on its way may not share its buffer with another when every one has its own contents.
	stride_ = check_ ? (size + 63) / 64 * 64 : 0;
	const size_t bytes = std::max<size_t>(stride_ ? stride_ * slots : size, 64);
	const auto grow = [](Buffer &buffer, size_t &have, size_t wanted) {
		if (have >= wanted)
			return;
		buffer.reset();
		have = 0;
		const size_t rounded = (wanted + 4095) / 4096 * 4096;
		buffer.reset(static_cast<unsigned char *>(aligned_alloc(4096, rounded)));
		if (!buffer)
			throw Failure{"no memory for buffers of " + std::to_string(rounded) + " bytes"};
		memset(buffer.get(), 1, rounded);
		have = rounded;
	};
	grow(out_, out_size_, bytes);
	grow(in_, in_size_, bytes);
	requests_.resize(2 * slots);
	results_.resize(check_ ? 2 * slots : 1);
}

void Pair::fill(unsigned char *buffer, size_t size, uint64_t iteration, uint64_t slot)
{
	const uint64_t s = seed(bursts_, iteration, slot, rank_);
	for (size_t i = 0; i < size; i += 8) {
		const uint64_t w = word(s, i);
		memcpy(buffer + i, &w, std::min<size_t>(8, size - i));
	}
	if (spoil_ && size > 0 && leads())
		buffer[size - 1] ^= 1;
}

void Pair::verify(const unsigned char *buffer, size_t size, uint64_t iteration, uint64_t slot,
                  const pt2p_result_t &result, int writer, uint64_t tag)
{
	const auto place = [&] {
		return "message " + std::to_string(slot) + " of iteration " + std::to_string(iteration) + ", " +
		       std::to_string(size) + " bytes from rank " + std::to_string(peer_) + " to rank " + std::to_string(rank_);
	};
	if (result.length != size || result.source != peer_ || result.tag != tag)
		throw Failure{"check: " + place() + ": the result says " + std::to_string(result.length) + " bytes from rank " +
		              std::to_string(result.source) + " with tag " + std::to_string(result.tag)};
	const uint64_t s = seed(bursts_, iteration, slot, writer);
	for (size_t i = 0; i < size; i += 8) {
		const uint64_t w = word(s, i);
		const size_t n = std::min<size_t>(8, size - i);
		if (memcmp(buffer + i, &w, n) != 0)
			throw Failure{"check: " + place() + ": wrong payload within bytes " + std::to_string(i) + " to " +
			              std::to_string(i + n - 1)};
	}
}

void Pair::post(size_t size, size_t window, size_t first_request)
{
	for (size_t w = 0; w < window; ++w)
		must(ctx_, "pt2p_irecv",
		     pt2p_irecv(ctx_, in_.get() + w * stride_, size, peer_, kTagPayload, PT2P_TAG_EXACT,
		                &requests_[first_request + w]));
}

void Pair::send_window(size_t size, size_t window, uint64_t iteration)
{
	for (size_t w = 0; w < window; ++w) {
		if (check_)
			fill(out_.get() + w * stride_, size, iteration, w);
		must(ctx_, "pt2p_isend", pt2p_isend(ctx_, out_.get() + w * stride_, size, peer_, kTagPayload, &requests_[w]));
	}
}

void Pair::wait_window(size_t count)
{
	must(ctx_, "pt2p_waitall", pt2p_waitall(ctx_, count, requests_.data(), check_ ? results_.data() : nullptr));
}

void Pair::verify_window(size_t size, size_t window, size_t first_request, uint64_t iteration)
{
	for (size_t w = 0; w < window; ++w)
		verify(in_.get() + w * stride_, size, iteration, w, results_[first_request + w], peer_, kTagPayload);
}

double Pair::burst(Test test, size_t size, size_t window, uint64_t iterations)
{
	++bursts_;
	reserve(test, size, window);
	if (alone()) {
		if (!is_call(test))
			return talk_to_self(test, size, window, test == Test::echo ? 2 * iterations : iterations);
		serve_calls(rank_);
		return make_calls(test, size, window, iterations);
	}
	command({kKindBurst, static_cast<uint32_t>(test), size, window, iterations});
	await(peer_, kTagReady);
	switch (test) {
	case Test::bibw: return both_ways(size, window, iterations);
	case Test::echo: return get_echoes(size, window, iterations);
	case Test::call:
	case Test::callrate:
	case Test::windows: return make_calls(test, size, window, iterations);
	default: return lead(test, size, window, iterations);
	}
}

double Pair::lead(Test test, size_t size, size_t window, uint64_t iterations)
{
	const double start = now();
	if (test == Test::lat) {
		pt2p_result_t result;
		for (uint64_t i = 0; i < iterations; ++i) {
			if (check_)
				fill(out_.get(), size, i, 0);
			must(ctx_, "pt2p_send", pt2p_send(ctx_, out_.get(), size, peer_, kTagPayload));
			must(ctx_, "pt2p_recv", pt2p_recv(ctx_, in_.get(), size, peer_, kTagPayload, PT2P_TAG_EXACT, &result));
			if (check_)
				verify(in_.get(), size, i, 0, result, peer_, kTagPayload);
		}
	} else {
		for (uint64_t i = 0; i < iterations; ++i) {
			send_window(size, window, i);
			wait_window(window);
			await(peer_, kTagAck);
		}
	}
	return now() - start;
}

void Pair::follow(Test test, size_t size, size_t window, uint64_t iterations)
{
	reserve(test, size, window);
	if (test == Test::lat) {
		signal(peer_, kTagReady);
		pt2p_result_t result;
		for (uint64_t i = 0; i < iterations; ++i) {
			must(ctx_, "pt2p_recv", pt2p_recv(ctx_, in_.get(), size, peer_, kTagPayload, PT2P_TAG_EXACT, &result));
			if (check_) {
				verify(in_.get(), size, i, 0, result, peer_, kTagPayload);
				fill(out_.get(), size, i, 0);
			}
			must(ctx_, "pt2p_send", pt2p_send(ctx_, out_.get(), size, peer_, kTagPayload));
		}
		return;
	}
	post(size, window, 0);
	signal(peer_, kTagReady);
	for (uint64_t i = 0; i < iterations; ++i) {
		wait_window(window);
		if (check_)
			verify_window(size, window, 0, i);
		// Posted before the sender may go on, so that no message meets a missing receive.
		if (i + 1 < iterations)
			post(size, window, 0);
		signal(peer_, kTagAck);
	}
}

double Pair::both_ways(size_t size, size_t window, uint64_t iterations)
{
	const double start = now();
	for (uint64_t i = 0; i < iterations; ++i) {
		post(size, window, window);
		send_window(size, window, i);
		wait_window(2 * window);
		if (check_)
			verify_window(size, window, window, i);
		must(ctx_, "pt2p_sendrecv",
		     pt2p_sendrecv(ctx_, nullptr, 0, peer_, kTagAck, nullptr, 0, peer_, kTagAck, PT2P_TAG_EXACT, nullptr));
	}
	return now() - start;
}

// Windows of messages, each answered by one with as many bytes: what callrate does, without calls.
double Pair::get_echoes(size_t size, size_t window, uint64_t iterations)
{
	const double start = now();
	for (uint64_t i = 0; i < iterations; ++i) {
		post(size, window, window);
		send_window(size, window, i);
		wait_window(2 * window);
		if (check_)
			verify_window(size, window, window, i);
	}
	return now() - start;
}

void Pair::give_echoes(size_t size, size_t window, uint64_t iterations)
{
	post(size, window, window);
	signal(peer_, kTagReady);
	for (uint64_t i = 0; i < iterations; ++i) {
		for (size_t w = 0; w < window; ++w) {
			unsigned char *in = in_.get() + w * stride_, *out = out_.get() + w * stride_;
			pt2p_result_t result;
			must(ctx_, "pt2p_wait", pt2p_wait(ctx_, requests_[window + w], &result));
			if (check_) {
				verify(in, size, i, w, result, peer_, kTagPayload);
				fill(out, size, i, w);
			}
			// Posted before the leader may send the next one.
			if (i + 1 < iterations)
				must(ctx_, "pt2p_irecv",
				     pt2p_irecv(ctx_, in, size, peer_, kTagPayload, PT2P_TAG_EXACT, &requests_[window + w]));
			must(ctx_, "pt2p_isend", pt2p_isend(ctx_, out, size, peer_, kTagPayload, &requests_[w]));
		}
		wait_window(window);
	}
}

double Pair::talk_to_self(Test test, size_t size, size_t window, uint64_t iterations)
{
	const size_t slots = one_at_a_time(test) ? 1 : window;
	const double start = now();
	for (uint64_t i = 0; i < iterations; ++i) {
		post(size, slots, slots);
		send_window(size, slots, i);
		wait_window(2 * slots);
		if (check_)
			verify_window(size, slots, slots, i);
	}
	return now() - start;
}

std::string Pair::prepare_handoff()
{
	if (alone())
		return "it takes two ranks";
	pt2p_info_t info;
	pt2p_peer_info_t peer;
	must(ctx_, "pt2p_query", pt2p_query(ctx_, &info));
	must(ctx_, "pt2p_peer_query", pt2p_peer_query(ctx_, peer_, &peer));
	if (!peer.same_node)
		return "the two ranks are on different nodes";
	if (info.oversubscribed)
		return "more ranks than CPUs";
	HandoffPlace place;
	std::string failure = handoff_.make(place.pid, place.fd);
	if (!failure.empty())
		return failure;
	command({kKindHandoff, 0, 0, 0, 0});
	must(ctx_, "pt2p_send", pt2p_send(ctx_, &place, sizeof place, peer_, kTagHandoff));
	char answer[256] = "";
	must(ctx_, "pt2p_recv", pt2p_recv(ctx_, answer, sizeof answer - 1, peer_, kTagHandoff, PT2P_TAG_EXACT, nullptr));
	handoff_.close_fd();
	return answer;
}

double Pair::handoff_burst(bool pause, uint64_t round_trips)
{
	command({pause ? kKindHandoffPause : kKindHandoffTight, 0, 0, 0, round_trips});
	await(peer_, kTagReady);
	return handoff_.lead(pause, round_trips);
}

void Pair::dismiss()
{
	if (!alone())
		command({kKindDismiss, 0, 0, 0, 0});
}

void Pair::serve()
{
	for (int callers = one_server_ ? pairs_ : 1; callers > 0;) {
		Command c;
		pt2p_result_t result;
		// Calls are served meanwhile.
		must(
		    ctx_, "pt2p_recv",
		    pt2p_recv(ctx_, &c, sizeof c, one_server_ ? PT2P_ANY_SOURCE : peer_, kTagCommand, PT2P_TAG_EXACT, &result));
		switch (c.kind) {
		case kKindBurst: {
			++bursts_;
			const auto test = static_cast<Test>(c.test);
			if (is_call(test)) {
				serve_calls(result.source);
				signal(result.source, kTagReady);
			} else if (test == Test::echo) {
				reserve(test, c.size, c.window);
				give_echoes(c.size, c.window, c.iterations);
			} else if (test == Test::bibw) {
				reserve(test, c.size, c.window);
				signal(peer_, kTagReady);
				both_ways(c.size, c.window, c.iterations);
			} else {
				follow(test, c.size, c.window, c.iterations);
			}
			break;
		}
		case kKindHandoff: {
			HandoffPlace place;
			must(ctx_, "pt2p_recv", pt2p_recv(ctx_, &place, sizeof place, peer_, kTagHandoff, PT2P_TAG_EXACT, nullptr));
			const std::string failure = handoff_.open(place.pid, place.fd).substr(0, 255);
			must(ctx_, "pt2p_send", pt2p_send(ctx_, failure.data(), failure.size(), peer_, kTagHandoff));
			break;
		}
		case kKindHandoffTight:
		case kKindHandoffPause:
			signal(peer_, kTagReady);
			handoff_.follow(c.kind == kKindHandoffPause, c.iterations);
			break;
		default: --callers;
		}
	}
}

} // namespace pt2p::perf
