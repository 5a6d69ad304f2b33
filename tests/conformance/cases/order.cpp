// Order and matching: non-overtaking, tags, masks, wildcards, unexpected messages.
#include <algorithm>
#include <memory>

#include "tests/conformance/harness.hpp"

namespace conformance {
namespace {

constexpr size_t mixed[] = {8, 20000, 0, 100, 9000, 70000, 1, 112, 113, 8192, 8193, 300000, 40, 5000};
constexpr size_t mixed_count = sizeof mixed / sizeof *mixed;

struct Exchange {
	std::vector<Bytes> out, in;
	std::vector<pt2p_request_t *> sends, receives;
};

void start_mixed(Rank &r, Exchange &x, int dest, size_t count, uint64_t what, uint64_t tag)
{
	for (size_t i = 0; i < count; ++i) {
		x.out.push_back(payload(mixed[i % mixed_count], seed_of(what, r.me, dest, i)));
		x.sends.push_back(nullptr);
		EXPECT_OK(r.ctx, pt2p_isend(r.ctx, x.out.back().data(), x.out.back().size(), dest, tag, &x.sends.back()));
	}
}

// Eager and rendezvous messages with one tag, and receives that are posted late: they match in the order of the sends.
Finish order_unexpected(Rank &r)
{
	auto x = std::make_shared<Exchange>();
	start_mixed(r, *x, r.right(), 140, 10, 3);
	return [&r, x] {
		Bytes in(300000);
		for (size_t i = 0; i < 140; ++i) {
			pt2p_result_t result{};
			EXPECT_OK(r.ctx, pt2p_recv(r.ctx, in.data(), in.size(), i % 3 ? r.left() : PT2P_ANY_SOURCE, 3,
			                           i % 2 ? PT2P_TAG_EXACT : UINT64_C(0xff), &result));
			EXPECT_EQ(result.length, mixed[i % mixed_count]);
			EXPECT_PAYLOAD(in.data(), result.length, seed_of(10, r.left(), r.me, i));
		}
		r.last = [&r, x] { EXPECT_OK(r.ctx, pt2p_waitall(r.ctx, x->sends.size(), x->sends.data(), nullptr)); };
	};
}

// The same with the receives posted first, exact and wildcard ones in turn.
Finish order_posted(Rank &r)
{
	auto x = std::make_shared<Exchange>();
	const size_t count = 84;
	for (size_t i = 0; i < count; ++i) {
		x->in.emplace_back(mixed[i % mixed_count]);
		x->receives.push_back(nullptr);
		EXPECT_OK(r.ctx, pt2p_irecv(r.ctx, x->in.back().data(), x->in.back().size(), i % 4 ? r.left() : PT2P_ANY_SOURCE,
		                            4, i % 2 ? PT2P_TAG_EXACT : UINT64_C(0xff), &x->receives.back()));
	}
	start_mixed(r, *x, r.right(), count, 11, 4);
	return [&r, x] {
		std::vector<pt2p_result_t> results(x->receives.size());
		EXPECT_OK(r.ctx, pt2p_waitall(r.ctx, x->receives.size(), x->receives.data(), results.data()));
		for (size_t i = 0; i < results.size(); ++i) {
			EXPECT_EQ(results[i].length, mixed[i % mixed_count]);
			EXPECT_PAYLOAD(x->in[i].data(), x->in[i].size(), seed_of(11, r.left(), r.me, i));
		}
		r.last = [&r, x] { EXPECT_OK(r.ctx, pt2p_waitall(r.ctx, x->sends.size(), x->sends.data(), nullptr)); };
	};
}

// Many blocking sends of short messages: consumer indices, wrap-around of the ring.
Finish long_row(Rank &r)
{
	const uint64_t count = 5000;
	const int other = r.partner();
	if (other == r.me)
		return {};
	for (int turn = 0; turn < 2; ++turn) {
		if ((r.me & 1) == turn) {
			Bytes out(200);
			for (uint64_t i = 0; i < count; ++i) {
				fill(out.data(), i % 200, seed_of(12, r.me, other, i));
				EXPECT_OK(r.ctx, pt2p_send(r.ctx, out.data(), i % 200, other, 8));
			}
		} else {
			Bytes in(200);
			for (uint64_t i = 0; i < count; ++i) {
				pt2p_result_t result{};
				EXPECT_OK(r.ctx, pt2p_recv(r.ctx, in.data(), in.size(), other, 8, PT2P_TAG_EXACT, &result));
				EXPECT_EQ(result.length, i % 200);
				EXPECT_PAYLOAD(in.data(), result.length, seed_of(12, other, r.me, i));
			}
		}
	}
	return {};
}

// Tags with two fields. Receives choose by either field.
Finish tag_masks(Rank &r)
{
	auto x = std::make_shared<Exchange>();
	x->out.resize(16);
	for (uint64_t i = 0; i < 16; ++i) {
		const uint64_t tag = (i / 4) << 32 | i % 4;
		x->out[i] = payload(64 + i, seed_of(13, r.me, r.right(), i));
		x->sends.push_back(nullptr);
		EXPECT_OK(r.ctx, pt2p_isend(r.ctx, x->out[i].data(), 64 + i, r.right(), tag, &x->sends.back()));
	}
	return [&r, x] {
		const uint64_t high = UINT64_C(0xffffffff00000000), low = UINT64_C(0xffffffff);
		struct Wanted {
			uint64_t tag, mask, message;
		};
		// Each step depends on what the steps before have left, so the list is exact.
		const Wanted wanted[] = {
		    {UINT64_C(2) << 32 | 999, high, 8}, // the first with high field 2
		    {3, low, 3},                        // the first with low field 3
		    {3, low, 7},
		    {UINT64_C(2) << 32 | 1, PT2P_TAG_EXACT, 9},
		    {UINT64_C(2) << 32, high, 10},
		    {0, PT2P_TAG_ANY, 0},
		    {UINT64_C(3) << 32, high, 12},
		    {UINT64_MAX, 0, 1},
		    {1, 1, 5}, // odd tags
		    {UINT64_C(3) << 32 | 2, PT2P_TAG_EXACT, 14},
		    {0, 0, 2},
		    {0, 1, 4}, // even tags
		    {0, 0, 6},
		    {0, 0, 11},
		    {0, 0, 13},
		    {0, 0, 15},
		};
		for (const Wanted &w : wanted) {
			unsigned char in[128];
			pt2p_result_t result{};
			EXPECT_OK(r.ctx, pt2p_recv(r.ctx, in, sizeof in, r.left(), w.tag, w.mask, &result));
			EXPECT_EQ(result.tag, (w.message / 4) << 32 | w.message % 4);
			EXPECT_EQ(result.length, 64 + w.message);
			EXPECT_PAYLOAD(in, result.length, seed_of(13, r.left(), r.me, w.message));
		}
		r.last = [&r, x] { EXPECT_OK(r.ctx, pt2p_waitall(r.ctx, 16, x->sends.data(), nullptr)); };
	};
}

// Of two receives that match, the one that was posted first takes the message, wildcard or exact.
Finish posting_order(Rank &r)
{
	struct State {
		int in[4] = {-1, -1, -1, -1}, out[4] = {0, 1, 2, 3};
		pt2p_request_t *receives[4] = {}, *sends[4] = {};
	};
	auto x = std::make_shared<State>();
	EXPECT_OK(r.ctx, pt2p_irecv(r.ctx, &x->in[0], 4, PT2P_ANY_SOURCE, 21, PT2P_TAG_EXACT, &x->receives[0]));
	EXPECT_OK(r.ctx, pt2p_irecv(r.ctx, &x->in[1], 4, r.left(), 21, PT2P_TAG_EXACT, &x->receives[1]));
	EXPECT_OK(r.ctx, pt2p_irecv(r.ctx, &x->in[2], 4, r.left(), 16, UINT64_C(0x10), &x->receives[2]));
	EXPECT_OK(r.ctx, pt2p_irecv(r.ctx, &x->in[3], 4, r.left(), 21, PT2P_TAG_EXACT, &x->receives[3]));
	for (int i = 0; i < 4; ++i)
		EXPECT_OK(r.ctx, pt2p_isend(r.ctx, &x->out[i], 4, r.right(), 21, &x->sends[i]));
	return [&r, x] {
		EXPECT_OK(r.ctx, pt2p_waitall(r.ctx, 4, x->receives, nullptr));
		EXPECT_OK(r.ctx, pt2p_waitall(r.ctx, 4, x->sends, nullptr));
		for (int i = 0; i < 4; ++i)
			EXPECT_EQ(x->in[i], i);
	};
}

// All ranks send to each other, and receives name no source. The messages of each sender stay in order.
Finish any_source(Rank &r)
{
	struct State {
		std::vector<uint64_t> out;
		std::vector<pt2p_request_t *> sends;
	};
	const uint64_t each = 60;
	auto x = std::make_shared<State>();
	x->out.resize(each);
	for (uint64_t i = 0; i < each; ++i)
		x->out[i] = static_cast<uint64_t>(r.me) << 32 | i;
	for (uint64_t i = 0; i < each; ++i)
		for (int dest = 0; dest < r.size; ++dest) {
			x->sends.push_back(nullptr);
			EXPECT_OK(r.ctx, pt2p_isend(r.ctx, &x->out[i], 8, dest, 31 + i % 2, &x->sends.back()));
		}
	return [&r, x] {
		std::vector<uint64_t> seen(static_cast<size_t>(r.size));
		for (uint64_t i = 0; i < each * static_cast<uint64_t>(r.size); ++i) {
			uint64_t in = 0;
			pt2p_result_t result{};
			EXPECT_OK(r.ctx, pt2p_recv(r.ctx, &in, 8, PT2P_ANY_SOURCE, 0, PT2P_TAG_ANY, &result));
			EXPECT(result.source >= 0 && result.source < r.size);
			EXPECT_EQ(in >> 32, static_cast<uint64_t>(result.source));
			EXPECT_EQ(in & 0xffffffff, seen[static_cast<size_t>(result.source)]);
			++seen[static_cast<size_t>(result.source)];
		}
		r.last = [&r, x] { EXPECT_OK(r.ctx, pt2p_waitall(r.ctx, x->sends.size(), x->sends.data(), nullptr)); };
	};
}

// Many tags, received in another order than sent.
Finish unexpected_reversed(Rank &r)
{
	auto x = std::make_shared<Exchange>();
	const size_t count = 56;
	for (size_t i = 0; i < count; ++i) {
		x->out.push_back(payload(mixed[i % mixed_count], seed_of(14, r.me, r.right(), i)));
		x->sends.push_back(nullptr);
		EXPECT_OK(r.ctx,
		          pt2p_isend(r.ctx, x->out.back().data(), x->out.back().size(), r.right(), 100 + i, &x->sends.back()));
	}
	return [&r, x] {
		Bytes in(300000);
		for (size_t k = 0; k < count; ++k) {
			const size_t i = k % 2 ? k / 2 : count - 1 - k / 2;
			pt2p_result_t result{};
			EXPECT_OK(r.ctx, pt2p_recv(r.ctx, in.data(), in.size(), r.left(), 100 + i, PT2P_TAG_EXACT, &result));
			EXPECT_EQ(result.length, mixed[i % mixed_count]);
			EXPECT_PAYLOAD(in.data(), result.length, seed_of(14, r.left(), r.me, i));
		}
		r.last = [&r, x] { EXPECT_OK(r.ctx, pt2p_waitall(r.ctx, count, x->sends.data(), nullptr)); };
	};
}

} // namespace

void add_order_cases(std::vector<Case> &cases)
{
	cases.insert(cases.end(), {
	                              {"order_unexpected", true, order_unexpected},
	                              {"order_posted", true, order_posted},
	                              {"long_row", false, long_row},
	                              {"tag_masks", true, tag_masks},
	                              {"posting_order", true, posting_order},
	                              {"any_source", true, any_source},
	                              {"unexpected_reversed", true, unexpected_reversed},
	                          });
}

} // namespace conformance
