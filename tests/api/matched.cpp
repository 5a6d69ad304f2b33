// SPDX-License-Identifier: BSD-3-Clause
// Synchronous sends and matched probes: bad arguments, messages that were taken out of matching, and messages left
// over.
#include "tests/api/job.hpp"

#include <climits>
#include <string>
#include <vector>

TEST_CASE("synchronous sends and matched probes check their arguments")
{
	Job job;
	pt2p_context_t *c = job[0];
	char byte = 0;
	pt2p_message_t *message = nullptr;
	auto *const stale = reinterpret_cast<pt2p_request_t *>(uintptr_t{5});
	pt2p_request_t *req = stale;
	refused(c, pt2p_ssend(c, nullptr, 1, 1, 0), PT2P_ERR_ARGUMENT, "buffer");
	refused(c, pt2p_ssend(c, &byte, negative, 1, 0), PT2P_ERR_LENGTH, "-5");
	refused(c, pt2p_issend(c, &byte, 1, 1, 0, nullptr), PT2P_ERR_ARGUMENT, "req");
	refused(c, pt2p_issend(c, nullptr, 9, 1, 0, &req), PT2P_ERR_ARGUMENT, "buffer");
	CHECK(req == nullptr);
	refused(c, pt2p_issend(c, &byte, SIZE_MAX, 1, 0, &req), PT2P_ERR_LENGTH);
	refused(c, pt2p_mprobe(c, 1, 0, 0, nullptr, nullptr), PT2P_ERR_ARGUMENT, "message");
	refused(c, pt2p_improbe(c, 1, 0, 0, nullptr, nullptr), PT2P_ERR_ARGUMENT, "message");
	refused(c, pt2p_mrecv(c, &byte, 1, nullptr, nullptr), PT2P_ERR_REQUEST, "NULL");
	for (int rank : {2, -2, INT_MAX, INT_MIN}) {
		const std::string name = std::to_string(rank);
		refused(c, pt2p_ssend(c, &byte, 1, rank, 0), PT2P_ERR_RANK, name.c_str());
		refused(c, pt2p_issend(c, &byte, 1, rank, 0, &req), PT2P_ERR_RANK, name.c_str());
		refused(c, pt2p_mprobe(c, rank, 0, 0, &message, nullptr), PT2P_ERR_RANK, name.c_str());
		refused(c, pt2p_improbe(c, rank, 0, 0, &message, nullptr), PT2P_ERR_RANK, name.c_str());
	}
	refused(c, pt2p_ssend(c, &byte, 1, PT2P_ANY_SOURCE, 0), PT2P_ERR_RANK);

	// A message survives refused receives.
	REQUIRE(pt2p_send(job[1], "xy", 2, 0, 4) == PT2P_OK);
	REQUIRE(pt2p_mprobe(c, PT2P_ANY_SOURCE, 0, PT2P_TAG_ANY, &message, nullptr) == PT2P_OK);
	refused(c, pt2p_imrecv(c, &byte, 1, message, nullptr), PT2P_ERR_ARGUMENT, "req");
	req = stale;
	refused(c, pt2p_imrecv(c, nullptr, 1, message, &req), PT2P_ERR_ARGUMENT, "buffer");
	CHECK(req == nullptr);
	refused(c, pt2p_mrecv(c, nullptr, 1, message, nullptr), PT2P_ERR_ARGUMENT, "buffer");
	refused(c, pt2p_mrecv(c, &byte, negative, message, nullptr), PT2P_ERR_LENGTH);
	refused(c, pt2p_imrecv(c, &byte, negative, message, &req), PT2P_ERR_LENGTH);
	pt2p_result_t result{};
	refused(c, pt2p_mrecv(c, &byte, 1, message, &result), PT2P_ERR_TRUNCATED, "2 bytes");
	CHECK((byte == 'x' && result.length == 2 && result.source == 1 && result.tag == 4));
}

TEST_CASE("received, foreign and invented messages are refused")
{
	Job job;
	pt2p_context_t *c = job[0];
	char byte = 0;
	int flag = 0;
	pt2p_request_t *req = nullptr, *request = nullptr;
	pt2p_message_t *dead = nullptr, *live = nullptr;
	for (int i = 0; i < 2; ++i)
		REQUIRE(pt2p_send(job[1], "x", 1, 0, 4) == PT2P_OK);
	REQUIRE(pt2p_mprobe(c, 1, 4, PT2P_TAG_EXACT, &dead, nullptr) == PT2P_OK);
	REQUIRE(pt2p_mrecv(c, &byte, 1, dead, nullptr) == PT2P_OK);
	REQUIRE(pt2p_mprobe(c, 1, 4, PT2P_TAG_EXACT, &live, nullptr) == PT2P_OK);
	CHECK(live != dead); // although it has the same address
	REQUIRE(pt2p_irecv(c, &byte, 1, 1, 5, PT2P_TAG_EXACT, &request) == PT2P_OK);
	std::vector<pt2p_message_t *> bad = {nullptr, dead, reinterpret_cast<pt2p_message_t *>(request)};
	for (pt2p_request_t *g : garbage)
		bad.push_back(reinterpret_cast<pt2p_message_t *>(g));
	for (pt2p_message_t *m : bad) {
		INFO(m);
		refused(c, pt2p_mrecv(c, &byte, 1, m, nullptr), PT2P_ERR_REQUEST, "pt2p_mrecv");
		refused(c, pt2p_imrecv(c, &byte, 1, m, &req), PT2P_ERR_REQUEST, "pt2p_imrecv");
		CHECK(req == nullptr);
	}
	refused(job[1], pt2p_mrecv(job[1], &byte, 1, live, nullptr), PT2P_ERR_REQUEST); // the other rank's
	// A message is not a request, before and after it is received.
	auto *as_request = reinterpret_cast<pt2p_request_t *>(live);
	refused(c, pt2p_wait(c, as_request, nullptr), PT2P_ERR_REQUEST);
	refused(c, pt2p_test(c, as_request, &flag, nullptr), PT2P_ERR_REQUEST);
	refused(c, pt2p_cancel(c, as_request), PT2P_ERR_REQUEST);
	CHECK(pt2p_mrecv(c, &byte, 1, live, nullptr) == PT2P_OK);
	CHECK(pt2p_cancel(c, request) == PT2P_OK);
	CHECK(pt2p_wait(c, request, nullptr) == PT2P_ERR_CANCELLED);
}

// The bytes of messages that were taken count as unexpected, so senders are held back until they are received.
TEST_CASE("messages that were taken count as unexpected until they are received")
{
	const char *list[] = {"PT2P_UNEXPECTED_MAX=4000", nullptr};
	pt2p_options_t options = PT2P_OPTIONS_INIT;
	options.tunables = list;
	pt2p_context_t *ctx[2];
	REQUIRE(pt2p_init_inprocess(2, PT2P_INPROCESS_COOPERATIVE, &options, ctx) == PT2P_OK);
	const std::vector<char> out(1000, 'x');
	std::vector<char> in(1000);
	const auto eager = [&](pt2p_context_t *c) {
		for (int i = 0; i < pt2p_counter_count(); ++i)
			if (std::string(pt2p_counter_name(i)) == "eager_sent") {
				uint64_t value = 0;
				REQUIRE(pt2p_counter_read(c, i, &value) == PT2P_OK);
				return value;
			}
		return UINT64_MAX;
	};
	const auto settle = [&] {
		for (int i = 0; i < 20; ++i)
			for (pt2p_context_t *c : ctx)
				REQUIRE(pt2p_progress(c) == PT2P_OK);
	};
	for (int again = 0; again < 3; ++again) {
		std::vector<pt2p_request_t *> sends(5);
		std::vector<pt2p_message_t *> messages;
		const uint64_t before = eager(ctx[0]);
		for (size_t i = 0; i < sends.size(); ++i)
			REQUIRE((i % 2 ? pt2p_isend : pt2p_issend)(ctx[0], out.data(), out.size(), 1, 7, &sends[i]) == PT2P_OK);
		settle();
		CHECK(eager(ctx[0]) == before + 5);
		for (size_t i = 0; i < sends.size(); ++i) {
			messages.push_back(nullptr);
			REQUIRE(pt2p_mprobe(ctx[1], 0, 7, PT2P_TAG_EXACT, &messages.back(), nullptr) == PT2P_OK);
		}
		settle();
		// All are out of matching and not yet received, so the next one is announced.
		sends.push_back(nullptr);
		REQUIRE(pt2p_isend(ctx[0], out.data(), out.size(), 1, 7, &sends.back()) == PT2P_OK);
		sends.push_back(nullptr);
		REQUIRE(pt2p_issend(ctx[0], out.data(), out.size(), 1, 7, &sends.back()) == PT2P_OK);
		CHECK(eager(ctx[0]) == before + 5);
		for (pt2p_message_t *m : messages)
			REQUIRE(pt2p_mrecv(ctx[1], in.data(), in.size(), m, nullptr) == PT2P_OK);
		for (int i = 0; i < 2; ++i)
			REQUIRE(pt2p_recv(ctx[1], in.data(), in.size(), 0, 7, PT2P_TAG_EXACT, nullptr) == PT2P_OK);
		CHECK(pt2p_waitall(ctx[0], sends.size(), sends.data(), nullptr) == PT2P_OK);
		settle();
	}
	CHECK(pt2p_finalize(ctx[0]) == PT2P_OK);
	CHECK(pt2p_finalize(ctx[1]) == PT2P_OK);
}

TEST_CASE("a message that was taken and never received is reported by pt2p_finalize")
{
	for (const char *sizes : {"PT2P_EAGER_MAX=8k", "PT2P_EAGER_MAX=0"}) {
		const char *list[] = {sizes, "PT2P_FINALIZE_TIME=50ms", nullptr};
		pt2p_options_t options = PT2P_OPTIONS_INIT;
		options.tunables = list;
		pt2p_context_t *ctx[2];
		REQUIRE(pt2p_init_inprocess(2, PT2P_INPROCESS_COOPERATIVE, &options, ctx) == PT2P_OK);
		pt2p_message_t *message = nullptr;
		pt2p_request_t *send = nullptr;
		REQUIRE(pt2p_issend(ctx[0], "abc", 3, 1, 0x77, &send) == PT2P_OK);
		REQUIRE(pt2p_mprobe(ctx[1], 0, 0x77, PT2P_TAG_EXACT, &message, nullptr) == PT2P_OK);
		refused(nullptr, pt2p_finalize(ctx[1]), PT2P_ERR_UNFINISHED, "1 message of pt2p_mprobe was not received");
		CHECK(std::string(pt2p_last_error(nullptr)).find("message of 3 bytes from rank 0, tag 0x77") !=
		      std::string::npos);
		// Nobody will ever receive it.
		refused(ctx[0], pt2p_wait(ctx[0], send, nullptr), PT2P_ERR_PEER_FINALIZED, "rank 1");
		CHECK(pt2p_finalize(ctx[0]) == PT2P_OK);
	}
}
