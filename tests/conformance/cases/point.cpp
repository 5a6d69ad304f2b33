// Messages between two ranks: sizes, directions, self-sends, results.
#include <algorithm>
#include <cstring>
#include <memory>
#include <unistd.h>

#include "tests/conformance/harness.hpp"

namespace conformance {
namespace {

const std::vector<size_t> &sizes()
{
	static const std::vector<size_t> s = {0,    1,    7,    8,    47,    48,    49,    111,   112,      113,     1000,
	                                      4096, 8191, 8192, 8193, 16384, 65535, 65536, 65537, 1u << 20, 5u << 20};
	return s;
}

Finish ping_pong(Rank &r)
{
	const int other = r.partner();
	uint64_t number = 0;
	for (size_t length : sizes())
		for (int repeat = 0; repeat < (length > 100000 ? 2 : 5); ++repeat, ++number) {
			const Bytes out = payload(length, seed_of(1, r.me, other, number));
			Bytes in(length + 8, 0xee);
			pt2p_result_t result{};
			if (other == r.me) {
				pt2p_request_t *req = nullptr;
				EXPECT_OK(r.ctx, pt2p_irecv(r.ctx, in.data(), length, other, number, PT2P_TAG_EXACT, &req));
				EXPECT_OK(r.ctx, pt2p_send(r.ctx, out.data(), length, other, number));
				EXPECT_OK(r.ctx, pt2p_wait(r.ctx, req, &result));
			} else if (r.me & 1) {
				EXPECT_OK(r.ctx, pt2p_recv(r.ctx, in.data(), length, other, number, PT2P_TAG_EXACT, &result));
				EXPECT_OK(r.ctx, pt2p_send(r.ctx, out.data(), length, other, number));
			} else {
				EXPECT_OK(r.ctx, pt2p_send(r.ctx, out.data(), length, other, number));
				EXPECT_OK(r.ctx, pt2p_recv(r.ctx, in.data(), length, other, number, PT2P_TAG_EXACT, &result));
			}
			EXPECT_EQ(result.length, length);
			EXPECT_EQ(result.source, other);
			EXPECT_EQ(result.tag, number);
			EXPECT_PAYLOAD(in.data(), length, seed_of(1, other, r.me, number));
			for (size_t i = length; i < in.size(); ++i)
				EXPECT_EQ(int{in[i]}, 0xee);
		}
	return {};
}

struct Exchange {
	std::vector<Bytes> out, in;
	std::vector<pt2p_request_t *> requests;
};

// Messages of all sizes round the ring. All receives are posted first, and waited for in reverse order.
Finish ring_of_sizes(Rank &r)
{
	auto x = std::make_shared<Exchange>();
	for (size_t i = 0; i < sizes().size(); ++i) {
		x->in.emplace_back(sizes()[i]);
		x->requests.push_back(nullptr);
		EXPECT_OK(r.ctx, pt2p_irecv(r.ctx, x->in.back().data(), sizes()[i], r.left(), 1000 + i, PT2P_TAG_EXACT,
		                            &x->requests.back()));
	}
	for (size_t i = 0; i < sizes().size(); ++i) {
		x->out.push_back(payload(sizes()[i], seed_of(2, r.me, r.right(), i)));
		x->requests.push_back(nullptr);
		EXPECT_OK(r.ctx, pt2p_isend(r.ctx, x->out.back().data(), sizes()[i], r.right(), 1000 + i, &x->requests.back()));
	}
	return [&r, x] {
		for (size_t i = x->requests.size(); i-- > 0;) {
			pt2p_result_t result{};
			EXPECT_OK(r.ctx, pt2p_wait(r.ctx, x->requests[i], &result));
			EXPECT_EQ(result.length, sizes()[i % sizes().size()]);
		}
		for (size_t i = 0; i < sizes().size(); ++i)
			EXPECT_PAYLOAD(x->in[i].data(), x->in[i].size(), seed_of(2, r.left(), r.me, i));
	};
}

Finish sendrecv_ring(Rank &r)
{
	for (size_t i = 0; i < sizes().size(); ++i) {
		const size_t length = sizes()[i];
		const Bytes out = payload(length, seed_of(3, r.me, r.right(), i));
		Bytes in(length);
		pt2p_result_t result{};
		EXPECT_OK(r.ctx, pt2p_sendrecv(r.ctx, out.data(), length, r.right(), 5, in.data(), length, r.left(), 5,
		                               PT2P_TAG_EXACT, &result));
		EXPECT_EQ(result.source, r.left());
		EXPECT_EQ(result.length, length);
		EXPECT_PAYLOAD(in.data(), length, seed_of(3, r.left(), r.me, i));
	}
	EXPECT_OK(r.ctx,
	          pt2p_sendrecv(r.ctx, nullptr, 0, r.right(), 6, nullptr, 0, PT2P_ANY_SOURCE, 0, PT2P_TAG_ANY, nullptr));
	return {};
}

Finish to_self(Rank &r)
{
	for (size_t length :
	     {size_t{0}, size_t{1}, size_t{112}, size_t{113}, size_t{8192}, size_t{8193}, size_t{1} << 20}) {
		const Bytes out = payload(length, length + 4);
		Bytes in(length);
		pt2p_request_t *requests[2] = {};
		pt2p_result_t results[2] = {};
		// Receive first, then send.
		EXPECT_OK(r.ctx, pt2p_irecv(r.ctx, in.data(), length, r.me, 9, PT2P_TAG_EXACT, &requests[0]));
		EXPECT_OK(r.ctx, pt2p_isend(r.ctx, out.data(), length, r.me, 9, &requests[1]));
		EXPECT_OK(r.ctx, pt2p_waitall(r.ctx, 2, requests, results));
		EXPECT_EQ(results[0].length, length);
		EXPECT_EQ(results[0].source, r.me);
		EXPECT_PAYLOAD(in.data(), length, length + 4);
		// Send first, then receive, by wildcards.
		std::fill(in.begin(), in.end(), 0);
		EXPECT_OK(r.ctx, pt2p_isend(r.ctx, out.data(), length, r.me, 10, &requests[1]));
		EXPECT_OK(r.ctx, pt2p_recv(r.ctx, in.data(), length, PT2P_ANY_SOURCE, 0, PT2P_TAG_ANY, &results[0]));
		EXPECT_OK(r.ctx, pt2p_wait(r.ctx, requests[1], nullptr));
		EXPECT_EQ(results[0].tag, uint64_t{10});
		EXPECT_EQ(results[0].length, length);
		EXPECT_PAYLOAD(in.data(), length, length + 4);
	}
	return {};
}

Finish empty_messages(Rank &r)
{
	auto x = std::make_shared<Exchange>();
	x->requests.resize(6);
	for (uint64_t i = 0; i < 3; ++i)
		EXPECT_OK(r.ctx, pt2p_irecv(r.ctx, nullptr, 0, r.left(), i, PT2P_TAG_EXACT, &x->requests[i]));
	for (uint64_t i = 0; i < 3; ++i)
		EXPECT_OK(r.ctx, pt2p_isend(r.ctx, nullptr, 0, r.right(), i, &x->requests[3 + i]));
	return [&r, x] {
		pt2p_result_t results[6];
		EXPECT_OK(r.ctx, pt2p_waitall(r.ctx, 6, x->requests.data(), results));
		for (int i = 0; i < 3; ++i) {
			EXPECT_EQ(results[i].length, size_t{0});
			EXPECT_EQ(results[i].source, r.left());
			EXPECT_EQ(results[i].tag, uint64_t(i));
		}
	};
}

Finish both_directions(Rank &r)
{
	auto x = std::make_shared<Exchange>();
	const int other = r.partner();
	const size_t length = 3u << 20;
	for (uint64_t i = 0; i < 4; ++i) {
		x->in.emplace_back(length);
		x->out.push_back(payload(length, seed_of(5, r.me, other, i)));
		x->requests.resize(x->requests.size() + 2);
		EXPECT_OK(r.ctx, pt2p_irecv(r.ctx, x->in[i].data(), length, other, 77, PT2P_TAG_EXACT, &x->requests[2 * i]));
		EXPECT_OK(r.ctx, pt2p_isend(r.ctx, x->out[i].data(), length, other, 77, &x->requests[2 * i + 1]));
	}
	return [&r, x, other] {
		EXPECT_OK(r.ctx, pt2p_waitall(r.ctx, x->requests.size(), x->requests.data(), nullptr));
		for (uint64_t i = 0; i < 4; ++i)
			EXPECT_PAYLOAD(x->in[i].data(), x->in[i].size(), seed_of(5, other, r.me, i));
	};
}

// Receives from a buffer larger than the message and sends from odd addresses.
Finish odd_addresses(Rank &r)
{
	auto x = std::make_shared<Exchange>();
	const size_t lengths[] = {3, 110, 115, 5001, 70003, 300001};
	uint64_t i = 0;
	for (size_t length : lengths) {
		x->in.emplace_back(length + 64, 0x55);
		x->out.emplace_back(length + 8);
		fill(x->out.back().data() + 1 + i, length, seed_of(6, r.me, r.right(), i));
		x->requests.resize(x->requests.size() + 2);
		EXPECT_OK(r.ctx, pt2p_irecv(r.ctx, x->in.back().data() + 3, length + 61, r.left(), i, PT2P_TAG_EXACT,
		                            &x->requests[2 * i]));
		EXPECT_OK(r.ctx,
		          pt2p_isend(r.ctx, x->out.back().data() + 1 + i, length, r.right(), i, &x->requests[2 * i + 1]));
		++i;
	}
	return [&r, x] {
		std::vector<pt2p_result_t> results(x->requests.size());
		EXPECT_OK(r.ctx, pt2p_waitall(r.ctx, x->requests.size(), x->requests.data(), results.data()));
		for (size_t k = 0; k < x->in.size(); ++k) {
			const size_t length = x->in[k].size() - 64;
			EXPECT_EQ(results[2 * k].length, length);
			EXPECT_PAYLOAD(x->in[k].data() + 3, length, seed_of(6, r.left(), r.me, k));
			for (size_t b = length + 3; b < x->in[k].size(); ++b)
				EXPECT_EQ(int{x->in[k][b]}, 0x55);
		}
	};
}

Finish result_fields(Rank &r)
{
	const uint64_t tag = UINT64_C(0xfedcba9876543210);
	const int value = r.me + 100;
	int got = -1;
	pt2p_request_t *requests[2] = {};
	pt2p_result_t results[2] = {};
	EXPECT_OK(r.ctx, pt2p_irecv(r.ctx, &got, sizeof got, r.left(), tag, PT2P_TAG_EXACT, &requests[0]));
	EXPECT(requests[0] != nullptr);
	EXPECT_OK(r.ctx, pt2p_isend(r.ctx, &value, sizeof value, r.right(), tag, &requests[1]));
	EXPECT(requests[1] != nullptr);
	EXPECT_OK(r.ctx, pt2p_wait(r.ctx, requests[1], &results[1]));
	EXPECT_OK(r.ctx, pt2p_wait(r.ctx, requests[0], &results[0]));
	EXPECT_EQ(got, r.left() + 100);
	EXPECT_EQ(int{results[0].status}, int{PT2P_OK});
	EXPECT_EQ(results[0].source, r.left());
	EXPECT_EQ(results[0].tag, tag);
	EXPECT_EQ(results[0].length, sizeof got);
	EXPECT_EQ(int{results[1].status}, int{PT2P_OK});
	EXPECT_EQ(results[1].source, r.me);
	EXPECT_EQ(results[1].tag, tag);
	EXPECT_EQ(results[1].length, sizeof value);
	pt2p_peer_info_t peer{};
	EXPECT_OK(r.ctx, pt2p_peer_query(r.ctx, r.right(), &peer));
	EXPECT_EQ(peer.rank, r.right());
	char mine[256] = {}, its[256] = {};
	EXPECT(gethostname(mine, sizeof mine - 1) == 0);
	EXPECT_OK(r.ctx, pt2p_sendrecv(r.ctx, mine, sizeof mine, r.left(), tag, its, sizeof its, r.right(), tag,
	                               PT2P_TAG_EXACT, nullptr));
	EXPECT_EQ(peer.same_node,
	          r.ranks_per_node ? r.me / r.ranks_per_node == r.right() / r.ranks_per_node : strcmp(mine, its) == 0);
	EXPECT_EQ(int{peer.state}, int{PT2P_PEER_ALIVE});
	const std::string transport = peer.transport, wanted = r.size == 1 ? "self" : r.transport;
	if (r.size > 1 && ((!peer.same_node && wanted == "shm") || wanted == "dct" || transport == "relay"))
		EXPECT(transport == "rc" || transport == "dct" || transport == "relay" ||
		       (peer.same_node && transport == "shm"));
	else
		EXPECT(transport == wanted);
	return {};
}

} // namespace

void add_point_cases(std::vector<Case> &cases)
{
	cases.insert(cases.end(), {
	                              {"ping_pong", false, ping_pong},
	                              {"ring_of_sizes", true, ring_of_sizes},
	                              {"sendrecv_ring", false, sendrecv_ring},
	                              {"to_self", false, to_self},
	                              {"empty_messages", true, empty_messages},
	                              {"both_directions", true, both_directions},
	                              {"odd_addresses", true, odd_addresses},
	                              {"result_fields", false, result_fields},
	                          });
}

} // namespace conformance
