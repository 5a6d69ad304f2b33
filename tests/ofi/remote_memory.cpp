// SPDX-License-Identifier: BSD-3-Clause
// Reads and writes of memory of peers.
#include "tests/ofi/fixture.hpp"

using namespace fi_test;

namespace {

constexpr size_t size = 6000000;

// The memory of b that a works on.
struct Target : Pair {
	explicit Target(const Options &o = {}, bool one_domain = false)
	    : Pair(o, one_domain), bytes(size), memory(b, bytes.data(), size, 42)
	{
	}
	// The end of an operation of a.
	void ends(uint64_t kind, void *context)
	{
		const Event e = next(a);
		CHECK(e.error == 0);
		CHECK(e.entry.op_context == context);
		CHECK(e.entry.flags == (FI_RMA | kind));
	}
	bool holds(const Bytes &wanted, size_t at) const
	{
		return std::equal(wanted.begin(), wanted.end(), bytes.begin() + std::ptrdiff_t(at));
	}
	Bytes bytes;
	Memory memory;
};

} // namespace

TEST_CASE("writes and reads of all lengths")
{
	for (const bool one_domain : {false, true}) {
		Target t({}, one_domain);
		for (const size_t length : {0, 1, 8, 1000, 65536, 5000000}) {
			INFO(length);
			const size_t at = 17;
			std::fill(t.bytes.begin(), t.bytes.end(), 0xee);
			const Bytes out = pattern(length, 3);
			REQUIRE(fi_write(t.a.ep, out.data(), length, nullptr, t.b_at_a, at, 42, mark(1)) == 0);
			t.ends(FI_WRITE, mark(1));
			CHECK(t.holds(out, at));
			CHECK(t.bytes[at - 1] == 0xee);
			CHECK(t.bytes[at + length] == 0xee);
			const Bytes held = pattern(size, 11);
			std::copy(held.begin(), held.end(), t.bytes.begin()); // the memory stays where it is
			Bytes in(length + 1, 0xdd);
			REQUIRE(fi_read(t.a.ep, in.data(), length, nullptr, t.b_at_a, at, 42, mark(2)) == 0);
			t.ends(FI_READ, mark(2));
			CHECK(std::equal(in.begin(), in.end() - 1, t.bytes.begin() + at));
			CHECK(in[length] == 0xdd);
		}
		CHECK(silent(t.b));
	}
}

TEST_CASE("segments on both sides")
{
	Target t;
	Memory other(t.b, t.bytes.data() + 500000, 1000, 43);
	Bytes out = pattern(300, 1), in(300);
	const iovec here[] = {{out.data(), 100}, {out.data() + 100, 0}, {out.data() + 100, 150}, {out.data() + 250, 50}};
	REQUIRE(fi_writev(t.a.ep, here, nullptr, 4, t.b_at_a, 1000, 42, mark(1)) == 0);
	t.ends(FI_WRITE, mark(1));
	CHECK(t.holds(out, 1000));
	const iovec back[] = {{in.data(), 10}, {in.data() + 10, 290}};
	REQUIRE(fi_readv(t.a.ep, back, nullptr, 2, t.b_at_a, 1000, 42, mark(2)) == 0);
	t.ends(FI_READ, mark(2));
	CHECK((in == out));

	// Cut at other places on the other side, in memory with two keys.
	const fi_rma_iov there[] = {{2000, 30, 42}, {5, 200, 43}, {9000, 70, 42}};
	const fi_msg_rma m{here, nullptr, 4, t.b_at_a, there, 3, mark(3), 0};
	REQUIRE(fi_writemsg(t.a.ep, &m, 0) == 0);
	t.ends(FI_WRITE, mark(3));
	const auto part = [&](size_t from, size_t to) {
		return Bytes(out.begin() + std::ptrdiff_t(from), out.begin() + std::ptrdiff_t(to));
	};
	CHECK(t.holds(part(0, 30), 2000));
	CHECK(t.holds(part(30, 230), 500005));
	CHECK(t.holds(part(230, 300), 9000));
	std::fill(in.begin(), in.end(), 0);
	const fi_msg_rma r{back, nullptr, 2, t.b_at_a, there, 3, mark(4), 0};
	REQUIRE(fi_readmsg(t.a.ep, &r, 0) == 0);
	t.ends(FI_READ, mark(4));
	CHECK((in == out));

	const fi_rma_iov shorter[] = {{2000, 30, 42}, {5, 200, 43}};
	const fi_msg_rma differs{here, nullptr, 4, t.b_at_a, shorter, 2, mark(5), 0};
	CHECK(fi_writemsg(t.a.ep, &differs, 0) == -FI_EINVAL);
	const std::vector<iovec> nine(9, iovec{out.data(), 1});
	CHECK(fi_writev(t.a.ep, nine.data(), nullptr, 9, t.b_at_a, 0, 42, nullptr) == -FI_EINVAL);
	CHECK(silent(t.a));
}

TEST_CASE("injected writes")
{
	Target t;
	Bytes out = pattern(1024, 1);
	const Bytes wanted = out;
	REQUIRE(fi_inject_write(t.a.ep, out.data(), 1024, t.b_at_a, 100, 42) == 0);
	std::fill(out.begin(), out.end(), 0);
	CHECK(drive([&] { return t.holds(wanted, 100); }));
	out = pattern(1024, 2);
	const Bytes second = out;
	const iovec here[] = {{out.data(), 24}, {out.data() + 24, 1000}};
	const fi_rma_iov there[] = {{20000, 1000, 42}, {30000, 24, 42}};
	const fi_msg_rma m{here, nullptr, 2, t.b_at_a, there, 2, mark(3), 0};
	REQUIRE(fi_writemsg(t.a.ep, &m, FI_INJECT) == 0);
	std::fill(out.begin(), out.end(), 0);
	t.ends(FI_WRITE, mark(3));
	CHECK(t.holds(Bytes(second.begin(), second.begin() + 1000), 20000));
	CHECK(t.holds(Bytes(second.begin() + 1000, second.end()), 30000));
	out.resize(1025);
	CHECK(fi_inject_write(t.a.ep, out.data(), 1025, t.b_at_a, 100, 42) == -FI_EMSGSIZE);
	CHECK(silent(t.a));
}

TEST_CASE("writes with data: a completion of the owner")
{
	Target t;
	const Bytes out = pattern(50000, 1);
	constexpr uint64_t data = UINT64_C(0x8877665544332211);
	for (const size_t length : {0, 700, 50000}) {
		REQUIRE(fi_writedata(t.a.ep, out.data(), length, nullptr, data + length, t.b_at_a, 77, 42, mark(1)) == 0);
		t.ends(FI_WRITE, mark(1));
		const Event e = next(t.b);
		CHECK(t.holds(Bytes(out.begin(), out.begin() + std::ptrdiff_t(length)), 77));
		CHECK(e.error == 0);
		CHECK(e.entry.flags == (FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA));
		CHECK(e.entry.data == data + length);
		CHECK(e.entry.len == length);
	}
	REQUIRE(fi_inject_writedata(t.a.ep, out.data(), 10, 5, t.b_at_a, 0, 42) == 0);
	CHECK(next(t.b).entry.data == 5);
	const iovec here{const_cast<unsigned char *>(out.data()), 10};
	const fi_rma_iov there{3, 10, 42};
	const fi_msg_rma m{&here, nullptr, 1, t.b_at_a, &there, 1, mark(3), 6};
	REQUIRE(fi_writemsg(t.a.ep, &m, FI_REMOTE_CQ_DATA) == 0);
	t.ends(FI_WRITE, mark(3));
	CHECK(next(t.b).entry.data == 6);
	REQUIRE(fi_writemsg(t.a.ep, &m, 0) == 0);
	t.ends(FI_WRITE, mark(3));
	CHECK(silent(t.b));
	CHECK(silent(t.a));
}

TEST_CASE("many operations at a time")
{
	Target t;
	constexpr size_t count = 200, length = 5000;
	const Bytes out = pattern(count * length, 1);
	Bytes in(count * length);
	for (size_t i = 0; i < count; ++i)
		REQUIRE(fi_write(t.a.ep, out.data() + i * length, length, nullptr, t.b_at_a, i * length, 42, mark(1)) == 0);
	for (size_t i = 0; i < count; ++i)
		t.ends(FI_WRITE, mark(1));
	for (size_t i = 0; i < count; ++i)
		REQUIRE(fi_read(t.a.ep, in.data() + i * length, length, nullptr, t.b_at_a, i * length, 42, mark(2)) == 0);
	for (size_t i = 0; i < count; ++i)
		t.ends(FI_READ, mark(2));
	CHECK((in == out));
	CHECK(t.holds(out, 0));
}

TEST_CASE("memory of one's own endpoint, and of the other one in the domain")
{
	Target t({}, true);
	const fi_addr_t own = t.b.insert(t.b);
	const Bytes out = pattern(4000, 1);
	REQUIRE(fi_write(t.b.ep, out.data(), 4000, nullptr, own, 9, 42, mark(1)) == 0);
	CHECK(next(t.b).error == 0);
	CHECK(t.holds(out, 9));
	// Memory belongs to the domain: it is reached through a, too.
	Bytes in(4000);
	REQUIRE(fi_read(t.b.ep, in.data(), 4000, nullptr, t.a_at_b, 9, 42, mark(2)) == 0);
	CHECK(next(t.b).error == 0);
	CHECK((in == out));
}
