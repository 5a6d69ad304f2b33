// Synchronous sends, matched probes, and wildcard receives with many patterns.
#include <algorithm>
#include <memory>

#include "tests/conformance/harness.hpp"

namespace conformance {
namespace {

constexpr size_t lengths[] = {0, 8, 40, 104, 105, 112, 113, 1000, 8184, 8185, 8192, 8193, 70000, 400000};
constexpr size_t count = sizeof lengths / sizeof *lengths;

struct Exchange {
	std::vector<Bytes> out, in;
	std::vector<pt2p_request_t *> sends, receives;
};

void start_send(Rank &r, Exchange &x, bool synchronous, size_t length, int dest, uint64_t tag, uint64_t seed)
{
	x.out.push_back(payload(length, seed));
	x.sends.push_back(nullptr);
	EXPECT_OK(r.ctx,
	          (synchronous ? pt2p_issend : pt2p_isend)(r.ctx, x.out.back().data(), length, dest, tag, &x.sends.back()));
}

void wait_for_sends(Rank &r, Exchange &x)
{
	std::vector<pt2p_result_t> results(x.sends.size());
	EXPECT_OK(r.ctx, pt2p_waitall(r.ctx, x.sends.size(), x.sends.data(), results.data()));
	for (size_t i = 0; i < results.size(); ++i) {
		EXPECT_EQ(results[i].length, x.out[i].size());
		EXPECT_EQ(results[i].source, r.me);
	}
}

void still_running(Rank &r, pt2p_request_t *req)
{
	for (int i = 0; i < 50; ++i, r.poll()) {
		int done = 1;
		EXPECT_OK(r.ctx, pt2p_test(r.ctx, req, &done, nullptr));
		EXPECT_EQ(done, 0);
	}
}

// Synchronous and other sends in turn, with one tag. They match in the order of the sends, whatever their protocol. The
// first receives are posted before, the others find unexpected messages.
Finish synchronous_order(Rank &r)
{
	auto x = std::make_shared<Exchange>();
	const size_t all = 6 * count, posted = 2 * count;
	for (size_t i = 0; i < posted; ++i) {
		x->in.emplace_back(lengths[i % count]);
		x->receives.push_back(nullptr);
		EXPECT_OK(r.ctx, pt2p_irecv(r.ctx, x->in[i].data(), x->in[i].size(), i % 3 ? r.left() : PT2P_ANY_SOURCE, 2000,
		                            i % 2 ? PT2P_TAG_EXACT : ~UINT64_C(7), &x->receives.back()));
	}
	for (size_t i = 0; i < all; ++i)
		start_send(r, *x, i % 5 != 4, lengths[i % count], r.right(), 2000, seed_of(200, r.me, r.right(), i));
	return [&r, x] {
		std::vector<pt2p_result_t> results(posted);
		EXPECT_OK(r.ctx, pt2p_waitall(r.ctx, posted, x->receives.data(), results.data()));
		Bytes late(lengths[count - 1]);
		for (size_t i = 0; i < all; ++i) {
			pt2p_result_t result = i < posted ? results[i] : pt2p_result_t{};
			if (i >= posted)
				EXPECT_OK(r.ctx, pt2p_recv(r.ctx, late.data(), late.size(), i % 3 ? r.left() : PT2P_ANY_SOURCE, 2000,
				                           i % 2 ? PT2P_TAG_EXACT : ~UINT64_C(7), &result));
			EXPECT_EQ(result.length, lengths[i % count]);
			EXPECT_EQ(result.source, r.left());
			EXPECT_PAYLOAD(i < posted ? x->in[i].data() : late.data(), result.length, seed_of(200, r.left(), r.me, i));
		}
		r.last = [&r, x] { wait_for_sends(r, *x); };
	};
}

// To this rank itself: the send completes with the receive, and not before. It also completes when the message is
// truncated.
Finish synchronous_to_self(Rank &r)
{
	for (size_t length : lengths)
		for (int how = 0; how < 4; ++how) {
			Exchange x;
			const uint64_t seed = seed_of(201, r.me, how, length);
			Bytes in(length);
			pt2p_request_t *receive = nullptr;
			pt2p_result_t result{};
			if (how == 0) {
				EXPECT_OK(r.ctx, pt2p_irecv(r.ctx, in.data(), length, r.me, 2001, PT2P_TAG_EXACT, &receive));
				const Bytes out = payload(length, seed);
				EXPECT_OK(r.ctx, pt2p_ssend(r.ctx, out.data(), length, r.me, 2001));
				EXPECT_OK(r.ctx, pt2p_wait(r.ctx, receive, &result));
			} else {
				start_send(r, x, true, length, r.me, 2001, seed);
				EXPECT_STATUS(r.ctx, pt2p_cancel(r.ctx, x.sends[0]), PT2P_ERR_ARGUMENT);
				still_running(r, x.sends[0]);
				int found = 0;
				EXPECT_OK(r.ctx, pt2p_iprobe(r.ctx, r.me, 2001, PT2P_TAG_EXACT, &found, &result));
				EXPECT_EQ(found, 1);
				EXPECT_EQ(result.length, length);
				if (how == 1)
					EXPECT_OK(r.ctx,
					          pt2p_recv(r.ctx, in.data(), length, PT2P_ANY_SOURCE, 2001, PT2P_TAG_EXACT, &result));
				else if (how == 2)
					EXPECT_STATUS(r.ctx, pt2p_recv(r.ctx, in.data(), length / 2, r.me, 2001, PT2P_TAG_EXACT, &result),
					              length ? PT2P_ERR_TRUNCATED : PT2P_OK);
				else {
					pt2p_message_t *m = nullptr;
					EXPECT_OK(r.ctx, pt2p_mprobe(r.ctx, r.me, 2001, PT2P_TAG_EXACT, &m, nullptr));
					still_running(r, x.sends[0]); // found, but no receive has been started
					EXPECT_OK(r.ctx, pt2p_mrecv(r.ctx, in.data(), length, m, &result));
				}
				wait_for_sends(r, x);
			}
			EXPECT_EQ(result.length, length);
			EXPECT_PAYLOAD(in.data(), how == 2 ? length / 2 & ~size_t{7} : length, seed);
		}
	return {};
}

// Between two ranks: the send completes when the receive has begun, and not before. The receiver says when it has seen
// the message.
Finish synchronous_waits(Rank &r)
{
	const int other = r.partner();
	if (other == r.me)
		return {};
	for (size_t length : lengths) {
		const uint64_t seed = seed_of(202, r.me & ~1, r.me | 1, length);
		if (r.me & 1) {
			pt2p_message_t *m = nullptr;
			pt2p_result_t result{};
			Bytes in(length);
			EXPECT_OK(r.ctx, pt2p_mprobe(r.ctx, other, 2002, PT2P_TAG_EXACT, &m, &result));
			EXPECT_EQ(result.length, length);
			EXPECT_OK(r.ctx, pt2p_send(r.ctx, nullptr, 0, other, 2003));
			EXPECT_OK(r.ctx, pt2p_recv(r.ctx, nullptr, 0, other, 2003, PT2P_TAG_EXACT, nullptr));
			EXPECT_OK(r.ctx, pt2p_mrecv(r.ctx, in.data(), length, m, nullptr));
			EXPECT_PAYLOAD(in.data(), length, seed);
			EXPECT_OK(r.ctx, pt2p_recv(r.ctx, in.data(), length, other, 2004, PT2P_TAG_EXACT, nullptr));
			EXPECT_PAYLOAD(in.data(), length, seed);
		} else {
			Exchange x;
			start_send(r, x, true, length, other, 2002, seed);
			EXPECT_OK(r.ctx, pt2p_recv(r.ctx, nullptr, 0, other, 2003, PT2P_TAG_EXACT, nullptr));
			still_running(r, x.sends[0]);
			EXPECT_OK(r.ctx, pt2p_send(r.ctx, nullptr, 0, other, 2003));
			wait_for_sends(r, x);
			EXPECT_OK(r.ctx, pt2p_ssend(r.ctx, x.out[0].data(), length, other, 2004));
		}
	}
	return {};
}

// Messages that are taken out of matching: other receives get later messages, and each message is received once.
Finish matched_probe(Rank &r)
{
	auto x = std::make_shared<Exchange>();
	for (size_t i = 0; i < 3 * count; ++i) // three of each length with one tag
		start_send(r, *x, i % 4 == 1, lengths[i / 3], r.right(), 2100 + i / 3, seed_of(203, r.me, r.right(), i));
	return [&r, x] {
		std::vector<pt2p_message_t *> first(count);
		std::vector<pt2p_request_t *> receives;
		std::vector<Bytes> in;
		for (size_t k = count; k-- > 0;) { // backwards, so that each probe has to skip others
			pt2p_result_t seen{};
			if (k % 2)
				EXPECT_OK(r.ctx, pt2p_mprobe(r.ctx, k % 3 ? r.left() : PT2P_ANY_SOURCE, 2100 + k, PT2P_TAG_EXACT,
				                             &first[k], &seen));
			else
				for (; !first[k]; r.poll())
					EXPECT_OK(r.ctx, pt2p_improbe(r.ctx, r.left(), 2100 + k, PT2P_TAG_EXACT, &first[k], &seen));
			EXPECT_EQ(seen.length, lengths[k]);
			EXPECT_EQ(seen.source, r.left());
			EXPECT_EQ(seen.tag, 2100 + k);
			// The second goes to an ordinary receive, the third to a receive that names it.
			Bytes second(lengths[k]);
			EXPECT_OK(r.ctx,
			          pt2p_recv(r.ctx, second.data(), second.size(), r.left(), 2100 + k, PT2P_TAG_EXACT, nullptr));
			EXPECT_PAYLOAD(second.data(), second.size(), seed_of(203, r.left(), r.me, 3 * k + 1));
			pt2p_message_t *third = nullptr, *none = nullptr;
			EXPECT_OK(r.ctx, pt2p_mprobe(r.ctx, r.left(), 2100 + k, PT2P_TAG_EXACT, &third, &seen));
			EXPECT(third && third != first[k]);
			int found = 1;
			EXPECT_OK(r.ctx, pt2p_iprobe(r.ctx, r.left(), 2100 + k, PT2P_TAG_EXACT, &found, nullptr));
			EXPECT_EQ(found, 0);
			EXPECT_OK(r.ctx, pt2p_improbe(r.ctx, r.left(), 2100 + k, PT2P_TAG_EXACT, &none, nullptr));
			EXPECT(!none);
			in.emplace_back(lengths[k]);
			receives.push_back(nullptr);
			EXPECT_OK(r.ctx, pt2p_imrecv(r.ctx, in.back().data(), in.back().size(), third, &receives.back()));
			EXPECT_STATUS(r.ctx, pt2p_mrecv(r.ctx, in.back().data(), in.back().size(), third, nullptr),
			              PT2P_ERR_REQUEST);
		}
		for (size_t i = 0; i < count; ++i) { // too little room for every second of them
			Bytes whole(lengths[i]);
			const size_t room = i % 2 ? lengths[i] / 2 : lengths[i];
			pt2p_result_t result{};
			EXPECT_STATUS(r.ctx, pt2p_mrecv(r.ctx, whole.data(), room, first[i], &result),
			              i % 2 ? PT2P_ERR_TRUNCATED : PT2P_OK);
			EXPECT_EQ(result.length, lengths[i]);
			EXPECT_EQ(result.source, r.left());
			EXPECT_PAYLOAD(whole.data(), room & ~size_t{7}, seed_of(203, r.left(), r.me, 3 * i));
			EXPECT_STATUS(r.ctx, pt2p_mrecv(r.ctx, whole.data(), room, first[i], nullptr), PT2P_ERR_REQUEST);
		}
		std::vector<pt2p_result_t> results(count);
		EXPECT_OK(r.ctx, pt2p_waitall(r.ctx, count, receives.data(), results.data()));
		for (size_t i = 0; i < count; ++i) {
			EXPECT_EQ(results[i].tag, 2100 + count - 1 - i);
			EXPECT_PAYLOAD(in[i].data(), in[i].size(), seed_of(203, r.left(), r.me, 3 * (count - 1 - i) + 2));
		}
		r.last = [&r, x] { wait_for_sends(r, *x); };
	};
}

// Many wildcard receives, with more patterns than there are tables. Half of them are posted before their messages come,
// half after that. The messages come in another order.
Finish wild_patterns(Rank &r)
{
	struct State {
		std::vector<uint64_t> out, in;
		std::vector<pt2p_request_t *> sends, receives;
	};
	auto x = std::make_shared<State>();
	const size_t all = 2000, patterns = 12;
	const auto tag = [=](size_t i) { return UINT64_C(1) << 60 | static_cast<uint64_t>(i) << 24; };
	const auto receive = [&r, x, tag](size_t i) {
		const size_t p = i % patterns; // each ignores another bit, which no tag has
		const uint64_t left_out = p ? UINT64_C(1) << p : 0;
		EXPECT_OK(r.ctx, pt2p_irecv(r.ctx, &x->in[i], 8, p % 2 ? r.left() : PT2P_ANY_SOURCE, tag(i) | left_out,
		                            ~left_out, &x->receives[i]));
	};
	x->in.assign(all, 0);
	x->receives.assign(all, nullptr);
	for (size_t i = 0; i < all; i += 2)
		receive(i);
	for (size_t k = 0; k < all; ++k) {
		const size_t i = k * 7919 % all; // a prime that does not divide it
		x->out.push_back(i + 1);
	}
	for (size_t k = 0; k < all; ++k) {
		x->sends.push_back(nullptr);
		EXPECT_OK(r.ctx, pt2p_isend(r.ctx, &x->out[k], 8, r.right(), tag(x->out[k] - 1), &x->sends.back()));
	}
	return [&r, x, receive] {
		for (size_t i = 1; i < all; i += 2)
			receive(i);
		EXPECT_OK(r.ctx, pt2p_waitall(r.ctx, all, x->receives.data(), nullptr));
		for (size_t i = 0; i < all; ++i)
			EXPECT_EQ(x->in[i], i + 1);
		r.last = [&r, x] { EXPECT_OK(r.ctx, pt2p_waitall(r.ctx, all, x->sends.data(), nullptr)); };
	};
}

} // namespace

void add_matched_cases(std::vector<Case> &cases)
{
	cases.insert(cases.end(), {
	                              {"synchronous_order", true, synchronous_order},
	                              {"synchronous_to_self", true, synchronous_to_self},
	                              {"synchronous_waits", false, synchronous_waits},
	                              {"matched_probe", true, matched_probe},
	                              {"wild_patterns", true, wild_patterns},
	                          });
}

} // namespace conformance
