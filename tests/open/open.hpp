// SPDX-License-Identifier: BSD-3-Clause
// Open contexts in this process, driven by one thread, for the tests of this folder. The transports are those of the
// environment.
#pragma once

#include <catch2/catch.hpp>

#include <chrono>
#include <cstdint>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include <pt2p.h>

namespace open_test {

struct Context {
	explicit Context(std::vector<std::string> tunables = {}, pt2p_thread_level_t level = PT2P_THREAD_SERIALIZED)
	{
		const pt2p_status_t status = make(tunables, level);
		INFO(pt2p_last_error(nullptr));
		REQUIRE(status == PT2P_OK);
		char text[128];
		size_t needed = 0;
		REQUIRE(pt2p_address(ctx, text, sizeof text, &needed) == PT2P_OK);
		address = text;
		REQUIRE(needed == address.size() + 1);
	}
	~Context() { pt2p_finalize(ctx); }
	Context(const Context &) = delete;
	Context &operator=(const Context &) = delete;
	operator pt2p_context_t *() const { return ctx; }

	pt2p_status_t make(const std::vector<std::string> &tunables, pt2p_thread_level_t level)
	{
		std::vector<const char *> list;
		for (const std::string &t : tunables)
			list.push_back(t.c_str());
		list.push_back(nullptr);
		pt2p_options_t options = PT2P_OPTIONS_INIT;
		options.thread_level = level;
		options.tunables = list.data();
		return pt2p_init_open(&options, &ctx);
	}
	int add(const std::string &other)
	{
		int rank = -1;
		const pt2p_status_t status = pt2p_peer_add(ctx, other.c_str(), &rank);
		INFO(pt2p_last_error(ctx));
		REQUIRE(status == PT2P_OK);
		return rank;
	}
	int add(const Context &other) { return add(other.address); }
	pt2p_status_t end()
	{
		pt2p_context_t *last = ctx;
		ctx = nullptr;
		return pt2p_finalize(last);
	}

	pt2p_context_t *ctx = nullptr;
	std::string address;
};

using Contexts = std::vector<pt2p_context_t *>;

template <class Done>
void drive(const Contexts &all, Done &&done)
{
	const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
	while (!done()) {
		for (pt2p_context_t *ctx : all)
			pt2p_progress(ctx);
		std::this_thread::yield();
		REQUIRE(std::chrono::steady_clock::now() < end);
	}
}

inline pt2p_result_t finish(const Contexts &all, pt2p_context_t *owner, pt2p_request_t *request)
{
	pt2p_result_t result{};
	int done = 0;
	drive(all, [&] {
		const pt2p_status_t status = pt2p_test(owner, request, &done, &result);
		return done || status != PT2P_OK;
	});
	return result;
}

// Has a request's completion awaited by blocking calls of that context alone.
inline pt2p_result_t wait(pt2p_context_t *owner, pt2p_request_t *request)
{
	pt2p_result_t result{};
	pt2p_wait(owner, request, &result);
	return result;
}

inline std::vector<unsigned char> pattern(size_t length, unsigned seed)
{
	std::vector<unsigned char> bytes(length);
	for (size_t i = 0; i < length; ++i)
		bytes[i] = static_cast<unsigned char>(i * 7 + i / 251 + seed);
	return bytes;
}

// A message of that length from one to the other, whose number the sender knows; who received it from, as it sees it.
inline int carry(const Contexts &all, pt2p_context_t *from, pt2p_context_t *to, int dest, size_t length, uint64_t tag,
                 int source = PT2P_ANY_SOURCE)
{
	const auto out = pattern(length, static_cast<unsigned>(tag));
	std::vector<unsigned char> in(length + 1);
	pt2p_request_t *receive = nullptr, *send = nullptr;
	REQUIRE(pt2p_irecv(to, in.data(), in.size(), source, tag, PT2P_TAG_EXACT, &receive) == PT2P_OK);
	const pt2p_status_t status = pt2p_isend(from, out.data(), length, dest, tag, &send);
	INFO(pt2p_last_error(from));
	REQUIRE(status == PT2P_OK);
	const pt2p_result_t received = finish(all, to, receive);
	const pt2p_result_t sent = finish(all, from, send);
	CHECK(sent.status == PT2P_OK);
	CHECK(received.status == PT2P_OK);
	CHECK(received.length == length);
	CHECK((!length || !std::memcmp(in.data(), out.data(), length)));
	return received.source;
}

// Checks the status, and that the explanation contains `word`.
inline void refused(const pt2p_context_t *ctx, pt2p_status_t got, pt2p_status_t wanted, const char *word)
{
	INFO(pt2p_last_error(ctx));
	CHECK(got == wanted);
	CHECK(std::string(pt2p_last_error(ctx)).find(word) != std::string::npos);
}

} // namespace open_test
