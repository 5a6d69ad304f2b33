// SPDX-License-Identifier: BSD-3-Clause
// Garbage into the receive path. The input forges what rank 1 gets from rank 0: slots, words, offsets, data and segment
// fields in shared memory, and messages that no peer would send. Whatever comes, nothing may crash, and receives end
// with a status.
//
// A libFuzzer target: with clang's -fsanitize=fuzzer it is a program, else driver.cpp feeds it.
#include "tests/fuzz/pair.hpp"

namespace fuzz {

namespace {

constexpr size_t max_steps = 400;

} // namespace

void Pair::run(Input in)
{
	// Some more steps after the peer has been given up: late answers must do no harm, either.
	for (size_t i = 0, after = 0; i < max_steps && after < 30 && !in.empty(); ++i, after += given_up())
		step(in);
	check_guards();
	// Everything that can end ends, and the summary can be written.
	for (int i = 0; i < 8; ++i)
		for (pt2p_context_t *c : ctx_)
			pt2p_progress(c);
	char text[4096];
	size_t needed;
	pt2p_summary(ctx_[1], text, sizeof text, &needed);
	for (int i = 0; i < 2; ++i)
		for (Held &held : requests_[i]) {
			int done = 0;
			pt2p_result_t result;
			pt2p_cancel(ctx_[i], held.request);
			pt2p_test(ctx_[i], held.request, &done, &result);
		}
}

void Pair::step(Input &in)
{
	const unsigned what = in.byte() % 24;
	if (what >= 18)
		return what < 21 ? forge_call(in) : call(in);
	if (what >= 14)
		return what < 17 ? forge_one_sided(in) : one_sided(in);
	if (what < 8 && gentle_ && in.byte() % 64)
		return plausible(in);
	switch (what) {
	case 0:
	case 1:
	case 2: forge_slot(in); break;
	case 3:
	case 4:
	case 5: forge_message(in); break;
	case 6: // any bytes in the data area
		for (size_t n = in.byte() % 16, at = in.number(2); n; --n, ++at)
			ring_.data[at % data_bytes_] = in.byte();
		break;
	case 7: // the header of the ring and of the segment, as far as peers write there
		forge_header(in);
		break;
	case 8: receive(in, 1); break;
	case 9: send(in, 0, 1); break;
	case 10: send(in, 1, 0); break;
	case 11: receive(in, 0); break;
	case 12: collect(in); break;
	default:
		for (int n = in.byte() % 4; n >= 0; --n)
			pt2p_progress(ctx_[n % 2]);
	}
}

} // namespace fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	Input in{data, size};
	const uint8_t first = in.byte();
	fuzz::Pair(first & 1, first & 2, first & 12).run(in);
	return 0;
}
