// DC initiators that several ranks share.
#include "tests/net/job.hpp"

#include <chrono>
#include <memory>
#include <random>

using namespace net;

// Three streams over two initiators, none of which ever ends: one of them has to share, and moves when the other initiator has
// nothing to do for a moment. With moves, the same as without: each message once, in order.
TEST_CASE("a rank that shares a DC initiator moves to one that is idle, and its messages stay in order")
{
	// Work has to stay under way for a while.
	const char *slow = GENERATE("drop rate=0.002 seed=7", "delay rate=0.01 us=300 seed=7");
	std::unique_ptr<Faults> faults;
	Job job("dct", 4, {"PT2P_DCT_INITIATORS=2", "PT2P_NET_TIMEOUT=8"});
	for (int to = 1; to < 4; ++to)
		job.warm_up(0, to);
	faults = std::make_unique<Faults>(slow);
	constexpr unsigned window = 300;
	struct Stream {
		std::vector<pt2p_request_t *> receives = std::vector<pt2p_request_t *>(window), sends = receives;
		std::vector<uint64_t> in = std::vector<uint64_t>(window * 8), out = in;
		uint64_t sent = 0, received = 0;
	} streams[4];
	const auto receive = [&](int to, uint64_t number) {
		Stream &s = streams[to];
		REQUIRE(pt2p_irecv(job.ctx[Job::index(to)], &s.in[number % window * 8], 64, 0, 1, PT2P_TAG_EXACT,
		                   &s.receives[number % window]) == PT2P_OK);
	};
	for (int to = 1; to < 4; ++to)
		for (uint64_t n = 0; n < window; ++n)
			receive(to, n);
	std::mt19937 random(1);
	const auto turn = [&](int to) {
		Stream &s = streams[to];
		int done = 1;
		pt2p_result_t result;
		// What has come, in order.
		while (s.received < s.sent) {
			REQUIRE(pt2p_test(job.ctx[Job::index(to)], s.receives[s.received % window], &done, &result) == PT2P_OK);
			if (!done)
				break;
			REQUIRE(s.in[s.received % window * 8] == s.received);
			receive(to, s.received++ + window);
		}
		for (unsigned burst = random() % 6; burst && s.sent < s.received + window; --burst, ++s.sent) {
			pt2p_request_t *&request = s.sends[s.sent % window];
			if (request)
				REQUIRE(pt2p_wait(job.ctx[0], request, nullptr) == PT2P_OK);
			s.out[s.sent % window * 8] = s.sent;
			REQUIRE(pt2p_isend(job.ctx[0], &s.out[s.sent % window * 8], 8 + random() % 57, to, 1, &request) == PT2P_OK);
		}
	};
	constexpr unsigned least_turns = 3000, pause = 1000;
	const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
	unsigned turns = 0;
	for (; turns < least_turns || (job.counter(0, "dct_moves") < 20 && std::chrono::steady_clock::now() < end); ++turns) {
		job.progress();
		for (int to = 1; to < 4; ++to)
			if (turns / pause % 4 != static_cast<unsigned>(to)) // else it has a rest
				turn(to);
	}
	INFO(job.counter(0, "dct_switches") << " switches, " << job.counter(0, "dct_waits") << " waits, " << turns << " turns");
	CHECK(job.counter(0, "dct_moves") >= 20);
	faults.reset();
	// The rest.
	for (int to = 1; to < 4; ++to) {
		Stream &s = streams[to];
		for (; s.received < s.sent; ++s.received) {
			REQUIRE(pt2p_wait(job.ctx[Job::index(to)], s.receives[s.received % window], nullptr) == PT2P_OK);
			REQUIRE(s.in[s.received % window * 8] == s.received);
			s.receives[s.received % window] = nullptr;
		}
		for (auto *request : s.sends)
			if (request)
				REQUIRE(pt2p_wait(job.ctx[0], request, nullptr) == PT2P_OK);
		for (auto *request : s.receives)
			if (request) {
				REQUIRE(pt2p_cancel(job.ctx[Job::index(to)], request) == PT2P_OK);
				CHECK(pt2p_wait(job.ctx[Job::index(to)], request, nullptr) == PT2P_ERR_CANCELLED);
			}
	}
}

// Who shares initiators has to know which of them is done. That costs a completion for each message, as long as it is needed.
TEST_CASE("each work request is signalled while DC initiators change targets, and only then")
{
	Job job("dct", 4, {"PT2P_DCT_INITIATORS=2"});
	for (int to = 1; to < 4; ++to)
		job.warm_up(0, to);
	constexpr unsigned messages = 320;
	// Completions, of sends and of receives, for a message.
	const auto completions = [&](int targets) {
		uint64_t before, after;
		REQUIRE(softhca_counter("cqes", -1, 0, &before) == 0);
		for (unsigned n = 0; n < messages; ++n)
			job.exchange(0, 1 + static_cast<int>(n) % targets);
		job.progress();
		REQUIRE(softhca_counter("cqes", -1, 0, &after) == 0);
		return static_cast<double>(after - before) / messages;
	};
	CHECK(completions(3) >= 2);
	completions(1); // becomes calm
	CHECK(completions(1) < 1.1);
	CHECK(completions(3) >= 1.9);
}
