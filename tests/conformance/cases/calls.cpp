// Calls: words, bytes of any length, notices, lanes, replies later, deadlines, cancelling, errors.
#include "tests/conformance/cases/served.hpp"

namespace conformance {
namespace {

void add(pt2p_context_t *ctx, pt2p_call_t *call, const void *input, size_t length, void *argument)
{
	uint64_t number = 0;
	std::memcpy(&number, input, std::min(length, sizeof number));
	Served &s = of(argument);
	++s.calls;
	EXPECT_OK(ctx, pt2p_reply(ctx, call, s.sum += number, nullptr, 0));
}

Finish words(Rank &r)
{
	auto s = open(r, 10, add);
	close_last(r, {s});
	return [&r, s] {
		meet(r);
		for (const int rank : {r.right(), r.me}) {
			const uint64_t number = 1000;
			pt2p_result_t result{};
			EXPECT_OK(r.ctx, pt2p_call(r.ctx, rank, 10, &number, sizeof number, nullptr, 0, nullptr, &result));
			EXPECT_EQ(result.source, rank);
			EXPECT_EQ(result.length, size_t{0});
			EXPECT(result.tag >= 1000 && result.tag <= 2000 && result.tag % 1000 == 0);
		}
		meet(r);
		if (!r.cooperative)
			EXPECT_EQ(s->sum.load(), 2000u);
	};
}

void echo(pt2p_context_t *ctx, pt2p_call_t *call, const void *input, size_t length, void *argument)
{
	++of(argument).calls;
	EXPECT(reinterpret_cast<uintptr_t>(input) % 16 == 0);
	EXPECT_OK(ctx, pt2p_reply(ctx, call, mix(length), input, length));
}

// Calls of all lengths at once, and replies as long; then replies that do not fit.
Finish sizes(Rank &r)
{
	auto s = open(r, 11, echo);
	close_last(r, {s});
	return [&r, s] {
		meet(r);
		const size_t lengths[] = {0, 1, 8, 40, 64, 65, 88, 112, 113, 200, 232, 4096, 8192, 16360, 16384, 40000, 600000};
		constexpr size_t count = sizeof lengths / sizeof *lengths;
		std::vector<Bytes> in(count), out(count);
		std::vector<pt2p_request_t *> requests(count);
		for (size_t i = 0; i < count; ++i) {
			out[i] = payload(lengths[i], seed_of(11, r.me, r.right(), i));
			in[i].resize(lengths[i] + 1, 77);
			EXPECT_OK(r.ctx, pt2p_icall(r.ctx, r.right(), 11, out[i].data(), lengths[i], in[i].data(), lengths[i],
			                            nullptr, &requests[i]));
		}
		for (size_t i = count; i-- > 0;) {
			pt2p_result_t result{};
			EXPECT_OK(r.ctx, pt2p_wait(r.ctx, requests[i], &result));
			EXPECT_EQ(result.length, lengths[i]);
			EXPECT_EQ(result.tag, mix(lengths[i]));
			EXPECT_PAYLOAD(in[i].data(), lengths[i], seed_of(11, r.me, r.right(), i));
			EXPECT_EQ(in[i][lengths[i]], 77);
		}
		for (size_t i = 1; i < count; ++i) {
			pt2p_result_t result{};
			in[i].assign(lengths[i], 77);
			const size_t capacity = lengths[i] / 2;
			EXPECT_STATUS(r.ctx,
			              pt2p_call(r.ctx, r.right(), 11, out[i].data(), lengths[i], capacity ? in[i].data() : nullptr,
			                        capacity, nullptr, &result),
			              PT2P_ERR_TRUNCATED);
			EXPECT_EQ(result.length, lengths[i]);
			EXPECT_EQ(in[i][capacity], 77);
			EXPECT(!std::memcmp(in[i].data(), out[i].data(), capacity));
		}
		meet(r);
	};
}

struct Many {
	std::atomic<uint64_t> wrong = 0, ended = 0; // ended is counted last
};

// More calls than may be under way, to all ranks, with callbacks.
Finish many(Rank &r)
{
	auto s = open(r, 12, echo);
	close_last(r, {s});
	return [&r, s] {
		meet(r);
		constexpr size_t count = 300;
		Many many;
		pt2p_call_options_t options = PT2P_CALL_OPTIONS_INIT;
		options.argument = &many;
		options.done = [](pt2p_context_t *, const pt2p_result_t *result, void *argument) {
			auto &m = *static_cast<Many *>(argument);
			m.wrong += result->status != PT2P_OK || result->tag != mix(result->length);
			++m.ended;
		};
		Random random{static_cast<uint64_t>(r.me)};
		std::vector<Bytes> in(count), out(count);
		for (size_t i = 0; i < count; ++i) {
			const size_t length = random.below(4) ? random.below(100) : random.below(20000);
			const int rank = static_cast<int>(random.below(static_cast<uint64_t>(r.size)));
			out[i] = payload(length, i);
			in[i].resize(length);
			EXPECT_OK(r.ctx,
			          pt2p_icall(r.ctx, rank, 12, out[i].data(), length, in[i].data(), length, &options, nullptr));
		}
		for (; many.ended < count; r.poll())
			EXPECT_OK(r.ctx, pt2p_progress(r.ctx));
		EXPECT_EQ(many.wrong.load(), 0u);
		for (size_t i = 0; i < count; ++i)
			EXPECT(in[i] == out[i]);
		meet(r);
	};
}

void count_notice(pt2p_context_t *ctx, pt2p_call_t *call, const void *input, size_t length, void *argument)
{
	pt2p_call_info_t info{};
	EXPECT_OK(ctx, pt2p_call_query(ctx, call, &info));
	Served &s = of(argument);
	s.sum += length;
	++s.calls;
	EXPECT_PAYLOAD(input, length, length);
	// A long one is a call whose reply nobody waits for.
	EXPECT_STATUS(ctx, pt2p_reply(ctx, call, 0, nullptr, 0), info.notice ? PT2P_ERR_CALL : PT2P_OK);
}

Finish notices(Rank &r)
{
	auto s = open(r, 13, count_notice);
	close_last(r, {s});
	return [&r, s] {
		meet(r);
		constexpr uint64_t count = 400;
		uint64_t sum = 0;
		for (uint64_t i = 0; i < count; ++i) {
			const size_t length = i % 50 == 49 ? 30000 : i % 90;
			sum += length;
			Bytes data = payload(length, length);
			EXPECT_OK(r.ctx, pt2p_notify(r.ctx, r.right(), 13, data.data(), length, nullptr));
			std::fill(data.begin(), data.end(), 0); // it has been copied
		}
		// One that nobody has opened is dropped.
		EXPECT_OK(r.ctx, pt2p_notify(r.ctx, r.right(), 999, "x", 1, nullptr));
		meet(r);
		if (r.cooperative)
			return;
		for (; s->calls < count; r.poll())
			EXPECT_OK(r.ctx, pt2p_progress(r.ctx));
		EXPECT_EQ(s->calls.load(), count);
		EXPECT_EQ(s->sum.load(), sum);
	};
}

// Notices that wait, because nobody serves their lane, do not hold up calls.
Finish blocked_notices(Rank &r)
{
	auto lane = open(r, 25, count_notice, 1);
	auto s = open(r, 26, add);
	close_last(r, {lane, s});
	return [&r, lane, s] {
		meet(r);
		const uint64_t count = r.call_window + 40;
		for (uint64_t i = 0; i < count; ++i)
			EXPECT_OK(r.ctx, pt2p_notify(r.ctx, r.right(), 25, "", 0, nullptr));
		const uint64_t number = 3;
		EXPECT_OK(r.ctx, pt2p_call(r.ctx, r.right(), 26, &number, 8, nullptr, 0, nullptr, nullptr));
		pt2p_calls_info_t info = PT2P_CALLS_INFO_INIT;
		EXPECT_OK(r.ctx, pt2p_calls_query(r.ctx, r.right(), &info));
		EXPECT(info.waiting + info.notices >= count - info.window / 4); // those in the lane may not be told yet
		meet(r);
		while (lane->calls < count)
			EXPECT_OK(r.ctx, pt2p_serve(r.ctx, lane->service, 0, 1000, 1000000, nullptr));
		meet(r);
	};
}

// Calls wait in their lanes, in order, until they are served. The handler may wait.
Finish lanes(Rank &r)
{
	constexpr uint64_t count = 60;
	constexpr uint32_t lane_count = 3;
	auto s = open(
	    r, 14,
	    [](pt2p_context_t *ctx, pt2p_call_t *call, const void *input, size_t, void *argument) {
		    Served &served = of(argument);
		    uint64_t number;
		    std::memcpy(&number, input, sizeof number);
		    pt2p_call_info_t info{};
		    EXPECT_OK(ctx, pt2p_call_query(ctx, call, &info));
		    EXPECT_EQ(info.lane, number % 7);
		    EXPECT_EQ(info.caller, served.rank->left());
		    EXPECT_EQ(info.remaining, INT64_MAX);
		    EXPECT(!info.cancelled && !info.notice && info.service == 14);
		    EXPECT_STATUS(ctx, pt2p_service_close(ctx, served.service), PT2P_ERR_IN_HANDLER);
		    EXPECT_STATUS(ctx, pt2p_finalize(ctx), PT2P_ERR_IN_HANDLER);
		    if (number % 16 == 0) // waits: a call to itself
			    EXPECT_OK(ctx,
			              pt2p_call(ctx, served.rank->me, 15, &number, sizeof number, nullptr, 0, nullptr, nullptr));
		    ++served.calls;
		    EXPECT_OK(ctx, pt2p_reply(ctx, call, served.calls, nullptr, 0));
	    },
	    lane_count);
	auto inner = open(r, 15, add);
	close_last(r, {s, inner});
	return [&r, s, inner] {
		meet(r);
		std::vector<uint64_t> numbers(count);
		std::vector<pt2p_request_t *> requests(count);
		for (uint64_t i = 0; i < count; ++i) {
			numbers[i] = i;
			pt2p_call_options_t options = PT2P_CALL_OPTIONS_INIT;
			options.lane = static_cast<uint16_t>(i % 7);
			EXPECT_OK(r.ctx, pt2p_icall(r.ctx, r.right(), 14, &numbers[i], 8, nullptr, 0, &options, &requests[i]));
		}
		for (uint64_t done = 0, lane = 0; done < count; ++lane) {
			size_t served = 0;
			EXPECT_OK(r.ctx, pt2p_serve(r.ctx, s->service, lane % lane_count, 5, 100000, &served));
			done += served;
		}
		EXPECT_EQ(s->calls.load(), count);
		EXPECT_OK(r.ctx, pt2p_waitall(r.ctx, count, requests.data(), nullptr));
		size_t served = 7;
		EXPECT_OK(r.ctx, pt2p_serve(r.ctx, s->service, 0, 5, 0, &served));
		EXPECT_EQ(served, size_t{0});
		EXPECT_STATUS(r.ctx, pt2p_serve(r.ctx, s->service, lane_count, 5, 0, &served), PT2P_ERR_ARGUMENT);
		meet(r);
	};
}

// Replies are given later, in another order than that of the calls. The input can be kept.
Finish later(Rank &r)
{
	auto s = open(r, 16, [](pt2p_context_t *ctx, pt2p_call_t *call, const void *input, size_t, void *argument) {
		const void *kept = nullptr;
		EXPECT_OK(ctx, pt2p_call_keep(ctx, call, &kept));
		EXPECT(kept == input);
		of(argument).kept.push_back(call);
	});
	close_last(r, {s});
	return [&r, s] {
		meet(r);
		constexpr size_t most = 4;
		const size_t count = std::min<size_t>(most, r.call_window);
		uint64_t words[most], in[most] = {};
		pt2p_request_t *requests[most];
		for (size_t i = 0; i < count; ++i) {
			words[i] = mix(i);
			EXPECT_OK(r.ctx, pt2p_icall(r.ctx, r.me, 16, &words[i], 8, &in[i], 8, nullptr, &requests[i]));
		}
		for (; s->kept.size() < count; r.poll())
			EXPECT_OK(r.ctx, pt2p_progress(r.ctx));
		for (size_t i = count; i-- > 0;) {
			const void *input = nullptr;
			EXPECT_OK(r.ctx, pt2p_call_keep(r.ctx, s->kept[i], &input));
			EXPECT_OK(r.ctx, pt2p_reply(r.ctx, s->kept[i], i, input, 8));
			EXPECT_STATUS(r.ctx, pt2p_reply(r.ctx, s->kept[i], i, input, 8), PT2P_ERR_CALL);
			pt2p_result_t result{};
			EXPECT_OK(r.ctx, pt2p_wait(r.ctx, requests[i], &result));
			EXPECT_EQ(result.tag, i);
			EXPECT_EQ(in[i], words[i]);
		}
		meet(r);
	};
}

// Nobody serves the lane: a deadline ends the calls, at most as many as may wait are taken, and slots come back.
Finish deadlines(Rank &r)
{
	auto s = open(r, 19, add, 1);
	close_last(r, {s});
	return [&r, s] {
		meet(r);
		uint64_t number = 5;
		pt2p_call_options_t options = PT2P_CALL_OPTIONS_INIT;
		for (int round = 0; round < 3; ++round) {
			constexpr size_t count = 150; // more than may be under way
			std::vector<pt2p_request_t *> requests(count);
			for (size_t i = 0; i < count; ++i) {
				options.deadline = i % 2 ? 1000000 : 3000000; // ns
				EXPECT_OK(r.ctx, pt2p_icall(r.ctx, r.right(), 19, &number, 8, &number, 8, &options, &requests[i]));
			}
			for (pt2p_request_t *request : requests)
				EXPECT_STATUS(r.ctx, pt2p_wait(r.ctx, request, nullptr), PT2P_ERR_DEADLINE);
		}
		// Datagrams are held back by the network, so they are over only once the server has said so.
		pt2p_calls_info_t info = PT2P_CALLS_INFO_INIT;
		const auto under_way = [&] {
			EXPECT_OK(r.ctx, pt2p_calls_query(r.ctx, r.right(), &info));
			return info.in_flight != 0;
		};
		for (; counter(r, "ud_messages") && under_way(); r.poll())
			EXPECT_OK(r.ctx, pt2p_progress(r.ctx));
		meet(r);
		EXPECT_EQ(s->calls.load(), 0u);
		EXPECT_EQ(number, 5u);
		// The server has dropped them all. Only where a queue pair has broken may some come after this.
		if (!r.cooperative) {
			const uint64_t last = 6;
			options.deadline = 10000000000;
			pt2p_request_t *request;
			EXPECT_OK(r.ctx, pt2p_icall(r.ctx, r.right(), 19, &last, 8, nullptr, 0, &options, &request));
			while (s->sum % number == 0)
				EXPECT_OK(r.ctx, pt2p_serve(r.ctx, s->service, 0, 1, -1, nullptr));
			EXPECT_OK(r.ctx, pt2p_wait(r.ctx, request, nullptr));
			EXPECT_OK(r.ctx, pt2p_serve(r.ctx, s->service, 0, 1, 0, nullptr));
			EXPECT(s->sum == last || counter(r, "reconnects"));
		}
		meet(r);
	};
}

// A call that was not started is cancelled. One that was started learns of it, and completes as it does.
Finish cancelling(Rank &r)
{
	auto waits = open(r, 20, add, 1);
	auto runs = open(r, 21, [](pt2p_context_t *, pt2p_call_t *call, const void *, size_t, void *argument) {
		of(argument).kept.push_back(call);
	});
	close_last(r, {waits, runs});
	return [&r, waits, runs] {
		meet(r);
		const uint64_t number = 5;
		constexpr size_t count = 100;
		pt2p_request_t *requests[count];
		for (pt2p_request_t *&request : requests)
			EXPECT_OK(r.ctx, pt2p_icall(r.ctx, r.right(), 20, &number, 8, nullptr, 0, nullptr, &request));
		for (pt2p_request_t *request : requests)
			EXPECT_OK(r.ctx, pt2p_cancel(r.ctx, request));
		for (pt2p_request_t *request : requests)
			EXPECT_STATUS(r.ctx, pt2p_wait(r.ctx, request, nullptr), PT2P_ERR_CANCELLED);
		EXPECT_EQ(waits->calls.load(), 0u);

		pt2p_request_t *request;
		EXPECT_OK(r.ctx, pt2p_icall(r.ctx, r.me, 21, nullptr, 0, nullptr, 0, nullptr, &request));
		for (; runs->kept.empty(); r.poll())
			EXPECT_OK(r.ctx, pt2p_progress(r.ctx));
		pt2p_call_info_t info{};
		EXPECT_OK(r.ctx, pt2p_call_query(r.ctx, runs->kept[0], &info));
		EXPECT_EQ(info.cancelled, 0);
		EXPECT_OK(r.ctx, pt2p_cancel(r.ctx, request));
		for (; !info.cancelled; r.poll()) {
			EXPECT_OK(r.ctx, pt2p_progress(r.ctx));
			EXPECT_OK(r.ctx, pt2p_call_query(r.ctx, runs->kept[0], &info));
		}
		EXPECT_OK(r.ctx, pt2p_reply(r.ctx, runs->kept[0], 7, nullptr, 0));
		pt2p_result_t result{};
		EXPECT_OK(r.ctx, pt2p_wait(r.ctx, request, &result));
		EXPECT_EQ(result.tag, 7u);
		meet(r);
	};
}

Finish errors(Rank &r)
{
	auto s = open(
	    r, 22,
	    [](pt2p_context_t *ctx, pt2p_call_t *call, const void *, size_t, void *argument) {
		    Served &served = of(argument);
		    const int me = served.rank->me;
		    for (const pt2p_status_t status :
		         {pt2p_call(ctx, me, 22, nullptr, 0, nullptr, 0, nullptr, nullptr), pt2p_barrier(ctx),
		          pt2p_progress(ctx), pt2p_service_close(ctx, served.service),
		          pt2p_serve(ctx, served.service, 0, 1, 0, nullptr)})
			    served.statuses.push_back(status);
		    EXPECT_OK(ctx, pt2p_reply(ctx, call, 0, nullptr, 0));
	    },
	    0, 1000);
	close_last(r, {s});
	return [&r, s] {
		meet(r);
		pt2p_request_t *request = nullptr;
		pt2p_result_t result{};
		char byte = 0;
		const Bytes longer(1001);
		EXPECT_OK(r.ctx, pt2p_call(r.ctx, r.me, 22, nullptr, 0, nullptr, 0, nullptr, &result));
		EXPECT_EQ(s->statuses.size(), size_t{5});
		for (size_t i = 0; i < 5; ++i)
			EXPECT_EQ(s->statuses[i], int{PT2P_ERR_IN_HANDLER});
		EXPECT_STATUS(r.ctx, pt2p_call(r.ctx, r.right(), 998, &byte, 1, &byte, 1, nullptr, &result),
		              PT2P_ERR_NO_SERVICE);
		EXPECT(std::strstr(pt2p_last_error(r.ctx), "998"));
		EXPECT_EQ(int{result.status}, int{PT2P_ERR_NO_SERVICE});
		pt2p_call_options_t gives = PT2P_CALL_OPTIONS_INIT;
		gives.give = {&byte, 1}; // so that the handler could not pull the input
		EXPECT_STATUS(r.ctx, pt2p_call(r.ctx, r.right(), 22, longer.data(), longer.size(), nullptr, 0, &gives, nullptr),
		              PT2P_ERR_LENGTH);
		EXPECT_STATUS(r.ctx, pt2p_notify(r.ctx, r.right(), 22, nullptr, 0, &gives), PT2P_ERR_ARGUMENT);
		gives.give = {nullptr, 1};
		EXPECT_STATUS(r.ctx, pt2p_call(r.ctx, r.right(), 22, nullptr, 0, nullptr, 0, &gives, nullptr),
		              PT2P_ERR_ARGUMENT);
		EXPECT_STATUS(r.ctx, pt2p_call(r.ctx, r.size, 22, nullptr, 0, nullptr, 0, nullptr, nullptr), PT2P_ERR_RANK);
		EXPECT_STATUS(r.ctx, pt2p_call(r.ctx, r.me, 22, nullptr, 1, nullptr, 0, nullptr, nullptr), PT2P_ERR_ARGUMENT);
		EXPECT_STATUS(r.ctx, pt2p_call(r.ctx, r.me, 22, nullptr, 0, nullptr, 1, nullptr, nullptr), PT2P_ERR_ARGUMENT);
		EXPECT_STATUS(r.ctx, pt2p_icall(r.ctx, r.me, 22, nullptr, 0, nullptr, 0, nullptr, nullptr), PT2P_ERR_ARGUMENT);
		EXPECT_STATUS(r.ctx, pt2p_call(r.ctx, r.me, 22, &byte, SIZE_MAX, nullptr, 0, nullptr, nullptr),
		              PT2P_ERR_LENGTH);
		pt2p_call_options_t options = PT2P_CALL_OPTIONS_INIT;
		options.deadline = -1;
		EXPECT_STATUS(r.ctx, pt2p_icall(r.ctx, r.me, 22, nullptr, 0, nullptr, 0, &options, &request),
		              PT2P_ERR_ARGUMENT);
		options = PT2P_CALL_OPTIONS_INIT;
		options.struct_size = 1;
		EXPECT_STATUS(r.ctx, pt2p_notify(r.ctx, r.me, 22, nullptr, 0, &options), PT2P_ERR_ARGUMENT);
		pt2p_service_t *twice = nullptr;
		EXPECT_STATUS(r.ctx, pt2p_service_open(r.ctx, 22, add, nullptr, nullptr, &twice), PT2P_ERR_ARGUMENT);
		EXPECT(!twice);
		EXPECT_STATUS(r.ctx, pt2p_service_open(r.ctx, 23, nullptr, nullptr, nullptr, &twice), PT2P_ERR_ARGUMENT);
		EXPECT_STATUS(r.ctx, pt2p_service_close(r.ctx, nullptr), PT2P_ERR_ARGUMENT);
		EXPECT_STATUS(r.ctx, pt2p_reply(r.ctx, nullptr, 0, nullptr, 0), PT2P_ERR_CALL);
		EXPECT_STATUS(r.ctx, pt2p_reply(r.ctx, reinterpret_cast<pt2p_call_t *>(s->service), 0, nullptr, 0),
		              PT2P_ERR_CALL);
		meet(r);
	};
}

// Every way to deliver the input and the reply, of a call, of all calls, and of a service.
Finish deliveries(Rank &r)
{
	auto s = open(r, 24, echo);
	close_last(r, {s});
	return [&r, s] {
		meet(r);
		uint64_t count = 0;
		const auto try_calls = [&](const pt2p_call_options_t *options) {
			for (const size_t length : {size_t{0}, size_t{32}, size_t{100}, size_t{700}, size_t{20000}}) {
				const Bytes out = payload(length, ++count);
				Bytes in(length);
				pt2p_result_t result{};
				EXPECT_OK(r.ctx,
				          pt2p_call(r.ctx, r.right(), 24, out.data(), length, in.data(), length, options, &result));
				EXPECT_EQ(result.tag, mix(length));
				EXPECT(in == out);
			}
		};
		constexpr pt2p_delivery_t ways[] = {PT2P_DELIVERY_AUTO, PT2P_DELIVERY_SEND, PT2P_DELIVERY_WRITE,
		                                    PT2P_DELIVERY_READ};
		for (const pt2p_delivery_t input : ways)
			for (const pt2p_delivery_t reply : ways) {
				if (input == PT2P_DELIVERY_READ)
					continue;
				pt2p_call_options_t options = PT2P_CALL_OPTIONS_INIT;
				options.input_by = input;
				options.reply_by = reply;
				for (int i = 0; i < 8; ++i)
					try_calls(&options);
				for (const int rank : {PT2P_ANY_SOURCE, r.right()}) {
					EXPECT_OK(r.ctx, pt2p_set_calls(r.ctx, rank, &options));
					try_calls(nullptr);
					EXPECT_OK(r.ctx, pt2p_set_calls(r.ctx, rank, nullptr));
				}
			}
		pt2p_call_options_t options = PT2P_CALL_OPTIONS_INIT;
		options.deadline = 1;
		EXPECT_OK(r.ctx, pt2p_set_calls(r.ctx, r.right(), &options));
		EXPECT_STATUS(r.ctx, pt2p_call(r.ctx, r.right(), 24, nullptr, 0, nullptr, 0, nullptr, nullptr),
		              PT2P_ERR_DEADLINE);
		EXPECT_OK(r.ctx, pt2p_set_calls(r.ctx, r.right(), nullptr));
		options.lane = 1;
		EXPECT_STATUS(r.ctx, pt2p_set_calls(r.ctx, r.right(), &options), PT2P_ERR_ARGUMENT);
		EXPECT_STATUS(r.ctx, pt2p_set_calls(r.ctx, r.size, nullptr), PT2P_ERR_RANK);
		options = PT2P_CALL_OPTIONS_INIT;
		options.input_by = PT2P_DELIVERY_READ;
		EXPECT_STATUS(r.ctx, pt2p_call(r.ctx, r.right(), 24, nullptr, 0, nullptr, 0, &options, nullptr),
		              PT2P_ERR_ARGUMENT);
		try_calls(nullptr);
		meet(r);
	};
}

} // namespace

void add_call_cases(std::vector<Case> &cases)
{
	cases.insert(cases.end(), {
	                              {"call_header_only", true, words},
	                              {"call_sizes", true, sizes},
	                              {"many_calls", true, many},
	                              {"call_notices", true, notices},
	                              {"call_blocked_notices", false, blocked_notices},
	                              {"call_lanes", false, lanes},
	                              {"call_later", true, later},
	                              {"call_deadlines", true, deadlines},
	                              {"call_cancel", true, cancelling},
	                              {"call_errors", true, errors},
	                              {"call_deliveries", true, deliveries},
	                          });
}

} // namespace conformance
