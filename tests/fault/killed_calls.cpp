// SPDX-License-Identifier: BSD-3-Clause
// The victim dies as a server, and as a caller whose calls the survivors have not replied to. Memory is lent both ways.
#include "tests/fault/cases.hpp"
#include "tests/fault/victim.hpp"

#include <vector>

namespace fault {

namespace {

constexpr uint32_t echo_service = 1, keeping_service = 2, moving_service = 3;
constexpr size_t window_bytes = 200000;
std::vector<pt2p_call_t *> kept;
std::vector<unsigned char> moved(window_bytes);

void echo(pt2p_context_t *c, pt2p_call_t *call, const void *input, size_t length, void *)
{
	must(pt2p_reply(c, call, length, input, length), "pt2p_reply:");
}

// A transfer fails when the caller is gone; its call is over then.
void move(pt2p_context_t *c, pt2p_call_t *call, const void *, size_t, void *)
{
	const pt2p_status_t pulled = pt2p_call_pull(c, call, moved.data(), 0, moved.size(), nullptr);
	const pt2p_status_t pushed = pt2p_call_push(c, call, moved.data(), 0, moved.size(), nullptr);
	for (const pt2p_status_t status : {pulled, pushed})
		if (status != PT2P_OK && status != PT2P_ERR_PEER_LOST)
			must(status, "pt2p_call_pull or _push:");
}

void move_and_reply(pt2p_context_t *c, pt2p_call_t *call, const void *input, size_t length, void *argument)
{
	move(c, call, input, length, argument);
	must(pt2p_reply(c, call, 0, nullptr, 0), "pt2p_reply:");
}

void keep(pt2p_context_t *c, pt2p_call_t *call, const void *input, size_t length, void *argument)
{
	move(c, call, input, length, argument);
	kept.push_back(call);
}

} // namespace

int calls(bool as_caller)
{
	join();
	pt2p_service_t *service;
	must(pt2p_service_open(ctx, echo_service, echo, nullptr, nullptr, &service), "pt2p_service_open:");
	must(pt2p_service_open(ctx, keeping_service, keep, nullptr, nullptr, &service), "pt2p_service_open:");
	must(pt2p_service_open(ctx, moving_service, move_and_reply, nullptr, nullptr, &service), "pt2p_service_open:");
	std::vector<unsigned char> given(window_bytes, 5), taken(window_bytes);
	pt2p_call_options_t windows = PT2P_CALL_OPTIONS_INIT;
	windows.give = {given.data(), given.size()};
	windows.take = {taken.data(), taken.size()};
	must(pt2p_barrier(ctx), "pt2p_barrier:"); // the services are open
	if (is_victim()) {
		die_in(250);
		pt2p_request_t *r;
		for (int peer = 0; peer < ranks && as_caller; ++peer)
			if (is_partner(peer))
				must(pt2p_icall(ctx, peer, keeping_service, nullptr, 0, nullptr, 0, &windows, &r), "pt2p_icall:");
		for (;;)
			must(pt2p_progress(ctx), "pt2p_progress:");
	}
	std::vector<unsigned char> out(120000, 3), in(120000);
	pt2p_status_t status = PT2P_OK;
	double last = now();
	while (status == PT2P_OK) {
		last = now();
		constexpr size_t window = 80; // more than may be under way
		std::vector<pt2p_request_t *> requests(window);
		for (size_t i = 0; i < window && status == PT2P_OK; ++i)
			status = i % 16 == 5
			             ? pt2p_icall(ctx, victim, moving_service, nullptr, 0, nullptr, 0, &windows, &requests[i])
			             : pt2p_icall(ctx, victim, echo_service, out.data(), i % 9 ? i * 8 : i * 1500, in.data(),
			                          in.size(), nullptr, &requests[i]);
		const pt2p_status_t ended = pt2p_waitall(ctx, window, requests.data(), nullptr);
		if (status == PT2P_OK)
			status = ended;
	}
	if (as_caller && kept.size() != 1)
		fail("not exactly one call of the victim was kept");
	for (pt2p_call_t *call : kept) {
		pt2p_call_info_t info;
		must(pt2p_call_query(ctx, call, &info), "pt2p_call_query:");
		if (!info.cancelled || info.caller != victim)
			fail("a call of the victim does not tell that its caller is gone");
		if (pt2p_call_pull(ctx, call, moved.data(), 0, 1, nullptr) != PT2P_ERR_PEER_LOST)
			fail("bytes are pulled from a rank that is lost");
		must(pt2p_reply(ctx, call, 0, out.data(), out.size()), "pt2p_reply:");
	}
	survived(status, now() - last);
	return 0;
}

} // namespace fault
