// One-sided operations on allocated and on registered memory: what arrives, in which way, and what is refused.
#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <sched.h>

#include "tests/conformance/cases/window.hpp"

namespace conformance {
namespace {

constexpr size_t sizes[] = {0,   1,   2,   3,   7,    8,    9,    63,    64,     65,     183,
                            184, 185, 186, 240, 1000, 4096, 8193, 16385, 100000, 1048583};

// All sizes, at unaligned addresses on both sides, with and without requests.
Finish put_get(Rank &r)
{
	const size_t all = std::accumulate(std::begin(sizes), std::end(sizes), size_t{0}) + 2 * std::size(sizes);
	auto w = make_windows(r, all, 3);
	return [&r, w] {
		for (Window &window : *w) {
			window.open();
			size_t at = 1;
			std::vector<pt2p_request_t *> requests;
			std::vector<Bytes> out, in;
			std::vector<size_t> offsets;
			for (size_t i = 0; i < std::size(sizes); ++i) {
				out.push_back(payload(sizes[i] + 1, 0));
				fill(out[i].data() + 1, sizes[i], seed_of(40, r.me, r.right(), i));
				offsets.push_back(at);
				at += sizes[i] + 2;
			}
			for (size_t i = 0; i < std::size(sizes); ++i) {
				pt2p_request_t *req = nullptr;
				EXPECT_OK(r.ctx, pt2p_put(r.ctx, out[i].data() + 1, sizes[i], window.at(r.right()), offsets[i],
				                          i % 3 ? &req : nullptr));
				EXPECT((req != nullptr) == (i % 3 != 0));
				requests.push_back(req);
			}
			EXPECT_OK(r.ctx, pt2p_flush(r.ctx, r.right()));
			for (size_t i = 0; i < std::size(sizes); ++i) {
				pt2p_result_t result{};
				if (!requests[i])
					continue;
				EXPECT_OK(r.ctx, pt2p_wait(r.ctx, requests[i], &result));
				EXPECT_EQ(result.source, r.right());
				EXPECT_EQ(result.length, sizes[i]);
				EXPECT_EQ(result.tag, 0);
			}
			requests.clear();
			for (size_t i = 0; i < std::size(sizes); ++i) {
				in.emplace_back(sizes[i] + 2);
				requests.push_back(nullptr);
				EXPECT_OK(r.ctx, pt2p_get(r.ctx, in[i].data() + 1, sizes[i], window.at(r.right()), offsets[i],
				                          &requests.back()));
			}
			EXPECT_OK(r.ctx, pt2p_waitall(r.ctx, requests.size(), requests.data(), nullptr));
			for (size_t i = 0; i < std::size(sizes); ++i) {
				EXPECT_PAYLOAD(in[i].data() + 1, sizes[i], seed_of(40, r.me, r.right(), i));
				EXPECT_EQ(in[i][0], 0);
				EXPECT_EQ(in[i][sizes[i] + 1], 0);
			}
		}
		at_the_end(r, w, [&r](Window &window) {
			size_t at = 1;
			for (size_t i = 0; i < std::size(sizes); ++i) {
				EXPECT_PAYLOAD(window.base + at, sizes[i], seed_of(40, r.left(), r.me, i));
				EXPECT_EQ(window.base[at - 1], 0); // nothing between them was changed
				at += sizes[i] + 2;
			}
		});
	};
}

constexpr size_t each = 3'000'001;

// Large ones, from everybody to everybody at the same time.
Finish put_get_large(Rank &r)
{
	auto w = make_windows(r, each * static_cast<size_t>(r.size));
	return [&r, w] {
		Bytes out(each);
		std::vector<Bytes> in(static_cast<size_t>(r.size), Bytes(each));
		fill(out.data(), each, seed_of(41, r.me, 0, 0));
		for (Window &window : *w) {
			window.open();
			for (int i = 0; i < r.size; ++i)
				EXPECT_OK(r.ctx,
				          pt2p_put(r.ctx, out.data(), each, window.at(i), each * static_cast<size_t>(r.me), nullptr));
			EXPECT_OK(r.ctx, pt2p_flush_all(r.ctx));
			for (int i = 0; i < r.size; ++i)
				EXPECT_OK(r.ctx, pt2p_get(r.ctx, in[static_cast<size_t>(i)].data(), each, window.at(i),
				                          each * static_cast<size_t>(r.me), nullptr));
			EXPECT_OK(r.ctx, pt2p_flush_all(r.ctx));
			for (const Bytes &bytes : in)
				EXPECT_PAYLOAD(bytes.data(), each, seed_of(41, r.me, 0, 0));
		}
		at_the_end(r, w, [&r](Window &window) {
			for (int i = 0; i < r.size; ++i)
				EXPECT_PAYLOAD(window.base + each * static_cast<size_t>(i), each, seed_of(41, i, 0, 0));
		});
	};
}

// Thousands of operations of all kinds in flight to all ranks.
Finish many_one_sided(Rank &r)
{
	const size_t count = 1500;
	const size_t mine = count * 8;
	auto w = make_windows(r, 64 + mine * static_cast<size_t>(r.size));
	return [&r, w] {
		std::vector<uint64_t> out(count), in(count);
		std::vector<pt2p_request_t *> requests(count);
		for (Window &window : *w) {
			window.open();
			for (int to = 0; to < r.size; ++to) {
				const size_t start = 64 + mine * static_cast<size_t>(r.me);
				for (size_t i = 0; i < count; ++i) {
					out[i] = mix(i + static_cast<size_t>(r.me));
					EXPECT_OK(r.ctx, pt2p_put(r.ctx, &out[i], 8, window.at(to), start + 8 * i, nullptr));
					EXPECT_OK(r.ctx, pt2p_fetch_add64(r.ctx, window.at(to), 8 * (i % 8), 1, nullptr, nullptr));
				}
				EXPECT_OK(r.ctx, pt2p_fence(r.ctx, to));
				for (size_t i = 0; i < count; ++i)
					EXPECT_OK(r.ctx, pt2p_get(r.ctx, &in[i], 8, window.at(to), start + 8 * i, &requests[i]));
				EXPECT_OK(r.ctx, pt2p_waitall(r.ctx, count, requests.data(), nullptr));
				EXPECT(in == out);
			}
			EXPECT_OK(r.ctx, pt2p_flush_all(r.ctx));
		}
		at_the_end(r, w, [&r](Window &window) {
			uint64_t all = 0;
			for (size_t i = 0; i < 8; ++i)
				all += window.word(8 * i);
			EXPECT_EQ(all, count * static_cast<size_t>(r.size));
		});
	};
}

// Requests of messages and of one-sided operations in one list, with each wait and test function. A one-sided operation
// cannot be cancelled.
Finish mixed_requests(Rank &r)
{
	auto w = make_windows(r, 4096);
	return [&r, w] {
		for (Window &window : *w) {
			window.open();
			pt2p_remote_t *m = window.at(r.right());
			uint64_t out[4] = {1, 2, 3, 4}, in[4] = {}, was = 9;
			pt2p_request_t *list[6] = {};
			EXPECT_OK(r.ctx, pt2p_irecv(r.ctx, &in[0], 8, r.me, 950, PT2P_TAG_EXACT, &list[0]));
			EXPECT_OK(r.ctx, pt2p_put(r.ctx, &out[1], 8, m, 8, &list[1]));
			EXPECT_OK(r.ctx, pt2p_get(r.ctx, &in[2], 8, m, 16, &list[3]));
			EXPECT_OK(r.ctx, pt2p_fetch_add64(r.ctx, m, 24, 5, &was, &list[4]));
			EXPECT_OK(r.ctx, pt2p_isend(r.ctx, &out[0], 8, r.me, 950, &list[5]));
			EXPECT_STATUS(r.ctx, pt2p_cancel(r.ctx, list[1]), PT2P_ERR_ARGUMENT);
			size_t index = 0;
			int done = 0;
			for (int i = 0; i < 2; ++i)
				EXPECT_OK(r.ctx, pt2p_waitany(r.ctx, 6, list, &index, nullptr));
			while (!done) {
				EXPECT_OK(r.ctx, pt2p_testall(r.ctx, 6, list, &done, nullptr));
				r.poll();
			}
			EXPECT_EQ(in[0], 1);
			EXPECT_EQ(was, 0);
			pt2p_request_t *req = nullptr;
			EXPECT_OK(r.ctx, pt2p_get(r.ctx, &in[1], 8, m, 8, &req));
			pt2p_request_t *dead = req;
			for (done = 0; !done; r.poll())
				EXPECT_OK(r.ctx, pt2p_test(r.ctx, req, &done, nullptr));
			EXPECT_EQ(in[1], 2);
			EXPECT_STATUS(r.ctx, pt2p_wait(r.ctx, dead, nullptr), PT2P_ERR_REQUEST);
		}
		at_the_end(r, w);
	};
}

Finish one_sided_errors(Rank &r)
{
	auto w = make_windows(r, 1001, 4);
	return [&r, w] {
		uint64_t value = 0;
		uint32_t half = 0;
		for (Window &window : *w) {
			window.open();
			pt2p_remote_t *m = window.at(r.right());
			pt2p_request_t *req = nullptr;
			EXPECT_STATUS(r.ctx, pt2p_put(r.ctx, &value, 8, m, 994, nullptr), PT2P_ERR_BOUNDS);
			EXPECT(strstr(pt2p_last_error(r.ctx), "1001 bytes") != nullptr);
			EXPECT_STATUS(r.ctx, pt2p_put(r.ctx, &value, 1, m, 1001, &req), PT2P_ERR_BOUNDS);
			EXPECT(req == nullptr);
			EXPECT_STATUS(r.ctx, pt2p_get(r.ctx, &value, 1, m, SIZE_MAX, nullptr), PT2P_ERR_BOUNDS);
			EXPECT_STATUS(r.ctx, pt2p_get(r.ctx, &value, PTRDIFF_MAX, m, 8, nullptr), PT2P_ERR_BOUNDS);
			EXPECT_STATUS(r.ctx, pt2p_get(r.ctx, &value, SIZE_MAX, m, 8, nullptr), PT2P_ERR_LENGTH);
			EXPECT_OK(r.ctx, pt2p_put(r.ctx, nullptr, 0, m, 1001, nullptr)); // nothing, at the end
			// Registered memory starts 4 bytes off.
			const size_t off = window.allocated ? 4 : 0;
			EXPECT_STATUS(r.ctx, pt2p_fetch_add64(r.ctx, m, off, 1, &value, nullptr), PT2P_ERR_BOUNDS);
			EXPECT(strstr(pt2p_last_error(r.ctx), "aligned to 8") != nullptr);
			EXPECT_STATUS(r.ctx, pt2p_fetch_add64(r.ctx, m, 996 + off, 1, &value, nullptr), PT2P_ERR_BOUNDS);
			EXPECT_STATUS(r.ctx, pt2p_swap32(r.ctx, m, 998, 1, &half, nullptr), PT2P_ERR_BOUNDS);
			EXPECT_STATUS(r.ctx, pt2p_swap32(r.ctx, m, 2, 1, &half, nullptr), PT2P_ERR_BOUNDS);
			EXPECT_STATUS(r.ctx, pt2p_put_signal(r.ctx, &value, 8, m, 100, m, off, PT2P_SIGNAL_ADD, 1, nullptr),
			              PT2P_ERR_BOUNDS);
			EXPECT_OK(r.ctx, pt2p_fetch_add32(r.ctx, m, 4, 1, &half, nullptr));
			EXPECT_OK(r.ctx, pt2p_fetch_add64(r.ctx, m, 4 - off, 0, &value, nullptr));
			if (r.size > 1)
				EXPECT_STATUS(
				    r.ctx,
				    pt2p_put_signal(r.ctx, &value, 8, m, 100, window.at(r.me), 8 - off, PT2P_SIGNAL_ADD, 1, nullptr),
				    PT2P_ERR_ARGUMENT);
			EXPECT_OK(r.ctx, pt2p_flush_all(r.ctx));
			EXPECT_STATUS(r.ctx, pt2p_flush(r.ctx, r.size), PT2P_ERR_RANK);
			EXPECT_STATUS(r.ctx, pt2p_fence(r.ctx, -1), PT2P_ERR_RANK);

			// Bytes that are not an export of that rank.
			pt2p_remote_t *remote = nullptr;
			Bytes blob = window.blob;
			EXPECT_STATUS(r.ctx, pt2p_memory_import(r.ctx, r.size, blob.data(), blob.size(), &remote), PT2P_ERR_RANK);
			if (r.size > 1)
				EXPECT_STATUS(r.ctx, pt2p_memory_import(r.ctx, r.right(), blob.data(), blob.size(), &remote),
				              PT2P_ERR_ARGUMENT);
			for (size_t length = 0; length < blob.size(); length += 7)
				EXPECT_STATUS(r.ctx, pt2p_memory_import(r.ctx, r.me, blob.data(), length, &remote), PT2P_ERR_ARGUMENT);
			blob[0] ^= 1;
			EXPECT_STATUS(r.ctx, pt2p_memory_import(r.ctx, r.me, blob.data(), blob.size(), &remote), PT2P_ERR_ARGUMENT);
			EXPECT(remote == nullptr);
			size_t needed = 0;
			EXPECT_STATUS(r.ctx, pt2p_memory_export(r.ctx, window.mem, blob.data(), blob.size() - 1, &needed),
			              PT2P_ERR_TRUNCATED);
			EXPECT_EQ(needed, blob.size());
			EXPECT_STATUS(r.ctx, pt2p_memory_gone(r.ctx, window.base + 1000, 5000), PT2P_ERR_ARGUMENT);
			// Handles that were released.
			EXPECT_OK(r.ctx, pt2p_memory_import(r.ctx, r.me, window.blob.data(), window.blob.size(), &remote));
			EXPECT_OK(r.ctx, pt2p_put(r.ctx, "abc", 3, remote, 500, nullptr));
			EXPECT_OK(r.ctx, pt2p_remote_release(r.ctx, remote));
			EXPECT_STATUS(r.ctx, pt2p_put(r.ctx, &value, 8, remote, 0, nullptr), PT2P_ERR_MEMORY);
			EXPECT_STATUS(r.ctx, pt2p_remote_release(r.ctx, remote), PT2P_ERR_MEMORY);
			EXPECT_OK(r.ctx, pt2p_flush(r.ctx, r.me));
			EXPECT(!memcmp(window.base + 500, "abc", 3));
		}
		at_the_end(r, w, [&r](Window &window) {
			EXPECT_STATUS(r.ctx, pt2p_memory_release(r.ctx, nullptr), PT2P_ERR_MEMORY);
			(void)window;
		});
	};
}

// Memory that its owner has released: an owner that executes the operation refuses it, and nothing else fails.
Finish released_memory(Rank &r)
{
	auto w = make_windows(r, 100000);
	return [&r, w] {
		Bytes data(100000, 1);
		for (Window &window : *w) {
			window.open();
			pt2p_remote_t *m = window.at(r.right());
			pt2p_remote_info_t info;
			EXPECT_OK(r.ctx, pt2p_remote_query(r.ctx, m, &info));
			EXPECT_EQ(info.rank, r.right());
			EXPECT_EQ(info.length, 100000);
			EXPECT_OK(r.ctx, pt2p_barrier(r.ctx));
			EXPECT_OK(r.ctx, pt2p_memory_release(r.ctx, window.mem));
			EXPECT_STATUS(r.ctx, pt2p_memory_release(r.ctx, window.mem), PT2P_ERR_MEMORY);
			EXPECT_OK(r.ctx, pt2p_barrier(r.ctx));
			if (r.right() == r.me) {
				EXPECT_STATUS(r.ctx, pt2p_put(r.ctx, data.data(), 8, m, 0, nullptr), PT2P_ERR_MEMORY);
			} else if (!strcmp(info.put, "owner") && !strcmp(info.atomic, "owner")) {
				for (size_t length : {size_t{8}, size_t{100000}}) {
					pt2p_request_t *put = nullptr, *get = nullptr, *add = nullptr;
					EXPECT_OK(r.ctx, pt2p_put(r.ctx, data.data(), length, m, 0, &put));
					EXPECT_OK(r.ctx, pt2p_get(r.ctx, data.data(), length, m, 0, &get));
					EXPECT_OK(r.ctx, pt2p_swap64(r.ctx, m, 8, 1, nullptr, &add));
					EXPECT_OK(r.ctx,
					          pt2p_put_signal(r.ctx, data.data(), length, m, 0, m, 0, PT2P_SIGNAL_SET, 1, nullptr));
					for (pt2p_request_t *req : {put, get, add})
						EXPECT_STATUS(r.ctx, pt2p_wait(r.ctx, req, nullptr), PT2P_ERR_MEMORY);
					EXPECT_STATUS(r.ctx, pt2p_flush(r.ctx, r.right()), PT2P_ERR_MEMORY);
					EXPECT(strstr(pt2p_last_error(r.ctx), "put_signal") != nullptr);
					EXPECT_OK(r.ctx, pt2p_flush(r.ctx, r.right())); // reported once
				}
			}
			EXPECT_OK(r.ctx, pt2p_barrier(r.ctx));
			// For close().
			EXPECT_OK(r.ctx, pt2p_memory_register(r.ctx, data.data(), 1, &window.mem));
		}
		at_the_end(r, w);
	};
}

// Operations go in the ways that the tunables allow.
Finish one_sided_ways(Rank &r)
{
	// A word for each rank behind the common one: two puts to the same word would be a race.
	auto w = make_windows(r, 8 + 8 * static_cast<size_t>(r.size));
	return [&r, w] {
		const uint64_t before[] = {counter(r, "one_sided_direct"), counter(r, "one_sided_transport"),
		                           counter(r, "one_sided_by_owner")};
		uint64_t expected[3] = {}, value = 1;
		for (Window &window : *w) {
			window.open();
			for (int i = 0; i < r.size; ++i) {
				pt2p_remote_info_t info;
				EXPECT_OK(r.ctx, pt2p_remote_query(r.ctx, window.at(i), &info));
				const std::string put = info.put, atomic = info.atomic;
				if (r.one_sided == "owner") {
					EXPECT(put == "owner" && atomic == "owner");
				} else if (r.one_sided == "transport") {
					EXPECT(put != "direct");
				} else if (i == r.me || (window.allocated && r.same_node(i))) {
					EXPECT(put == "direct");
					EXPECT(info.atomics_by_nic || atomic == "direct");
				}
				EXPECT_OK(r.ctx, pt2p_put(r.ctx, &value, 8, window.at(i), 8 + 8 * static_cast<size_t>(r.me), nullptr));
				EXPECT_OK(r.ctx, pt2p_fetch_add64(r.ctx, window.at(i), 0, 1, nullptr, nullptr));
				for (const std::string &way : {put, atomic})
					++expected[way == "direct" ? 0 : way == "transport" ? 1 : 2];
			}
			EXPECT_OK(r.ctx, pt2p_flush_all(r.ctx));
		}
		EXPECT_EQ(counter(r, "one_sided_direct") - before[0], expected[0]);
		EXPECT_EQ(counter(r, "one_sided_transport") - before[1], expected[1]);
		EXPECT_EQ(counter(r, "one_sided_by_owner") - before[2], expected[2]);
		at_the_end(r, w, [&r](Window &window) {
			EXPECT_EQ(window.word(0), r.size);
			for (size_t i = 1; i <= static_cast<size_t>(r.size); ++i)
				EXPECT_EQ(window.word(8 * i), 1);
		});
	};
}

} // namespace

void add_onesided_cases(std::vector<Case> &cases)
{
	cases.insert(cases.end(), {
	                              {"one_sided_ways", true, one_sided_ways},
	                              {"put_get", true, put_get},
	                              {"put_get_large", true, put_get_large},
	                              {"many_one_sided", true, many_one_sided},
	                              {"mixed_requests", true, mixed_requests},
	                              {"one_sided_errors", true, one_sided_errors},
	                              {"released_memory", false, released_memory},
	                          });
}

} // namespace conformance
