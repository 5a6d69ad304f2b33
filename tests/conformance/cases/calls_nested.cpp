// Calls that handlers make while they serve others. They wait for no slot of the window.
#include "tests/conformance/cases/served.hpp"

namespace conformance {
namespace {

void echo_word(pt2p_context_t *ctx, pt2p_call_t *call, const void *input, size_t, void *argument)
{
	uint64_t word;
	std::memcpy(&word, input, sizeof word);
	++of(argument).calls;
	EXPECT_OK(ctx, pt2p_reply(ctx, call, word, nullptr, 0));
}

struct Back {
	uint64_t depth; // how often the other rank is still called back
	uint64_t more;  // calls that the callback makes before it replies
};

// A call that is replied to when those it has brought about have ended.
struct Step {
	pt2p_call_t *call;
	int caller;
	Back back, next; // the input, and that of its calls
	uint64_t sum;
};

void call_back_again(pt2p_context_t *ctx, Step *step);

void called_back(pt2p_context_t *ctx, const pt2p_result_t *result, void *argument)
{
	auto *step = static_cast<Step *>(argument);
	EXPECT_EQ(int{result->status}, int{PT2P_OK});
	step->sum += result->tag;
	if (step->back.more--)
		return call_back_again(ctx, step);
	EXPECT_OK(ctx, pt2p_reply(ctx, step->call, step->sum, nullptr, 0));
	delete step;
}

void call_back_again(pt2p_context_t *ctx, Step *step)
{
	step->next = {step->back.depth - 1, 0};
	pt2p_call_options_t options = PT2P_CALL_OPTIONS_INIT;
	options.argument = step;
	options.done = called_back;
	EXPECT_OK(ctx, pt2p_icall(ctx, step->caller, 30, &step->next, sizeof step->next, nullptr, 0, &options, nullptr));
}

// The reply tells how many handlers ran.
void call_back(pt2p_context_t *ctx, pt2p_call_t *call, const void *input, size_t, void *)
{
	pt2p_call_info_t info{};
	EXPECT_OK(ctx, pt2p_call_query(ctx, call, &info));
	Back back;
	std::memcpy(&back, input, sizeof back);
	if (back.depth)
		call_back_again(ctx, new Step{call, info.caller, back, {}, 1});
	else
		EXPECT_OK(ctx, pt2p_reply(ctx, call, 1, nullptr, 0));
}

// More calls than the window has slots, from both sides, whose handlers call back again and again, some several times
// in a row.
Finish back_and_forth(Rank &r)
{
	auto s = open(r, 30, call_back);
	close_last(r, {s});
	return [&r, s] {
		meet(r);
		constexpr size_t count = 100;
		constexpr uint64_t depth = 12, more = 3;
		std::vector<Back> inputs(count);
		std::vector<pt2p_request_t *> requests(count);
		for (size_t i = 0; i < count; ++i) {
			inputs[i] = {i % 2 ? depth : 1, i % 5 ? 0 : more};
			EXPECT_OK(r.ctx, pt2p_icall(r.ctx, r.right(), 30, &inputs[i], sizeof inputs[i], nullptr, 0, nullptr,
			                            &requests[i]));
		}
		for (size_t i = 0; i < count; ++i) {
			pt2p_result_t result{};
			EXPECT_OK(r.ctx, pt2p_wait(r.ctx, requests[i], &result));
			EXPECT_EQ(result.tag, 1 + inputs[i].depth * (1 + inputs[i].more));
		}
		meet(r);
	};
}

// All slots are taken by calls that are kept. A handler in a lane, which waits, gets its own calls through.
Finish lane_beyond_window(Rank &r)
{
	auto keep = open(r, 31, [](pt2p_context_t *, pt2p_call_t *call, const void *, size_t, void *argument) {
		of(argument).kept.push_back(call);
	});
	auto word = open(r, 32, echo_word);
	auto lane = open(
	    r, 33,
	    [](pt2p_context_t *ctx, pt2p_call_t *call, const void *input, size_t, void *argument) {
		    pt2p_result_t result{};
		    EXPECT_OK(ctx, pt2p_call(ctx, of(argument).rank->right(), 32, input, 8, nullptr, 0, nullptr, &result));
		    EXPECT_OK(ctx, pt2p_reply(ctx, call, result.tag, nullptr, 0));
	    },
	    1);
	close_last(r, {keep, word, lane});
	return [&r, keep, word, lane] {
		meet(r);
		const size_t count = r.call_window;
		std::vector<pt2p_request_t *> requests(count);
		for (pt2p_request_t *&request : requests)
			EXPECT_OK(r.ctx, pt2p_icall(r.ctx, r.right(), 31, nullptr, 0, nullptr, 0, nullptr, &request));
		for (; keep->kept.size() < count; r.poll())
			EXPECT_OK(r.ctx, pt2p_progress(r.ctx));
		pt2p_calls_info_t info = PT2P_CALLS_INFO_INIT;
		for (; info.in_flight < count; r.poll()) { // some may wait for room first
			EXPECT_OK(r.ctx, pt2p_progress(r.ctx));
			EXPECT_OK(r.ctx, pt2p_calls_query(r.ctx, r.right(), &info));
		}
		// One that is not nested waits.
		const uint64_t number = 5, inner = 7;
		pt2p_request_t *waits = nullptr, *served = nullptr;
		EXPECT_OK(r.ctx, pt2p_icall(r.ctx, r.right(), 32, &number, 8, nullptr, 0, nullptr, &waits));
		EXPECT_OK(r.ctx, pt2p_calls_query(r.ctx, r.right(), &info));
		EXPECT_EQ(uint64_t{info.in_flight}, uint64_t{count});
		EXPECT_EQ(info.waiting, 1u);
		meet(r);
		// By its own rank's lane, unless that is full as well.
		if (r.me != r.right()) {
			EXPECT_OK(r.ctx, pt2p_icall(r.ctx, r.me, 33, &inner, 8, nullptr, 0, nullptr, &served));
			size_t n = 0;
			EXPECT_OK(r.ctx, pt2p_serve(r.ctx, lane->service, 0, 1, -1, &n));
			EXPECT_EQ(n, size_t{1});
			pt2p_result_t result{};
			EXPECT_OK(r.ctx, pt2p_wait(r.ctx, served, &result));
			EXPECT_EQ(result.tag, inner);
			meet(r);
			EXPECT_EQ(word->calls.load(), uint64_t{1}); // and not the one that waits
			meet(r);
		}
		for (size_t i = 0; i < count; ++i)
			EXPECT_OK(r.ctx, pt2p_reply(r.ctx, keep->kept[i], 0, nullptr, 0));
		EXPECT_OK(r.ctx, pt2p_waitall(r.ctx, count, requests.data(), nullptr));
		pt2p_result_t result{};
		EXPECT_OK(r.ctx, pt2p_wait(r.ctx, waits, &result));
		EXPECT_EQ(result.tag, number);
		meet(r);
	};
}

// A handler that calls its caller back, and replies when that has ended.
Finish nested(Rank &r)
{
	struct Outer {
		Served *served;
		pt2p_call_t *call;
		uint64_t number;
	};
	auto inner = open(r, 17, echo_word);
	auto s = open(r, 18, [](pt2p_context_t *ctx, pt2p_call_t *call, const void *input, size_t, void *argument) {
		pt2p_call_info_t info{};
		EXPECT_OK(ctx, pt2p_call_query(ctx, call, &info));
		auto *outer = new Outer{&of(argument), call, 0};
		std::memcpy(&outer->number, input, 8);
		pt2p_call_options_t options = PT2P_CALL_OPTIONS_INIT;
		options.argument = outer;
		options.done = [](pt2p_context_t *c, const pt2p_result_t *result, void *a) {
			const std::unique_ptr<Outer> o(static_cast<Outer *>(a));
			EXPECT_EQ(int{result->status}, int{PT2P_OK});
			EXPECT_OK(c, pt2p_reply(c, o->call, result->tag, &o->number, 8));
		};
		EXPECT_OK(ctx, pt2p_icall(ctx, info.caller, 17, &outer->number, 8, nullptr, 0, &options, nullptr));
	});
	close_last(r, {inner, s});
	return [&r, s, inner] {
		meet(r);
		for (uint64_t i = 1; i <= 20; ++i) {
			uint64_t back = 0;
			EXPECT_OK(r.ctx, pt2p_call(r.ctx, r.right(), 18, &i, 8, &back, 8, nullptr, nullptr));
			EXPECT_EQ(back, i);
		}
		EXPECT_EQ(inner->calls.load(), 20u);
		meet(r);
	};
}

} // namespace

void add_nested_call_cases(std::vector<Case> &cases)
{
	cases.insert(cases.end(), {
	                              {"call_nested", true, nested},
	                              {"call_back_and_forth", true, back_and_forth},
	                              {"call_lane_beyond_window", false, lane_beyond_window},
	                          });
}

} // namespace conformance
