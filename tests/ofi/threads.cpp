// SPDX-License-Identifier: BSD-3-Clause
// Several threads on the same endpoints (FI_THREAD_SAFE).
#include "tests/ofi/fixture.hpp"

#include <atomic>

using namespace fi_test;

namespace {

constexpr unsigned thread_count = 4;
constexpr auto limit = std::chrono::seconds(60);

// Reads a queue, also for the other threads. How many completions; negative: an error.
int read(fid_cq *cq)
{
	fi_cq_tagged_entry e[8];
	const ssize_t n = fi_cq_read(cq, e, 8);
	if (n == -FI_EAGAIN)
		return 0;
	return int(n);
}

} // namespace

TEST_CASE("threads send and receive on one pair of endpoints")
{
	for (const fi_wait_obj wait : {FI_WAIT_NONE, FI_WAIT_FD}) {
		Options o;
		o.threading = FI_THREAD_SAFE;
		o.wait = wait;
		Pair p(o);
		constexpr uint64_t rounds = 500, length = 3000;
		std::vector<std::vector<uint64_t>> in(thread_count), out(thread_count);
		std::atomic<uint64_t> received{0}, sent{0};
		std::atomic<int> failures{0};
		const auto end = std::chrono::steady_clock::now() + limit;
		std::vector<std::thread> threads;
		for (unsigned t = 0; t < thread_count; ++t) {
			in[t].resize(rounds * length / 8);
			out[t].resize(rounds * length / 8);
			for (uint64_t i = 0; i < out[t].size(); ++i)
				out[t][i] = i * (t + 1);
			threads.emplace_back([&, t] {
				for (uint64_t i = 0; i < rounds; ++i) {
					const size_t bytes = i % 3 ? 64 : length;
					uint64_t *place = &in[t][i * length / 8], *from = &out[t][i * length / 8];
					if (fi_trecv(p.b.ep, place, bytes, nullptr, FI_ADDR_UNSPEC, t, 0, place) ||
					    fi_tsend(p.a.ep, from, bytes, nullptr, p.b_at_a, t, from))
						++failures;
					for (const auto &[cq, count] : {std::pair{p.a.cq, &sent}, std::pair{p.b.cq, &received}}) {
						const int n = read(cq);
						n < 0 ? void(++failures) : void(*count += unsigned(n));
					}
				}
				while ((received < thread_count * rounds || sent < thread_count * rounds) && !failures &&
				       std::chrono::steady_clock::now() < end) {
					sent += unsigned(std::max(read(p.a.cq), 0));
					received += unsigned(std::max(read(p.b.cq), 0));
					std::this_thread::yield();
				}
			});
		}
		for (std::thread &t : threads)
			t.join();
		CHECK(failures == 0);
		CHECK(received == thread_count * rounds);
		CHECK(sent == thread_count * rounds);
		bool same = true;
		for (unsigned t = 0; t < thread_count; ++t)
			for (uint64_t i = 0; i < rounds; ++i)
				same = same && !std::memcmp(&in[t][i * length / 8], &out[t][i * length / 8], i % 3 ? 64 : length);
		CHECK(same);
	}
}

TEST_CASE("threads add to one value, and read and write memory")
{
	Options o;
	o.threading = FI_THREAD_SAFE;
	o.progress = FI_PROGRESS_AUTO;
	o.selective = FI_SELECTIVE_COMPLETION;
	o.counters = true;
	Pair p(o);
	constexpr uint64_t rounds = 300;
	uint64_t values[1 + thread_count] = {};
	Memory memory(p.b, values, sizeof values, 3);
	std::atomic<int> failures{0};
	std::vector<std::thread> threads;
	for (uint64_t t = 0; t < thread_count; ++t)
		threads.emplace_back([&, t] {
			const uint64_t one = 1;
			for (uint64_t i = 1; i <= rounds; ++i)
				if (fi_inject_atomic(p.a.ep, &one, 1, p.b_at_a, 0, 3, FI_UINT64, FI_SUM) ||
				    fi_inject_write(p.a.ep, &i, 8, p.b_at_a, 8 * (t + 1), 3))
					++failures;
		});
	for (std::thread &t : threads)
		t.join();
	CHECK(failures == 0);
	CHECK(fi_cntr_wait(p.a.writes, 2 * thread_count * rounds, 60000) == 0);
	CHECK(values[0] == thread_count * rounds);
	for (uint64_t t = 1; t <= thread_count; ++t)
		CHECK(values[t] <= rounds);
	CHECK(fi_cntr_readerr(p.a.writes) == 0);
}

TEST_CASE("a thread waits in fi_cq_sread while others send, insert addresses and open endpoints")
{
	Options o;
	o.threading = FI_THREAD_SAFE;
	o.wait = FI_WAIT_FD;
	Pair p(o);
	constexpr unsigned messages = 400;
	std::atomic<unsigned> got{0};
	std::vector<uint32_t> in(messages);
	for (uint32_t &v : in)
		REQUIRE(fi_trecv(p.b.ep, &v, 4, nullptr, FI_ADDR_UNSPEC, 1, 0, &v) == 0);
	std::thread waits([&] {
		fi_cq_tagged_entry e;
		while (got < messages && fi_cq_sread(p.b.cq, &e, 1, nullptr, 20000) == 1)
			++got;
	});
	std::thread inserts([&] {
		for (int i = 0; i < 200; ++i) {
			fi_addr_t number;
			if (fi_av_insert(p.a.av, &p.b.address, 1, &number, 0, nullptr) == 1)
				fi_av_remove(p.a.av, &number, 1, 0);
		}
	});
	int failures = 0;
	for (uint32_t i = 0; i < messages; ++i)
		failures += fi_tinject(p.a.ep, &i, 4, p.b_at_a, 1) != 0;
	inserts.join();
	waits.join();
	CHECK(failures == 0);
	CHECK(got == messages);
	for (uint32_t i = 0; i < messages; ++i)
		CHECK(in[i] == i);
}

// The owner closes its memory and its endpoint at a time, and a peer asks for the memory meanwhile.
TEST_CASE("endpoints, memory and counters are closed by several threads while a peer uses them")
{
	Options o;
	o.threading = FI_THREAD_SAFE;
	o.progress = FI_PROGRESS_AUTO;
	o.caps |= FI_RMA_EVENT;
	uint64_t values[8] = {}, out = 1; // a late write may reach what is closed already
	Node a(o);
	const auto domain = std::make_shared<Domain>(o);
	std::atomic<int> failures{0};
	for (int i = 0; i < 20; ++i) {
		Node b(o, domain);
		const fi_addr_t b_at_a = a.insert(b);
		fid_cntr *counters[2] = {};
		fi_cntr_attr attr{};
		for (fid_cntr *&counter : counters)
			REQUIRE(fi_cntr_open(domain->domain, &attr, &counter, nullptr) == 0);
		std::vector<std::unique_ptr<Memory>> memories;
		for (uint64_t key = 0; key < 8; ++key) {
			memories.push_back(std::make_unique<Memory>(b, &values[key], 8, key));
			REQUIRE(fi_mr_bind(memories.back()->mr, &counters[key % 2]->fid, FI_REMOTE_WRITE) == 0);
		}
		REQUIRE(fi_inject_write(a.ep, &out, 8, b_at_a, 0, 0) == 0);
		std::atomic<bool> stop{false};
		std::thread uses([&] {
			for (uint64_t key = 1; !stop; key = (key + 1) % 8)
				if (fi_inject_write(a.ep, &out, 8, b_at_a, 0, key))
					std::this_thread::yield();
		});
		std::thread reads([&] {
			fi_cq_tagged_entry e;
			while (!stop) {
				fi_cntr_read(counters[1]);
				fi_cq_read(b.cq, &e, 1);
			}
		});
		std::this_thread::sleep_for(std::chrono::milliseconds(i % 5));
		std::thread closes([&] {
			failures += fi_close(&counters[0]->fid) != 0;
			for (const auto &memory : memories)
				failures += fi_close(&std::exchange(memory->mr, nullptr)->fid) != 0;
		});
		if (i % 2)
			std::this_thread::yield();
		fid_ep *const ep = std::exchange(b.ep, nullptr);
		failures += fi_close(&ep->fid) != 0;
		closes.join();
		stop = true;
		uses.join();
		reads.join();
		failures += fi_close(&counters[1]->fid) != 0;
		fi_cq_err_entry error{}; // of what has failed
		while (fi_cq_readerr(a.cq, &error, 0) == 1)
			;
	}
	CHECK(failures == 0);
}
