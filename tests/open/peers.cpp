// SPDX-License-Identifier: BSD-3-Clause
// Peers that leave, cannot be added, or are removed.
#include "tests/open/open.hpp"

#include <fstream>

#include <dirent.h>
#include <unistd.h>

using namespace open_test;

namespace {

int open_files()
{
	int n = 0;
	DIR *all = opendir("/proc/self/fd");
	while (readdir(all))
		++n;
	closedir(all);
	return n;
}

#ifdef __SANITIZE_ADDRESS__
constexpr long more = 1 << 20; // it keeps what was freed
#else
constexpr long more = 4096; // kilobytes
#endif

long resident_kilobytes()
{
	std::ifstream status("/proc/self/status");
	std::string line;
	while (std::getline(status, line))
		if (line.rfind("VmRSS:", 0) == 0)
			return std::stol(line.substr(6));
	return 0;
}

} // namespace

TEST_CASE("addresses that lead nowhere")
{
	Context a({"PT2P_OPEN_TIME=300ms"});
	int rank = -1;
	for (const char *wrong : {"", ":", "7000", "host", "127.0.0.1:", "127.0.0.1:0", ":7000", "127.0.0.1:70000",
	                          "127.0.0.1:7x", "::1:7000", "127.0.0.1:-1"}) {
		INFO(wrong);
		refused(a, pt2p_peer_add(a, wrong, &rank), PT2P_ERR_ARGUMENT, "host:port");
	}
	refused(a, pt2p_peer_add(a, "no.such.host.invalid:7000", &rank), PT2P_ERR_ARGUMENT, "no.such.host.invalid");
	refused(a, pt2p_peer_add(a, "192.0.2.1:7000", &rank), PT2P_ERR_UNREACHABLE, "PT2P_OPEN_SECRET");
	refused(a, pt2p_peer_add(a, nullptr, &rank), PT2P_ERR_ARGUMENT, "address");
	refused(a, pt2p_peer_add(a, a.address.c_str(), nullptr), PT2P_ERR_ARGUMENT, "rank");
	std::string gone;
	{
		Context b;
		gone = b.address;
	}
	refused(a, pt2p_peer_add(a, gone.c_str(), &rank), PT2P_ERR_UNREACHABLE, "nobody listens");
	CHECK(rank == -1);
}

TEST_CASE("the address of a peer")
{
	Context a, b;
	const int b_at_a = a.add(b);
	const int a_at_b = carry({a, b}, a, b, b_at_a, 8, 1);
	const auto ask = [](Context &of, int rank) {
		char text[128] = "";
		size_t needed = 0;
		CHECK(pt2p_peer_address(of, rank, text, sizeof text, &needed) == PT2P_OK);
		CHECK(needed == std::strlen(text) + 1);
		return std::string(text);
	};
	CHECK(ask(a, b_at_a) == b.address);
	CHECK(ask(b, a_at_b) == a.address);
	CHECK(ask(a, 0) == a.address);
	char text[4];
	CHECK(pt2p_peer_address(a, b_at_a, text, sizeof text, nullptr) == PT2P_OK);
	CHECK(text == b.address.substr(0, 3));
	refused(a, pt2p_peer_address(a, b_at_a + 1, text, sizeof text, nullptr), PT2P_ERR_RANK, "nobody");
	refused(a, pt2p_peer_address(a, -1, text, sizeof text, nullptr), PT2P_ERR_RANK, "rank");
	refused(a, pt2p_peer_address(a, b_at_a, nullptr, 4, nullptr), PT2P_ERR_ARGUMENT, "text");
}

TEST_CASE("addresses of one's own")
{
	Context a({"PT2P_OPEN_LISTEN=127.0.0.1:0"});
	CHECK(a.address.rfind("127.0.0.1:", 0) == 0);
	pt2p_context_t *other = nullptr;
	const std::string same = "PT2P_OPEN_LISTEN=" + a.address;
	for (const auto &[tunable, word] :
	     std::vector<std::pair<std::string, const char *>>{{same, "choose another port"},
	                                                       {"PT2P_OPEN_LISTEN=7000", "host:port"},
	                                                       {"PT2P_OPEN_LISTEN=192.0.2.1:0", "192.0.2.1"},
	                                                       {"PT2P_OPEN_SECRET=/no/such/file", "/no/such/file"},
	                                                       {"PT2P_OPEN_SOCKETS=tcp", "PT2P_OPEN_SECRET"},
	                                                       {"PT2P_OPEN_PEERS=1", "PT2P_OPEN_PEERS"}}) {
		INFO(tunable);
		const char *list[] = {tunable.c_str(), nullptr};
		pt2p_options_t options = PT2P_OPTIONS_INIT;
		options.tunables = list;
		refused(nullptr, pt2p_init_open(&options, &other), PT2P_ERR_TUNABLE, word);
		CHECK(other == nullptr);
	}
	// The port is free again with the end of its context.
	const std::string address = a.address;
	CHECK(a.end() == PT2P_OK);
	Context b({same});
	CHECK(b.address == address);
}

TEST_CASE("a peer that finalizes is seen to leave, and others may still come")
{
	Context server;
	pt2p_request_t *any = nullptr, *from_one = nullptr;
	int value = 0, never = 0;
	REQUIRE(pt2p_irecv(server, &value, sizeof value, PT2P_ANY_SOURCE, 3, PT2P_TAG_EXACT, &any) == PT2P_OK);
	{
		Context client;
		const int there = client.add(server);
		CHECK(carry({server, client}, client, server, there, 8, 1) == 1);
		REQUIRE(pt2p_irecv(server, &never, sizeof never, 1, 2, PT2P_TAG_EXACT, &from_one) == PT2P_OK);
	}
	CHECK(wait(server, from_one).status == PT2P_ERR_PEER_FINALIZED);
	refused(server, pt2p_send(server, &value, sizeof value, 1, 1), PT2P_ERR_PEER_FINALIZED, "");
	int found = 1;
	CHECK(pt2p_iprobe(server, PT2P_ANY_SOURCE, 4, PT2P_TAG_EXACT, &found, nullptr) == PT2P_OK);
	CHECK(found == 0);
	Context client;
	const int there = client.add(server);
	int out = 42;
	pt2p_request_t *send = nullptr;
	REQUIRE(pt2p_isend(client, &out, sizeof out, there, 3, &send) == PT2P_OK);
	const pt2p_result_t result = finish({server, client}, server, any);
	CHECK(result.status == PT2P_OK);
	CHECK(result.source == 2);
	CHECK(value == 42);
	CHECK(finish({server, client}, client, send).status == PT2P_OK);
}

TEST_CASE("what a peer sent before it finalized arrives")
{
	Context server;
	for (int round = 0; round < 20; ++round) {
		Context client;
		const int there = client.add(server);
		for (int i = 0; i < 10; ++i) {
			pt2p_request_t *send = nullptr;
			REQUIRE(pt2p_isend(client, &i, sizeof i, there, 3, &send) == PT2P_OK);
			CHECK(finish({server, client}, client, send).status == PT2P_OK);
		}
		REQUIRE(client.end() == PT2P_OK);
		for (int i = 0; i < 10; ++i) {
			int value = -1;
			pt2p_result_t result{};
			CHECK(pt2p_recv(server, &value, sizeof value, PT2P_ANY_SOURCE, 3, PT2P_TAG_EXACT, &result) == PT2P_OK);
			CHECK(value == i);
			CHECK(result.source == round + 1);
		}
	}
}

TEST_CASE("a peer is removed")
{
	Context a, b;
	const Contexts all{a, b};
	const int b_at_a = a.add(b), a_at_b = carry(all, a, b, b_at_a, 8, 1);
	carry(all, b, a, a_at_b, 8, 1);
	int value = 0;
	pt2p_request_t *here = nullptr, *there = nullptr;
	REQUIRE(pt2p_irecv(a, &value, sizeof value, b_at_a, 2, PT2P_TAG_EXACT, &here) == PT2P_OK);
	REQUIRE(pt2p_irecv(b, &value, sizeof value, a_at_b, 2, PT2P_TAG_EXACT, &there) == PT2P_OK);
	CHECK(pt2p_peer_remove(a, b_at_a) == PT2P_OK);
	CHECK(finish(all, a, here).status == PT2P_ERR_PEER_FINALIZED);
	CHECK(finish(all, b, there).status == PT2P_ERR_PEER_FINALIZED);
	// It may come again.
	const int again = a.add(b);
	CHECK(carry(all, a, b, again, 70000, 5) != a_at_b);
	const int back = b.add(a);
	CHECK(carry(all, b, a, back, 70000, 5) == again);
}

TEST_CASE("numbers run out")
{
	Context a({"PT2P_OPEN_PEERS=3"}), b, c, d;
	CHECK(pt2p_size(a) == 3);
	CHECK(a.add(b) == 1);
	const int a_at_c = c.add(a);
	CHECK(carry({a, b, c}, c, a, a_at_c, 8, 1) == 2);
	int rank = -1;
	refused(a, pt2p_peer_add(a, d.address.c_str(), &rank), PT2P_ERR_NO_NUMBER, "PT2P_OPEN_PEERS");
	refused(d, pt2p_peer_add(d, a.address.c_str(), &rank), PT2P_ERR_REFUSED, "PT2P_OPEN_PEERS");
	CHECK(a.add(b) == 1);
	CHECK(rank == -1);
}

TEST_CASE("contexts that come and go leave nothing behind")
{
	const auto cycle = [] {
		Context a, b;
		const int there = a.add(b);
		carry({a, b}, a, b, there, 8, 1);
		carry({a, b}, b, a, 1, 50000, 1);
		CHECK(a.end() == PT2P_OK);
		CHECK(b.end() == PT2P_OK);
	};
	for (int i = 0; i < 5; ++i)
		cycle();
	const int files = open_files();
	const long memory = resident_kilobytes();
	for (int i = 0; i < 50; ++i)
		cycle();
	CHECK(open_files() == files);
	CHECK(resident_kilobytes() < memory + more);
}
