// SPDX-License-Identifier: BSD-3-Clause
// The bytes of heap that calls take at a server for each rank that has called it once, and at a caller for each rank
// that it has called once, beside what messages between the two take. The limits are fixed here. A change that needs
// more has to raise them here, and say why.
#include <cstdio>
#include <cstdlib>
#include <vector>

#include <pt2p.h>

#include "tests/memory/heap.hpp"

namespace {

constexpr double pair_limit = 256; // at a rank for another one, as its server or its caller
constexpr double both_limit = 272; // as both

int failures = 0;

void expect(bool condition, const char *what)
{
	if (condition)
		return;
	printf("FAIL: %s\n", what);
	++failures;
}

void must(pt2p_status_t status, const char *what)
{
	if (status == PT2P_OK)
		return;
	printf("FAIL: %s: %s\n", what, pt2p_strerror(status));
	exit(1);
}

void echo(pt2p_context_t *ctx, pt2p_call_t *call, const void *input, size_t length, void *)
{
	expect(pt2p_reply(ctx, call, 1, input, length) == PT2P_OK, "pt2p_reply");
}

// A job whose ranks have exchanged messages with rank 0.
struct Job {
	std::vector<pt2p_context_t *> ctx;
	std::vector<pt2p_service_t *> services;
	size_t before = 0; // heap

	explicit Job(int ranks) : ctx(static_cast<size_t>(ranks)), services(ctx.size())
	{
		must(pt2p_init_inprocess(ranks, PT2P_INPROCESS_COOPERATIVE, nullptr, ctx.data()), "pt2p_init_inprocess");
		for (int i = 1; i < ranks; ++i) {
			pt2p_context_t *other = ctx[static_cast<size_t>(i)];
			must(pt2p_send(ctx[0], nullptr, 0, i, 1), "pt2p_send");
			must(pt2p_recv(other, nullptr, 0, 0, 1, PT2P_TAG_EXACT, nullptr), "pt2p_recv");
			must(pt2p_send(other, nullptr, 0, 0, 1), "pt2p_send");
			must(pt2p_recv(ctx[0], nullptr, 0, i, 1, PT2P_TAG_EXACT, nullptr), "pt2p_recv");
		}
		for (size_t i = 0; i < ctx.size(); ++i)
			must(pt2p_service_open(ctx[i], 1, echo, nullptr, nullptr, &services[i]), "pt2p_service_open");
	}
	~Job()
	{
		for (pt2p_context_t *c : ctx)
			expect(pt2p_finalize(c) == PT2P_OK, "pt2p_finalize");
	}
	// One call. Returns the bytes that rank 0 has taken for it.
	double call(size_t from, size_t to)
	{
		size_t at_zero = 0, start = heap::live();
		const auto counted = [&](size_t rank) {
			if (rank == 0)
				at_zero += heap::live() - start;
			start = heap::live();
		};
		char in[32] = {}, out[32] = {};
		pt2p_request_t *request = nullptr;
		must(pt2p_icall(ctx[from], static_cast<int>(to), 1, out, sizeof out, in, sizeof in, nullptr, &request),
		     "pt2p_icall");
		counted(from);
		must(pt2p_progress(ctx[to]), "pt2p_progress");
		counted(to);
		int done = 0;
		must(pt2p_test(ctx[from], request, &done, nullptr), "pt2p_test");
		expect(done, "the reply has not come in one turn");
		counted(from);
		return static_cast<double>(at_zero);
	}
};

// Bytes at rank 0 after each other rank has called it, it has called each, and both.
struct Heap {
	double server = 0, caller = 0, both = 0;
};

Heap heap_of(int ranks)
{
	Heap h;
	{
		Job job(ranks);
		for (size_t i = 1; i < job.ctx.size(); ++i)
			h.server += job.call(i, 0);
		h.both = h.server;
		for (size_t i = 1; i < job.ctx.size(); ++i)
			h.both += job.call(0, i);
	}
	Job job(ranks);
	for (size_t i = 1; i < job.ctx.size(); ++i)
		h.caller += job.call(0, i);
	// The second call of a pair takes nothing.
	double again = 0;
	for (size_t i = 1; i < job.ctx.size(); ++i)
		again += job.call(0, i);
	expect(again == 0, "a second call takes memory");
	return h;
}

} // namespace

int main()
{
	constexpr int few = 33, many = 161;
	const Heap h1 = heap_of(few), h2 = heap_of(many);
	const auto per_rank = [](double m1, double m2) { return (m2 - m1) / (many - few); };
	const double server = per_rank(h1.server, h2.server), caller = per_rank(h1.caller, h2.caller);
	const double both = per_rank(h1.both, h2.both);
	printf("heap for each idle rank: %.1f bytes at a server that it called, %.1f at a caller that called it, %.1f "
	       "where both "
	       "called\n",
	       server, caller, both);
	expect(server > 0 && server <= pair_limit, "an idle caller costs its server more heap than it may");
	expect(caller > 0 && caller <= pair_limit, "an idle server costs its caller more heap than it may");
	expect(both <= both_limit, "an idle rank that called and was called costs more heap than it may");
	return failures ? 1 : 0;
}
