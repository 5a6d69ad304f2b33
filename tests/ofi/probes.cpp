// SPDX-License-Identifier: BSD-3-Clause
// Looking for messages before they are received, and receives that are cancelled.
#include "tests/ofi/fixture.hpp"

using namespace fi_test;

namespace {

void look_for(Node &n, fi_addr_t from, uint64_t tag, uint64_t ignore, uint64_t flags, void *context)
{
	const fi_msg_tagged m{nullptr, nullptr, 0, from, tag, ignore, context, 0};
	REQUIRE(fi_trecvmsg(n.ep, &m, FI_PEEK | flags) == 0);
}

// Looks until there is one.
Event found(Node &n, fi_addr_t from, uint64_t tag, uint64_t ignore, uint64_t flags, void *context)
{
	const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
	for (;;) {
		look_for(n, from, tag, ignore, flags, context);
		const Event e = next(n);
		CHECK(e.entry.op_context == context);
		if (!e.error)
			return e;
		REQUIRE(e.error == FI_ENOMSG);
		REQUIRE(std::chrono::steady_clock::now() < end);
	}
}

} // namespace

TEST_CASE("FI_PEEK without a message, and with one")
{
	Pair p;
	look_for(p.b, FI_ADDR_UNSPEC, 3, 0, 0, mark(1));
	Event e = next(p.b);
	CHECK(e.error == FI_ENOMSG);
	CHECK(e.entry.op_context == mark(1));
	CHECK(e.details.tag == 3);
	for (const size_t length : {12, 4000000}) {
		Bytes out = pattern(length, 5), in(length);
		REQUIRE(fi_tsenddata(p.a.ep, out.data(), length, nullptr, 99, p.b_at_a, 3, mark(2)) == 0);
		for (int i = 0; i < 2; ++i) { // it stays
			e = found(p.b, FI_ADDR_UNSPEC, 1, 2, 0, mark(1));
			CHECK(e.entry.len == length);
			CHECK(e.entry.tag == 3);
			CHECK((e.entry.flags & FI_REMOTE_CQ_DATA) != 0);
			CHECK(e.entry.data == 99);
		}
		look_for(p.b, FI_ADDR_UNSPEC, 4, 0, 0, mark(1));
		CHECK(next(p.b).error == FI_ENOMSG);
		REQUIRE(fi_trecv(p.b.ep, in.data(), length, nullptr, FI_ADDR_UNSPEC, 3, 0, mark(3)) == 0);
		e = next(p.b);
		CHECK(e.entry.op_context == mark(3));
		CHECK((in == out));
		CHECK(next(p.a).entry.op_context == mark(2));
	}
}

TEST_CASE("FI_PEEK looks for messages of a peer, and not for untagged ones")
{
	Node a, b, c;
	const fi_addr_t a_at_c = c.insert(a), b_at_c = c.insert(b), c_at_a = a.insert(c), c_at_b = b.insert(c);
	uint32_t value = 1;
	REQUIRE(fi_inject(a.ep, &value, 4, c_at_a) == 0);
	REQUIRE(fi_tinject(b.ep, &value, 4, c_at_b, 8) == 0);
	CHECK(found(c, b_at_c, 8, 0, 0, mark(1)).source == b_at_c);
	REQUIRE(silent(c));
	look_for(c, a_at_c, 0, UINT64_MAX, 0, mark(2));
	CHECK(next(c).error == FI_ENOMSG);
}

TEST_CASE("FI_CLAIM: the message is for the program that has found it")
{
	Pair p;
	for (const size_t length : {12, 4000000}) {
		const Bytes one = pattern(length, 5), two = pattern(length, 6);
		Bytes first(length), second(length);
		REQUIRE(fi_tsend(p.a.ep, one.data(), length, nullptr, p.b_at_a, 3, mark(1)) == 0);
		REQUIRE(fi_tsend(p.a.ep, two.data(), length, nullptr, p.b_at_a, 3, mark(2)) == 0);
		fi_context context{};
		const Event e = found(p.b, FI_ADDR_UNSPEC, 3, 0, FI_CLAIM, &context);
		CHECK(e.entry.len == length);
		// Another receive gets the next one.
		REQUIRE(fi_trecv(p.b.ep, second.data(), length, nullptr, FI_ADDR_UNSPEC, 3, 0, mark(3)) == 0);
		CHECK(next(p.b).entry.op_context == mark(3));
		CHECK((second == two));
		const iovec place{first.data(), length};
		const fi_msg_tagged m{&place, nullptr, 1, FI_ADDR_UNSPEC, 3, 0, &context, 0};
		REQUIRE(fi_trecvmsg(p.b.ep, &m, FI_CLAIM) == 0);
		const Event got = next(p.b);
		CHECK(got.error == 0);
		CHECK(got.entry.op_context == &context);
		CHECK(got.entry.len == length);
		CHECK(got.entry.tag == 3);
		CHECK((first == one));
		CHECK(fi_trecvmsg(p.b.ep, &m, FI_CLAIM) == -FI_EINVAL); // it has been received
		CHECK(next(p.a).error == 0);
		CHECK(next(p.a).error == 0);
	}
}

TEST_CASE("FI_DISCARD: the message is lost, and its send ends")
{
	Pair p;
	for (const size_t length : {12, 4000000})
		for (const bool claim : {false, true}) {
			const Bytes one = pattern(length, 5);
			REQUIRE(fi_tsend(p.a.ep, one.data(), length, nullptr, p.b_at_a, 3, mark(1)) == 0);
			fi_context context{};
			const Event e = found(p.b, FI_ADDR_UNSPEC, 3, 0, claim ? FI_CLAIM : FI_DISCARD, &context);
			CHECK(e.entry.len == length);
			if (claim) {
				const fi_msg_tagged m{nullptr, nullptr, 0, FI_ADDR_UNSPEC, 3, 0, &context, 0};
				REQUIRE(fi_trecvmsg(p.b.ep, &m, FI_CLAIM | FI_DISCARD) == 0);
				const Event ended = next(p.b);
				CHECK(ended.error == 0);
				CHECK(ended.entry.op_context == &context);
			}
			CHECK(next(p.a).error == 0);
			look_for(p.b, FI_ADDR_UNSPEC, 3, 0, 0, mark(9));
			CHECK(next(p.b).error == FI_ENOMSG);
		}
}

TEST_CASE("fi_cancel of receives")
{
	Pair p;
	uint32_t a = 0, b = 0, c = 0, one = 1, two = 2;
	REQUIRE(fi_trecv(p.b.ep, &a, 4, nullptr, FI_ADDR_UNSPEC, 1, 0, &a) == 0);
	REQUIRE(fi_trecv(p.b.ep, &b, 4, nullptr, FI_ADDR_UNSPEC, 1, 0, &b) == 0);
	REQUIRE(fi_recv(p.b.ep, &c, 4, nullptr, FI_ADDR_UNSPEC, &c) == 0);
	CHECK(fi_cancel(&p.b.ep->fid, &one) == -FI_ENOENT);
	CHECK(fi_cancel(&p.b.ep->fid, &a) == 0);
	Event e = next(p.b);
	CHECK(e.error == FI_ECANCELED);
	CHECK(e.entry.op_context == &a);
	CHECK((e.details.flags & (FI_TAGGED | FI_RECV)) == (FI_TAGGED | FI_RECV));
	CHECK(fi_cancel(&p.b.ep->fid, &a) == -FI_ENOENT);
	CHECK(fi_cancel(&p.b.ep->fid, &c) == 0);
	e = next(p.b);
	CHECK(e.error == FI_ECANCELED);
	CHECK(e.entry.op_context == &c);
	CHECK((e.details.flags & (FI_MSG | FI_RECV)) == (FI_MSG | FI_RECV));
	REQUIRE(fi_tinject(p.a.ep, &one, 4, p.b_at_a, 1) == 0);
	REQUIRE(fi_inject(p.a.ep, &two, 4, p.b_at_a) == 0);
	CHECK(next(p.b).entry.op_context == &b);
	CHECK(silent(p.b));
	REQUIRE(fi_recv(p.b.ep, &c, 4, nullptr, FI_ADDR_UNSPEC, &c) == 0);
	CHECK(next(p.b).error == 0);
	CHECK(a == 0);
	CHECK(b == 1);
	CHECK(c == 2);
	CHECK(fi_cancel(&p.b.ep->fid, &c) == -FI_ENOENT);
}
