// SPDX-License-Identifier: BSD-3-Clause
// One process: what pt2p_init, a first message and pt2p_finalize report when something is wrong.
#include "tests/fault/cases.hpp"
#include "tests/fault/rank.hpp"

#include <cstdio>
#include <string>
#include <vector>

namespace fault {

int init()
{
	const double start = now();
	const pt2p_status_t status = pt2p_init(nullptr, &ctx);
	printf("pt2p_init: %d %s\n", static_cast<int>(status), status == PT2P_OK ? "" : pt2p_last_error(nullptr));
	if (now() - start > soon)
		fail("pt2p_init took too long");
	if ((status == PT2P_OK) != (ctx != nullptr))
		fail("status and context disagree");
	return status == PT2P_OK ? pt2p_finalize(ctx) : 0;
}

// Makes an in-process job, and sends a first message from 0 to 1.
int inprocess(int size)
{
	std::vector<pt2p_context_t *> all(static_cast<size_t>(size));
	pt2p_status_t status = pt2p_init_inprocess(size, PT2P_INPROCESS_COOPERATIVE, nullptr, all.data());
	if (status != PT2P_OK) {
		printf("pt2p_init_inprocess: %d %s\n", static_cast<int>(status), pt2p_last_error(nullptr));
		for (pt2p_context_t *c : all)
			if (c)
				fail("a context is left after a failure");
		return 0;
	}
	int value = 7;
	status = pt2p_send(all[0], &value, sizeof value, 1, tag_eager);
	printf("first send: %d %s\n", static_cast<int>(status), status == PT2P_OK ? "" : pt2p_last_error(all[0]));
	for (pt2p_context_t *c : all)
		pt2p_finalize(c);
	return 0;
}

// Finalize with requests of every kind left over.
int unfinished()
{
	init_context();
	int in[3] = {}, out = 5;
	pt2p_request_t *r;
	must(pt2p_irecv(ctx, &in[0], sizeof in[0], PT2P_ANY_SOURCE, tag_never, PT2P_TAG_EXACT, &r), "pt2p_irecv:");
	must(pt2p_irecv(ctx, &in[1], sizeof in[1], 0, tag_never, PT2P_TAG_EXACT, &r), "pt2p_irecv:");
	must(pt2p_irecv(ctx, &in[2], sizeof in[2], 0, tag_eager, PT2P_TAG_EXACT, &r), "pt2p_irecv:");
	must(pt2p_send(ctx, &out, sizeof out, 0, tag_eager), "pt2p_send:");
	must(pt2p_send(ctx, &out, sizeof out, 0, tag_after), "pt2p_send:"); // stays unexpected
	const double start = now();
	const pt2p_status_t status = pt2p_finalize(ctx);
	const std::string text = pt2p_last_error(nullptr);
	printf("unfinished: %s\n", text.c_str());
	if (status != PT2P_ERR_UNFINISHED || now() - start > soon)
		fail("pt2p_finalize returns otherwise, or late");
	if (text.find("2 receives") == std::string::npos || text.find("1 completed") == std::string::npos)
		fail("the explanation does not count what is left:", text.c_str());
	if (pt2p_finalize(nullptr) != PT2P_ERR_CONTEXT)
		fail("pt2p_finalize(NULL)");
	return 0;
}

} // namespace fault
