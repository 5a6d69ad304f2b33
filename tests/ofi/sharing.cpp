// SPDX-License-Identifier: BSD-3-Clause
// Endpoints that nobody can address, as they only read, write and ask for atomic operations: they share the context of
// another endpoint of their domain.
#include "tests/ofi/fixture.hpp"

#include <atomic>

using namespace fi_test;

namespace {

// What Sandia OpenSHMEM asks for.
constexpr uint64_t only_initiates = FI_RMA | FI_READ | FI_WRITE | FI_ATOMIC | FI_RECV;

Options initiating(Options o = {})
{
	o.caps = only_initiates;
	return o;
}

// An endpoint of the domain of `other` that only initiates.
std::unique_ptr<Node> beside(const Node &other, const Options &o = initiating())
{
	fi_info &info = *other.domain->info;
	const uint64_t caps = std::exchange(info.caps, o.caps);
	auto made = std::make_unique<Node>(o, other.domain);
	info.caps = caps;
	return made;
}

bool same_address(const Node &a, const Node &b) { return a.address.sin_port == b.address.sin_port; }

} // namespace

TEST_CASE("an endpoint that only initiates has the address of another one of its domain")
{
	Node a, b;
	const auto i = beside(a);
	CHECK(same_address(*i, a));
	// One that peers can address has an address of its own, and so has one alone in its domain.
	Options o;
	o.caps |= FI_REMOTE_WRITE;
	CHECK_FALSE(same_address(*beside(a, o), a));
	CHECK_FALSE(same_address(Node(initiating()), a));

	uint64_t of_b[2] = {3, 4}, out = 5, in = 0, one = 1;
	Memory memory(b, of_b, sizeof of_b, 7);
	const fi_addr_t to = i->insert(b);
	for (int round = 0; round < 3; ++round) {
		REQUIRE(fi_write(i->ep, &out, 8, nullptr, to, 0, 7, mark(1)) == 0);
		CHECK(next(*i).entry.op_context == mark(1));
		CHECK(of_b[0] == 5);
		REQUIRE(fi_read(i->ep, &in, 8, nullptr, to, 8, 7, mark(2)) == 0);
		CHECK(next(*i).entry.op_context == mark(2));
		CHECK(in == of_b[1]);
		REQUIRE(fi_atomic(i->ep, &one, 1, nullptr, to, 8, 7, FI_UINT64, FI_SUM, mark(3)) == 0);
		CHECK(next(*i).entry.op_context == mark(3));
		CHECK(of_b[1] == 5u + static_cast<unsigned>(round));
	}
	// Memory that its owner closes and registers again is found again by both.
	const fi_addr_t from_a = a.insert(b);
	REQUIRE(fi_write(a.ep, &out, 8, nullptr, from_a, 0, 7, mark(4)) == 0);
	CHECK(next(a).error == 0);
	memory.close();
	CHECK(silent(*i)); // it hears of that
	REQUIRE(fi_write(i->ep, &out, 8, nullptr, to, 0, 7, mark(5)) == 0);
	CHECK(next(*i).error == FI_EKEYREJECTED);
	Memory again(b, of_b, sizeof of_b, 7);
	for (const auto &[node, address] : {std::pair<Node *, fi_addr_t>{&a, from_a}, {i.get(), to}}) {
		REQUIRE(fi_write(node->ep, &out, 8, nullptr, address, 8, 7, mark(6)) == 0);
		CHECK(next(*node).error == 0);
	}
	CHECK(of_b[1] == 5);
	CHECK(silent(a));
}

TEST_CASE("endpoints that only initiate come and go, whatever their counterparts do")
{
	Pair p;
	uint64_t of_a = 0, of_b = 0;
	Memory memory_of_a(p.a, &of_a, 8, 1), memory_of_b(p.b, &of_b, 8, 1);
	for (uint64_t i = 1; i < 40; ++i) {
		const auto at_a = beside(p.a);
		const auto at_b = i % 2 ? beside(p.b) : nullptr;
		const fi_addr_t to = at_a->insert(p.b);
		REQUIRE(fi_write(at_a->ep, &i, 8, nullptr, to, 0, 1, mark(1)) == 0);
		if (at_b)
			at_b->close_endpoint();
		CHECK(next(*at_a).error == 0);
		CHECK(of_b == i);
	}
	uint64_t out = 9;
	REQUIRE(fi_write(p.b.ep, &out, 8, nullptr, p.a_at_b, 0, 1, mark(1)) == 0);
	CHECK(next(p.b).error == 0);
	CHECK(of_a == 9);
}

TEST_CASE("an endpoint that only initiates is closed with operations under way")
{
	Pair p;
	Bytes out = pattern(3000000, 1), of_b(3000000);
	uint64_t sum = 0, one = 1;
	Memory memory(p.b, of_b.data(), of_b.size(), 1), counter(p.b, &sum, 8, 2);
	const auto i = beside(p.a);
	const fi_addr_t to = i->insert(p.b);
	// The owner makes its progress meanwhile: operations ask it for the keys, and for the sum.
	std::atomic<bool> ended{false};
	std::thread owner([&] {
		fi_cq_tagged_entry entry;
		while (!ended)
			fi_cq_read(p.b.cq, &entry, 1);
	});
	REQUIRE(fi_write(i->ep, out.data(), out.size(), nullptr, to, 0, 1, mark(1)) == 0);
	for (int k = 0; k < 10; ++k)
		REQUIRE(fi_atomic(i->ep, &one, 1, nullptr, to, 0, 2, FI_UINT64, FI_SUM, mark(2)) == 0);
	i->close_endpoint();
	ended = true;
	owner.join();
	CHECK(of_b == out);
	CHECK(sum == 10);
	int completions = 0;
	fi_cq_tagged_entry entry;
	while (fi_cq_read(i->cq, &entry, 1) == 1)
		++completions;
	CHECK(completions == 11);
}

TEST_CASE("an endpoint is not closed while others share its context")
{
	Pair p;
	uint64_t of_b = 0, out = 5, in = 0;
	Memory memory(p.b, &of_b, 8, 1);
	auto i = beside(p.a), j = beside(p.a);
	REQUIRE(fi_trecv(p.a.ep, &in, 8, nullptr, FI_ADDR_UNSPEC, 1, 0, mark(1)) == 0);
	CHECK(fi_close(&p.a.ep->fid) == -FI_EBUSY);
	i.reset();
	CHECK(fi_close(&p.a.ep->fid) == -FI_EBUSY);
	// All goes on as before.
	REQUIRE(fi_write(j->ep, &out, 8, nullptr, j->insert(p.b), 0, 1, mark(2)) == 0);
	CHECK(next(*j).error == 0);
	CHECK(of_b == 5);
	REQUIRE(fi_tinject(p.b.ep, &out, 8, p.a_at_b, 1) == 0);
	CHECK(next(p.a).entry.op_context == mark(1));
	CHECK(in == 5);
	j.reset();
	p.a.close_endpoint();
}

TEST_CASE("a counter that several endpoints of a context share")
{
	Node a, b;
	fid_cntr *writes = nullptr;
	fi_cntr_attr attr{};
	REQUIRE(fi_cntr_open(a.domain->domain, &attr, &writes, nullptr) == 0);
	uint64_t of_b = 0;
	Memory memory(b, &of_b, 8, 1);
	auto i = beside(a), j = beside(a);
	for (const Node *node : {i.get(), j.get()})
		REQUIRE(fi_ep_bind(node->ep, &writes->fid, FI_WRITE) == 0);
	const auto write = [&](Node &node, uint64_t value) {
		REQUIRE(fi_write(node.ep, &value, 8, nullptr, node.insert(b), 0, 1, nullptr) == 0);
		CHECK(drive([&] { return fi_cntr_read(writes) == value; }));
		CHECK(of_b == value);
	};
	write(*i, 1);
	write(*j, 2);
	i.reset();
	a.asleep = j->asleep = true; // the counter alone makes progress
	write(*j, 3);
	j.reset();
	CHECK(fi_close(&writes->fid) == 0);
}

TEST_CASE("an endpoint with a wait object shares only a context with a thread that makes progress")
{
	Options o;
	o.threading = FI_THREAD_SAFE;
	Node a(o);
	o.wait = FI_WAIT_FD;
	Node b(o, a.domain);
	b.close_endpoint();
	CHECK_FALSE(same_address(*beside(a, initiating(o)), a));
	Node waiting(o);
	CHECK(same_address(*beside(waiting, initiating(o)), waiting));
	o.wait = FI_WAIT_NONE;
	CHECK(same_address(*beside(waiting, initiating(o)), waiting));
}

namespace {

constexpr uint64_t writes_of_thread = 50;

// A thread's endpoint from opening to closing, by libfabric alone: writes to its word of memory 1 of b, and additions
// to memory 2. Returns how many calls have failed.
int open_write_close(Pair &p, size_t thread)
{
	fid_domain *d = p.a.domain->domain;
	fi_cq_attr cq_attr{};
	fi_av_attr av_attr{};
	fid_cq *cq = nullptr;
	fid_av *av = nullptr;
	fid_ep *ep = nullptr;
	const Info info(fi_dupinfo(p.a.domain->info.get()));
	info->caps = only_initiates;
	fi_addr_t to = 0;
	if (fi_cq_open(d, &cq_attr, &cq, nullptr) || fi_av_open(d, &av_attr, &av, nullptr) ||
	    fi_endpoint(d, info.get(), &ep, nullptr) || fi_ep_bind(ep, &av->fid, 0) ||
	    fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV) || fi_enable(ep) ||
	    fi_av_insert(av, &p.b.address, 1, &to, 0, nullptr) != 1)
		return 1;
	int failures = 0;
	for (uint64_t n = 1; n <= writes_of_thread; ++n) {
		const uint64_t one = 1;
		failures += fi_write(ep, &n, 8, nullptr, to, thread * 8, 1, nullptr) != 0;
		failures += fi_atomic(ep, &one, 1, nullptr, to, 0, 2, FI_UINT64, FI_SUM, nullptr) != 0;
		fi_cq_entry entry;
		for (int left = n == writes_of_thread ? 0 : 2; left;) { // the last ones are under way at the end
			const ssize_t got = fi_cq_read(cq, &entry, 1);
			if (got == -FI_EAGAIN) {
				std::this_thread::yield();
				continue;
			}
			failures += got != 1;
			--left;
		}
	}
	return failures + (fi_close(&ep->fid) || fi_close(&av->fid) || fi_close(&cq->fid));
}

} // namespace

TEST_CASE("threads with an endpoint each that share a context")
{
	constexpr size_t threads = 3, rounds = 10;
	Options o;
	o.threading = FI_THREAD_SAFE;
	Pair p(o);
	uint64_t of_b[threads] = {}, sum = 0;
	Memory memory(p.b, of_b, sizeof of_b, 1), counter(p.b, &sum, 8, 2);
	std::atomic<size_t> running{threads};
	std::atomic<int> failures{0};
	std::vector<std::thread> all;
	for (size_t t = 0; t < threads; ++t)
		all.emplace_back([&, t] {
			for (size_t r = 0; r < rounds; ++r)
				failures += open_write_close(p, t);
			--running;
		});
	CHECK(drive([&] { return !running; }, 120));
	for (std::thread &thread : all)
		thread.join();
	CHECK(failures == 0);
	CHECK(sum == threads * rounds * writes_of_thread);
	for (const uint64_t last : of_b)
		CHECK(last == writes_of_thread);
}
