// SPDX-License-Identifier: BSD-3-Clause
// A job in this process, and what tests of refused calls share.
#pragma once

#include <catch2/catch.hpp>

#include <cstring>
#include <string>
#include <vector>

#include <pt2p.h>

struct Job {
	explicit Job(int size = 2, pt2p_thread_level_t level = PT2P_THREAD_SINGLE,
	             pt2p_inprocess_mode_t mode = PT2P_INPROCESS_COOPERATIVE)
	    : contexts(static_cast<size_t>(size))
	{
		pt2p_options_t options = PT2P_OPTIONS_INIT;
		options.thread_level = level;
		REQUIRE(pt2p_init_inprocess(size, mode, &options, contexts.data()) == PT2P_OK);
	}
	~Job()
	{
		for (pt2p_context_t *c : contexts)
			if (c)
				CHECK(pt2p_finalize(c) == PT2P_OK);
	}
	pt2p_context_t *operator[](size_t i) const { return contexts[i]; }
	std::vector<pt2p_context_t *> contexts;
};

inline const size_t negative = static_cast<size_t>(-5);
inline pt2p_request_t *const garbage[] = {
    reinterpret_cast<pt2p_request_t *>(uintptr_t{1}),
    reinterpret_cast<pt2p_request_t *>(uintptr_t{0xdeadbeef}),
    reinterpret_cast<pt2p_request_t *>(UINTPTR_MAX),
    reinterpret_cast<pt2p_request_t *>(uintptr_t{1} << 32),
    reinterpret_cast<pt2p_request_t *>((uintptr_t{7} << 32) | 3),
};

// Checks the status, and that the explanation contains `word`.
inline void refused(const pt2p_context_t *ctx, pt2p_status_t got, pt2p_status_t wanted, const char *word = "")
{
	INFO(pt2p_last_error(ctx));
	CHECK(got == wanted);
	CHECK(strlen(pt2p_last_error(ctx)) > 10);
	CHECK(std::string(pt2p_last_error(ctx)).find(word) != std::string::npos);
}

// A callback that must not be called, as nothing is started with it.
inline void never(pt2p_context_t *, const pt2p_result_t *, void *) { FAIL("called"); }
