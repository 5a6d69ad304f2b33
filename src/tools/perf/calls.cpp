// SPDX-License-Identifier: BSD-3-Clause
// Calls, as pt2p_perf measures them. The server replies with the input, or pulls the bytes of one window and pushes
// them to the other. The word of the reply counts the caller's calls.
#include <memory>

#include "tools/perf/perf.hpp"

namespace pt2p::perf {

namespace {

// The bytes of a window, on their way back.
struct Returned {
	pt2p_call_t *call;
	uint64_t word;
	void *memory;
	size_t length;
};

void push_back(pt2p_context_t *ctx, const pt2p_result_t *result, void *argument)
{
	const std::unique_ptr<Returned> r(static_cast<Returned *>(argument));
	if (result->status != PT2P_OK || pt2p_call_push(ctx, r->call, r->memory, 0, r->length, nullptr) != PT2P_OK ||
	    pt2p_reply(ctx, r->call, r->word, nullptr, 0) != PT2P_OK)
		pt2p_abort(ctx, 1, pt2p_last_error(ctx));
}

void return_window(pt2p_context_t *ctx, pt2p_call_t *call, size_t length, uint64_t word)
{
	auto *const r = new Returned{call, word, nullptr, length};
	pt2p_request_t *pull = nullptr;
	if (pt2p_reply_room(ctx, call, length, &r->memory) != PT2P_OK ||
	    pt2p_call_pull(ctx, call, r->memory, 0, length, &pull) != PT2P_OK ||
	    pt2p_request_callback(ctx, pull, push_back, r) != PT2P_OK)
		pt2p_abort(ctx, 1, pt2p_last_error(ctx));
}

void answer(pt2p_context_t *ctx, pt2p_call_t *call, const void *input, size_t length, void *argument)
{
	pt2p_call_info_t info{};
	pt2p_call_query(ctx, call, &info);
	if (info.give)
		return_window(ctx, call, info.give, ++*static_cast<uint64_t *>(argument));
	else if (pt2p_reply(ctx, call, ++*static_cast<uint64_t *>(argument), input, length) != PT2P_OK)
		pt2p_abort(ctx, 1, pt2p_last_error(ctx));
}

} // namespace

// Each caller has a service of its own, whose id is its rank. pt2p_finalize closes it.
void Pair::serve_calls(int caller)
{
	const auto [place, added] = served_.try_emplace(caller, 0);
	if (!added)
		return;
	pt2p_service_options_t options = PT2P_SERVICE_OPTIONS_INIT;
	options.input_max = PTRDIFF_MAX;
	pt2p_service_t *service = nullptr;
	must(ctx_, "pt2p_service_open",
	     pt2p_service_open(ctx_, static_cast<uint32_t>(caller), answer, &place->second, &options, &service));
}

double Pair::make_calls(Test test, size_t size, size_t window, uint64_t iterations)
{
	const auto service = static_cast<uint32_t>(rank_);
	const double start = now();
	if (one_at_a_time(test)) {
		const bool windows = test == Test::windows;
		pt2p_call_options_t options = PT2P_CALL_OPTIONS_INIT;
		options.give = {out_.get(), size};
		options.take = {in_.get(), size};
		for (uint64_t i = 0; i < iterations; ++i) {
			if (check_)
				fill(out_.get(), size, i, 0);
			must(ctx_, "pt2p_call",
			     windows ? pt2p_call(ctx_, peer_, service, nullptr, 0, nullptr, 0, &options, &results_[0])
			             : pt2p_call(ctx_, peer_, service, out_.get(), size, in_.get(), size, nullptr, &results_[0]));
			if (windows)
				results_[0].length = size; // of the window, not of the reply
			if (check_)
				verify_replies(size, 1, i);
		}
		return now() - start;
	}
	for (uint64_t i = 0; i < iterations; ++i) {
		for (size_t w = 0; w < window; ++w) {
			unsigned char *out = out_.get() + w * stride_, *in = in_.get() + w * stride_;
			if (check_)
				fill(out, size, i, w);
			must(ctx_, "pt2p_icall", pt2p_icall(ctx_, peer_, service, out, size, in, size, nullptr, &requests_[w]));
		}
		wait_window(window);
		if (check_)
			verify_replies(size, window, i);
	}
	return now() - start;
}

// The calls of a window are served in any order, each once.
void Pair::verify_replies(size_t size, size_t window, uint64_t iteration)
{
	std::vector<bool> seen(window);
	for (size_t w = 0; w < window; ++w) {
		verify(in_.get() + w * stride_, size, iteration, w, results_[w], rank_, results_[w].tag);
		const uint64_t number = results_[w].tag - called_ - 1;
		if (number >= window || seen[number])
			throw Failure{"check: call " + std::to_string(w) + " of a window has the reply to call " +
			              std::to_string(results_[w].tag) + " of this rank; it has made " + std::to_string(called_) +
			              " before"};
		seen[number] = true;
	}
	called_ += window;
}

} // namespace pt2p::perf
