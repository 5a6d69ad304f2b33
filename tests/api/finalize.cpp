// SPDX-License-Identifier: BSD-3-Clause
// pt2p_finalize with something left over, and ranks that have finalized.
#include "tests/api/job.hpp"

#include <cstring>
#include <string>
#include <vector>

TEST_CASE("finalize reports unfinished requests")
{
	Job job;
	char in[10], out[100000] = {};
	pt2p_request_t *req = nullptr;
	REQUIRE(pt2p_irecv(job[0], in, sizeof in, 1, 0x1234, PT2P_TAG_EXACT, &req) == PT2P_OK);
	refused(nullptr, pt2p_finalize(job[0]), PT2P_ERR_UNFINISHED, "0x1234");
	CHECK(std::string(pt2p_last_error(nullptr)).find("rank 1") != std::string::npos);
	job.contexts[0] = nullptr;

	// A rendezvous that nobody receives, with a short time for finalize.
	const char *list[] = {"PT2P_FINALIZE_TIME=20ms", nullptr};
	pt2p_options_t options = PT2P_OPTIONS_INIT;
	options.tunables = list;
	pt2p_context_t *ctx[2];
	REQUIRE(pt2p_init_inprocess(2, PT2P_INPROCESS_COOPERATIVE, &options, ctx) == PT2P_OK);
	REQUIRE(pt2p_isend(ctx[0], out, sizeof out, 1, 0x77, &req) == PT2P_OK);
	refused(nullptr, pt2p_finalize(ctx[0]), PT2P_ERR_UNFINISHED, "100000 bytes");
	CHECK(pt2p_finalize(ctx[1]) == PT2P_OK);
}

TEST_CASE("messages to and from a rank that has finalized")
{
	Job job(3);
	char byte = 9;
	pt2p_request_t *req = nullptr;
	// What it sent before it left still arrives.
	REQUIRE(pt2p_send(job[1], &byte, 1, 0, 3) == PT2P_OK);
	REQUIRE(pt2p_irecv(job[0], &byte, 1, 1, 4, PT2P_TAG_EXACT, &req) == PT2P_OK);
	REQUIRE(pt2p_finalize(job[1]) == PT2P_OK);
	job.contexts[1] = nullptr;
	refused(job[0], pt2p_wait(job[0], req, nullptr), PT2P_ERR_PEER_FINALIZED, "rank 1");
	byte = 0;
	CHECK(pt2p_recv(job[0], &byte, 1, 1, 3, PT2P_TAG_EXACT, nullptr) == PT2P_OK);
	CHECK(byte == 9);
	refused(job[0], pt2p_send(job[0], &byte, 1, 1, 3), PT2P_ERR_PEER_FINALIZED, "rank 1");
	refused(job[0], pt2p_recv(job[0], &byte, 1, 1, 3, PT2P_TAG_EXACT, nullptr), PT2P_ERR_PEER_FINALIZED, "rank 1");
	refused(job[0], pt2p_probe(job[0], 1, 3, PT2P_TAG_EXACT, nullptr), PT2P_ERR_PEER_FINALIZED, "rank 1");
	auto *message = reinterpret_cast<pt2p_message_t *>(uintptr_t{5});
	refused(job[0], pt2p_mprobe(job[0], 1, 3, PT2P_TAG_EXACT, &message, nullptr), PT2P_ERR_PEER_FINALIZED, "rank 1");
	CHECK(message == nullptr);
	refused(job[0], pt2p_improbe(job[0], 1, 3, PT2P_TAG_EXACT, &message, nullptr), PT2P_ERR_PEER_FINALIZED, "rank 1");
	refused(job[0], pt2p_ssend(job[0], "x", 1, 1, 3), PT2P_ERR_PEER_FINALIZED, "rank 1");
	refused(job[0], pt2p_barrier(job[0]), PT2P_ERR_PEER_FINALIZED, "rank 1");
	pt2p_peer_info_t peer;
	CHECK(pt2p_peer_query(job[0], 1, &peer) == PT2P_OK);
	CHECK(peer.state == PT2P_PEER_FINALIZED);
	// The others go on.
	CHECK(pt2p_send(job[0], &byte, 1, 2, 3) == PT2P_OK);
	CHECK(pt2p_recv(job[2], &byte, 1, 0, 3, PT2P_TAG_EXACT, nullptr) == PT2P_OK);
}

TEST_CASE("finalize completes one-sided operations, and reports those that it cannot complete")
{
	for (const char *time : {"PT2P_FINALIZE_TIME=10", "PT2P_FINALIZE_TIME=0"}) {
		const char *tunables[] = {"PT2P_ONE_SIDED=owner", time, nullptr};
		pt2p_options_t options = PT2P_OPTIONS_INIT;
		options.tunables = tunables;
		pt2p_context_t *ctx[2];
		REQUIRE(pt2p_init_inprocess(2, PT2P_INPROCESS_COOPERATIVE, &options, ctx) == PT2P_OK);
		pt2p_memory_t *mem = nullptr;
		pt2p_remote_t *remote = nullptr;
		void *address = nullptr;
		unsigned char blob[PT2P_EXPORT_MAX];
		size_t needed = 0;
		const size_t length = 1 << 20;
		std::vector<unsigned char> data(length, 7);
		REQUIRE(pt2p_memory_allocate(ctx[1], length, &mem, &address) == PT2P_OK);
		REQUIRE(pt2p_memory_export(ctx[1], mem, blob, sizeof blob, &needed) == PT2P_OK);
		REQUIRE(pt2p_memory_import(ctx[0], 1, blob, needed, &remote) == PT2P_OK);
		CHECK(pt2p_put(ctx[0], data.data(), length, remote, 0, nullptr) == PT2P_OK);
		CHECK(pt2p_fetch_add64(ctx[0], remote, 0, 0, nullptr, nullptr) == PT2P_OK);
		std::vector<char> text(10000);
		REQUIRE(pt2p_summary(ctx[0], text.data(), text.size(), nullptr) == PT2P_OK);
		CHECK(strstr(text.data(), "2 one-sided operations on memory of rank 1 not done") != nullptr);
		const bool drives = strcmp(time, "PT2P_FINALIZE_TIME=0") != 0;
		CHECK(pt2p_finalize(ctx[0]) == (drives ? PT2P_OK : PT2P_ERR_UNFINISHED));
		if (!drives)
			CHECK(strstr(pt2p_last_error(nullptr), "one-sided operations on memory of rank 1") != nullptr);
		CHECK((memcmp(address, data.data(), length) == 0) == drives);
		CHECK(pt2p_finalize(ctx[1]) == PT2P_OK);
	}
}

namespace {

// What a callback was told.
struct Told {
	int calls = 0;
	pt2p_status_t status = PT2P_OK, again = PT2P_OK;
	bool explained = false;
};

void tell(pt2p_context_t *ctx, const pt2p_result_t *result, void *argument)
{
	auto *t = static_cast<Told *>(argument);
	++t->calls;
	t->status = result->status;
	t->explained = result->status == PT2P_OK || *pt2p_last_error(ctx);
	t->again = pt2p_isend_callback(ctx, nullptr, 0, pt2p_rank(ctx), 9, tell, argument);
}

} // namespace

TEST_CASE("finalize: requests that were released or have a callback")
{
	pt2p_context_t *c = nullptr;
	REQUIRE(pt2p_init_inprocess(1, PT2P_INPROCESS_COOPERATIVE, nullptr, &c) == PT2P_OK);
	pt2p_request_t *req = nullptr;
	char byte = 0;
	Told told;
	SECTION("a receive with a callback that nothing matches")
	{
		REQUIRE(pt2p_irecv_callback(c, &byte, 1, 0, 5, PT2P_TAG_EXACT, tell, &told) == PT2P_OK);
		CHECK(pt2p_finalize(c) == PT2P_ERR_UNFINISHED);
		CHECK(std::string(pt2p_last_error(nullptr)).find("with a callback") != std::string::npos);
		CHECK(told.calls == 1);
		CHECK(told.status == PT2P_ERR_UNFINISHED);
		CHECK(told.again == PT2P_ERR_UNFINISHED);
	}
	SECTION("a receive that was released and nothing matches")
	{
		REQUIRE(pt2p_irecv(c, &byte, 1, 0, 5, PT2P_TAG_EXACT, &req) == PT2P_OK);
		REQUIRE(pt2p_request_free(c, req) == PT2P_OK);
		CHECK(pt2p_finalize(c) == PT2P_ERR_UNFINISHED);
		CHECK(std::string(pt2p_last_error(nullptr)).find("1 receive has") != std::string::npos);
		CHECK(std::string(pt2p_last_error(nullptr)).find("given up") != std::string::npos);
	}
	SECTION("completed: nothing is left to report")
	{
		REQUIRE(pt2p_irecv(c, &byte, 1, 0, 5, PT2P_TAG_EXACT, &req) == PT2P_OK);
		REQUIRE(pt2p_request_free(c, req) == PT2P_OK);
		REQUIRE(pt2p_send(c, "x", 1, 0, 5) == PT2P_OK);
		Told other;
		auto count = [](pt2p_context_t *, const pt2p_result_t *, void *argument) {
			++static_cast<Told *>(argument)->calls;
		};
		REQUIRE(pt2p_isend_callback(c, "y", 1, 0, 6, count, &other) == PT2P_OK);
		CHECK(other.calls == 0);
		CHECK(pt2p_finalize(c) == PT2P_OK);
		CHECK(other.calls == 1);
		CHECK(byte == 'x');
	}
}
