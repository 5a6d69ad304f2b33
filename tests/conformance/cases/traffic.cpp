// Much traffic: random all-to-all, floods of unexpected messages, barriers.
#include <algorithm>
#include <cstring>
#include <ctime>
#include <memory>

#include "tests/conformance/harness.hpp"

namespace conformance {
namespace {

size_t random_length(Random &random)
{
	switch (random.below(8)) {
	case 0: return 0;
	case 1: return random.below(16);
	case 2:
	case 3: return random.below(200);
	case 4:
	case 5: return random.below(9000);
	case 6: return random.below(70000);
	default: return random.below(300000);
	}
}

struct Message {
	int source, dest;
	uint64_t number, tag;
	size_t length;
};

// The same list on every rank.
std::vector<Message> plan(int ranks, uint64_t seed, size_t count)
{
	Random random{seed};
	std::vector<Message> messages;
	for (size_t i = 0; i < count; ++i) {
		Message m{};
		m.source = static_cast<int>(random.below(static_cast<uint64_t>(ranks)));
		m.dest = static_cast<int>(random.below(static_cast<uint64_t>(ranks)));
		m.number = i;
		m.tag = random.below(3) << 40 | random.below(2);
		m.length = random_length(random);
		messages.push_back(m);
	}
	return messages;
}

// Everybody to everybody, with exact receives. The k-th message of a source and tag matches the k-th receive for them.
Finish random_exact(Rank &r)
{
	struct State {
		std::vector<Message> messages;
		std::vector<Bytes> data;
		std::vector<pt2p_request_t *> requests;
	};
	auto x = std::make_shared<State>();
	x->messages = plan(r.size, 2718, 250);
	x->data.resize(2 * x->messages.size());
	x->requests.resize(2 * x->messages.size());
	for (int sends = 0; sends < 2; ++sends)
		for (size_t i = 0; i < x->messages.size(); ++i) {
			const Message &m = x->messages[i];
			// On odd ranks the receives come after the sends: unexpected messages.
			if ((sends ^ (r.me & 1)) && m.source == r.me) {
				x->data[2 * i] = payload(m.length, seed_of(30, m.source, m.dest, m.number));
				EXPECT_OK(r.ctx,
				          pt2p_isend(r.ctx, x->data[2 * i].data(), m.length, m.dest, m.tag, &x->requests[2 * i]));
			}
			if (!(sends ^ (r.me & 1)) && m.dest == r.me) {
				x->data[2 * i + 1].resize(m.length);
				EXPECT_OK(r.ctx, pt2p_irecv(r.ctx, x->data[2 * i + 1].data(), m.length, m.source, m.tag, PT2P_TAG_EXACT,
				                            &x->requests[2 * i + 1]));
			}
		}
	return [&r, x] {
		std::vector<pt2p_result_t> results(x->requests.size());
		EXPECT_OK(r.ctx, pt2p_waitall(r.ctx, x->requests.size(), x->requests.data(), results.data()));
		for (size_t i = 0; i < x->messages.size(); ++i) {
			const Message &m = x->messages[i];
			if (m.dest != r.me)
				continue;
			EXPECT_EQ(results[2 * i + 1].length, m.length);
			EXPECT_EQ(results[2 * i + 1].tag, m.tag);
			EXPECT_PAYLOAD(x->data[2 * i + 1].data(), m.length, seed_of(30, m.source, m.dest, m.number));
		}
	};
}

// The same messages with wildcard receives, which learn from the result what they got.
Finish random_wild(Rank &r)
{
	struct State {
		std::vector<Message> mine;
		std::vector<Bytes> out;
		std::vector<pt2p_request_t *> sends;
	};
	auto x = std::make_shared<State>();
	for (const Message &m : plan(r.size, 31415, 250)) {
		if (m.dest == r.me)
			x->mine.push_back(m);
		if (m.source == r.me) {
			x->out.push_back(payload(m.length, seed_of(31, m.source, m.dest, m.number)));
			x->sends.push_back(nullptr);
			EXPECT_OK(r.ctx, pt2p_isend(r.ctx, x->out.back().data(), m.length, m.dest, m.tag, &x->sends.back()));
		}
	}
	return [&r, x] {
		Bytes in(300000);
		while (!x->mine.empty()) {
			pt2p_result_t result{};
			EXPECT_OK(r.ctx, pt2p_recv(r.ctx, in.data(), in.size(), PT2P_ANY_SOURCE, 0, PT2P_TAG_ANY, &result));
			// Order holds for each source: it must be the first one of its source.
			const auto m = std::find_if(x->mine.begin(), x->mine.end(),
			                            [&](const Message &c) { return c.source == result.source; });
			EXPECT(m != x->mine.end());
			EXPECT_EQ(result.tag, m->tag);
			EXPECT_EQ(result.length, m->length);
			EXPECT_PAYLOAD(in.data(), m->length, seed_of(31, m->source, m->dest, m->number));
			x->mine.erase(m);
		}
		r.last = [&r, x] { EXPECT_OK(r.ctx, pt2p_waitall(r.ctx, x->sends.size(), x->sends.data(), nullptr)); };
	};
}

// More unexpected bytes than the budget: nothing is lost, and the memory they hold stays near the budget.
Finish unexpected_flood(Rank &r)
{
	struct State {
		std::vector<Bytes> out;
		std::vector<pt2p_request_t *> sends;
	};
	auto x = std::make_shared<State>();
	const size_t count = 1500, length = 2000;
	for (size_t i = 0; i < count; ++i) {
		x->out.push_back(payload(length, seed_of(32, r.me, r.right(), i)));
		x->sends.push_back(nullptr);
		EXPECT_OK(r.ctx, pt2p_isend(r.ctx, x->out.back().data(), length, r.right(), i, &x->sends.back()));
	}
	return [&r, x] {
		for (int i = 0; i < 50; ++i) {
			EXPECT_OK(r.ctx, pt2p_progress(r.ctx));
			r.poll();
			if (!r.cooperative && i % 10 == 0)
				sleep_ms(1);
		}
		Bytes in(length);
		for (size_t i = count; i-- > 0;) {
			pt2p_result_t result{};
			EXPECT_OK(r.ctx, pt2p_recv(r.ctx, in.data(), length, r.left(), i, PT2P_TAG_EXACT, &result));
			EXPECT_EQ(result.length, length);
			EXPECT_PAYLOAD(in.data(), length, seed_of(32, r.left(), r.me, i));
		}
		r.last = [&r, x] { EXPECT_OK(r.ctx, pt2p_waitall(r.ctx, count, x->sends.data(), nullptr)); };
		// A rank's messages to itself never pass a ring: only the others are stopped by the budget.
		if (r.size > 1) {
			// The request to stop may be behind a full ring. Meanwhile a call reads up to eight rings, if the sender
			// fills them as fast (polls_at_once in src/api/calls.hpp).
			const uint64_t a_ring = r.ring_bytes + r.ring_slots * 112;
			const uint64_t bound = r.unexpected_max + static_cast<uint64_t>(r.size) * (8 + 2) * a_ring;
			const uint64_t peak = counter(r, "unexpected_bytes_peak");
			if (peak > bound)
				throw Failure("unexpected messages held " + std::to_string(peak) + " bytes, the bound is " +
				              std::to_string(bound));
		}
	};
}

uint64_t now_ns()
{
	timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return static_cast<uint64_t>(t.tv_sec) * 1000000000 + static_cast<uint64_t>(t.tv_nsec);
}

// No rank leaves before the last one has entered. Rank 0 compares the times.
Finish barrier(Rank &r)
{
	for (int round = 0; round < 8; ++round) {
		if ((r.me + round) % r.size == 0)
			sleep_ms(3 + round);
		uint64_t times[2];
		times[0] = now_ns();
		EXPECT_OK(r.ctx, pt2p_barrier(r.ctx));
		times[1] = now_ns();
		if (r.me != 0) {
			EXPECT_OK(r.ctx, pt2p_send(r.ctx, times, sizeof times, 0, 800));
			continue;
		}
		uint64_t last_entry = times[0], first_exit = times[1];
		for (int i = 1; i < r.size; ++i) {
			EXPECT_OK(r.ctx, pt2p_recv(r.ctx, times, sizeof times, i, 800, PT2P_TAG_EXACT, nullptr));
			last_entry = std::max(last_entry, times[0]);
			first_exit = std::min(first_exit, times[1]);
		}
		EXPECT(last_entry <= first_exit);
	}
	return {};
}

// Barriers in a row, and barriers amid wildcard receives, which must not take what a barrier sends.
Finish barrier_repeated(Rank &r)
{
	int got = -1;
	pt2p_request_t *req = nullptr;
	EXPECT_OK(r.ctx, pt2p_irecv(r.ctx, &got, sizeof got, PT2P_ANY_SOURCE, 0, PT2P_TAG_ANY, &req));
	for (int i = 0; i < 200; ++i)
		EXPECT_OK(r.ctx, pt2p_barrier(r.ctx));
	int done = 1, found = 1;
	EXPECT_OK(r.ctx, pt2p_test(r.ctx, req, &done, nullptr));
	EXPECT_EQ(done, 0);
	EXPECT_OK(r.ctx, pt2p_iprobe(r.ctx, PT2P_ANY_SOURCE, 0, PT2P_TAG_ANY, &found, nullptr));
	EXPECT_EQ(found, 0);
	EXPECT_OK(r.ctx, pt2p_barrier(r.ctx));
	EXPECT_OK(r.ctx, pt2p_send(r.ctx, &r.me, sizeof r.me, r.right(), 801));
	EXPECT_OK(r.ctx, pt2p_wait(r.ctx, req, nullptr));
	EXPECT_EQ(got, r.left());
	return {};
}

Finish counters(Rank &r)
{
	const uint64_t sent = counter(r, "messages_sent"), received = counter(r, "messages_received");
	const uint64_t bytes_sent = counter(r, "bytes_sent"), bytes_received = counter(r, "bytes_received");
	Bytes out(100000), in(100000);
	for (size_t length : {size_t{10}, size_t{5000}, size_t{100000}})
		EXPECT_OK(r.ctx, pt2p_sendrecv(r.ctx, out.data(), length, r.right(), 810, in.data(), length, r.left(), 810,
		                               PT2P_TAG_EXACT, nullptr));
	EXPECT_EQ(counter(r, "messages_sent"), sent + 3);
	EXPECT_EQ(counter(r, "messages_received"), received + 3);
	EXPECT_EQ(counter(r, "bytes_sent"), bytes_sent + 105010);
	EXPECT_EQ(counter(r, "bytes_received"), bytes_received + 105010);
	return {};
}

} // namespace

void add_traffic_cases(std::vector<Case> &cases)
{
	cases.insert(cases.end(), {
	                              {"unexpected_flood", true, unexpected_flood},
	                              {"random_exact", true, random_exact},
	                              {"random_wild", true, random_wild},
	                              {"barrier", false, barrier},
	                              {"barrier_repeated", false, barrier_repeated},
	                              {"counters", false, counters},
	                          });
}

} // namespace conformance
