// SPDX-License-Identifier: BSD-3-Clause
// The bytes of heap and of shared memory that a rank takes for another one on its node that it never talks to. The
// limits are fixed here. A change that needs more has to raise them here, and say why.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include <sys/stat.h>

#include "api/context.hpp"
#include "tests/memory/heap.hpp"
#include "transports/shm/shm.hpp"

namespace {

// Heap, for each pair of ranks.
constexpr double silent_limit = 40;   // never met
constexpr double watched_limit = 464; // its process is watched, as a call has waited for some milliseconds; the
                                      // secret and the shape of its segment are kept until there is a ring
constexpr double talked_limit = 1184; // a ring of 64 slots each way: the ring itself is shared memory
// Shared memory in one process: the pages of a ring that a short message writes. The last context frees it, which takes
// the kernel a second for 2 GB.
constexpr double ring_limit = 2 * 4096;

int failures = 0;

void expect(bool condition, const char *what)
{
	if (condition)
		return;
	printf("FAIL: %s\n", what);
	++failures;
}

// Heap of a job of n ranks: silent, then after each rank has checked its peers, then after all have talked to all.
struct Heap {
	double silent, watched, talked;
	double shared;
};

// Bytes that the files of the segments of this process take.
double shared_bytes()
{
	double bytes = 0;
	for (const auto &entry : std::filesystem::directory_iterator("/proc/self/fd")) {
		std::error_code gone; // the descriptor of the folder itself
		struct stat facts;
		if (std::filesystem::read_symlink(entry.path(), gone).string().find("pt2p-segment") != std::string::npos &&
		    stat(entry.path().c_str(), &facts) == 0)
			bytes += static_cast<double>(facts.st_blocks) * 512;
	}
	return bytes;
}

Heap heap_of(int n)
{
	const size_t before = heap::live();
	std::vector<pt2p_context_t *> ctx(static_cast<size_t>(n));
	const size_t list = heap::live() - before;
	if (pt2p_init_inprocess(n, PT2P_INPROCESS_COOPERATIVE, nullptr, ctx.data()) != PT2P_OK) {
		printf("FAIL: %s\n", pt2p_last_error(nullptr));
		exit(1);
	}
	Heap heap{};
	heap.silent = static_cast<double>(heap::live() - before - list);
	heap.shared = -shared_bytes();
	for (pt2p_context_t *c : ctx)
		for (int i = 0; i < n; ++i)
			c->engine->check();
	heap.watched = static_cast<double>(heap::live() - before - list);
	for (pt2p_context_t *c : ctx)
		for (int to = 0; to < n; ++to) {
			char byte = 1;
			if (to != pt2p_rank(c))
				expect(pt2p_send(c, &byte, 1, to, 1) == PT2P_OK, "send");
		}
	for (pt2p_context_t *c : ctx)
		for (int from = 0; from < n; ++from) {
			char byte = 0;
			if (from != pt2p_rank(c))
				expect(pt2p_recv(c, &byte, 1, from, 1, PT2P_TAG_EXACT, nullptr) == PT2P_OK && byte == 1, "receive");
		}
	heap.talked = static_cast<double>(heap::live() - before - list);
	heap.shared += shared_bytes();
	for (pt2p_context_t *c : ctx)
		expect(pt2p_finalize(c) == PT2P_OK, "finalize");
	return heap;
}

} // namespace

int main()
{
	// M(n) = a + b n + c n^2: the second difference leaves c, the bytes of one rank for one other.
	const Heap h1 = heap_of(16), h2 = heap_of(32), h4 = heap_of(64);
	const auto per_pair = [](double m1, double m2, double m4) {
		return (m4 - 3 * m2 + 2 * m1) / (64 * 64 - 3 * 32 * 32 + 2 * 16 * 16);
	};
	const double silent = per_pair(h1.silent, h2.silent, h4.silent);
	const double watched = per_pair(h1.watched, h2.watched, h4.watched);
	const double talked = per_pair(h1.talked, h2.talked, h4.talked);
	printf("heap for each peer: silent %.1f bytes, watched %.1f, talked with %.1f\n", silent, watched, talked);
	const double ring = h4.shared / (64 * 63);
	printf("shared memory for each peer that was talked with: %.0f bytes\n", ring);
	expect(ring > 0 && ring <= ring_limit,
	       "a ring that carried one short message takes more shared memory than it may");
	expect(silent <= silent_limit, "a silent peer costs more heap than it may");
	expect(watched <= watched_limit, "a watched peer costs more heap than it may");
	expect(talked <= talked_limit, "a peer that was talked with costs more heap than it may");

	// Shared memory: eight bytes of the directory, for the proof that a writer knows the secret, and one bit, to the
	// page.
	using namespace pt2p::shm;
	for (uint32_t n : {2u, 64u, 1000u, 4096u}) {
		const size_t exact = sizeof(SegmentHeader) + n * sizeof(uint64_t) + doorbell_words(n) * 8;
		expect(header_bytes(n) < exact + page + 64, "the head of a segment is larger than its parts");
		expect(header_bytes(n) >= exact, "the head of a segment is smaller than its parts");
	}
	const double shared = static_cast<double>(header_bytes(65536) - header_bytes(32768)) / 32768;
	printf("shared memory for each silent peer: %.3f bytes\n", shared);
	expect(shared <= 8.125, "a silent peer costs more shared memory than a directory entry and a bit");

	// What the summary says.
	pt2p_context_t *ctx[2];
	expect(pt2p_init_inprocess(2, PT2P_INPROCESS_COOPERATIVE, nullptr, ctx) == PT2P_OK, "init");
	char text[8192];
	expect(pt2p_summary(ctx[0], text, sizeof text, nullptr) == PT2P_OK, "summary");
	const char *line = strstr(text, "memory for each rank");
	expect(line != nullptr, "the summary tells nothing of memory");
	if (line) {
		unsigned told = 0;
		const char *number = strstr(line, "silent ");
		expect(number && sscanf(number, "silent %u bytes", &told) == 1, "the summary tells no number");
		printf("the summary says %u bytes for a silent peer\n", told);
		expect(told <= static_cast<unsigned>(silent_limit) + 5, "the summary tells of more than is allowed");
	}
	for (pt2p_context_t *c : ctx)
		expect(pt2p_finalize(c) == PT2P_OK, "finalize");
	return failures ? 1 : 0;
}
