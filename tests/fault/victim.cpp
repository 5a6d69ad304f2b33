// SPDX-License-Identifier: BSD-3-Clause
#include "tests/fault/victim.hpp"

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <unistd.h>

namespace fault {

void die_in(int milliseconds)
{
	std::thread([milliseconds] {
		std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
		kill(getpid(), SIGKILL);
	}).detach();
}

[[noreturn]] void die()
{
	kill(getpid(), SIGKILL);
	for (;;)
		pause();
}

void await_survivors()
{
	for (int peer = 0; peer < ranks; ++peer)
		if (peer != me)
			must(pt2p_recv(ctx, nullptr, 0, peer, tag_after, PT2P_TAG_EXACT, nullptr), "pt2p_recv:");
}

[[noreturn]] void progress_until_death(int milliseconds)
{
	die_in(milliseconds);
	for (;;)
		pt2p_progress(ctx);
}

void talk_among_survivors()
{
	std::vector<unsigned char> out(300000), in(300000);
	for (int peer = 0; peer < ranks; ++peer) {
		if (peer == me || peer == victim)
			continue;
		for (size_t length : {size_t{8}, out.size()}) {
			out.resize(length);
			in.assign(length, 0);
			fill(out, static_cast<unsigned>(me));
			pt2p_result_t result;
			must(pt2p_sendrecv(ctx, out.data(), length, peer, tag_after, in.data(), length, peer, tag_after,
			                   PT2P_TAG_EXACT, &result),
			     "exchange among survivors:");
			verify(in, static_cast<unsigned>(peer));
		}
	}
}

void survived(pt2p_status_t status, double waited)
{
	const std::string text = pt2p_last_error(ctx);
	printf("survivor %d: %s\n", me, text.c_str());
	fflush(stdout);
	if (status != PT2P_ERR_PEER_LOST)
		fail("the status is not PT2P_ERR_PEER_LOST but", pt2p_strerror(status));
	if (text.find("rank 1") == std::string::npos)
		fail("the explanation does not name rank 1:", text.c_str());
	if (waited > soon)
		fail("it took too long");
	pt2p_peer_info_t info;
	must(pt2p_peer_query(ctx, victim, &info), "pt2p_peer_query:");
	// The failure may come from the kernel before the transport has checked its peers. It does so within a few progress
	// calls.
	for (const double end = now() + soon; info.state != PT2P_PEER_LOST && now() < end;) {
		pt2p_progress(ctx);
		must(pt2p_peer_query(ctx, victim, &info), "pt2p_peer_query:");
	}
	if (info.state != PT2P_PEER_LOST)
		fail("pt2p_peer_query does not call the victim lost");
	// Later calls fail at once, and nothing else fails.
	char byte = 0;
	if (pt2p_send(ctx, &byte, 1, victim, tag_never) != PT2P_ERR_PEER_LOST)
		fail("a later send does not fail");
	if (pt2p_recv(ctx, &byte, 1, victim, tag_never, PT2P_TAG_EXACT, nullptr) != PT2P_ERR_PEER_LOST)
		fail("a later receive does not fail");
	// An exchange that cannot send receives no message.
	must(pt2p_send(ctx, &byte, 1, me, tag_never), "a message to itself:");
	if (pt2p_sendrecv(ctx, &byte, 1, victim, tag_never, &byte, 1, me, tag_never, PT2P_TAG_EXACT, nullptr) !=
	    PT2P_ERR_PEER_LOST)
		fail("a later exchange does not fail");
	int found = 0;
	must(pt2p_iprobe(ctx, me, tag_never, PT2P_TAG_EXACT, &found, nullptr), "pt2p_iprobe:");
	if (!found)
		fail("an exchange that failed has lost a message");
	must(pt2p_recv(ctx, &byte, 1, me, tag_never, PT2P_TAG_EXACT, nullptr), "pt2p_recv:");
	talk_among_survivors();
	if (pt2p_finalize(ctx) != PT2P_OK)
		fail("pt2p_finalize:", pt2p_last_error(nullptr));
	exit(0);
}

double end_round(std::vector<pt2p_request_t *> &reqs, pt2p_status_t status, double last)
{
	const pt2p_status_t all = pt2p_waitall(ctx, reqs.size(), reqs.data(), nullptr);
	if (all != PT2P_OK)
		status = all;
	if (status != PT2P_OK)
		survived(status, now() - last);
	return now();
}

} // namespace fault
