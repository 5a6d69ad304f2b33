// SPDX-License-Identifier: BSD-3-Clause
// The victim dies while others operate on its memory.
#include "tests/fault/cases.hpp"
#include "tests/fault/victim.hpp"

#include <chrono>
#include <thread>
#include <vector>

namespace fault {

// Operations of all kinds on the victim's memory, allocated and registered, until it dies. `stopped`: it has made no
// progress before, so many are in flight.
int one_sided(bool stopped)
{
	join();
	constexpr size_t length = 1u << 20;
	pt2p_memory_t *mem[2];
	pt2p_remote_t *remote[2] = {};
	std::vector<unsigned char> own(length), data(length), blob(PT2P_EXPORT_MAX);
	void *address;
	must(pt2p_memory_allocate(ctx, length, &mem[0], &address), "pt2p_memory_allocate:");
	must(pt2p_memory_register(ctx, own.data(), length, &mem[1]), "pt2p_memory_register:");
	for (int i = 0; i < 2; ++i) {
		size_t needed;
		must(pt2p_memory_export(ctx, mem[i], blob.data(), blob.size(), &needed), "pt2p_memory_export:");
		for (int peer = 0; is_victim() && peer < ranks; ++peer)
			if (peer != me)
				must(pt2p_send(ctx, blob.data(), needed, peer, tag_eager), "pt2p_send:");
		pt2p_result_t result;
		if (is_victim())
			continue;
		must(pt2p_recv(ctx, blob.data(), blob.size(), victim, tag_eager, PT2P_TAG_EXACT, &result), "pt2p_recv:");
		must(pt2p_memory_import(ctx, victim, blob.data(), result.length, &remote[i]), "pt2p_memory_import:");
	}
	if (is_victim() && stopped) {
		std::this_thread::sleep_for(std::chrono::milliseconds(300));
		die();
	}
	if (is_victim())
		progress_until_death(300);
	double last = now();
	for (;;) {
		std::vector<pt2p_request_t *> reqs;
		pt2p_status_t status = PT2P_OK;
		uint64_t was[3];
		for (pt2p_remote_t *r : remote) {
			pt2p_request_t *req;
			const auto keep = [&](pt2p_status_t s) {
				if (s != PT2P_OK)
					status = s;
				else
					reqs.push_back(req);
			};
			keep(pt2p_put(ctx, data.data(), length, r, 0, &req));
			keep(pt2p_get(ctx, data.data(), length, r, 0, &req));
			keep(pt2p_fetch_add64(ctx, r, 8, 1, &was[0], &req));
			keep(pt2p_swap64(ctx, r, 16, 1, &was[1], &req));
			keep(pt2p_put_signal(ctx, data.data(), 1000, r, 64, r, 0, PT2P_SIGNAL_ADD, 1, &req));
			if (status == PT2P_OK)
				status = pt2p_fence(ctx, victim);
			keep(pt2p_compare_swap64(ctx, r, 24, 0, 1, &was[2], &req));
			if (status == PT2P_OK)
				status = pt2p_put(ctx, data.data(), 8, r, 128, nullptr);
		}
		if (status == PT2P_OK) {
			const pt2p_status_t flushed = pt2p_flush(ctx, victim);
			if (flushed != PT2P_OK && flushed != PT2P_ERR_PEER_LOST)
				fail("pt2p_flush:", pt2p_last_error(ctx));
			// The loss is reported to each thread, and so again.
			if (flushed == PT2P_ERR_PEER_LOST && (pt2p_flush(ctx, victim) != flushed || pt2p_flush_all(ctx) != flushed))
				fail("a flush after the loss ends otherwise");
		}
		last = end_round(reqs, status, last);
		// Memory that is mapped here outlives its owner. Progress tells that the owner is lost.
		for (int i = 0; i < 200; ++i)
			must(pt2p_progress(ctx), "pt2p_progress:");
	}
}

} // namespace fault
