// SPDX-License-Identifier: BSD-3-Clause
// The victim dies while others wait for it: in a barrier, at the start, for any source, in finalize.
#include "tests/fault/cases.hpp"
#include "tests/fault/victim.hpp"

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

namespace fault {

int barrier(bool before)
{
	join();
	if (is_victim()) {
		die_in(250);
		if (before) {
			must(pt2p_barrier(ctx), "pt2p_barrier:");
			for (;;)
				pause();
		}
	}
	double last = now();
	for (;;) {
		const pt2p_status_t status = pt2p_barrier(ctx);
		if (status != PT2P_OK)
			survived(status, now() - last);
		last = now();
	}
}

// The victim dies before anybody has talked to it. `call` is the first call of the survivors; `unpublished`: the victim
// has not even published its address.
int starting(const std::string &call, bool unpublished)
{
	if (unpublished && atoi(getenv("PMIX_RANK")) == victim) {
		printf("pid %ld\n", static_cast<long>(getpid()));
		fflush(stdout);
		die();
	}
	join();
	if (is_victim())
		die();
	const double start = now();
	char byte = 0;
	pt2p_request_t *r = nullptr;
	pt2p_status_t status;
	if (call == "barrier") {
		status = pt2p_barrier(ctx);
	} else if (call == "recv") {
		status = pt2p_recv(ctx, &byte, 1, victim, tag_never, PT2P_TAG_EXACT, nullptr);
	} else if (call == "delivery") {
		// This succeeds when the victim was still there, or its loss could not be known. Then the message below fails.
		status = pt2p_set_delivery(ctx, victim, PT2P_DELIVERY_SEND);
	} else if (call == "flush") {
		status = pt2p_flush(ctx, victim);
	} else {
		status = pt2p_isend(ctx, &byte, 1, victim, tag_eager, &r);
		if (status == PT2P_OK)
			status = pt2p_wait(ctx, r, nullptr);
	}
	// A send of a short message completes before the message arrives.
	while (status == PT2P_OK && now() - start < soon) {
		pt2p_progress(ctx);
		status = pt2p_send(ctx, &byte, 1, victim, tag_eager);
	}
	survived(status, now() - start);
	return 1;
}

// Rank 0 waits for any source. The loss ends one wait, and the next ones get what the others send.
int any_source()
{
	join();
	int value = me;
	if (is_victim()) {
		must(pt2p_send(ctx, &value, sizeof value, 0, tag_eager), "pt2p_send:");
		progress_until_death(200);
	}
	if (me != 0) {
		int go;
		must(pt2p_recv(ctx, &go, sizeof go, 0, tag_after, PT2P_TAG_EXACT, nullptr), "wait for rank 0:");
		must(pt2p_send(ctx, &value, sizeof value, 0, tag_eager), "pt2p_send:");
		const double start = now();
		// These ranks have not talked to the victim. A wait for it must still end.
		survived(pt2p_recv(ctx, &value, sizeof value, victim, tag_never, PT2P_TAG_EXACT, nullptr), now() - start);
	}
	pt2p_result_t result;
	must(pt2p_recv(ctx, &value, sizeof value, PT2P_ANY_SOURCE, tag_eager, PT2P_TAG_EXACT, &result), "first receive:");
	if (result.source != victim || value != victim)
		fail("the victim's message is wrong");
	const double start = now();
	const pt2p_status_t status =
	    pt2p_recv(ctx, &value, sizeof value, PT2P_ANY_SOURCE, tag_eager, PT2P_TAG_EXACT, &result);
	const double waited = now() - start;
	if (status != PT2P_ERR_PEER_LOST)
		fail("a wait for any source ends otherwise:", pt2p_strerror(status));
	const std::string text = pt2p_last_error(ctx);
	for (int peer = 2; peer < ranks; ++peer)
		must(pt2p_send(ctx, &me, sizeof me, peer, tag_after), "go:");
	for (int peer = 2; peer < ranks; ++peer) {
		must(pt2p_recv(ctx, &value, sizeof value, PT2P_ANY_SOURCE, tag_eager, PT2P_TAG_EXACT, &result),
		     "receive again:");
		if (result.source != value)
			fail("a message after the loss is wrong");
	}
	if (text.find("rank 1") == std::string::npos)
		fail("the explanation does not name rank 1:", text.c_str());
	// survived() checks the explanation of the latest failure, so another receive has to fail.
	survived(pt2p_recv(ctx, &value, sizeof value, victim, tag_never, PT2P_TAG_EXACT, nullptr), waited);
	return 1;
}

// The loss ends a receive from any source. A probe or a wait for a signal at the same time must end, too.
int any_source_probed()
{
	join();
	if (is_victim())
		progress_until_death(200);
	char byte;
	pt2p_request_t *r;
	must(pt2p_irecv(ctx, &byte, 1, PT2P_ANY_SOURCE, tag_never, PT2P_TAG_EXACT, &r), "pt2p_irecv:");
	const double start = now();
	if (me == 0) {
		const pt2p_status_t status = pt2p_probe(ctx, PT2P_ANY_SOURCE, tag_eager, PT2P_TAG_EXACT, nullptr);
		if (status != PT2P_ERR_PEER_LOST)
			fail("a probe for any source ends otherwise:", pt2p_strerror(status));
	} else {
		const uint64_t word = 0;
		const pt2p_status_t status = pt2p_signal_wait(ctx, &word, 1, PT2P_ANY_SOURCE);
		if (status != PT2P_ERR_PEER_LOST)
			fail("a wait for a signal of any source ends otherwise:", pt2p_strerror(status));
	}
	int found = 1; // each loss is reported once
	must(pt2p_iprobe(ctx, PT2P_ANY_SOURCE, tag_eager, PT2P_TAG_EXACT, &found, nullptr), "pt2p_iprobe:");
	if (found)
		fail("something was found that nobody sent");
	survived(pt2p_wait(ctx, r, nullptr), now() - start);
	return 1;
}

// Finalize with a message in flight to the dead: a large one, or one that no receive has matched.
int finalize_dead(bool synchronous)
{
	join();
	std::vector<unsigned char> data(synchronous ? 8 : 4u << 20);
	if (is_victim()) {
		await_survivors(); // to send, which takes long on a busy machine
		progress_until_death(300);
	}
	pt2p_request_t *r;
	must((synchronous ? pt2p_issend : pt2p_isend)(ctx, data.data(), data.size(), victim, tag_large, &r), "pt2p_isend:");
	must(pt2p_send(ctx, nullptr, 0, victim, tag_after), "pt2p_send:");
	const double start = now();
	const pt2p_status_t status = pt2p_finalize(ctx);
	const double waited = now() - start;
	printf("survivor %d: %s\n", me, pt2p_last_error(nullptr));
	if (status != PT2P_ERR_UNFINISHED || waited > soon)
		fail("pt2p_finalize returns otherwise, or late");
	return 0;
}

// Rank 1 finalizes. The others learn that it has left, and that it has not crashed.
int finalized()
{
	join();
	int value = me;
	// It leaves when all have started: launchers lose a process that starts while another ends. Only rank 0 talks to
	// the victim.
	if (me == 0)
		for (int peer = ranks - 1; peer > victim; --peer)
			must(pt2p_recv(ctx, &value, sizeof value, peer, tag_eager, PT2P_TAG_EXACT, nullptr), "pt2p_recv:");
	if (me != victim)
		must(pt2p_send(ctx, &value, sizeof value, me ? 0 : victim, tag_eager), "pt2p_send:");
	if (me == victim) {
		must(pt2p_recv(ctx, &value, sizeof value, 0, tag_eager, PT2P_TAG_EXACT, nullptr), "pt2p_recv:");
		must(pt2p_send(ctx, &value, sizeof value, 0, tag_eager), "pt2p_send:");
		if (pt2p_finalize(ctx) != PT2P_OK)
			fail("pt2p_finalize:", pt2p_last_error(nullptr));
		return 0;
	}
	if (me == 0) {
		std::this_thread::sleep_for(std::chrono::milliseconds(200));
		must(pt2p_recv(ctx, &value, sizeof value, victim, tag_eager, PT2P_TAG_EXACT, nullptr),
		     "what was sent before pt2p_finalize:");
	}
	// Rank 2 has never talked to it and waits for a message. Rank 3 first sends it one, which may succeed or not.
	const double start = now();
	pt2p_status_t status = PT2P_OK;
	if (me == 3) {
		std::this_thread::sleep_for(std::chrono::milliseconds(500));
		status = pt2p_send(ctx, &value, sizeof value, victim, tag_eager);
	}
	if (status == PT2P_OK)
		status = pt2p_recv(ctx, &value, sizeof value, victim, tag_never, PT2P_TAG_EXACT, nullptr);
	const std::string text = pt2p_last_error(ctx);
	printf("survivor %d: %s\n", me, text.c_str());
	if (status != PT2P_ERR_PEER_FINALIZED || text.find("rank 1") == std::string::npos || now() - start > soon)
		fail("a receive from a rank that has finalized ends otherwise, or late");
	talk_among_survivors();
	return pt2p_finalize(ctx) == PT2P_OK ? 0 : 1;
}

} // namespace fault
