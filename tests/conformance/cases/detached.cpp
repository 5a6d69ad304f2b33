// Requests that are not waited for one by one: some of a list, queries, release, callbacks.
#include <atomic>
#include <cstring>
#include <memory>

#include "tests/conformance/harness.hpp"

namespace conformance {
namespace {

struct Numbers {
	std::vector<uint64_t> out, in;
	std::vector<pt2p_request_t *> requests;
	size_t called = 0;
	uint64_t sum = 0;
};

// Posts receives of 0 ... count-1 from the left, with a NULL after each, and sends to the right in reverse order.
std::shared_ptr<Numbers> start_numbers(Rank &r, size_t count, uint64_t tag)
{
	auto x = std::make_shared<Numbers>();
	x->in.assign(count, 999);
	x->out.resize(count);
	x->requests.assign(2 * count, nullptr);
	for (size_t i = 0; i < count; ++i)
		EXPECT_OK(r.ctx, pt2p_irecv(r.ctx, &x->in[i], 8, r.left(), tag + i, PT2P_TAG_EXACT, &x->requests[2 * i]));
	for (size_t i = count; i-- > 0;) {
		x->out[i] = i;
		x->requests.push_back(nullptr);
		EXPECT_OK(r.ctx, pt2p_isend(r.ctx, &x->out[i], 8, r.right(), tag + i, &x->requests.back()));
	}
	return x;
}

Finish some(Rank &r, bool wait)
{
	constexpr size_t count = 30;
	auto x = start_numbers(r, count, 7000);
	return [&r, x, wait] {
		const size_t n = x->requests.size();
		std::vector<size_t> indices(n);
		std::vector<pt2p_result_t> results(n);
		for (size_t left = 2 * count; left; r.poll()) {
			size_t completed = 77;
			const std::vector<pt2p_request_t *> before = x->requests;
			if (wait)
				EXPECT_OK(r.ctx,
				          pt2p_waitsome(r.ctx, n, x->requests.data(), &completed, indices.data(), results.data()));
			else
				EXPECT_OK(r.ctx,
				          pt2p_testsome(r.ctx, n, x->requests.data(), &completed, indices.data(), results.data()));
			EXPECT(completed <= left && (completed || !wait));
			for (size_t k = 0; k < completed; ++k) {
				EXPECT(indices[k] < n && (!k || indices[k] > indices[k - 1]));
				EXPECT(before[indices[k]] && !x->requests[indices[k]]);
				EXPECT_EQ(results[k].length, size_t{8});
				if (indices[k] < 2 * count)
					EXPECT_EQ(results[k].tag, 7000 + indices[k] / 2);
			}
			left -= completed;
		}
		for (size_t i = 0; i < count; ++i)
			EXPECT_EQ(x->in[i], i);
		size_t completed = 5;
		EXPECT_OK(r.ctx, pt2p_waitsome(r.ctx, n, x->requests.data(), &completed, indices.data(), nullptr));
		EXPECT_EQ(completed, size_t{0});
	};
}

Finish wait_some(Rank &r) { return some(r, true); }
Finish test_some(Rank &r) { return some(r, false); }

// One status of several is not OK. The others are still reported.
Finish some_fail(Rank &r)
{
	uint64_t word = 0;
	pt2p_request_t *requests[3] = {};
	EXPECT_OK(r.ctx, pt2p_irecv(r.ctx, &word, 4, r.me, 7100, PT2P_TAG_EXACT, &requests[0]));
	EXPECT_OK(r.ctx, pt2p_irecv(r.ctx, &word, 8, r.me, 7101, PT2P_TAG_EXACT, &requests[1]));
	EXPECT_OK(r.ctx, pt2p_isend(r.ctx, "12345678", 8, r.me, 7100, &requests[2]));
	EXPECT_OK(r.ctx, pt2p_cancel(r.ctx, requests[1]));
	return [&r, list = std::vector<pt2p_request_t *>(requests, requests + 3)]() mutable {
		size_t completed = 0, indices[3];
		pt2p_result_t results[3];
		pt2p_status_t first = PT2P_OK;
		unsigned seen = 0;
		while (seen < 3) {
			const pt2p_status_t status = pt2p_waitsome(r.ctx, 3, list.data(), &completed, indices, results);
			if (first == PT2P_OK)
				first = status;
			for (size_t k = 0; k < completed; ++k, ++seen) {
				const pt2p_status_t wanted[] = {PT2P_ERR_TRUNCATED, PT2P_ERR_CANCELLED, PT2P_OK};
				EXPECT_EQ(int{results[k].status}, int{wanted[indices[k]]});
			}
		}
		EXPECT(first == PT2P_ERR_TRUNCATED || first == PT2P_ERR_CANCELLED);
	};
}

// A query of a request changes nothing.
Finish request_query(Rank &r)
{
	auto x = std::make_shared<Numbers>();
	x->in = {0};
	x->out = {4711};
	x->requests.assign(2, nullptr);
	EXPECT_OK(r.ctx, pt2p_irecv(r.ctx, x->in.data(), 8, r.left(), 7200, PT2P_TAG_EXACT, &x->requests[0]));
	int done = 7;
	EXPECT_OK(r.ctx, pt2p_request_query(r.ctx, x->requests[0], &done, nullptr));
	EXPECT(done == 0 || done == 1);
	EXPECT_OK(r.ctx, pt2p_isend(r.ctx, x->out.data(), 8, r.right(), 7200, &x->requests[1]));
	return [&r, x] {
		pt2p_result_t seen{}, result{};
		for (int done = 0; !done; r.poll())
			EXPECT_OK(r.ctx, pt2p_request_query(r.ctx, x->requests[0], &done, &seen));
		EXPECT_EQ(x->in[0], 4711u);
		int done = 0;
		EXPECT_OK(r.ctx, pt2p_request_query(r.ctx, x->requests[0], &done, nullptr));
		EXPECT_EQ(done, 1);
		EXPECT_OK(r.ctx, pt2p_wait(r.ctx, x->requests[0], &result));
		EXPECT_EQ(result.length, seen.length);
		EXPECT_EQ(result.source, seen.source);
		EXPECT_EQ(result.tag, seen.tag);
		EXPECT_STATUS(r.ctx, pt2p_request_query(r.ctx, x->requests[0], &done, nullptr), PT2P_ERR_REQUEST);
		EXPECT_EQ(done, 0);
		EXPECT_OK(r.ctx, pt2p_wait(r.ctx, x->requests[1], nullptr));

		// The status of the operation is in the result.
		pt2p_request_t *req = nullptr;
		EXPECT_OK(r.ctx, pt2p_irecv(r.ctx, x->in.data(), 8, r.left(), 7201, PT2P_TAG_EXACT, &req));
		EXPECT_OK(r.ctx, pt2p_cancel(r.ctx, req));
		EXPECT_OK(r.ctx, pt2p_request_query(r.ctx, req, &done, &seen));
		EXPECT(done == 1 && seen.status == PT2P_ERR_CANCELLED);
		EXPECT_STATUS(r.ctx, pt2p_wait(r.ctx, req, nullptr), PT2P_ERR_CANCELLED);
	};
}

const size_t lengths[] = {0, 8, 112, 8192, 40000, 600000};
constexpr size_t length_count = sizeof lengths / sizeof *lengths;

struct Buffers {
	std::vector<Bytes> out, in;
	std::atomic<size_t> called{0}, failed{0}; // also by a progress thread
	int me = 0, left = 0;
};

// Sends and receives of all lengths that are released. A last message shows that the ones before it were sent, the
// bytes in its buffer that a receive is done.
Finish give_up(Rank &r)
{
	auto x = std::make_shared<Buffers>();
	const uint64_t before = counter(r, "messages_received");
	for (size_t i = 0; i < length_count; ++i) {
		pt2p_request_t *req = nullptr;
		x->in.emplace_back(lengths[i] + 1, 0);
		EXPECT_OK(r.ctx, pt2p_irecv(r.ctx, x->in[i].data(), lengths[i], r.left(), 7300 + i, PT2P_TAG_EXACT, &req));
		EXPECT_OK(r.ctx, pt2p_request_free(r.ctx, req));
		int done = 0;
		EXPECT_STATUS(r.ctx, pt2p_test(r.ctx, req, &done, nullptr), PT2P_ERR_REQUEST);
		EXPECT_STATUS(r.ctx, pt2p_request_free(r.ctx, req), PT2P_ERR_REQUEST);
		EXPECT_STATUS(r.ctx, pt2p_cancel(r.ctx, req), PT2P_ERR_REQUEST);
	}
	for (size_t i = 0; i < length_count; ++i) {
		pt2p_request_t *req = nullptr;
		x->out.push_back(payload(lengths[i], seed_of(73, r.me, r.right(), i)));
		EXPECT_OK(r.ctx, pt2p_isend(r.ctx, x->out[i].data(), lengths[i], r.right(), 7300 + i, &req));
		EXPECT_OK(r.ctx, pt2p_request_free(r.ctx, req));
		EXPECT_STATUS(r.ctx, pt2p_wait(r.ctx, req, nullptr), PT2P_ERR_REQUEST);
	}
	return [&r, x, before] {
		while (counter(r, "messages_received") < before + length_count) {
			EXPECT_OK(r.ctx, pt2p_progress(r.ctx));
			r.poll();
		}
		for (size_t i = 0; i < length_count; ++i)
			EXPECT_PAYLOAD(x->in[i].data(), lengths[i], seed_of(73, r.left(), r.me, i));
		// The buffers must outlive the sends.
		r.last = [&r, x] { EXPECT_OK(r.ctx, pt2p_barrier(r.ctx)); };
		if (r.cooperative)
			r.last = [&r, x] {
				for (int i = 0; i < 100; ++i)
					r.poll();
			};
	};
}

thread_local bool starting = false; // this thread is in the call that starts an operation

void count_call(pt2p_context_t *ctx, const pt2p_result_t *result, void *argument)
{
	auto *x = static_cast<Buffers *>(argument);
	++x->called;
	x->failed += starting;
	const size_t i = result->tag - 7400;
	const bool is_send = result->source == x->me && x->me != x->left;
	x->failed += result->status != PT2P_OK || i >= length_count || result->length != lengths[i] ||
	             (!is_send && result->source != x->left) || pt2p_rank(ctx) != x->me;
}

// Sends and receives of all lengths, with the short form and with pt2p_request_callback.
Finish callbacks(Rank &r)
{
	auto x = std::make_shared<Buffers>();
	x->me = r.me;
	x->left = r.left();
	for (size_t i = 0; i < length_count; ++i) {
		x->in.emplace_back(lengths[i] + 1, 0);
		if (i % 2) {
			EXPECT_OK(r.ctx, pt2p_irecv_callback(r.ctx, x->in[i].data(), lengths[i], r.left(), 7400 + i, PT2P_TAG_EXACT,
			                                     count_call, x.get()));
			continue;
		}
		pt2p_request_t *req = nullptr;
		EXPECT_OK(r.ctx, pt2p_irecv(r.ctx, x->in[i].data(), lengths[i], r.left(), 7400 + i, PT2P_TAG_EXACT, &req));
		EXPECT_OK(r.ctx, pt2p_request_callback(r.ctx, req, count_call, x.get()));
		EXPECT_STATUS(r.ctx, pt2p_request_callback(r.ctx, req, count_call, x.get()), PT2P_ERR_REQUEST);
	}
	for (size_t i = 0; i < length_count; ++i) {
		x->out.push_back(payload(lengths[i], seed_of(74, r.me, r.right(), i)));
		starting = true; // no callback within it
		EXPECT_OK(r.ctx,
		          pt2p_isend_callback(r.ctx, x->out[i].data(), lengths[i], r.right(), 7400 + i, count_call, x.get()));
		starting = false;
	}
	return [&r, x] {
		while (x->called < 2 * length_count) {
			EXPECT_OK(r.ctx, pt2p_progress(r.ctx));
			r.poll();
		}
		EXPECT_EQ(x->failed.load(), size_t{0});
		for (size_t i = 0; i < length_count; ++i)
			EXPECT_PAYLOAD(x->in[i].data(), lengths[i], seed_of(74, r.left(), r.me, i));
		for (int i = 0; i < 10; ++i)
			EXPECT_OK(r.ctx, pt2p_progress(r.ctx));
		EXPECT_EQ(x->called.load(), 2 * length_count);
	};
}

// Each callback starts the next of very many operations. The stack must not grow.
struct Chain {
	uint64_t left = 0, word = 0, errors = 0;
	uintptr_t lowest = UINTPTR_MAX, highest = 0;
	bool sending = true;
};

void next_link(pt2p_context_t *ctx, const pt2p_result_t *result, void *argument)
{
	auto *c = static_cast<Chain *>(argument);
	const auto here = reinterpret_cast<uintptr_t>(__builtin_frame_address(0));
	c->lowest = here < c->lowest ? here : c->lowest;
	c->highest = here > c->highest ? here : c->highest;
	c->errors += result->status != PT2P_OK;
	if (!c->left || !__atomic_sub_fetch(&c->left, 1, __ATOMIC_RELEASE))
		return;
	// Posts a receive, and then sends the message for it.
	c->sending = !c->sending;
	const int me = pt2p_rank(ctx);
	if (!c->sending) {
		c->errors += pt2p_irecv_callback(ctx, &c->word, 8, me, 7500, PT2P_TAG_EXACT, next_link, c) != PT2P_OK;
		c->errors += pt2p_send(ctx, &c->left, 8, me, 7500) != PT2P_ERR_IN_HANDLER;
		pt2p_request_t *req = nullptr;
		c->errors += pt2p_isend(ctx, &c->left, 8, me, 7500, &req) != PT2P_OK || pt2p_request_free(ctx, req) != PT2P_OK;
	} else {
		c->errors += pt2p_isend_callback(ctx, &c->left, 0, me, 7501, next_link, c) != PT2P_OK;
		pt2p_request_t *req = nullptr;
		c->errors += pt2p_irecv(ctx, nullptr, 0, me, 7501, PT2P_TAG_EXACT, &req) != PT2P_OK ||
		             pt2p_request_free(ctx, req) != PT2P_OK;
	}
}

Finish callback_chain(Rank &r)
{
	Chain c;
	c.left = r.size > 2 || strcmp(r.transport, "shm") ? 20'000 : 1'000'000;
	EXPECT_OK(r.ctx, pt2p_isend_callback(r.ctx, nullptr, 0, r.me, 7502, next_link, &c));
	EXPECT_OK(r.ctx, pt2p_recv(r.ctx, nullptr, 0, r.me, 7502, PT2P_TAG_EXACT, nullptr));
	while (__atomic_load_n(&c.left, __ATOMIC_ACQUIRE))
		EXPECT_OK(r.ctx, pt2p_progress(r.ctx));
	for (int i = 0; i < 5; ++i)
		EXPECT_OK(r.ctx, pt2p_progress(r.ctx));
	EXPECT_EQ(c.errors, uint64_t{0});
	// Callbacks are called by pt2p_recv, by pt2p_progress or by a thread, at only a few different depths of a stack.
	EXPECT(c.highest - c.lowest < 4096 || c.highest - c.lowest > (1u << 20));
	return {};
}

// Calls that wait are refused in a callback, others are not.
struct Refusals {
	pt2p_status_t got[10] = {};
	pt2p_status_t tested = PT2P_ERR_INTERNAL, queried = PT2P_ERR_INTERNAL;
	pt2p_request_t *other = nullptr;
	uint64_t word = 0;
	bool explained = false;
	std::atomic<bool> called{false}; // the callback may be in another thread
};

void try_to_wait(pt2p_context_t *ctx, const pt2p_result_t *, void *argument)
{
	auto *x = static_cast<Refusals *>(argument);
	const int me = pt2p_rank(ctx);
	int done = 0;
	size_t index;
	x->got[0] = pt2p_wait(ctx, x->other, nullptr);
	x->got[1] = pt2p_waitall(ctx, 1, &x->other, nullptr);
	x->got[2] = pt2p_waitany(ctx, 1, &x->other, &index, nullptr);
	x->got[3] = pt2p_recv(ctx, &x->word, 8, me, 7601, PT2P_TAG_EXACT, nullptr);
	x->got[4] = pt2p_probe(ctx, me, 7601, PT2P_TAG_EXACT, nullptr);
	x->got[5] = pt2p_barrier(ctx);
	x->got[6] = pt2p_flush_all(ctx);
	x->got[7] = pt2p_signal_wait(ctx, &x->word, 1, me);
	x->got[8] = pt2p_progress(ctx);
	x->got[9] = pt2p_finalize(ctx);
	x->explained = strstr(pt2p_last_error(ctx), "pt2p_finalize") != nullptr;
	x->tested = pt2p_test(ctx, x->other, &done, nullptr);
	x->queried = pt2p_request_query(ctx, x->other, &done, nullptr);
	x->called = true;
}

Finish callback_waits(Rank &r)
{
	Refusals x;
	EXPECT_OK(r.ctx, pt2p_irecv(r.ctx, &x.word, 8, r.me, 7600, PT2P_TAG_EXACT, &x.other));
	EXPECT_OK(r.ctx, pt2p_irecv_callback(r.ctx, &x.word, 8, r.me, 7602, PT2P_TAG_EXACT, try_to_wait, &x));
	EXPECT_OK(r.ctx, pt2p_send(r.ctx, &x.word, 8, r.me, 7602));
	while (!x.called)
		EXPECT_OK(r.ctx, pt2p_progress(r.ctx));
	EXPECT_OK(r.ctx, pt2p_progress(r.ctx)); // after the callback
	for (pt2p_status_t status : x.got)
		EXPECT_EQ(int{status}, int{PT2P_ERR_IN_HANDLER});
	EXPECT(x.explained);
	EXPECT(x.tested == PT2P_OK && x.queried == PT2P_OK);
	EXPECT_OK(r.ctx, pt2p_cancel(r.ctx, x.other));
	EXPECT_STATUS(r.ctx, pt2p_wait(r.ctx, x.other, nullptr), PT2P_ERR_CANCELLED);
	return {};
}

// One-sided operations with callbacks, and released ones.
void count_one(pt2p_context_t *, const pt2p_result_t *result, void *argument)
{
	static_cast<std::atomic<size_t> *>(argument)[result->status != PT2P_OK]++;
}

struct OneSidedState {
	pt2p_memory_t *mem = nullptr;
	void *address = nullptr;
	unsigned char blob[PT2P_EXPORT_MAX], other[PT2P_EXPORT_MAX];
	pt2p_request_t *requests[2] = {};
	Bytes out, in;
	std::atomic<size_t> called[2] = {};
	uint64_t was = 0;
};

Finish one_sided_callbacks(Rank &r)
{
	auto x = std::make_shared<OneSidedState>();
	constexpr size_t bytes = 100000;
	size_t needed = 0;
	EXPECT_OK(r.ctx, pt2p_memory_allocate(r.ctx, bytes + 8, &x->mem, &x->address));
	EXPECT_OK(r.ctx, pt2p_memory_export(r.ctx, x->mem, x->blob, sizeof x->blob, &needed));
	EXPECT_OK(r.ctx, pt2p_irecv(r.ctx, x->other, sizeof x->other, r.right(), 7700, PT2P_TAG_EXACT, &x->requests[0]));
	EXPECT_OK(r.ctx, pt2p_isend(r.ctx, x->blob, needed, r.left(), 7700, &x->requests[1]));
	return [&r, x] {
		pt2p_result_t results[2];
		EXPECT_OK(r.ctx, pt2p_waitall(r.ctx, 2, x->requests, results));
		pt2p_remote_t *remote = nullptr;
		EXPECT_OK(r.ctx, pt2p_memory_import(r.ctx, r.right(), x->other, results[0].length, &remote));
		x->out = payload(bytes, seed_of(77, r.me, 0, 0));
		x->in.assign(bytes, 0);
		const auto wait_for_calls = [&r, &x](size_t calls) {
			while (x->called[0] + x->called[1] < calls) {
				EXPECT_OK(r.ctx, pt2p_progress(r.ctx));
				r.poll();
			}
		};
		EXPECT_OK(r.ctx, pt2p_put_callback(r.ctx, x->out.data(), bytes, remote, 8, count_one, x->called));
		wait_for_calls(1);
		void *there = nullptr;
		EXPECT_OK(r.ctx, pt2p_remote_address(r.ctx, remote, &there));
		pt2p_remote_info_t info{};
		EXPECT_OK(r.ctx, pt2p_remote_query(r.ctx, remote, &info));
		EXPECT(!there || r.same_node(r.right()));
		if (r.right() == r.me)
			EXPECT(there == x->address);
		else
			EXPECT_EQ(there != nullptr, !strcmp(info.put, "direct"));
		if (there)
			EXPECT_PAYLOAD(static_cast<unsigned char *>(there) + 8, bytes, seed_of(77, r.me, 0, 0));
		EXPECT_OK(r.ctx, pt2p_get_callback(r.ctx, x->in.data(), bytes, remote, 8, count_one, x->called));
		pt2p_request_t *req = nullptr;
		EXPECT_OK(r.ctx, pt2p_fetch_add64(r.ctx, remote, 0, 5, &x->was, &req));
		EXPECT_OK(r.ctx, pt2p_request_callback(r.ctx, req, count_one, x->called));
		EXPECT_OK(r.ctx, pt2p_fetch_add64(r.ctx, remote, 0, 5, nullptr, &req));
		EXPECT_OK(r.ctx, pt2p_request_free(r.ctx, req));
		EXPECT_OK(r.ctx, pt2p_flush(r.ctx, r.right()));
		wait_for_calls(3);
		EXPECT_EQ(x->called[1].load(), size_t{0});
		EXPECT_PAYLOAD(x->in.data(), bytes, seed_of(77, r.me, 0, 0));
		EXPECT_OK(r.ctx, pt2p_remote_release(r.ctx, remote));
		EXPECT_STATUS(r.ctx, pt2p_remote_address(r.ctx, remote, &there), PT2P_ERR_MEMORY);
		r.last = [&r, x] {
			if (!r.cooperative)
				EXPECT_OK(r.ctx, pt2p_barrier(r.ctx));
			EXPECT_EQ(*static_cast<uint64_t *>(x->address), uint64_t{10});
			EXPECT_OK(r.ctx, pt2p_memory_release(r.ctx, x->mem));
		};
	};
}

} // namespace

void add_detached_cases(std::vector<Case> &cases)
{
	cases.insert(cases.end(), {
	                              {"wait_some", true, wait_some},
	                              {"test_some", true, test_some},
	                              {"some_fail", true, some_fail},
	                              {"request_query", true, request_query},
	                              {"give_up", true, give_up},
	                              {"callbacks", true, callbacks},
	                              {"callback_chain", true, callback_chain},
	                              {"callback_waits", true, callback_waits},
	                              {"one_sided_callbacks", true, one_sided_callbacks},
	                          });
}

} // namespace conformance
