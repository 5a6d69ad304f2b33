// SPDX-License-Identifier: BSD-3-Clause
// One rank of a run: what its threads share, and how it gives up.
#pragma once

#include <atomic>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <string>
#include <unistd.h>
#include <vector>

#include <pt2p.h>

#include "plan.hpp"

namespace soak {

inline thread_local int acting = -1; // the rank whose steps this thread takes

// Ends the process at once. Its memory is not freed before, so other ranks that still read it find no wrong bytes.
[[noreturn]] inline void fail(const std::string &what)
{
	fprintf(stderr, "FAIL rank %d: %s\n", acting, what.c_str());
	fflush(nullptr);
	_exit(1);
}

struct Counts {
	std::atomic<uint64_t> messages{}, bytes{}, operations{}, cancelled{}, truncated{}, probed{}, lost{};
};

struct Rank {
	const Plan &plan;
	pt2p_context_t *ctx;
	int me;
	std::vector<pt2p_context_t *> siblings; // cooperative: what nobody else drives
	std::atomic<bool> victim_lost{};        // this rank has noticed it
	std::atomic<bool> atomics_failed{};     // on a connection that broke, so their effect is not known
	Counts counts;

	Rank(const Plan &p, pt2p_context_t *c) : plan(p), ctx(c), me(pt2p_rank(c)) {}
	bool cooperative() const { return plan.mode == Mode::cooperative; }
	int lanes() const { return plan.ranks * plan.threads; }
	bool has_victim() const { return plan.victim >= 0; }
	bool gone(int rank) const { return rank == plan.victim && victim_lost; }

	// In loops over calls that do not wait.
	void poll() const
	{
		for (pt2p_context_t *c : siblings)
			pt2p_progress(c);
	}
	// True when a call that involves `peer` succeeded, false when the peer has been killed. Any other failure ends the
	// process.
	bool ok(pt2p_status_t status, int peer, const char *what)
	{
		if (status == PT2P_OK)
			return true;
		if (status == PT2P_ERR_PEER_LOST && has_victim() && (peer == plan.victim || peer == PT2P_ANY_SOURCE)) {
			victim_lost = true;
			++counts.lost;
			return false;
		}
		fail(std::string(what) + " with rank " + std::to_string(peer) + ": status " + std::to_string(status) + ", " +
		     pt2p_strerror(status) + ": " + pt2p_last_error(ctx));
	}
};

inline void fill(unsigned char *data, size_t length, uint64_t seed)
{
	for (size_t i = 0; i < length; i += 8) {
		const uint64_t word = mix(seed + i);
		memcpy(data + i, &word, std::min<size_t>(8, length - i));
	}
}

inline void check(const unsigned char *data, size_t length, uint64_t seed, const std::string &what)
{
	for (size_t i = 0; i < length; i += 8) {
		const uint64_t word = mix(seed + i);
		if (memcmp(data + i, &word, std::min<size_t>(8, length - i)) != 0) {
			uint64_t is = 0;
			memcpy(&is, data + i, std::min<size_t>(8, length - i));
			char text[120];
			snprintf(text, sizeof text, ": bytes from %zu of %zu are %016llx, not %016llx", i, length,
			         static_cast<unsigned long long>(is), static_cast<unsigned long long>(word));
			fail("wrong payload of " + what + text);
		}
	}
}

} // namespace soak
