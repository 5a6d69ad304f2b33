// What all threads of verbs_load share, and the side that takes messages.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <ctime>
#include <sched.h>
#include <string>

#include "softhca/studies/programs/verbs_load_objects.hpp"

namespace verbs_load {

inline constexpr size_t line = 64, region_bytes = size_t{1} << 20;
inline constexpr uint32_t receive_depth = 4096;
inline constexpr size_t route_bytes = 40; // before a datagram

inline uint8_t pattern_at(size_t offset) { return static_cast<uint8_t>(1 + offset % 251); }

inline uint64_t now_ns()
{
	timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return static_cast<uint64_t>(t.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(t.tv_nsec);
}

// How far all threads are.
struct Progress {
	std::atomic<uint64_t> done = 0, begin = 0, end = 0, received = 0, wrong = 0;
	std::atomic<unsigned> posting = 0;

	void count(const Plan &plan, uint64_t n, uint64_t now)
	{
		const uint64_t warm = plan.ops / 4, before = done.fetch_add(n);
		if (before < warm && before + n >= warm)
			begin = now;
		if (before < warm + plan.ops && before + n >= warm + plan.ops)
			end = now;
	}
};

// Where messages of one machine come in.
struct Receiver {
	Receiver(const Plan &plan, unsigned machine)
	    : port(machine), slot((plan.bytes + route_bytes + line - 1) / line * line), cq(port.cq(receive_depth)),
	      memory(port, std::max(slot * receive_depth, line))
	{
		ibv_srq_init_attr a{};
		a.attr = {receive_depth, 1, 0};
		srq = must(ibv_create_srq(port.pd, &a), "a shared receive queue");
	}
	void post(unsigned first, unsigned count)
	{
		constexpr unsigned most = 64;
		ibv_recv_wr wr[most], *bad;
		ibv_sge sge[most];
		for (unsigned i = 0; i < count; ++i) {
			const unsigned n = (first + i) % receive_depth;
			sge[i] = {memory.at(n * slot), static_cast<uint32_t>(slot), memory.mr->lkey};
			wr[i] = {n, i + 1 < count ? &wr[i + 1] : nullptr, &sge[i], 1};
		}
		must(ibv_post_srq_recv(srq, wr, &bad), "ibv_post_srq_recv");
	}
	Port port;
	size_t slot;
	ibv_cq *cq;
	ibv_srq *srq;
	Memory memory;
};

struct Taking {
	const Plan *plan;
	Progress *progress;
	Receiver *receiver;
	bool polite;
};

// Takes messages until nobody posts any more.
inline void *take(void *argument)
{
	const Taking &t = *static_cast<Taking *>(argument);
	unsigned first = 0, free = 0;
	constexpr int most = 16;
	ibv_wc wc[most];
	const size_t before = t.plan->transport == ud ? route_bytes : 0;
	for (;;) {
		const bool last = t.progress->posting == 0;
		const int n = ibv_poll_cq(t.receiver->cq, most, wc);
		if (n < 0)
			fail("ibv_poll_cq fails");
		if (n == 0 && last)
			return nullptr;
		for (int i = 0; i < n; ++i) {
			if (wc[i].status != IBV_WC_SUCCESS || wc[i].byte_len != t.plan->bytes + before)
				fail(std::string("a receive says ") + ibv_wc_status_str(wc[i].status));
			const uint8_t *data = t.receiver->memory.data + wc[i].wr_id * t.receiver->slot + before;
			if (t.plan->check && t.plan->bytes &&
			    data[t.plan->bytes - 1] != static_cast<uint8_t>(1 + (data[0] - 1u + t.plan->bytes - 1) % 251))
				++t.progress->wrong;
		}
		t.progress->received += static_cast<uint64_t>(n);
		if (n && t.plan->counts_received())
			t.progress->count(*t.plan, static_cast<uint64_t>(n), now_ns());
		for (free += static_cast<unsigned>(n); free >= most; free -= most, first += most)
			t.receiver->post(first, most);
		if (n == 0 && t.polite)
			sched_yield();
	}
}

} // namespace verbs_load
