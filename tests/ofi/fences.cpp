// SPDX-License-Identifier: BSD-3-Clause
// FI_FENCE: an operation takes effect after all that the endpoint has started before with the same peer, of whichever
// kind they are.
#include "tests/ofi/fixture.hpp"

using namespace fi_test;

namespace {

// Values in memory of b, which has two keys. Operations of a that FI_FENCE holds back.
struct Fenced {
	static constexpr uint64_t first = 1, second = 2;
	// a learns of the memory with this key.
	void know(uint64_t key)
	{
		uint64_t value = 0;
		REQUIRE(fi_read(p.a.ep, &value, 8, nullptr, p.b_at_a, 0, key, nullptr) == 0);
		CHECK(next(p.a).error == 0);
	}
	// Calls until it does not say -FI_EAGAIN.
	template <class Start>
	void start(Start &&start_it)
	{
		ssize_t error = -FI_EAGAIN;
		CHECK(drive([&] { return (error = start_it()) != -FI_EAGAIN; }));
		REQUIRE(error == 0);
	}
	// call: fi_readmsg or fi_writemsg.
	void transfer(ssize_t (*call)(fid_ep *, const fi_msg_rma *, uint64_t), const uint64_t &value, uint64_t key,
	              uint64_t at)
	{
		const iovec here{const_cast<uint64_t *>(&value), 8};
		const fi_rma_iov there{at, 8, key};
		const fi_msg_rma m{&here, nullptr, 1, p.b_at_a, &there, 1, mark(2), 0};
		start([&] { return call(p.a.ep, &m, FI_FENCE); });
	}
	void read(uint64_t &to, uint64_t key, uint64_t at) { transfer(fi_readmsg, to, key, at); }
	void write(const uint64_t &from, uint64_t key, uint64_t at) { transfer(fi_writemsg, from, key, at); }
	void change(const uint64_t &operand, fi_op op, uint64_t key, uint64_t at)
	{
		const fi_ioc here{const_cast<uint64_t *>(&operand), 1};
		const fi_rma_ioc there{at, 1, key};
		const fi_msg_atomic m{&here, nullptr, 1, p.b_at_a, &there, 1, FI_UINT64, op, mark(2), 0};
		start([&] { return fi_atomicmsg(p.a.ep, &m, FI_FENCE); });
	}
	// The first operation ends before the second one.
	void end_in_order()
	{
		for (const uintptr_t which : {1, 2}) {
			const Event e = next(p.a);
			CHECK(e.error == 0);
			CHECK(e.entry.op_context == mark(which));
		}
	}

	uint64_t values[4] = {};
	Pair p;
	Memory of_first{p.b, values, sizeof values, first}, of_second{p.b, values, sizeof values, second};
};

} // namespace

TEST_CASE("FI_FENCE: a read after a write sees it")
{
	Fenced f;
	Bytes of_b(6000);
	Memory memory(f.p.b, of_b.data(), of_b.size(), 42);
	for (unsigned i = 0; i < 20; ++i) {
		Bytes out = pattern(3000, i), in(3000);
		const iovec back{in.data(), 3000};
		const fi_rma_iov there{64, 3000, 42};
		const fi_msg_rma r{&back, nullptr, 1, f.p.b_at_a, &there, 1, mark(2), 0};
		REQUIRE(fi_write(f.p.a.ep, out.data(), 3000, nullptr, f.p.b_at_a, 64, 42, mark(1)) == 0);
		f.start([&] { return fi_readmsg(f.p.a.ep, &r, FI_FENCE); });
		f.end_in_order();
		CHECK((in == out));
	}
}

TEST_CASE("FI_FENCE: after an operation on memory that is not known yet")
{
	for (const bool atomic : {false, true}) {
		Fenced f;
		f.know(Fenced::second);
		const uint64_t before = 3, after = 4;
		REQUIRE(fi_write(f.p.a.ep, &before, 8, nullptr, f.p.b_at_a, 8, Fenced::first, mark(1)) == 0);
		if (atomic)
			f.change(after, FI_ATOMIC_WRITE, Fenced::second, 8);
		else
			f.write(after, Fenced::second, 8);
		f.end_in_order();
		CHECK(f.values[1] == after);
	}
}

TEST_CASE("FI_FENCE: after a write to memory of which a part is not known yet")
{
	Fenced f;
	f.know(Fenced::second);
	const uint64_t before[2] = {3, 3}, after = 4;
	const iovec here{const_cast<uint64_t *>(before), sizeof before};
	const fi_rma_iov there[] = {{8, 8, Fenced::first}, {16, 8, Fenced::second}};
	const fi_msg_rma m{&here, nullptr, 1, f.p.b_at_a, there, 2, mark(1), 0};
	REQUIRE(fi_writemsg(f.p.a.ep, &m, 0) == 0);
	f.write(after, Fenced::second, 8);
	f.end_in_order();
	CHECK(f.values[1] == after);
	CHECK(f.values[2] == 3);
}

TEST_CASE("FI_FENCE: on memory that is not known yet")
{
	Fenced f;
	f.know(Fenced::first);
	uint64_t in = 0;
	const uint64_t out = 5;
	REQUIRE(fi_write(f.p.a.ep, &out, 8, nullptr, f.p.b_at_a, 8, Fenced::first, mark(1)) == 0);
	f.read(in, Fenced::second, 8);
	f.end_in_order();
	CHECK(in == out);
}

TEST_CASE("FI_FENCE: after an atomic operation of the owner")
{
	Fenced f;
	f.know(Fenced::first);
	f.know(Fenced::second);
	f.values[1] = 6;
	uint64_t in = 0;
	const uint64_t factor = 7;
	REQUIRE(fi_atomic(f.p.a.ep, &factor, 1, nullptr, f.p.b_at_a, 8, Fenced::first, FI_UINT64, FI_PROD, mark(1)) == 0);
	f.read(in, Fenced::second, 8);
	f.end_in_order();
	CHECK(in == 42);
}

TEST_CASE("FI_FENCE: an atomic operation of either kind")
{
	Fenced f;
	f.know(Fenced::first);
	for (const fi_op op : {FI_SUM, FI_BXOR}) {
		const uint64_t out = 5, one = 1;
		REQUIRE(fi_write(f.p.a.ep, &out, 8, nullptr, f.p.b_at_a, 8, Fenced::first, mark(1)) == 0);
		f.change(one, op, Fenced::first, 8);
		f.end_in_order();
		CHECK(f.values[1] == (op == FI_SUM ? 6 : 4));
	}
}

TEST_CASE("FI_FENCE: messages")
{
	Fenced f;
	f.know(Fenced::first);
	Pair &p = f.p;
	const Bytes out = pattern(3000000, 1);
	Bytes in(out.size());
	const uint64_t value = 8;
	uint64_t got = 0;
	// A write after a large message, which is received late.
	REQUIRE(fi_tsend(p.a.ep, out.data(), out.size(), nullptr, p.b_at_a, 1, mark(1)) == 0);
	const iovec here{const_cast<uint64_t *>(&value), 8};
	const fi_rma_iov there{8, 8, Fenced::first};
	const fi_msg_rma m{&here, nullptr, 1, p.b_at_a, &there, 1, mark(2), 0};
	for (int i = 0; i < 20; ++i) {
		CHECK(fi_writemsg(p.a.ep, &m, FI_FENCE) == -FI_EAGAIN);
		look_at_all();
	}
	CHECK(f.values[1] == 0);
	REQUIRE(fi_trecv(p.b.ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, 1, 0, mark(3)) == 0);
	f.start([&] { return fi_writemsg(p.a.ep, &m, FI_FENCE); });
	f.end_in_order();
	CHECK((in == out));
	CHECK(f.values[1] == value);
	CHECK(next(p.b).entry.op_context == mark(3));
	// A message after an operation on memory. Operations with others hold up nothing.
	REQUIRE(fi_trecv(p.b.ep, &got, 8, nullptr, FI_ADDR_UNSPEC, 2, 0, mark(3)) == 0);
	Node other;
	REQUIRE(fi_tsend(p.a.ep, out.data(), out.size(), nullptr, p.a.insert(other), 1, mark(9)) == 0);
	const uint64_t first = 9;
	REQUIRE(fi_write(p.a.ep, &first, 8, nullptr, p.b_at_a, 16, Fenced::second, mark(1)) == 0);
	const fi_msg_tagged message{&here, nullptr, 1, p.b_at_a, 2, 0, mark(2), 0};
	f.start([&] { return fi_tsendmsg(p.a.ep, &message, FI_FENCE); });
	CHECK(f.values[2] == first);
	f.end_in_order();
	CHECK(next(p.b).error == 0);
	CHECK(got == value);
}
