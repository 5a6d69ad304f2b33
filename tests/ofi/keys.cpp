// SPDX-License-Identifier: BSD-3-Clause
// Keys of memory: which ones there are, what they allow, and what becomes of them.
#include "tests/ofi/fixture.hpp"

using namespace fi_test;

namespace {

int write(Pair &p, const void *bytes, size_t length, uint64_t at, uint64_t key)
{
	REQUIRE(fi_write(p.a.ep, bytes, length, nullptr, p.b_at_a, at, key, mark(1)) == 0);
	const Event e = next(p.a);
	CHECK(e.entry.op_context == mark(1));
	CHECK(e.entry.flags == (FI_RMA | FI_WRITE));
	return e.error;
}

int read(Pair &p, void *bytes, size_t length, uint64_t at, uint64_t key)
{
	REQUIRE(fi_read(p.a.ep, bytes, length, nullptr, p.b_at_a, at, key, mark(2)) == 0);
	const Event e = next(p.a);
	CHECK(e.entry.op_context == mark(2));
	CHECK(e.entry.flags == (FI_RMA | FI_READ));
	return e.error;
}

// A message from b to a, as programs have it before a key is used for something else.
void tell(Pair &p)
{
	uint32_t in = 0, out = 1;
	REQUIRE(fi_trecv(p.a.ep, &in, 4, nullptr, FI_ADDR_UNSPEC, 1, 0, mark(7)) == 0);
	REQUIRE(fi_tinject(p.b.ep, &out, 4, p.a_at_b, 1) == 0);
	CHECK(next(p.a).entry.op_context == mark(7));
}

} // namespace

TEST_CASE("keys that nobody has, and ends of memory")
{
	Pair p;
	Bytes bytes(100, 1), out = pattern(200, 1), in(200);
	Memory memory(p.b, bytes.data(), 100, 7);
	CHECK(memory.key() == 7);
	CHECK(write(p, out.data(), 8, 0, 8) == FI_EKEYREJECTED);
	CHECK(read(p, in.data(), 8, 0, 8) == FI_EKEYREJECTED);
	CHECK(write(p, out.data(), 100, 0, 7) == 0);
	CHECK(write(p, out.data(), 101, 0, 7) == FI_EKEYREJECTED);
	CHECK(write(p, out.data(), 1, 100, 7) == FI_EKEYREJECTED);
	CHECK(write(p, out.data(), 2, UINT64_MAX, 7) == FI_EKEYREJECTED);
	CHECK(read(p, in.data(), 2, UINT64_MAX - 1, 7) == FI_EKEYREJECTED);
	CHECK(read(p, in.data(), 1, 99, 7) == 0);
	CHECK(in[0] == out[99]);
	CHECK(read(p, in.data(), 51, 50, 7) == FI_EKEYREJECTED);
	fid_mr *other = nullptr;
	CHECK(fi_mr_reg(p.b.domain->domain, in.data(), 8, FI_REMOTE_READ, 0, 7, 0, &other, nullptr) == -FI_ENOKEY);
	Memory late(p.b, in.data(), 200, 8); // a key that was refused before
	CHECK(write(p, out.data(), 200, 0, 8) == 0);
	CHECK((in == out));
}

TEST_CASE("access that was not granted")
{
	Pair p;
	Bytes bytes(100, 1), mine(100, 2);
	Memory to_read(p.b, bytes.data(), 100, 1, FI_REMOTE_READ);
	CHECK(write(p, mine.data(), 100, 0, 1) == FI_EKEYREJECTED);
	CHECK(bytes[0] == 1);
	CHECK(read(p, mine.data(), 100, 0, 1) == 0);
	CHECK(mine[99] == 1);
	Memory to_write(p.b, bytes.data(), 100, 2, FI_REMOTE_WRITE);
	std::fill(mine.begin(), mine.end(), 3);
	CHECK(read(p, mine.data(), 100, 0, 2) == FI_EKEYREJECTED);
	CHECK(mine[0] == 3);
	CHECK(write(p, mine.data(), 100, 0, 2) == 0);
	CHECK(bytes[99] == 3);
}

TEST_CASE("FI_MR_BASIC: addresses of the owner, and keys of the provider")
{
	Options o;
	o.mr_mode = FI_MR_BASIC;
	Pair p(o);
	Bytes bytes(1000), other(1000), out = pattern(1000, 1), in(1000);
	Memory memory(p.b, bytes.data(), 1000, 5), second(p.b, other.data(), 1000, 5);
	CHECK(memory.key() != second.key());
	const auto base = reinterpret_cast<uint64_t>(bytes.data());
	CHECK(write(p, out.data(), 1000, base, memory.key()) == 0);
	CHECK((bytes == out));
	CHECK(read(p, in.data(), 10, base + 990, memory.key()) == 0);
	CHECK(std::equal(in.begin(), in.begin() + 10, out.begin() + 990));
	CHECK(write(p, out.data(), 10, 0, memory.key()) == FI_EKEYREJECTED);
	CHECK(write(p, out.data(), 10, base - 1, memory.key()) == FI_EKEYREJECTED);
	CHECK(write(p, out.data(), 10, base + 991, memory.key()) == FI_EKEYREJECTED);
	const uint64_t old = memory.key();
	memory.close();
	Memory third(p.b, bytes.data(), 1000, 5);
	CHECK(third.key() != old);
	tell(p);
	CHECK(write(p, out.data(), 10, base, old) == FI_EKEYREJECTED);
	CHECK(write(p, out.data(), 10, base, third.key()) == 0);
}

TEST_CASE("memory that was closed is not reached")
{
	Pair p;
	for (const size_t length : {100, 200000}) {
		Bytes bytes(length, 1), out(length, 2);
		Memory memory(p.b, bytes.data(), length, 3);
		CHECK(write(p, out.data(), length, 0, 3) == 0);
		std::fill(bytes.begin(), bytes.end(), 1);
		memory.close();
		tell(p);
		CHECK(write(p, out.data(), length, 0, 3) == FI_EKEYREJECTED);
		CHECK(read(p, out.data(), length, 0, 3) == FI_EKEYREJECTED);
		CHECK((bytes == Bytes(length, 1)));
		CHECK((out == Bytes(length, 2)));
	}
}

TEST_CASE("a key that is used again leads to the new memory")
{
	Pair p;
	for (unsigned i = 0; i < 5; ++i) {
		INFO(i);
		const size_t length = 1000 + 70000 * i;
		Bytes bytes(length, 1), out = pattern(length, i), in(length);
		Memory memory(p.b, bytes.data(), length, 3, i % 2 ? FI_REMOTE_WRITE : FI_REMOTE_WRITE | FI_REMOTE_READ);
		tell(p);
		CHECK(write(p, out.data(), length, 0, 3) == 0);
		CHECK((bytes == out));
		CHECK(read(p, in.data(), length, 0, 3) == (i % 2 ? FI_EKEYREJECTED : 0));
	}
}

TEST_CASE("raw keys")
{
	Pair p;
	Bytes bytes(1000);
	Memory memory(p.b, bytes.data(), 1000, 5);
	uint64_t base = 1, key = 0;
	size_t length = 2;
	CHECK(fi_mr_raw_attr(memory.mr, &base, reinterpret_cast<uint8_t *>(&key), &length, 0) == -FI_ETOOSMALL);
	CHECK(length == 8);
	REQUIRE(fi_mr_raw_attr(memory.mr, &base, reinterpret_cast<uint8_t *>(&key), &length, 0) == 0);
	CHECK(key == 5);
	CHECK(base == 0);
}

TEST_CASE("FI_RMA_EVENT: a counter of memory makes the progress of endpoints that are opened later")
{
	Options o;
	o.caps |= FI_RMA_EVENT;
	const auto domain = std::make_shared<Domain>(o);
	uint64_t word = 0, one = 1;
	fid_cntr *counter = nullptr;
	fi_cntr_attr attr{};
	REQUIRE(fi_cntr_open(domain->domain, &attr, &counter, nullptr) == 0);
	fid_mr *mr = nullptr;
	REQUIRE(fi_mr_reg(domain->domain, &word, sizeof word, FI_REMOTE_WRITE, 0, 1, FI_RMA_EVENT, &mr, nullptr) == 0);
	REQUIRE(fi_mr_bind(mr, &counter->fid, FI_REMOTE_WRITE) == 0);
	{
		Node a(o), b(o, domain);
		const fi_addr_t b_at_a = a.insert(b);
		REQUIRE(fi_inject_write(a.ep, &one, sizeof one, b_at_a, 0, 1) == 0);
		const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
		fi_cq_tagged_entry none;
		while (fi_cntr_read(counter) < 1 && std::chrono::steady_clock::now() < end)
			fi_cq_read(a.cq, &none, 1);
		CHECK(fi_cntr_read(counter) == 1);
		CHECK(word == 1);
		CHECK(fi_close(&std::exchange(mr, nullptr)->fid) == 0);
	}
	CHECK(fi_close(&counter->fid) == 0);
}

TEST_CASE("FI_RMA_EVENT: counters of what peers do")
{
	Options o;
	o.caps |= FI_RMA_EVENT;
	Pair p(o);
	Bytes bytes(100000), other(100), out = pattern(100000, 1);
	fid_cntr *counter = nullptr;
	fi_cntr_attr attr{};
	REQUIRE(fi_cntr_open(p.b.domain->domain, &attr, &counter, nullptr) == 0);
	{
		Memory memory(p.b, bytes.data(), bytes.size(), 1, FI_REMOTE_READ | FI_REMOTE_WRITE, FI_RMA_EVENT);
		Memory plain(p.b, other.data(), other.size(), 2);
		REQUIRE(fi_mr_bind(memory.mr, &counter->fid, FI_REMOTE_WRITE) == 0);
		REQUIRE(fi_mr_enable(memory.mr) == 0);
		const auto counted = [&](uint64_t n) {
			return drive([&] { return fi_cntr_read(counter) >= n; }) && silent(p.b) && fi_cntr_read(counter) == n;
		};
		CHECK(write(p, out.data(), 100, 0, 1) == 0);
		CHECK(counted(1));
		CHECK(write(p, out.data(), 100000, 0, 1) == 0);
		CHECK(counted(2));
		CHECK(read(p, out.data(), 100, 0, 1) == 0);
		CHECK(write(p, out.data(), 100, 0, 2) == 0);
		CHECK(write(p, out.data(), 101, 0, 2) != 0);
		CHECK(counted(2));
		REQUIRE(fi_inject_write(p.a.ep, out.data(), 8, p.b_at_a, 0, 1) == 0);
		CHECK(counted(3));
		uint64_t one = 1;
		REQUIRE(fi_atomic(p.a.ep, &one, 1, nullptr, p.b_at_a, 0, 1, FI_UINT64, FI_SUM, mark(3)) == 0);
		CHECK(next(p.a).error == 0);
		CHECK(counted(4));
	}
	p.b.close_endpoint();
	CHECK(fi_close(&counter->fid) == 0);
	Pair without;
	fid_mr *mr = nullptr;
	CHECK(fi_mr_reg(without.b.domain->domain, bytes.data(), 8, FI_REMOTE_WRITE, 0, 1, FI_RMA_EVENT, &mr, nullptr) ==
	      -FI_EINVAL);
}
