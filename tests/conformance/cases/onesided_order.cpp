// The order of one-sided operations: signals and their payload, atomicity, fences.
#include <cstring>
#include <iterator>
#include <sched.h>

#include "tests/conformance/cases/window.hpp"

namespace conformance {
namespace {

constexpr size_t signal_sizes[] = {0, 8, 100, 184, 185, 1000, 40000, 300000};

// A rank that sees the signal sees the payload. It polls while the signal comes.
Finish signal_order(Rank &r)
{
	const size_t rounds = 40, slot = 300000;
	auto w = make_windows(r, 64 + rounds * slot);
	return [&r, w] {
		for (Window &window : *w)
			window.open();
		for (Window &window : *w) {
			std::vector<Bytes> out;
			for (size_t i = 0; i < rounds; ++i) {
				const size_t length = signal_sizes[i % std::size(signal_sizes)];
				out.push_back(payload(length, seed_of(42, r.me, r.right(), i)));
				// The signal is in the same memory, or always in allocated memory.
				Window &signals = i % 2 ? window : w->front();
				EXPECT_OK(r.ctx, pt2p_put_signal(r.ctx, out[i].data(), length, window.at(r.right()), 64 + i * slot,
				                                 signals.at(r.right()), &window == &w->front() ? 8 : 16,
				                                 i % 2 ? PT2P_SIGNAL_ADD : PT2P_SIGNAL_SET, i % 2 ? 1 : 1, nullptr));
				EXPECT_OK(r.ctx, pt2p_fence(r.ctx, r.right()));
				const auto seen = [&] { return signals.word(&window == &w->front() ? 8 : 16); };
				if (i % 4 < 2)
					EXPECT_OK(r.ctx,
					          pt2p_signal_wait(
					              r.ctx, reinterpret_cast<uint64_t *>(signals.base + (&window == &w->front() ? 8 : 16)),
					              1, r.left()));
				while (!seen()) {
					EXPECT_OK(r.ctx, pt2p_progress(r.ctx));
					sched_yield();
				}
				EXPECT_PAYLOAD(window.base + 64 + i * slot, length, seed_of(42, r.left(), r.me, i));
				EXPECT_EQ(seen(), 1);
				// The neighbour sends the next one after this message.
				__atomic_store_n(reinterpret_cast<uint64_t *>(signals.base + (&window == &w->front() ? 8 : 16)), 0,
				                 __ATOMIC_RELEASE);
				EXPECT_OK(r.ctx, pt2p_flush_all(r.ctx));
				EXPECT_OK(r.ctx, pt2p_barrier(r.ctx));
			}
		}
		at_the_end(r, w);
	};
}

// Many signals add up, one for each payload.
Finish signal_sum(Rank &r)
{
	const size_t count = 200, slot = 256;
	auto w = make_windows(r, 64 + count * slot);
	return [&r, w] {
		std::vector<Bytes> out;
		for (size_t i = 0; i < count; ++i)
			out.push_back(payload(slot, seed_of(43, r.me, r.right(), i)));
		for (Window &window : *w) {
			window.open();
			std::vector<pt2p_request_t *> requests(count);
			for (size_t i = 0; i < count; ++i)
				EXPECT_OK(r.ctx, pt2p_put_signal(r.ctx, out[i].data(), slot, window.at(r.right()), 64 + i * slot,
				                                 window.at(r.right()), 0, PT2P_SIGNAL_ADD, i + 1,
				                                 i % 2 ? &requests[i] : nullptr));
			EXPECT_OK(r.ctx, pt2p_flush(r.ctx, r.right()));
			EXPECT_OK(r.ctx, pt2p_put_signal(r.ctx, nullptr, 0, window.at(r.right()), 0, window.at(r.right()), 8,
			                                 PT2P_SIGNAL_SET, 77, nullptr));
			EXPECT_OK(r.ctx, pt2p_waitall(r.ctx, count, requests.data(), nullptr));
			EXPECT_OK(r.ctx, pt2p_flush(r.ctx, r.right()));
		}
		at_the_end(r, w, [&r](Window &window) {
			EXPECT_EQ(window.word(0), count * (count + 1) / 2);
			EXPECT_EQ(window.word(8), 77);
			for (size_t i = 0; i < count; ++i)
				EXPECT_PAYLOAD(window.base + 64 + i * slot, slot, seed_of(43, r.left(), r.me, i));
		});
	};
}

enum {
	add64 = 0,
	add32 = 8,
	sum = 16,
	swaps = 24,
	swap32 = 32,
	cas64 = 40,
	cas32 = 48,
	plain = 64,
	window_bytes = 128
};

template <class Word, class Cas>
void increment(Rank &r, size_t times, Cas &&cas)
{
	Word expected = 0;
	for (size_t i = 0; i < times;) {
		Word was = 0;
		pt2p_request_t *req = nullptr;
		EXPECT_OK(r.ctx, cas(expected, static_cast<Word>(expected + 1), &was, &req));
		EXPECT_OK(r.ctx, pt2p_wait(r.ctx, req, nullptr));
		i += was == expected;
		expected = was == expected ? was + 1 : was;
	}
}

// All kinds of atomic operations by all ranks on the same words: nothing is lost, and the halves of a word are
// independent.
Finish atomics(Rank &r)
{
	constexpr size_t most = 60;
	const size_t times = r.size > 4 ? 20 : most; // on few cores, each operation waits for a turn of all ranks
	auto w = make_windows(r, window_bytes);
	return [&r, w, times] {
		for (Window &window : *w) {
			window.open();
			for (int owner = 0; owner < r.size; ++owner) {
				pt2p_remote_t *m = window.at(owner);
				uint64_t was[most] = {}, mine = 0;
				uint32_t halves[2][most] = {};
				pt2p_request_t *requests[most] = {};
				for (size_t i = 0; i < times; ++i) {
					EXPECT_OK(r.ctx, pt2p_fetch_add64(r.ctx, m, add64, 1, &was[i], &requests[i]));
					EXPECT_OK(r.ctx, pt2p_fetch_add32(r.ctx, m, add32, 1, &halves[0][i], nullptr));
					EXPECT_OK(r.ctx,
					          pt2p_fetch_add32(r.ctx, m, add32 + 4, UINT32_MAX, &halves[1][i], nullptr)); // less one
				}
				EXPECT_OK(r.ctx, pt2p_waitall(r.ctx, times, requests, nullptr));
				EXPECT_OK(r.ctx, pt2p_flush(r.ctx, owner));
				for (size_t i = 0; i < times; ++i)
					mine += was[i] + halves[0][i] + (0 - halves[1][i]);
				EXPECT_OK(r.ctx, pt2p_fetch_add64(r.ctx, m, sum, mine, nullptr, nullptr));
				// Each value that was swapped in comes out once. The last one stays.
				uint64_t out = 0, old = 0;
				uint32_t out32 = 0, old32 = 0;
				for (uint64_t i = 1; i <= times; ++i) {
					pt2p_request_t *both[2] = {};
					EXPECT_OK(r.ctx, pt2p_swap64(r.ctx, m, swaps, i << 33, &old, &both[0]));
					EXPECT_OK(r.ctx, pt2p_swap32(r.ctx, m, swap32, static_cast<uint32_t>(i), &old32, &both[1]));
					EXPECT_OK(r.ctx, pt2p_waitall(r.ctx, 2, both, nullptr));
					out += old;
					out32 += old32;
				}
				EXPECT_OK(r.ctx, pt2p_fetch_add64(r.ctx, m, plain, out, nullptr, nullptr));
				EXPECT_OK(r.ctx, pt2p_fetch_add64(r.ctx, m, plain + 8, out32, nullptr, nullptr));
				increment<uint64_t>(r, times, [&](uint64_t e, uint64_t d, uint64_t *result, pt2p_request_t **req) {
					return pt2p_compare_swap64(r.ctx, m, cas64, e, d, result, req);
				});
				increment<uint32_t>(r, times, [&](uint32_t e, uint32_t d, uint32_t *result, pt2p_request_t **req) {
					return pt2p_compare_swap32(r.ctx, m, cas32 + 4, e, d, result, req);
				});
			}
			EXPECT_OK(r.ctx, pt2p_flush_all(r.ctx));
		}
		at_the_end(r, w, [&r, times](Window &window) {
			const uint64_t all = times * static_cast<uint64_t>(r.size),
			               in = times * (times + 1) / 2 * static_cast<uint64_t>(r.size);
			EXPECT_EQ(window.word(add64), all);
			EXPECT_EQ(window.word(add32), (0 - all) << 32 | all);
			EXPECT_EQ(window.word(sum), 3 * (all * (all - 1) / 2));
			EXPECT_EQ(window.word(plain) + window.word(swaps), in << 33);
			EXPECT_EQ(window.word(plain + 8) + window.word(swap32), in);
			EXPECT_EQ(window.word(cas64), all);
			EXPECT_EQ(window.word(cas32), all << 32);
		});
	};
}

// Operations after a fence take effect after those before it, whatever their sizes and kinds.
Finish fence(Rank &r)
{
	const size_t slot = 200000;
	auto w = make_windows(r, 16 + slot);
	return [&r, w] {
		const size_t lengths[] = {8, 100000, 16, 300, 150000, 1, 50000, 184};
		for (Window &window : *w) {
			window.open();
			pt2p_remote_t *m = window.at(r.right());
			std::vector<Bytes> out;
			uint64_t last = 0;
			for (uint64_t i = 1; i <= 64; ++i) {
				const size_t length = lengths[i % std::size(lengths)];
				out.push_back(payload(length, seed_of(44, r.me, r.right(), i)));
				EXPECT_OK(r.ctx, pt2p_put(r.ctx, out.back().data(), length, m, 16, nullptr));
				EXPECT_OK(r.ctx, pt2p_fence(r.ctx, r.right()));
				Bytes in(length);
				pt2p_request_t *req = nullptr;
				if (i % 4 == 0) { // reads what this rank wrote
					EXPECT_OK(r.ctx, pt2p_get(r.ctx, in.data(), length, m, 16, &req));
					EXPECT_OK(r.ctx, pt2p_wait(r.ctx, req, nullptr));
					EXPECT_PAYLOAD(in.data(), length, seed_of(44, r.me, r.right(), i));
				}
				if (i % 3) {
					EXPECT_OK(r.ctx, pt2p_swap64(r.ctx, m, 0, i, nullptr, nullptr));
					last = i;
				}
				EXPECT_OK(r.ctx, pt2p_fence(r.ctx, r.right()));
			}
			EXPECT_OK(r.ctx, pt2p_flush(r.ctx, r.right()));
			uint64_t now = 0;
			EXPECT_OK(r.ctx, pt2p_fetch_add64(r.ctx, m, 0, 0, &now, nullptr));
			EXPECT_OK(r.ctx, pt2p_flush(r.ctx, r.right()));
			EXPECT_EQ(now, last);
			Bytes in(lengths[0]);
			EXPECT_OK(r.ctx, pt2p_get(r.ctx, in.data(), in.size(), m, 16, nullptr));
			EXPECT_OK(r.ctx, pt2p_flush(r.ctx, r.right()));
			EXPECT_PAYLOAD(in.data(), in.size(), seed_of(44, r.me, r.right(), 64));
		}
		at_the_end(r, w);
	};
}

} // namespace

void add_onesided_order_cases(std::vector<Case> &cases)
{
	cases.insert(cases.end(), {
	                              {"signal_order", false, signal_order},
	                              {"signal_sum", true, signal_sum},
	                              {"atomics", true, atomics},
	                              {"fence", true, fence},
	                          });
}

} // namespace conformance
