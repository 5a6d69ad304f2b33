// SPDX-License-Identifier: BSD-3-Clause
// Peers that are added, and what goes between them.
#include "tests/open/open.hpp"

#include <atomic>
#include <set>

using namespace open_test;

TEST_CASE("an open context knows itself and nobody else")
{
	Context a;
	CHECK(pt2p_rank(a) == 0);
	CHECK(pt2p_size(a) == 256);
	CHECK(a.address.find(':') != std::string::npos);
	CHECK(carry({a}, a, a, 0, 100, 1) == 0);
	CHECK(a.add(a) == 0);
	int value = 0;
	refused(a, pt2p_send(a, &value, sizeof value, 1, 1), PT2P_ERR_RANK, "pt2p_peer_add");
	refused(a, pt2p_recv(a, &value, sizeof value, 7, 1, PT2P_TAG_EXACT, nullptr), PT2P_ERR_RANK, "number");
	refused(a, pt2p_probe(a, 7, 1, PT2P_TAG_EXACT, nullptr), PT2P_ERR_RANK, "number");
	int found = 0;
	refused(a, pt2p_iprobe(a, 7, 1, PT2P_TAG_EXACT, &found, nullptr), PT2P_ERR_RANK, "number");
	refused(a, pt2p_barrier(a), PT2P_ERR_UNSUPPORTED, "come and go");
	refused(a, pt2p_peer_remove(a, 0), PT2P_ERR_RANK, "nobody");
	refused(a, pt2p_peer_remove(a, 3), PT2P_ERR_RANK, "nobody");
	pt2p_peer_info_t info;
	REQUIRE(pt2p_peer_query(a, 3, &info) == PT2P_OK);
	CHECK(info.state == PT2P_PEER_UNKNOWN);
}

TEST_CASE("open calls on a context of a job")
{
	pt2p_context_t *ctx[1];
	REQUIRE(pt2p_init_inprocess(1, PT2P_INPROCESS_COOPERATIVE, nullptr, ctx) == PT2P_OK);
	int rank;
	refused(ctx[0], pt2p_peer_add(ctx[0], "127.0.0.1:1", &rank), PT2P_ERR_UNSUPPORTED, "pt2p_init_open");
	refused(ctx[0], pt2p_peer_remove(ctx[0], 0), PT2P_ERR_UNSUPPORTED, "pt2p_init_open");
	refused(ctx[0], pt2p_address(ctx[0], nullptr, 0, nullptr), PT2P_ERR_UNSUPPORTED, "pt2p_init_open");
	CHECK(pt2p_finalize(ctx[0]) == PT2P_OK);
	CHECK(pt2p_address(nullptr, nullptr, 0, nullptr) == PT2P_ERR_CONTEXT);
	CHECK(pt2p_peer_add(nullptr, "", &rank) == PT2P_ERR_CONTEXT);
	CHECK(pt2p_peer_remove(nullptr, 1) == PT2P_ERR_CONTEXT);
	CHECK(pt2p_init_open(nullptr, nullptr) == PT2P_ERR_ARGUMENT);
}

TEST_CASE("two open contexts: each has a number of its own for the other")
{
	Context a, b, c;
	const Contexts all{a, b, c};
	const int c_at_a = a.add(c), b_at_a = a.add(b);
	CHECK(c_at_a == 1);
	CHECK(b_at_a == 2);
	const int a_at_b = carry(all, a, b, b_at_a, 8, 5);
	CHECK(a_at_b == 1);
	for (const size_t length : {0, 1, 8, 100, 3000, 16384, 16385, 100000, 3000000}) {
		INFO(length);
		CHECK(carry(all, a, b, b_at_a, length, 6) == a_at_b);
		CHECK(carry(all, b, a, a_at_b, length, 7) == b_at_a);
		CHECK(carry(all, b, a, a_at_b, length, 8, b_at_a) == b_at_a);
	}
	// Many, so that rings of every kind fill and are taken into use.
	for (int i = 0; i < 2000; ++i) {
		carry(all, a, b, b_at_a, 24, 9);
		carry(all, b, a, a_at_b, 24, 9, b_at_a);
	}
	CHECK(carry(all, a, c, c_at_a, 8, 5) == 1);
	const int b_at_c = c.add(b);
	CHECK(b_at_c == 2);
	CHECK(carry(all, c, b, b_at_c, 40000, 5) == 2);
	CHECK(carry(all, b, c, 2, 40000, 5) == b_at_c);
	pt2p_peer_info_t info;
	REQUIRE(pt2p_peer_query(a, b_at_a, &info) == PT2P_OK);
	CHECK(info.state == PT2P_PEER_ALIVE);
}

TEST_CASE("a peer that was added, or came, keeps its number")
{
	Context a, b;
	const int b_at_a = a.add(b);
	CHECK(a.add(b) == b_at_a);
	const int a_at_b = b.add(a);
	CHECK(b.add(a) == a_at_b);
	CHECK(carry({a, b}, a, b, b_at_a, 8, 1) == a_at_b);
	const std::string port = b.address.substr(b.address.rfind(':'));
	CHECK(a.add("127.0.0.1" + port) == b_at_a);
	CHECK(a.add("localhost" + port) == b_at_a);
}

TEST_CASE("both add each other at the same time")
{
	for (int round = 0; round < 30; ++round) {
		Context a, b;
		int b_at_a = -1, a_at_b = -1;
		std::atomic<int> ready{0};
		std::thread other([&] {
			++ready;
			while (ready < 2)
				;
			if (pt2p_peer_add(b, a.address.c_str(), &a_at_b) != PT2P_OK)
				a_at_b = -2;
		});
		++ready;
		while (ready < 2)
			;
		const pt2p_status_t status = pt2p_peer_add(a, b.address.c_str(), &b_at_a);
		other.join();
		INFO(pt2p_last_error(a));
		REQUIRE(status == PT2P_OK);
		CHECK(b_at_a == 1);
		CHECK(a_at_b == 1);
		CHECK(carry({a, b}, a, b, b_at_a, 8, 1) == a_at_b);
		CHECK(carry({a, b}, b, a, a_at_b, 8, 1) == b_at_a);
	}
}

TEST_CASE("a thread adds peers while another one waits for messages")
{
	constexpr int clients = 6;
	Context server({}, PT2P_THREAD_MULTIPLE);
	std::thread answering([&] {
		for (int i = 0; i < 2 * clients; ++i) {
			int value = 0;
			pt2p_result_t result{};
			if (pt2p_recv(server, &value, sizeof value, PT2P_ANY_SOURCE, 1, PT2P_TAG_EXACT, &result) != PT2P_OK ||
			    pt2p_send(server, &value, sizeof value, result.source, 2) != PT2P_OK)
				return;
		}
	});
	std::atomic<int> right{0};
	std::vector<std::unique_ptr<Context>> contexts; // made here, as only one thread may use the checks of a test
	for (int i = 0; i < clients; ++i)
		contexts.push_back(std::make_unique<Context>());
	std::vector<std::thread> threads;
	for (int i = 0; i < clients; ++i)
		threads.emplace_back([&, i] {
			Context &client = *contexts[static_cast<size_t>(i)];
			// Half of them are added, and hear of the server by that.
			int there = 1, value = i, back = -1;
			if ((i % 2 ? pt2p_peer_add(client, server.address.c_str(), &there)
			           : pt2p_peer_add(server, client.address.c_str(), &back)) != PT2P_OK)
				return;
			for (int round = 0; round < 2; ++round)
				if (pt2p_send(client, &value, sizeof value, there, 1) == PT2P_OK &&
				    pt2p_recv(client, &back, sizeof back, there, 2, PT2P_TAG_EXACT, nullptr) == PT2P_OK)
					right += back == i;
			contexts[static_cast<size_t>(i)].reset();
		});
	for (std::thread &thread : threads)
		thread.join();
	answering.join();
	CHECK(right == 2 * clients);
}

TEST_CASE("one-sided operations between open contexts")
{
	Context a, b, c;
	const Contexts all{a, b, c};
	a.add(c); // so that b is not number 1 at a
	const int b_at_a = a.add(b);
	carry(all, a, b, b_at_a, 8, 1);
	std::vector<uint64_t> memory(1024);
	for (const bool allocated : {false, true}) {
		INFO(allocated);
		pt2p_memory_t *mine = nullptr;
		uint64_t *words = memory.data();
		if (allocated) {
			void *address = nullptr;
			REQUIRE(pt2p_memory_allocate(b, memory.size() * 8, &mine, &address) == PT2P_OK);
			words = static_cast<uint64_t *>(address);
		} else {
			REQUIRE(pt2p_memory_register(b, words, memory.size() * 8, &mine) == PT2P_OK);
		}
		words[3] = 40;
		std::vector<unsigned char> key(4096);
		size_t bytes = 0;
		REQUIRE(pt2p_memory_export(b, mine, key.data(), key.size(), &bytes) == PT2P_OK);
		pt2p_remote_t *remote = nullptr;
		const pt2p_status_t status = pt2p_memory_import(a, b_at_a, key.data(), bytes, &remote);
		INFO(pt2p_last_error(a));
		REQUIRE(status == PT2P_OK);
		const auto out = pattern(4000, 3);
		std::vector<unsigned char> in(out.size());
		pt2p_request_t *request = nullptr;
		REQUIRE(pt2p_put(a, out.data(), out.size(), remote, 64, &request) == PT2P_OK);
		CHECK(finish(all, a, request).status == PT2P_OK);
		REQUIRE(pt2p_get(a, in.data(), in.size(), remote, 64, &request) == PT2P_OK);
		CHECK(finish(all, a, request).status == PT2P_OK);
		CHECK(in == out);
		uint64_t before = 0;
		REQUIRE(pt2p_fetch_add64(a, remote, 24, 2, &before, &request) == PT2P_OK);
		CHECK(finish(all, a, request).status == PT2P_OK);
		CHECK(before == 40);
		CHECK(words[3] == 42);
		// The memory is b's, whatever number it is imported by.
		pt2p_remote_t *wrong = nullptr;
		refused(a, pt2p_memory_import(a, 1, key.data(), bytes, &wrong), PT2P_ERR_ARGUMENT, "not what rank 1 exported");
		CHECK(pt2p_remote_release(a, remote) == PT2P_OK);
		CHECK(pt2p_memory_release(b, mine) == PT2P_OK);
	}
}

namespace {

void add_one(pt2p_context_t *ctx, pt2p_call_t *call, const void *input, size_t length, void *)
{
	uint64_t value = 0;
	if (length == sizeof value)
		std::memcpy(&value, input, length);
	++value;
	pt2p_reply(ctx, call, 7, &value, sizeof value);
}

} // namespace

TEST_CASE("calls between open contexts")
{
	Context a, b, c;
	const Contexts all{a, b, c};
	a.add(c);
	const int b_at_a = a.add(b);
	pt2p_service_options_t options = PT2P_SERVICE_OPTIONS_INIT;
	pt2p_service_t *service = nullptr;
	REQUIRE(pt2p_service_open(b, 5, add_one, nullptr, &options, &service) == PT2P_OK);
	for (uint64_t i = 0; i < 300; ++i) {
		uint64_t reply = 0;
		pt2p_request_t *request = nullptr;
		pt2p_call_options_t call = PT2P_CALL_OPTIONS_INIT;
		const pt2p_status_t status = pt2p_icall(a, b_at_a, 5, &i, sizeof i, &reply, sizeof reply, &call, &request);
		INFO(pt2p_last_error(a));
		REQUIRE(status == PT2P_OK);
		const pt2p_result_t result = finish(all, a, request);
		CHECK(result.status == PT2P_OK);
		CHECK(result.source == b_at_a);
		CHECK(reply == i + 1);
	}
}
