// SPDX-License-Identifier: BSD-3-Clause
// The victim dies as a server, and as a caller whose calls the survivors have not replied to.
#include "tests/fault/cases.hpp"
#include "tests/fault/victim.hpp"

#include <vector>

namespace fault {

namespace {

constexpr uint32_t echo_service = 1, keeping_service = 2;
std::vector<pt2p_call_t *> kept;

void echo(pt2p_context_t *c, pt2p_call_t *call, const void *input, size_t length, void *)
{
	must(pt2p_reply(c, call, length, input, length), "pt2p_reply:");
}

void keep(pt2p_context_t *, pt2p_call_t *call, const void *, size_t, void *) { kept.push_back(call); }

} // namespace

int calls(bool as_caller)
{
	join();
	pt2p_service_t *service;
	must(pt2p_service_open(ctx, echo_service, echo, nullptr, nullptr, &service), "pt2p_service_open:");
	must(pt2p_service_open(ctx, keeping_service, keep, nullptr, nullptr, &service), "pt2p_service_open:");
	meet("services are open");
	if (is_victim()) {
		die_in(250);
		pt2p_request_t *r;
		for (int peer = 0; peer < ranks && as_caller; ++peer)
			if (is_partner(peer))
				must(pt2p_icall(ctx, peer, keeping_service, nullptr, 0, nullptr, 0, nullptr, &r), "pt2p_icall:");
		for (;;)
			must(pt2p_progress(ctx), "pt2p_progress:");
	}
	std::vector<unsigned char> out(60000, 3), in(60000);
	pt2p_status_t status = PT2P_OK;
	double last = now();
	while (status == PT2P_OK) {
		last = now();
		constexpr size_t window = 80; // more than may be under way
		std::vector<pt2p_request_t *> requests(window);
		for (size_t i = 0; i < window && status == PT2P_OK; ++i)
			status = pt2p_icall(ctx, victim, echo_service, out.data(), i % 9 ? i * 8 : i * 700, in.data(), in.size(),
			                    nullptr, &requests[i]);
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
		must(pt2p_reply(ctx, call, 0, out.data(), out.size()), "pt2p_reply:");
	}
	survived(status, now() - last);
	return 0;
}

} // namespace fault
