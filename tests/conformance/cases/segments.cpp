// Messages from and to segments: all mixtures with contiguous buffers, all protocols, truncation, very many segments.
#include <algorithm>
#include <cstring>
#include <memory>

#include "tests/conformance/harness.hpp"

namespace conformance {
namespace {

// Whether nothing has been written from this position on.
bool untouched(const Bytes &bytes, size_t from)
{
	const unsigned char *begin = bytes.data() + from;
	const size_t n = bytes.size() - from;
	return !n || (*begin == 0xee && !memcmp(begin, begin + 1, n - 1));
}

// A buffer and segments all over it, which do not overlap. There are gaps, empty segments, and adjacent ones.
struct Scattered {
	Bytes memory;
	std::vector<pt2p_iovec_t> list;
	size_t length = 0;

	Scattered(size_t bytes, size_t count, uint64_t seed)
	{
		Random random{seed};
		std::vector<size_t> cuts;
		for (size_t i = 1; i < count; ++i)
			cuts.push_back(random.below(bytes + 1));
		cuts.push_back(bytes);
		std::sort(cuts.begin(), cuts.end());
		memory.assign(bytes + 16 * count, 0xee);
		size_t at = 0, before = 0;
		for (size_t cut : cuts) {
			if (random.below(4))
				at += random.below(16);
			const size_t n = cut - before;
			list.push_back({n || random.below(2) ? memory.data() + at : nullptr, n});
			at += n;
			before = cut;
		}
		length = bytes;
		if (count > 3) // the order of the list counts, not that of the addresses
			std::swap(list[0], list[count / 2]);
	}
	void put(const Bytes &bytes) const
	{
		size_t at = 0;
		for (const pt2p_iovec_t &s : list) {
			if (s.length)
				memcpy(s.base, bytes.data() + at, s.length);
			at += s.length;
		}
	}
	Bytes take() const
	{
		Bytes bytes;
		for (const pt2p_iovec_t &s : list)
			bytes.insert(bytes.end(), static_cast<unsigned char *>(s.base),
			             static_cast<unsigned char *>(s.base) + s.length);
		return bytes;
	}
	// Whether bytes beside the segments have changed.
	bool spoiled() const
	{
		Bytes beside = memory;
		for (const pt2p_iovec_t &s : list)
			if (s.length)
				memset(beside.data() + (static_cast<unsigned char *>(s.base) - memory.data()), 0xee, s.length);
		return !untouched(beside, 0);
	}
};

struct Message {
	size_t length, out_segments, in_segments; // 0: contiguous
	size_t capacity;
};

struct Exchange {
	std::vector<std::unique_ptr<Scattered>> out, in;
	std::vector<Bytes> out_bytes, in_bytes;
	std::vector<pt2p_request_t *> receives, sends;
};

// Some messages have a word beside their payload, are synchronous, or both.
bool with_options(size_t i) { return i % 5 > 1 || i % 3 == 1; }
pt2p_send_options_t options_of(size_t i)
{
	pt2p_send_options_t options = PT2P_SEND_OPTIONS_INIT;
	options.has_data = i % 5 > 2;
	options.synchronous = i % 5 == 2 || i % 5 == 4;
	options.buffered = i % 3 == 1;
	options.data = ~uint64_t{i};
	return options;
}

// Every other message is unexpected where it can be.
Finish exchange(Rank &r, const std::vector<Message> &messages, uint64_t what)
{
	auto x = std::make_shared<Exchange>();
	const size_t count = messages.size();
	x->receives.assign(count, nullptr);
	x->sends.assign(count, nullptr);
	for (size_t i = 0; i < count; ++i) {
		const Message &m = messages[i];
		x->in.push_back(
		    std::make_unique<Scattered>(m.capacity, std::max<size_t>(m.in_segments, 1), seed_of(what, 1, 2, i)));
		x->in_bytes.emplace_back(m.capacity + 1, 0xee);
		x->out.push_back(
		    std::make_unique<Scattered>(m.length, std::max<size_t>(m.out_segments, 1), seed_of(what, 3, 4, i)));
		x->out_bytes.push_back(payload(m.length, seed_of(what, r.me, r.right(), i)));
		x->out.back()->put(x->out_bytes.back());
	}
	const auto receive = [&r, x, messages](size_t i) {
		const Message &m = messages[i];
		if (m.in_segments) {
			std::vector<pt2p_iovec_t> list = x->in[i]->list;
			EXPECT_OK(r.ctx, pt2p_irecvv(r.ctx, list.data(), list.size(), r.left(), 8000 + i, PT2P_TAG_EXACT,
			                             &x->receives[i]));
			std::fill(list.begin(), list.end(), pt2p_iovec_t{nullptr, 99}); // the list is the caller's again
		} else {
			EXPECT_OK(r.ctx, pt2p_irecv(r.ctx, x->in_bytes[i].data(), m.capacity, r.left(), 8000 + i, PT2P_TAG_EXACT,
			                            &x->receives[i]));
		}
	};
	for (size_t i = 0; i < count; i += 2)
		receive(i);
	for (size_t i = 0; i < count; ++i) {
		if (with_options(i)) {
			pt2p_send_options_t options = options_of(i);
			std::vector<pt2p_iovec_t> list{{x->out_bytes[i].data(), messages[i].length}};
			if (messages[i].out_segments)
				list = x->out[i]->list;
			EXPECT_OK(r.ctx,
			          pt2p_isend_with(r.ctx, list.data(), list.size(), r.right(), 8000 + i, &options, &x->sends[i]));
			if (options.buffered) { // the data, too, is the caller's again
				std::fill(x->out_bytes[i].begin(), x->out_bytes[i].end(), 0xdd);
				x->out[i]->put(x->out_bytes[i]);
			}
			std::fill(list.begin(), list.end(), pt2p_iovec_t{nullptr, 99});
		} else if (messages[i].out_segments) {
			std::vector<pt2p_iovec_t> list = x->out[i]->list;
			EXPECT_OK(r.ctx, pt2p_isendv(r.ctx, list.data(), list.size(), r.right(), 8000 + i, &x->sends[i]));
			std::fill(list.begin(), list.end(), pt2p_iovec_t{nullptr, 99});
		} else {
			EXPECT_OK(r.ctx,
			          pt2p_isend(r.ctx, x->out_bytes[i].data(), messages[i].length, r.right(), 8000 + i, &x->sends[i]));
		}
	}
	return [&r, x, messages, count, receive, what] {
		for (size_t i = 1; i < count; i += 2)
			receive(i);
		for (size_t i = 0; i < count; ++i) {
			const Message &m = messages[i];
			pt2p_result_t result{};
			const bool cut = m.length > m.capacity;
			EXPECT_STATUS(r.ctx, pt2p_wait(r.ctx, x->receives[i], &result), cut ? PT2P_ERR_TRUNCATED : PT2P_OK);
			EXPECT_EQ(result.length, m.length);
			EXPECT_EQ(result.source, r.left());
			EXPECT_EQ(result.has_data, with_options(i) ? options_of(i).has_data : 0);
			EXPECT_EQ(result.data, result.has_data ? options_of(i).data : 0);
			const size_t n = std::min(m.length, m.capacity);
			Bytes got = m.in_segments ? x->in[i]->take() : x->in_bytes[i];
			const Bytes wanted = payload(m.length, seed_of(what, r.left(), r.me, i));
			EXPECT(!n || !memcmp(wanted.data(), got.data(), n));
			// Bytes behind the end of the message have not changed.
			EXPECT(untouched(got, n));
			EXPECT(!m.in_segments || !x->in[i]->spoiled());
		}
		r.last = [&r, x] { EXPECT_OK(r.ctx, pt2p_waitall(r.ctx, x->sends.size(), x->sends.data(), nullptr)); };
	};
}

const size_t lengths[] = {0, 1, 100, 5000, 17000, 70000, 900000};

// Contiguous or in segments on either side.
Finish segments_mixed(Rank &r)
{
	std::vector<Message> messages;
	for (size_t length : lengths)
		for (size_t out : {0, 1, 7, 40})
			for (size_t in : {0, 1, 6, 50})
				if (out || in)
					messages.push_back({length, out, in, length});
	return exchange(r, messages, 80);
}

// Segments so long that each is worth its own transfer, and different on both sides.
Finish segments_large(Rank &r)
{
	return exchange(r,
	                {{3000000, 5, 0, 3000000},
	                 {3000000, 0, 5, 3000000},
	                 {3000000, 4, 6, 3000001},
	                 {5000000, 33, 31, 5000000},
	                 {5000000, 600, 700, 5000000}},
	                81);
}

// Segments so short that they are packed: reading each one takes far longer.
Finish segments_tiny(Rank &r)
{
	constexpr size_t length = 1 << 20;
	const uint64_t before = counter(r, "pipelined_bytes");
	Finish finish = exchange(r, {{length, length / 8, 0, length}}, 84);
	return [&r, finish, before] {
		finish();
		if (r.right() != r.me)
			EXPECT(counter(r, "pipelined_bytes") - before >= length);
	};
}

Finish segments_many(Rank &r)
{
	return exchange(r,
	                {{20000, 5000, 0, 20000},
	                 {20000, 0, 5000, 20000},
	                 {200000, 4000, 3000, 200000},
	                 {2000000, 10000, 0, 2000000},
	                 {2000000, 0, 10000, 2000000},
	                 {2000000, 3000, 9000, 2000000}},
	                82);
}

// Truncated in the middle of a segment, between two, and to nothing.
Finish segments_truncated(Rank &r)
{
	std::vector<Message> messages;
	for (size_t length : {100, 5000, 100000, 900000})
		for (size_t out : {0, 9})
			for (size_t in : {1, 8})
				for (size_t capacity : {size_t{0}, length / 3, length - 1, length + 10})
					messages.push_back({length, out, in, capacity});
	return exchange(r, messages, 83);
}

// The calls that wait, callbacks, and release.
Finish segments_blocking(Rank &r)
{
	uint32_t a = 1, b[2] = {2, 3}, in[3] = {};
	const pt2p_iovec_t out[] = {{&a, 4}, {nullptr, 0}, {b, 8}}, to[] = {{&in[2], 4}, {&in[0], 8}};
	pt2p_result_t result{};
	pt2p_request_t *req = nullptr;
	EXPECT_OK(r.ctx, pt2p_irecvv(r.ctx, to, 2, r.me, 8500, PT2P_TAG_EXACT,
	                             &req)); // without eager messages a send waits for it
	EXPECT_OK(r.ctx, pt2p_sendv(r.ctx, out, 3, r.me, 8500));
	EXPECT_OK(r.ctx, pt2p_wait(r.ctx, req, &result));
	EXPECT_EQ(result.length, size_t{12});
	EXPECT(in[2] == 1 && in[0] == 2 && in[1] == 3);
	in[0] = in[1] = in[2] = 0;
	EXPECT_OK(r.ctx, pt2p_isendv(r.ctx, out, 3, r.me, 8500, &req));
	EXPECT_OK(r.ctx, pt2p_recvv(r.ctx, to, 2, r.me, 8500, PT2P_TAG_EXACT, &result));
	EXPECT_OK(r.ctx, pt2p_wait(r.ctx, req, nullptr));
	EXPECT_EQ(result.length, size_t{12});
	EXPECT(in[2] == 1 && in[0] == 2 && in[1] == 3);
	EXPECT_OK(r.ctx, pt2p_sendv(r.ctx, nullptr, 0, r.me, 8501));
	EXPECT_OK(r.ctx, pt2p_recvv(r.ctx, nullptr, 0, PT2P_ANY_SOURCE, 8501, PT2P_TAG_EXACT, &result));
	EXPECT_EQ(result.length, size_t{0});

	// Cancelled, and with a callback. The lists are freed with the requests.
	EXPECT_OK(r.ctx, pt2p_irecvv(r.ctx, to, 2, r.me, 8502, PT2P_TAG_EXACT, &req));
	EXPECT_OK(r.ctx, pt2p_cancel(r.ctx, req));
	EXPECT_STATUS(r.ctx, pt2p_wait(r.ctx, req, nullptr), PT2P_ERR_CANCELLED);
	bool called = false;
	in[0] = in[1] = in[2] = 0;
	EXPECT_OK(r.ctx, pt2p_irecvv(r.ctx, to, 2, r.me, 8503, PT2P_TAG_EXACT, &req));
	EXPECT_OK(r.ctx, pt2p_request_callback(
	                     r.ctx, req,
	                     [](pt2p_context_t *, const pt2p_result_t *, void *argument) {
		                     __atomic_store_n(static_cast<bool *>(argument), true, __ATOMIC_RELEASE);
	                     },
	                     &called));
	EXPECT_OK(r.ctx, pt2p_sendv(r.ctx, out, 3, r.me, 8503));
	while (!__atomic_load_n(&called, __ATOMIC_ACQUIRE))
		EXPECT_OK(r.ctx, pt2p_progress(r.ctx));
	EXPECT(in[2] == 1 && in[0] == 2 && in[1] == 3);
	return {};
}

// Options that cannot be, a callback, probes, and receives with a callback that are cancelled.
Finish segments_with(Rank &r)
{
	pt2p_send_options_t options = PT2P_SEND_OPTIONS_INIT;
	uint32_t a = 1, b = 2, in[2] = {};
	const pt2p_iovec_t out[] = {{&a, 4}, {&b, 4}};
	pt2p_request_t *req = nullptr;
	pt2p_result_t result{};
	int calls = 0;
	const auto count = [](pt2p_context_t *, const pt2p_result_t *, void *argument) {
		__atomic_add_fetch(static_cast<int *>(argument), 1, __ATOMIC_RELEASE);
	};
	EXPECT_STATUS(r.ctx, pt2p_isend_with(r.ctx, out, 2, r.me, 8600, &options, nullptr), PT2P_ERR_ARGUMENT);
	EXPECT_STATUS(r.ctx, pt2p_isend_with(r.ctx, out, 2, r.me, 8600, nullptr, nullptr), PT2P_ERR_ARGUMENT);
	EXPECT_STATUS(r.ctx, pt2p_isend_with(r.ctx, out, 2, r.size, 8600, &options, &req), PT2P_ERR_RANK);
	EXPECT_STATUS(r.ctx, pt2p_isend_with(r.ctx, nullptr, 2, r.me, 8600, &options, &req), PT2P_ERR_ARGUMENT);
	options.done = count;
	options.argument = &calls;
	EXPECT_STATUS(r.ctx, pt2p_isend_with(r.ctx, out, 2, r.me, 8600, &options, &req), PT2P_ERR_ARGUMENT);
	options.struct_size = 3;
	EXPECT_STATUS(r.ctx, pt2p_isend_with(r.ctx, out, 2, r.me, 8600, &options, nullptr), PT2P_ERR_ARGUMENT);
	options.struct_size = sizeof options;

	options.has_data = 1;
	options.data = UINT64_C(0xfedcba9876543210);
	EXPECT_OK(r.ctx, pt2p_isend_with(r.ctx, out, 2, r.me, 8600, &options, nullptr));
	EXPECT_OK(r.ctx, pt2p_probe(r.ctx, r.me, 8600, PT2P_TAG_EXACT, &result));
	EXPECT(result.has_data == 1 && result.data == options.data);
	pt2p_message_t *message = nullptr;
	EXPECT_OK(r.ctx, pt2p_mprobe(r.ctx, PT2P_ANY_SOURCE, 8600, PT2P_TAG_ANY, &message, &result));
	EXPECT(result.has_data == 1 && result.data == options.data);
	result = {};
	EXPECT_OK(r.ctx, pt2p_mrecv(r.ctx, in, sizeof in, message, &result));
	EXPECT(result.has_data == 1 && result.data == options.data && result.length == 8 && in[0] == 1 && in[1] == 2);
	while (!__atomic_load_n(&calls, __ATOMIC_ACQUIRE))
		EXPECT_OK(r.ctx, pt2p_progress(r.ctx));

	// Sent and forgotten, short and long, with a word and without.
	options = PT2P_SEND_OPTIONS_INIT;
	options.buffered = 1;
	for (size_t length : {size_t{0}, size_t{8}, size_t{300}, size_t{20000}, size_t{300000}}) {
		Bytes bytes = payload(length, length), got(length);
		for (int has_data : {0, 1}) {
			options.has_data = has_data;
			const pt2p_iovec_t whole{bytes.data(), length};
			EXPECT_OK(r.ctx, pt2p_isend_with(r.ctx, &whole, 1, r.me, 8602, &options, nullptr));
		}
		std::fill(bytes.begin(), bytes.end(), 0);
		for (int has_data : {0, 1}) {
			EXPECT_OK(r.ctx, pt2p_recv(r.ctx, got.data(), length, r.me, 8602, PT2P_TAG_EXACT, &result));
			EXPECT(result.has_data == has_data && result.data == (has_data ? options.data : 0));
			EXPECT(got == payload(length, length));
		}
	}

	EXPECT_OK(r.ctx, pt2p_irecv_callback(r.ctx, in, sizeof in, r.me, 8601, PT2P_TAG_EXACT, count, &calls));
	EXPECT_STATUS(r.ctx, pt2p_cancel_callback(r.ctx, count, &in), PT2P_ERR_REQUEST);
	EXPECT_OK(r.ctx, pt2p_cancel_callback(r.ctx, count, &calls));
	EXPECT_STATUS(r.ctx, pt2p_cancel_callback(r.ctx, count, &calls), PT2P_ERR_REQUEST);
	while (__atomic_load_n(&calls, __ATOMIC_ACQUIRE) < 2)
		EXPECT_OK(r.ctx, pt2p_progress(r.ctx));
	return {};
}

// What can leave at once, and sends with a request where it cannot, in one order.
Finish try_send(Rank &r)
{
	constexpr uint32_t count = 500;
	int sent = -1;
	uint32_t number = 0;
	EXPECT_STATUS(r.ctx, pt2p_try_send(r.ctx, &number, 4, r.size, 8700, &sent), PT2P_ERR_RANK);
	EXPECT_STATUS(r.ctx, pt2p_try_send(r.ctx, nullptr, 4, r.me, 8700, &sent), PT2P_ERR_ARGUMENT);
	EXPECT_STATUS(r.ctx, pt2p_try_send(r.ctx, &number, 4, r.me, 8700, nullptr), PT2P_ERR_ARGUMENT);
	EXPECT_STATUS(r.ctx, pt2p_try_send_data(r.ctx, &number, 4, -1, 8700, 1, &sent), PT2P_ERR_RANK);
	EXPECT_STATUS(r.ctx, pt2p_try_send_data(r.ctx, &number, 4, r.me, 8700, 1, nullptr), PT2P_ERR_ARGUMENT);
	std::vector<unsigned char> large(1 << 20);
	EXPECT_OK(r.ctx, pt2p_try_send(r.ctx, large.data(), large.size(), r.right(), 8701, &sent));
	EXPECT_EQ(sent, 0);
	auto numbers = std::make_shared<std::vector<uint32_t>>(count);
	auto requests = std::make_shared<std::vector<pt2p_request_t *>>();
	for (uint32_t i = 0; i < count; ++i) {
		(*numbers)[i] = i;
		sent = -1;
		const uint64_t data = UINT64_MAX - i; // with every third one
		if (i % 3)
			EXPECT_OK(r.ctx, pt2p_try_send(r.ctx, &(*numbers)[i], 4, r.right(), 8700, &sent));
		else
			EXPECT_OK(r.ctx, pt2p_try_send_data(r.ctx, &(*numbers)[i], 4, r.right(), 8700, data, &sent));
		if (sent == 1)
			(*numbers)[i] = count; // the buffer is the caller's again
		EXPECT(sent == 0 || sent == 1);
		if (!sent) {
			requests->push_back(nullptr);
			EXPECT_OK(r.ctx, pt2p_isend(r.ctx, &(*numbers)[i], 4, r.right(), 8700, &requests->back()));
		}
	}

	return [&r, numbers, requests] {
		for (uint32_t i = 0; i < count; ++i) {
			uint32_t got = 0;
			pt2p_result_t result{};
			EXPECT_OK(r.ctx, pt2p_recv(r.ctx, &got, 4, r.left(), 8700, PT2P_TAG_EXACT, &result));
			EXPECT_EQ(got, i);
			EXPECT(!result.has_data || (i % 3 == 0 && result.data == UINT64_MAX - i));
		}
		r.last = [&r, numbers, requests] {
			EXPECT_OK(r.ctx, pt2p_waitall(r.ctx, requests->size(), requests->data(), nullptr));
		};
	};
}

} // namespace

void add_segment_cases(std::vector<Case> &cases)
{
	cases.insert(cases.end(), {
	                              {"segments_mixed", true, segments_mixed},
	                              {"segments_large", true, segments_large},
	                              {"segments_tiny", true, segments_tiny},
	                              {"segments_many", true, segments_many},
	                              {"segments_truncated", true, segments_truncated},
	                              {"segments_blocking", true, segments_blocking},
	                              {"segments_with", true, segments_with},
	                              {"try_send", true, try_send},
	                          });
}

} // namespace conformance
