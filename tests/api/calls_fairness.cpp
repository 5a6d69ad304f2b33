// SPDX-License-Identifier: BSD-3-Clause
// A server that one caller floods, and one whose callers have left.
#include "tests/api/calls.hpp"

#include <chrono>
#include <cstdio>
#include <deque>
#include <utility>

using namespace calls_test;

namespace {

constexpr int polite_callers = 63, flooding = polite_callers + 1;

struct Flooded {
	uint64_t flood_served = 0, all_served = 0, turns = 0;
	struct Polite {
		Call call;
		uint64_t flood_at_start = 0, turn_at_start = 0, served = 0;
	};
	std::deque<Polite> polite{static_cast<size_t>(flooding)};
	uint64_t longest = 0, longest_turns = 0, sum = 0;
};

void serve_flooded(pt2p_context_t *ctx, pt2p_call_t *call, const void *input, size_t length, void *argument)
{
	auto &f = *static_cast<Flooded *>(argument);
	const uint64_t caller = number_in(input, length);
	++f.all_served;
	if (caller == flooding) {
		++f.flood_served;
	} else {
		Flooded::Polite &p = f.polite.at(caller);
		const uint64_t waited = f.flood_served - p.flood_at_start;
		f.sum += waited;
		f.longest = std::max(f.longest, waited);
		f.longest_turns = std::max(f.longest_turns, f.turns - p.turn_at_start);
		++p.served;
	}
	pt2p_call_info_t info{};
	CHECK(pt2p_call_query(ctx, call, &info) == PT2P_OK);
	if (!info.notice)
		CHECK(pt2p_reply(ctx, call, 0, nullptr, 0) == PT2P_OK);
}

// Far more calls or notices than may be under way, always.
struct Flood {
	const bool notices;
	std::deque<Call> calls{};
	uint64_t started = 0;

	void grow(pt2p_context_t *ctx, uint64_t served)
	{
		forget_ended();
		while (notices ? started - served < 500 : calls.size() < 500) {
			++started;
			const uint64_t number = flooding;
			if (notices) {
				CHECK(pt2p_notify(ctx, 0, 7, &number, sizeof number, nullptr) == PT2P_OK);
				continue;
			}
			calls.emplace_back().number = number;
			calls.back().start(ctx, 0, 7);
		}
	}
	void forget_ended()
	{
		while (!calls.empty() && calls.front().ended)
			calls.pop_front();
	}
};

// Messages between two ranks that have calls, too. How many turns each takes.
struct Messages {
	char in = 0;
	const char out = 1;
	pt2p_request_t *receive = nullptr;
	uint64_t turns = 0, longest = 0, received = 0;

	void step(pt2p_context_t *from, pt2p_context_t *to)
	{
		if (!receive) {
			turns = 0;
			REQUIRE(pt2p_irecv(to, &in, 1, 1, 5, PT2P_TAG_EXACT, &receive) == PT2P_OK);
			REQUIRE(pt2p_send(from, &out, 1, 0, 5) == PT2P_OK);
			return;
		}
		++turns;
		int done = 0;
		REQUIRE(pt2p_test(to, receive, &done, nullptr) == PT2P_OK);
		if (!done)
			return;
		receive = nullptr;
		longest = std::max(longest, turns);
		++received;
	}
};

} // namespace

TEST_CASE("calls: a caller that floods a server delays 63 others by no more than its window")
{
	constexpr uint64_t window = 64, handled_in_turn = 32, rounds = 3000;
	const uint32_t lanes = GENERATE(0u, 1u);
	const bool notices = GENERATE(false, true);
	CallJob job(flooding + 1);
	Flooded f;
	pt2p_service_t *service = open(job[0], 7, serve_flooded, &f, lanes);
	Flood flood{notices};
	Messages messages;
	for (; f.turns < rounds; ++f.turns) {
		flood.grow(job[flooding], f.flood_served);
		messages.step(job[1], job[0]);
		for (size_t i = 1; i < flooding; ++i) {
			Flooded::Polite &p = f.polite[i];
			if (p.call.ended || !p.call.number) {
				p.call = {};
				p.call.number = i;
				p.flood_at_start = f.flood_served;
				p.turn_at_start = f.turns;
				p.call.start(job[i], 0, 7);
			}
		}
		job.turn();
		if (lanes)
			REQUIRE(pt2p_serve(job[0], service, 0, handled_in_turn, 0, nullptr) == PT2P_OK);
	}
	const auto by_calls = [](const Flooded::Polite &a, const Flooded::Polite &b) { return a.served < b.served; };
	const auto [least, most] = std::minmax_element(f.polite.begin() + 1, f.polite.end(), by_calls);
	const uint64_t polite = f.all_served - f.flood_served;
	printf("one caller that floods a server beside %d others, %s: %llu of its %s served, %llu to %llu of each of the "
	       "others; they waited "
	       "for at most %llu of these (on average %.1f) and %llu turns\n",
	       polite_callers, lanes ? "a lane" : "within progress", static_cast<unsigned long long>(f.flood_served),
	       notices ? "notices" : "calls", static_cast<unsigned long long>(least->served),
	       static_cast<unsigned long long>(most->served), static_cast<unsigned long long>(f.longest),
	       static_cast<double>(f.sum) / static_cast<double>(polite), static_cast<unsigned long long>(f.longest_turns));
	CHECK(f.flood_served > window * 10);
	// What can be ahead of a call: the window of the flooding caller, and one call of each of the others.
	CHECK(f.longest <= window);
	CHECK(f.longest_turns <= (window + polite_callers + handled_in_turn - 1) / handled_in_turn + 1);
	CHECK(least->served >= rounds / ((window + polite_callers) / handled_in_turn + 2));
	CHECK(messages.received > rounds / 4);
	CHECK(messages.longest <= 2);
	CHECK(most->served <= 2 * least->served); // some wait for a turn more than others
	// It ends before what the calls refer to.
	while (!flood.calls.empty() || f.flood_served < flood.started || messages.receive ||
	       std::any_of(f.polite.begin() + 1, f.polite.end(), [](const auto &p) { return !p.call.ended; })) {
		if (messages.receive)
			messages.step(job[1], job[0]);
		job.turn();
		if (lanes)
			REQUIRE(pt2p_serve(job[0], service, 0, 1000, 0, nullptr) == PT2P_OK);
		flood.forget_ended();
	}
	CHECK(job.turns_well);
}

TEST_CASE("notices that have come are handled after their sender has left")
{
	CallJob job(2);
	std::vector<int> callers;
	pt2p_service_t *service = open(
	    job[0], 7,
	    [](pt2p_context_t *ctx, pt2p_call_t *call, const void *, size_t, void *argument) {
		    pt2p_call_info_t info;
		    if (pt2p_call_query(ctx, call, &info) == PT2P_OK && info.notice)
			    static_cast<std::vector<int> *>(argument)->push_back(info.caller);
	    },
	    &callers, 2);
	for (int i = 0; i < 3; ++i)
		REQUIRE(pt2p_notify(job[1], 0, 7, "x", 1, nullptr) == PT2P_OK);
	REQUIRE(pt2p_notify(job[0], 1, 7, "x", 1, nullptr) == PT2P_OK); // so that it learns of the end of that rank
	for (int i = 0; i < 3; ++i)
		job.turn();
	CHECK(pt2p_finalize(std::exchange(job.contexts[1], nullptr)) == PT2P_OK);
	pt2p_peer_info_t info{};
	const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
	while (info.state != PT2P_PEER_FINALIZED && std::chrono::steady_clock::now() < end) {
		job.turn();
		REQUIRE(pt2p_peer_query(job[0], 1, &info) == PT2P_OK);
	}
	CHECK(info.state == PT2P_PEER_FINALIZED);
	size_t count = 0;
	CHECK(pt2p_serve(job[0], service, 0, 100, 0, &count) == PT2P_OK);
	CHECK(count == 3);
	CHECK(callers == std::vector<int>{1, 1, 1});
	CHECK(job.turns_well);
}
