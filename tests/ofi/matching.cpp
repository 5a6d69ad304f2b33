// SPDX-License-Identifier: BSD-3-Clause
// Which receive gets a message: tags, ignored bits, sources, and the two kinds of messages.
#include "tests/ofi/fixture.hpp"

using namespace fi_test;

namespace {

void send(Node &from, fi_addr_t to, uint64_t tag, uint32_t value)
{
	REQUIRE(fi_tinject(from.ep, &value, sizeof value, to, tag) == 0);
}

} // namespace

TEST_CASE("ignored bits of tags")
{
	Pair p;
	uint32_t values[3] = {};
	constexpr uint64_t high = UINT64_C(1) << 62;
	REQUIRE(fi_trecv(p.b.ep, &values[0], 4, nullptr, FI_ADDR_UNSPEC, 0x1200, 0xff, mark(1)) == 0);
	REQUIRE(fi_trecv(p.b.ep, &values[1], 4, nullptr, FI_ADDR_UNSPEC, high | 5, 0, mark(2)) == 0);
	REQUIRE(fi_trecv(p.b.ep, &values[2], 4, nullptr, FI_ADDR_UNSPEC, 0, UINT64_MAX, mark(3)) == 0);
	send(p.a, p.b_at_a, high | 5, 22);
	send(p.a, p.b_at_a, 0x12fe, 11);
	send(p.a, p.b_at_a, 0x13fe, 33);
	for (int i = 0; i < 3; ++i) {
		const Event e = next(p.b);
		const auto n = reinterpret_cast<uintptr_t>(e.entry.op_context);
		REQUIRE((n >= 1 && n <= 3));
		CHECK(values[n - 1] == 11 * n);
		CHECK(e.entry.tag == (n == 1 ? 0x12fe : n == 2 ? high | 5 : 0x13fe));
	}
}

TEST_CASE("a receive does not get a message with another tag")
{
	Pair p;
	uint32_t value = 0;
	REQUIRE(fi_trecv(p.b.ep, &value, 4, nullptr, FI_ADDR_UNSPEC, 6, 0, mark(1)) == 0);
	send(p.a, p.b_at_a, 7, 70);
	send(p.a, p.b_at_a, 0, 10);
	CHECK(silent(p.b));
	send(p.a, p.b_at_a, 6, 60);
	CHECK(next(p.b).entry.tag == 6);
	CHECK(value == 60);
	REQUIRE(fi_trecv(p.b.ep, &value, 4, nullptr, FI_ADDR_UNSPEC, 0, 7, mark(1)) == 0); // the one that came first
	CHECK(next(p.b).entry.tag == 7);
	REQUIRE(fi_trecv(p.b.ep, &value, 4, nullptr, FI_ADDR_UNSPEC, 0, 0, mark(1)) == 0);
	CHECK(next(p.b).entry.tag == 0);
}

TEST_CASE("tagged and untagged messages do not meet")
{
	Pair p;
	uint32_t tagged = 0, untagged = 0, one = 1, two = 2;
	REQUIRE(fi_recv(p.b.ep, &untagged, 4, nullptr, FI_ADDR_UNSPEC, mark(1)) == 0);
	send(p.a, p.b_at_a, 0, one);
	CHECK(silent(p.b));
	REQUIRE(fi_trecv(p.b.ep, &tagged, 4, nullptr, FI_ADDR_UNSPEC, 0, UINT64_MAX, mark(2)) == 0);
	CHECK(next(p.b).entry.op_context == mark(2));
	REQUIRE(fi_trecv(p.b.ep, &tagged, 4, nullptr, FI_ADDR_UNSPEC, 0, UINT64_MAX, mark(3)) == 0);
	REQUIRE(fi_inject(p.a.ep, &two, 4, p.b_at_a) == 0);
	const Event e = next(p.b);
	CHECK(e.entry.op_context == mark(1));
	CHECK(e.entry.flags == (FI_MSG | FI_RECV));
	CHECK(silent(p.b));
	CHECK(tagged == 1);
	CHECK(untagged == 2);
}

TEST_CASE("FI_DIRECTED_RECV: from one peer only")
{
	Node a, b, c;
	const fi_addr_t a_at_c = c.insert(a), b_at_c = c.insert(b), c_at_a = a.insert(c), c_at_b = b.insert(c);
	uint32_t first = 0, second = 0, third = 0, v[] = {1, 2, 3};
	REQUIRE(fi_trecv(c.ep, &first, 4, nullptr, b_at_c, 1, 0, mark(1)) == 0);
	REQUIRE(fi_recv(c.ep, &second, 4, nullptr, b_at_c, mark(2)) == 0);
	send(a, c_at_a, 1, 10);
	REQUIRE(fi_inject(a.ep, &v[0], 4, c_at_a) == 0);
	CHECK(silent(c));
	send(b, c_at_b, 1, 20);
	Event e = next(c);
	CHECK(e.entry.op_context == mark(1));
	CHECK(e.source == b_at_c);
	REQUIRE(fi_inject(b.ep, &v[1], 4, c_at_b) == 0);
	e = next(c);
	CHECK(e.entry.op_context == mark(2));
	CHECK(e.source == b_at_c);
	CHECK(first == 20);
	CHECK(second == 2);
	REQUIRE(fi_trecv(c.ep, &third, 4, nullptr, a_at_c, 1, 0, mark(3)) == 0);
	e = next(c);
	CHECK(third == 10);
	CHECK(e.source == a_at_c);
	CHECK(fi_trecv(c.ep, &third, 4, nullptr, 99, 1, 0, mark(3)) == -FI_EINVAL); // nobody
}

TEST_CASE("without FI_DIRECTED_RECV a receive is from anybody")
{
	Options o;
	o.caps = FI_TAGGED | FI_SOURCE;
	Node a(o), b(o), c(o);
	c.insert(a);
	const fi_addr_t b_at_c = c.insert(b), c_at_a = a.insert(c);
	uint32_t value = 0;
	REQUIRE(fi_trecv(c.ep, &value, 4, nullptr, b_at_c, 1, 0, mark(1)) == 0);
	send(a, c_at_a, 1, 10);
	CHECK(next(c).error == 0);
	CHECK(value == 10);
}

TEST_CASE("sources: of a peer that was inserted and never used")
{
	Node a, c;
	const fi_addr_t c_at_a = a.insert(c), a_at_c = c.insert(a);
	uint32_t value = 0;
	REQUIRE(fi_trecv(c.ep, &value, 4, nullptr, FI_ADDR_UNSPEC, 1, 0, mark(1)) == 0);
	send(a, c_at_a, 1, 10);
	CHECK(next(c).source == a_at_c);
}

TEST_CASE("sources: of a peer that was used, and of a stranger")
{
	Node a, b, c;
	const fi_addr_t c_at_a = a.insert(c), c_at_b = b.insert(c), a_at_c = c.insert(a);
	uint32_t value = 0;
	for (const fi_addr_t from : {a_at_c, fi_addr_t{FI_ADDR_UNSPEC}}) {
		REQUIRE(fi_trecv(c.ep, &value, 4, nullptr, from, 1, 0, mark(1)) == 0);
		send(a, c_at_a, 1, 10);
		CHECK(next(c).source == a_at_c);
	}
	REQUIRE(fi_trecv(c.ep, &value, 4, nullptr, FI_ADDR_UNSPEC, 1, 0, mark(1)) == 0);
	send(b, c_at_b, 1, 20);
	CHECK(next(c).source == FI_ADDR_NOTAVAIL);
	const fi_addr_t b_at_c = c.insert(b);
	REQUIRE(fi_trecv(c.ep, &value, 4, nullptr, b_at_c, 1, 0, mark(1)) == 0);
	send(b, c_at_b, 1, 21);
	CHECK(next(c).source == b_at_c);
	CHECK(value == 21);
}

TEST_CASE("messages of one tag arrive in order, expected or not, long or short")
{
	Pair p;
	constexpr size_t count = 40;
	const auto length = [](size_t i) { return size_t(i % 3 == 0 ? 100000 + i : i % 3 == 1 ? 8 + i : 20000 + i); };
	std::vector<Bytes> out, in(count, Bytes(200000));
	for (size_t i = 0; i < count; ++i)
		out.push_back(pattern(length(i), unsigned(i)));
	for (size_t i = 0; i < count / 2; ++i)
		REQUIRE(fi_trecv(p.b.ep, in[i].data(), in[i].size(), nullptr, FI_ADDR_UNSPEC, 3, 0, mark(i + 1)) == 0);
	for (size_t i = 0; i < count; ++i)
		REQUIRE(fi_tsend(p.a.ep, out[i].data(), out[i].size(), nullptr, p.b_at_a, 3, mark(i + 1)) == 0);
	look_at_all();
	for (size_t i = count / 2; i < count; ++i)
		REQUIRE(fi_trecv(p.b.ep, in[i].data(), in[i].size(), nullptr, FI_ADDR_UNSPEC, 3, 0, mark(i + 1)) == 0);
	for (size_t i = 0; i < count; ++i) {
		const Event e = next(p.b);
		const size_t n = reinterpret_cast<uintptr_t>(e.entry.op_context) - 1;
		REQUIRE(n < count);
		CHECK(e.entry.len == length(n));
		CHECK(std::equal(out[n].begin(), out[n].end(), in[n].begin()));
		CHECK(next(p.a).error == 0);
	}
}
