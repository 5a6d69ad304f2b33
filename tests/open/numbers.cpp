// SPDX-License-Identifier: BSD-3-Clause
// Numbers that get another owner: nothing of the last one is left.
#include "tests/open/open.hpp"

#include <fstream>
#include <memory>

using namespace open_test;

namespace {

size_t mappings()
{
	std::ifstream maps("/proc/self/maps");
	std::string line;
	size_t n = 0;
	while (std::getline(maps, line))
		++n;
	return n;
}

// Adds once a number is free.
int add_in_time(const Contexts &all, pt2p_context_t *ctx, const std::string &address)
{
	int rank = -1;
	drive(all, [&] {
		const pt2p_status_t status = pt2p_peer_add(ctx, address.c_str(), &rank);
		if (status == PT2P_OK)
			return true;
		INFO(pt2p_last_error(ctx));
		REQUIRE((status == PT2P_ERR_NO_NUMBER || status == PT2P_ERR_REFUSED));
		// Slow checks, which free numbers, are made while a call waits.
		for (pt2p_context_t *c : all) {
			int found;
			for (int i = 0; i < 1000; ++i)
				pt2p_iprobe(c, PT2P_ANY_SOURCE, 12345, PT2P_TAG_EXACT, &found, nullptr);
		}
		std::this_thread::sleep_for(std::chrono::milliseconds(5));
		return false;
	});
	return rank;
}

void answer(pt2p_context_t *ctx, pt2p_call_t *call, const void *input, size_t length, void *)
{
	pt2p_reply(ctx, call, 1, input, length);
}

// Messages, memory and calls between two, in both directions.
void use_fully(const Contexts &all, pt2p_context_t *server, pt2p_context_t *client, int server_there, unsigned seed)
{
	const int client_here = carry(all, client, server, server_there, 8, seed);
	for (int i = 0; i < 100; ++i)
		carry(all, client, server, server_there, 24, seed + 1, client_here);
	carry(all, server, client, client_here, 60000, seed + 2);
	carry(all, client, server, server_there, 300000, seed + 3);
	uint64_t words[64] = {};
	pt2p_memory_t *mine = nullptr;
	pt2p_remote_t *remote = nullptr;
	unsigned char key[4096];
	size_t bytes = 0;
	REQUIRE(pt2p_memory_register(client, words, sizeof words, &mine) == PT2P_OK);
	REQUIRE(pt2p_memory_export(client, mine, key, sizeof key, &bytes) == PT2P_OK);
	REQUIRE(pt2p_memory_import(server, client_here, key, bytes, &remote) == PT2P_OK);
	pt2p_request_t *request = nullptr;
	const uint64_t value = seed;
	REQUIRE(pt2p_put(server, &value, sizeof value, remote, 16, &request) == PT2P_OK);
	CHECK(finish(all, server, request).status == PT2P_OK);
	CHECK(words[2] == seed);
	CHECK(pt2p_remote_release(server, remote) == PT2P_OK);
	CHECK(pt2p_memory_release(client, mine) == PT2P_OK);
	uint64_t reply = 0;
	for (int i = 0; i < 20; ++i) {
		REQUIRE(pt2p_icall(client, server_there, 5, &value, sizeof value, &reply, sizeof reply, nullptr, &request) ==
		        PT2P_OK);
		CHECK(finish(all, client, request).status == PT2P_OK);
		CHECK(reply == seed);
	}
}

} // namespace

TEST_CASE("a server with few numbers and many clients")
{
	const bool removes = GENERATE(true, false);
	INFO((removes ? "removes them" : "leaves that to the library"));
	Context server({"PT2P_OPEN_PEERS=4"});
	pt2p_service_t *service = nullptr;
	REQUIRE(pt2p_service_open(server, 5, answer, nullptr, nullptr, &service) == PT2P_OK);
	size_t before = 0;
	for (unsigned round = 0; round < 24; ++round) {
		INFO(round);
		Context client;
		const Contexts all{server, client};
		const int there = add_in_time(all, client, server.address);
		CHECK(there >= 1);
		use_fully(all, server, client, there, 100 * round + 1);
		const int here = carry(all, client, server, there, 8, 7);
		CHECK(here < 4);
		pt2p_request_t *request = nullptr;
		int never;
		REQUIRE(pt2p_irecv(server, &never, sizeof never, here, 99, PT2P_TAG_EXACT, &request) == PT2P_OK);
		CHECK(client.end() == PT2P_OK);
		CHECK(wait(server, request).status == PT2P_ERR_PEER_FINALIZED);
		if (removes)
			CHECK(pt2p_peer_remove(server, here) == PT2P_OK);
		if (round == 7)
			before = mappings();
	}
	CHECK(mappings() < before + 16);
}

TEST_CASE("a number that was removed from a living peer gets another owner")
{
	Context a({"PT2P_OPEN_PEERS=2"}), b, c;
	const Contexts all{a, b, c};
	for (int round = 0; round < 6; ++round) {
		INFO(round);
		Context &other = round % 2 ? c : b;
		const int other_at_a = add_in_time(all, a, other.address);
		CHECK(other_at_a == 1);
		const int a_there = carry(all, a, other, 1, 8, 1);
		carry(all, other, a, a_there, 50000, 2);
		// A message that nobody receives does not reach a receive from the next owner.
		int stray = 13;
		pt2p_request_t *send = nullptr;
		REQUIRE(pt2p_isend(other, &stray, sizeof stray, a_there, 3, &send) == PT2P_OK);
		finish(all, other, send);
		int found = 0;
		drive(all, [&] {
			REQUIRE(pt2p_iprobe(a, 1, 3, PT2P_TAG_EXACT, &found, nullptr) == PT2P_OK);
			return found;
		});
		CHECK(pt2p_peer_remove(a, 1) == PT2P_OK);
		CHECK(pt2p_send(a, &stray, sizeof stray, 1, 1) == PT2P_ERR_PEER_FINALIZED);
	}
	int found = 1;
	const int again = add_in_time(all, a, b.address);
	CHECK(pt2p_iprobe(a, again, 3, PT2P_TAG_EXACT, &found, nullptr) == PT2P_OK);
	CHECK(found == 0);
}

TEST_CASE("memory of a peer that has gone is not that of the next owner of its number")
{
	Context a({"PT2P_OPEN_PEERS=2"});
	auto b = std::make_unique<Context>();
	uint64_t word = 1, other = 2;
	unsigned char key[4096];
	size_t bytes = 0;
	pt2p_memory_t *mine = nullptr;
	pt2p_remote_t *remote = nullptr;
	CHECK(a.add(*b) == 1);
	REQUIRE(pt2p_memory_register(*b, &word, sizeof word, &mine) == PT2P_OK);
	REQUIRE(pt2p_memory_export(*b, mine, key, sizeof key, &bytes) == PT2P_OK);
	REQUIRE(pt2p_memory_import(a, 1, key, bytes, &remote) == PT2P_OK);
	pt2p_request_t *request = nullptr;
	REQUIRE(pt2p_get(a, &other, sizeof other, remote, 0, &request) == PT2P_OK);
	CHECK(finish({a, *b}, a, request).status == PT2P_OK);
	CHECK(pt2p_peer_remove(a, 1) == PT2P_OK);
	drive({a, *b}, [&] { return pt2p_progress(a) == PT2P_OK; });
	Context c;
	CHECK(add_in_time({a, *b, c}, a, c.address) == 1);
	CHECK(carry({a, c}, a, c, 1, 8, 1) == 1);
	other = 2;
	CHECK(pt2p_put(a, &other, sizeof other, remote, 0, &request) == PT2P_ERR_PEER_FINALIZED);
	refused(a, pt2p_memory_import(a, 1, key, bytes, &remote), PT2P_ERR_ARGUMENT, "not what rank 1 exported");
	CHECK(word == 1);
}

TEST_CASE("both remove each other")
{
	Context a({"PT2P_OPEN_PEERS=2"}), b({"PT2P_OPEN_PEERS=2"});
	for (int round = 0; round < 4; ++round) {
		CHECK(add_in_time({a, b}, a, b.address) == 1);
		CHECK(carry({a, b}, a, b, 1, 8, 1) == 1);
		CHECK(pt2p_peer_remove(a, 1) == PT2P_OK);
		CHECK(pt2p_peer_remove(b, 1) == PT2P_OK);
		CHECK(pt2p_peer_remove(a, 1) == PT2P_OK); // once more changes nothing
	}
}
