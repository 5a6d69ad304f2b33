// Requests: probe, the wait and test functions, cancel, truncation, completed handles, and many at the same time.
#include <algorithm>
#include <cstring>
#include <memory>

#include "tests/conformance/harness.hpp"

namespace conformance {
namespace {

Finish probe(Rank &r)
{
	struct State {
		std::vector<Bytes> out;
		std::vector<pt2p_request_t *> sends;
	};
	auto x = std::make_shared<State>();
	const size_t lengths[] = {0, 5, 112, 113, 8192, 50000, 400000};
	for (size_t length : lengths) {
		x->out.push_back(payload(length, seed_of(20, r.me, r.right(), length)));
		x->sends.push_back(nullptr);
		EXPECT_OK(r.ctx, pt2p_isend(r.ctx, x->out.back().data(), length, r.right(), 200 + length, &x->sends.back()));
	}
	return [&r, x] {
		// Backwards, so that each probe has to skip others.
		for (size_t k = x->out.size(); k-- > 0;) {
			const size_t length = x->out[k].size();
			pt2p_result_t seen{};
			if (k % 2)
				EXPECT_OK(r.ctx,
				          pt2p_probe(r.ctx, k % 3 ? r.left() : PT2P_ANY_SOURCE, 200 + length, PT2P_TAG_EXACT, &seen));
			else
				for (int found = 0; !found; r.poll())
					EXPECT_OK(r.ctx, pt2p_iprobe(r.ctx, r.left(), 200 + length, PT2P_TAG_EXACT, &found, &seen));
			EXPECT_EQ(int{seen.status}, int{PT2P_OK});
			EXPECT_EQ(seen.length, length);
			EXPECT_EQ(seen.source, r.left());
			EXPECT_EQ(seen.tag, 200 + length);
			EXPECT_OK(r.ctx, pt2p_probe(r.ctx, seen.source, seen.tag, PT2P_TAG_EXACT, nullptr));
			Bytes in(seen.length);
			pt2p_result_t result{};
			EXPECT_OK(r.ctx, pt2p_recv(r.ctx, in.data(), in.size(), seen.source, seen.tag, PT2P_TAG_EXACT, &result));
			EXPECT_EQ(result.length, length);
			EXPECT_PAYLOAD(in.data(), length, seed_of(20, r.left(), r.me, length));
			int found = 1;
			EXPECT_OK(r.ctx, pt2p_iprobe(r.ctx, r.left(), 200 + length, PT2P_TAG_EXACT, &found, nullptr));
			EXPECT_EQ(found, 0);
		}
		r.last = [&r, x] { EXPECT_OK(r.ctx, pt2p_waitall(r.ctx, x->sends.size(), x->sends.data(), nullptr)); };
	};
}

struct Ints {
	std::vector<int> out, in;
	std::vector<pt2p_request_t *> requests; // with NULL entries
};

// Receives of ints 0 ... count-1 from the left, tag 300 + i, each followed by an empty entry; sends in reverse order.
std::shared_ptr<Ints> start_ints(Rank &r, int count)
{
	auto x = std::make_shared<Ints>();
	const auto n = static_cast<size_t>(count);
	x->in.assign(n, -1);
	x->out.resize(n);
	x->requests.assign(2 * n, nullptr);
	for (size_t i = 0; i < n; ++i)
		EXPECT_OK(r.ctx,
		          pt2p_irecv(r.ctx, &x->in[i], sizeof(int), r.left(), 300 + i, PT2P_TAG_EXACT, &x->requests[2 * i]));
	for (size_t i = n; i-- > 0;) {
		x->out[i] = static_cast<int>(i);
		pt2p_request_t *send = nullptr;
		EXPECT_OK(r.ctx, pt2p_isend(r.ctx, &x->out[i], sizeof(int), r.right(), 300 + i, &send));
		x->requests.push_back(send);
	}
	return x;
}

void expect_ints(const Ints &x)
{
	for (size_t i = 0; i < x.in.size(); ++i)
		EXPECT_EQ(x.in[i], static_cast<int>(i));
	for (pt2p_request_t *q : x.requests)
		EXPECT(q == nullptr);
}

Finish wait_all(Rank &r)
{
	auto x = start_ints(r, 50);
	return [&r, x] {
		std::vector<pt2p_result_t> results(x->requests.size(), pt2p_result_t{PT2P_ERR_INTERNAL, -7, 99, 99, 99, 99});
		EXPECT_OK(r.ctx, pt2p_waitall(r.ctx, x->requests.size(), x->requests.data(), results.data()));
		for (size_t i = 0; i < 50; ++i) {
			EXPECT_EQ(int{results[2 * i].status}, int{PT2P_OK});
			EXPECT_EQ(results[2 * i].length, sizeof(int));
			EXPECT_EQ(results[2 * i].tag, 300 + i);
			EXPECT_EQ(int{results[2 * i + 1].status}, int{PT2P_OK});
			EXPECT_EQ(results[2 * i + 1].length, size_t{0});
		}
		expect_ints(*x);
		EXPECT_OK(r.ctx, pt2p_waitall(r.ctx, x->requests.size(), x->requests.data(), results.data()));
		EXPECT_OK(r.ctx, pt2p_waitall(r.ctx, 0, nullptr, nullptr));
	};
}

Finish wait_any(Rank &r)
{
	auto x = start_ints(r, 20);
	return [&r, x] {
		for (size_t k = 0; k < 40; ++k) {
			size_t index = PT2P_NO_INDEX;
			pt2p_result_t result{};
			EXPECT_OK(r.ctx, pt2p_waitany(r.ctx, x->requests.size(), x->requests.data(), &index, &result));
			EXPECT(index < x->requests.size());
			EXPECT(x->requests[index] == nullptr);
			EXPECT_EQ(result.length, sizeof(int));
			if (index < 40)
				EXPECT_EQ(result.tag, 300 + index / 2);
		}
		size_t index = 5;
		EXPECT_OK(r.ctx, pt2p_waitany(r.ctx, x->requests.size(), x->requests.data(), &index, nullptr));
		EXPECT(index == PT2P_NO_INDEX);
		expect_ints(*x);
	};
}

Finish test_any(Rank &r)
{
	auto x = start_ints(r, 20);
	return [&r, x] {
		for (size_t k = 0; k < 40; r.poll()) {
			size_t index = 3;
			pt2p_result_t result{};
			EXPECT_OK(r.ctx, pt2p_testany(r.ctx, x->requests.size(), x->requests.data(), &index, &result));
			if (index == PT2P_NO_INDEX)
				continue;
			EXPECT(x->requests[index] == nullptr);
			EXPECT_EQ(result.length, sizeof(int));
			++k;
		}
		size_t index = 5;
		EXPECT_OK(r.ctx, pt2p_testany(r.ctx, x->requests.size(), x->requests.data(), &index, nullptr));
		EXPECT(index == PT2P_NO_INDEX);
		expect_ints(*x);
	};
}

Finish test_all(Rank &r)
{
	auto x = start_ints(r, 20);
	return [&r, x] {
		std::vector<pt2p_result_t> results(x->requests.size());
		const std::vector<pt2p_request_t *> before = x->requests;
		for (int done = 0; !done; r.poll()) {
			EXPECT(x->requests == before);
			EXPECT_OK(r.ctx, pt2p_testall(r.ctx, x->requests.size(), x->requests.data(), &done, results.data()));
		}
		for (size_t i = 0; i < 20; ++i)
			EXPECT_EQ(results[2 * i].tag, 300 + i);
		expect_ints(*x);
		int done = 0;
		EXPECT_OK(r.ctx, pt2p_testall(r.ctx, x->requests.size(), x->requests.data(), &done, nullptr));
		EXPECT_EQ(done, 1);
	};
}

Finish test_one(Rank &r)
{
	auto x = start_ints(r, 4);
	return [&r, x] {
		for (pt2p_request_t *&q : x->requests) {
			if (!q)
				continue;
			pt2p_result_t result{};
			for (int done = 0; !done; r.poll())
				EXPECT_OK(r.ctx, pt2p_test(r.ctx, q, &done, &result));
			EXPECT_EQ(result.length, sizeof(int));
			int done = 0;
			EXPECT_STATUS(r.ctx, pt2p_test(r.ctx, q, &done, nullptr), PT2P_ERR_REQUEST);
			q = nullptr;
		}
		expect_ints(*x);
	};
}

Finish cancel(Rank &r)
{
	// Nobody sends tag 400: cancelled.
	unsigned char in[16];
	memset(in, 0xaa, sizeof in);
	pt2p_request_t *req = nullptr;
	pt2p_result_t result{};
	for (int source : {r.left(), PT2P_ANY_SOURCE})
		for (uint64_t mask : {PT2P_TAG_EXACT, UINT64_C(0xfff)}) {
			EXPECT_OK(r.ctx, pt2p_irecv(r.ctx, in, sizeof in, source, 400, mask, &req));
			EXPECT_OK(r.ctx, pt2p_cancel(r.ctx, req));
			EXPECT_STATUS(r.ctx, pt2p_wait(r.ctx, req, &result), PT2P_ERR_CANCELLED);
			EXPECT_EQ(int{result.status}, int{PT2P_ERR_CANCELLED});
			EXPECT_STATUS(r.ctx, pt2p_cancel(r.ctx, req), PT2P_ERR_REQUEST);
		}
	for (unsigned char c : in)
		EXPECT_EQ(int{c}, 0xaa);

	// A message for this rank itself has been matched: cancel changes nothing.
	const int out = 42;
	int got = 0;
	EXPECT_OK(r.ctx, pt2p_irecv(r.ctx, &got, sizeof got, r.me, 401, PT2P_TAG_EXACT, &req));
	EXPECT_OK(r.ctx, pt2p_send(r.ctx, &out, sizeof out, r.me, 401));
	EXPECT_OK(r.ctx, pt2p_cancel(r.ctx, req));
	EXPECT_OK(r.ctx, pt2p_wait(r.ctx, req, &result));
	EXPECT_EQ(got, 42);

	// A cancelled receive takes nothing. A later message goes to the next receive.
	auto x = std::make_shared<Ints>();
	x->in = {-1, -1};
	x->out = {77};
	x->requests.assign(3, nullptr);
	EXPECT_OK(r.ctx, pt2p_irecv(r.ctx, &x->in[0], 4, r.left(), 402, PT2P_TAG_EXACT, &x->requests[0]));
	EXPECT_OK(r.ctx, pt2p_irecv(r.ctx, &x->in[1], 4, r.left(), 403, PT2P_TAG_EXACT, &x->requests[1]));
	EXPECT_OK(r.ctx, pt2p_cancel(r.ctx, x->requests[0]));
	EXPECT_OK(r.ctx, pt2p_isend(r.ctx, &x->out[0], 4, r.right(), 403, &x->requests[2]));
	EXPECT_STATUS(r.ctx, pt2p_cancel(r.ctx, x->requests[2]), PT2P_ERR_ARGUMENT);
	return [&r, x] {
		pt2p_result_t results[3];
		EXPECT_STATUS(r.ctx, pt2p_waitall(r.ctx, 3, x->requests.data(), results), PT2P_ERR_CANCELLED);
		EXPECT_EQ(int{results[0].status}, int{PT2P_ERR_CANCELLED});
		EXPECT_EQ(int{results[1].status}, int{PT2P_OK});
		EXPECT_EQ(x->in[0], -1);
		EXPECT_EQ(x->in[1], 77);
	};
}

// Messages that are too long: posted and unexpected, eager and rendezvous. The next message arrives whole.
Finish truncation(Rank &r)
{
	struct State {
		std::vector<Bytes> out, in;
		std::vector<pt2p_request_t *> receives, sends;
	};
	auto x = std::make_shared<State>();
	const size_t lengths[] = {1, 100, 1000, 8192, 20000, 100000, 2000000};
	const size_t count = sizeof lengths / sizeof *lengths;
	for (size_t i = 0; i < count; ++i) {
		x->in.emplace_back(lengths[i] / 2 + 16, 0xcc);
		x->receives.push_back(nullptr);
		EXPECT_OK(r.ctx, pt2p_irecv(r.ctx, x->in[i].data(), lengths[i] / 2, r.left(), 500 + i, PT2P_TAG_EXACT,
		                            &x->receives.back()));
	}
	for (int twice = 0; twice < 2; ++twice)
		for (size_t i = 0; i < count; ++i) {
			x->out.push_back(payload(lengths[i], seed_of(24, r.me, r.right(), i)));
			x->sends.push_back(nullptr);
			EXPECT_OK(r.ctx, pt2p_isend(r.ctx, x->out.back().data(), lengths[i], r.right(), 500 + i, &x->sends.back()));
			const int after = static_cast<int>(i);
			x->out.push_back(Bytes(sizeof after));
			memcpy(x->out.back().data(), &after, sizeof after);
			x->sends.push_back(nullptr);
			EXPECT_OK(r.ctx,
			          pt2p_isend(r.ctx, x->out.back().data(), sizeof after, r.right(), 600 + i, &x->sends.back()));
		}
	return [&r, x, lengths = std::vector<size_t>(lengths, lengths + count)] {
		for (int twice = 0; twice < 2; ++twice)
			for (size_t i = 0; i < count; ++i) {
				pt2p_result_t result{};
				Bytes &in = x->in[i];
				if (twice) {
					std::fill(in.begin(), in.end(), 0xcc);
					EXPECT_STATUS(
					    r.ctx, pt2p_recv(r.ctx, in.data(), lengths[i] / 2, r.left(), 500 + i, PT2P_TAG_EXACT, &result),
					    PT2P_ERR_TRUNCATED);
				} else {
					EXPECT_STATUS(r.ctx, pt2p_wait(r.ctx, x->receives[i], &result), PT2P_ERR_TRUNCATED);
				}
				EXPECT_EQ(int{result.status}, int{PT2P_ERR_TRUNCATED});
				EXPECT_EQ(result.length, lengths[i]);
				EXPECT_EQ(result.source, r.left());
				EXPECT_PAYLOAD(in.data(), lengths[i] / 2 & ~size_t{7}, seed_of(24, r.left(), r.me, i));
				for (size_t b = lengths[i] / 2; b < in.size(); ++b)
					EXPECT_EQ(int{in[b]}, 0xcc);
				int after = -1;
				EXPECT_OK(r.ctx, pt2p_recv(r.ctx, &after, sizeof after, r.left(), 600 + i, PT2P_TAG_EXACT, &result));
				EXPECT_EQ(after, static_cast<int>(i));
				int found = 0;
				EXPECT_OK(r.ctx, pt2p_iprobe(r.ctx, r.left(), 500 + i, PT2P_TAG_EXACT, &found, nullptr));
				EXPECT(twice ? !found : true);
			}
		r.last = [&r, x] { EXPECT_OK(r.ctx, pt2p_waitall(r.ctx, x->sends.size(), x->sends.data(), nullptr)); };
	};
}

Finish dead_handles(Rank &r)
{
	int value = 1, got = 0;
	pt2p_request_t *receive = nullptr, *send = nullptr;
	EXPECT_OK(r.ctx, pt2p_irecv(r.ctx, &got, 4, r.me, 700, PT2P_TAG_EXACT, &receive));
	EXPECT_OK(r.ctx, pt2p_isend(r.ctx, &value, 4, r.me, 700, &send));
	EXPECT_OK(r.ctx, pt2p_wait(r.ctx, receive, nullptr));
	EXPECT_OK(r.ctx, pt2p_wait(r.ctx, send, nullptr));
	int done = 0;
	size_t index = 0;
	for (pt2p_request_t *dead : {receive, send}) {
		pt2p_request_t *list[2] = {nullptr, dead};
		EXPECT_STATUS(r.ctx, pt2p_wait(r.ctx, dead, nullptr), PT2P_ERR_REQUEST);
		EXPECT(pt2p_last_error(r.ctx)[0] != 0);
		EXPECT_STATUS(r.ctx, pt2p_test(r.ctx, dead, &done, nullptr), PT2P_ERR_REQUEST);
		EXPECT_STATUS(r.ctx, pt2p_cancel(r.ctx, dead), PT2P_ERR_REQUEST);
		EXPECT_STATUS(r.ctx, pt2p_waitall(r.ctx, 2, list, nullptr), PT2P_ERR_REQUEST);
		EXPECT_STATUS(r.ctx, pt2p_testall(r.ctx, 2, list, &done, nullptr), PT2P_ERR_REQUEST);
		EXPECT_STATUS(r.ctx, pt2p_waitany(r.ctx, 2, list, &index, nullptr), PT2P_ERR_REQUEST);
		EXPECT_STATUS(r.ctx, pt2p_testany(r.ctx, 2, list, &index, nullptr), PT2P_ERR_REQUEST);
	}
	return {};
}

// Thousands of receives, and sends in another order.
Finish many_outstanding(Rank &r)
{
	auto x = std::make_shared<Ints>();
	const size_t count = r.size <= 2 ? 10000 : 3000;
	x->in.assign(count, -1);
	x->out.resize(count);
	x->requests.assign(2 * count, nullptr);
	for (size_t i = 0; i < count; ++i)
		EXPECT_OK(r.ctx, pt2p_irecv(r.ctx, &x->in[i], sizeof(int), r.left(), i << 20, PT2P_TAG_EXACT, &x->requests[i]));
	for (size_t k = 0; k < count; ++k) {
		const size_t i = k * 7919 % count; // a prime that divides neither count: every index once
		x->out[i] = static_cast<int>(i);
		EXPECT_OK(r.ctx, pt2p_isend(r.ctx, &x->out[i], sizeof(int), r.right(), i << 20, &x->requests[count + i]));
	}
	return [&r, x, count] {
		EXPECT_OK(r.ctx, pt2p_waitall(r.ctx, 2 * count, x->requests.data(), nullptr));
		for (size_t i = 0; i < count; ++i)
			EXPECT_EQ(x->in[i], static_cast<int>(i));
	};
}

} // namespace

void add_request_cases(std::vector<Case> &cases)
{
	cases.insert(cases.end(), {
	                              {"probe", true, probe},
	                              {"wait_all", true, wait_all},
	                              {"wait_any", true, wait_any},
	                              {"test_any", true, test_any},
	                              {"test_all", true, test_all},
	                              {"test_one", true, test_one},
	                              {"cancel", true, cancel},
	                              {"truncation", true, truncation},
	                              {"dead_handles", true, dead_handles},
	                              {"many_outstanding", true, many_outstanding},
	                          });
}

} // namespace conformance
