// SPDX-License-Identifier: BSD-3-Clause
// Buffers that take many messages (FI_MULTI_RECV).
#include "tests/ofi/fixture.hpp"

#include <set>

using namespace fi_test;

namespace {

void post(Node &n, void *buffer, size_t length, void *context, fi_addr_t from = FI_ADDR_UNSPEC)
{
	const iovec place{buffer, length};
	const fi_msg m{&place, nullptr, 1, from, context, 0};
	REQUIRE(fi_recvmsg(n.ep, &m, FI_MULTI_RECV) == 0);
}

void least(Node &n, size_t bytes)
{
	REQUIRE(fi_setopt(&n.ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &bytes, sizeof bytes) == 0);
	size_t now = 0, length = sizeof now;
	REQUIRE(fi_getopt(&n.ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &now, &length) == 0);
	CHECK(now == bytes);
}

void send(Pair &p, size_t length, unsigned seed)
{
	const Bytes out = pattern(length, seed);
	REQUIRE(fi_inject(p.a.ep, out.data(), length, p.b_at_a) == 0);
}

bool contains(const fi_cq_tagged_entry &e, size_t length, unsigned seed)
{
	const Bytes wanted = pattern(length, seed);
	return e.len == length && std::equal(wanted.begin(), wanted.end(), static_cast<unsigned char *>(e.buf));
}

} // namespace

TEST_CASE("a buffer takes messages until less than the minimum is left")
{
	Pair p;
	least(p.b, 100);
	Bytes buffer(1000);
	post(p.b, buffer.data(), buffer.size(), mark(1), p.a_at_b); // so b knows whose number it is
	const size_t lengths[] = {300, 0, 300, 300, 2};             // just the minimum is left before the last
	size_t at = 0;
	for (unsigned i = 0; i < 5; ++i) {
		send(p, lengths[i], i);
		const Event e = next(p.b);
		CHECK(e.error == 0);
		CHECK(e.entry.op_context == mark(1));
		CHECK(e.entry.buf == buffer.data() + at);
		CHECK(contains(e.entry, lengths[i], i));
		CHECK(((e.entry.flags & FI_MULTI_RECV) != 0) == (i == 4));
		CHECK((e.entry.flags & (FI_MSG | FI_RECV)) == (FI_MSG | FI_RECV));
		CHECK(e.source == p.a_at_b);
		at += lengths[i];
	}
	send(p, 10, 9);
	CHECK(silent(p.b));
	post(p.b, buffer.data(), buffer.size(), mark(2));
	CHECK(next(p.b).entry.op_context == mark(2));
}

TEST_CASE("several buffers are filled one after the other, and given back once each")
{
	Pair p;
	least(p.b, 64);
	constexpr size_t count = 4, size = 1000;
	Bytes buffers(count * size);
	for (uintptr_t i = 0; i < count; ++i)
		post(p.b, buffers.data() + i * size, size, mark(i + 1));
	size_t given_back = 0;
	uintptr_t last = 1;
	for (unsigned i = 0; given_back < count; ++i) {
		REQUIRE(i < 100);
		const size_t length = 40 + i % 5;
		send(p, length, i);
		const Event e = next(p.b);
		REQUIRE(e.error == 0);
		CHECK(contains(e.entry, length, i));
		const auto n = reinterpret_cast<uintptr_t>(e.entry.op_context);
		CHECK(n == last);
		const auto *place = static_cast<unsigned char *>(e.entry.buf);
		CHECK(place >= buffers.data() + (n - 1) * size);
		CHECK(place + length <= buffers.data() + n * size);
		if (e.entry.flags & FI_MULTI_RECV) {
			++given_back;
			++last;
		}
	}
	CHECK(silent(p.b));
}

TEST_CASE("messages that were there before the buffer, and plain receives behind it")
{
	Pair p;
	least(p.b, 50);
	for (unsigned i = 0; i < 3; ++i)
		send(p, 100, i);
	look_at_all();
	Bytes buffer(240), plain(100), parts(100);
	post(p.b, buffer.data(), buffer.size(), mark(1));
	REQUIRE(fi_recv(p.b.ep, plain.data(), 100, nullptr, FI_ADDR_UNSPEC, mark(2)) == 0);
	const iovec segments[] = {{parts.data(), 30}, {parts.data() + 30, 70}};
	REQUIRE(fi_recvv(p.b.ep, segments, nullptr, 2, FI_ADDR_UNSPEC, mark(3)) == 0);
	for (unsigned i = 0; i < 2; ++i) {
		const Event e = next(p.b);
		CHECK(e.entry.op_context == mark(1));
		CHECK(contains(e.entry, 100, i));
		CHECK(((e.entry.flags & FI_MULTI_RECV) != 0) == (i == 1));
	}
	CHECK(next(p.b).entry.op_context == mark(2));
	CHECK((plain == pattern(100, 2)));
	send(p, 100, 7);
	CHECK(next(p.b).entry.op_context == mark(3));
	CHECK((parts == pattern(100, 7)));
}

TEST_CASE("a message that does not fit into the rest of the buffer is cut, and the buffer given back")
{
	Pair p;
	least(p.b, 50);
	Bytes buffer(200), other(200);
	post(p.b, buffer.data(), buffer.size(), mark(1));
	post(p.b, other.data(), other.size(), mark(2));
	send(p, 140, 0);
	CHECK(!(next(p.b).entry.flags & FI_MULTI_RECV));
	send(p, 100, 1);
	const Event e = next(p.b);
	CHECK(e.error == FI_ETRUNC);
	CHECK(e.details.olen == 40);
	CHECK((e.details.flags & FI_MULTI_RECV) != 0);
	send(p, 180, 2);
	const Event last = next(p.b);
	CHECK(last.entry.op_context == mark(2));
	CHECK(contains(last.entry, 180, 2));
	CHECK((last.entry.flags & FI_MULTI_RECV) != 0);
}

TEST_CASE("fi_cancel of buffers, and of receives that wait behind them")
{
	Pair p;
	Bytes buffer(500), plain(100), third(100);
	post(p.b, buffer.data(), buffer.size(), mark(1));
	REQUIRE(fi_recv(p.b.ep, plain.data(), 100, nullptr, FI_ADDR_UNSPEC, mark(2)) == 0);
	REQUIRE(fi_recv(p.b.ep, third.data(), 100, nullptr, FI_ADDR_UNSPEC, mark(3)) == 0);
	CHECK(fi_cancel(&p.b.ep->fid, mark(2)) == 0);
	Event e = next(p.b);
	CHECK(e.error == FI_ECANCELED);
	CHECK(e.entry.op_context == mark(2));
	send(p, 20, 1);
	e = next(p.b);
	CHECK(e.entry.op_context == mark(1));
	CHECK(fi_cancel(&p.b.ep->fid, mark(1)) == 0);
	e = next(p.b);
	CHECK(e.error == FI_ECANCELED);
	CHECK(e.entry.op_context == mark(1));
	CHECK((e.details.flags & FI_MULTI_RECV) != 0);
	send(p, 30, 2);
	e = next(p.b);
	CHECK(e.entry.op_context == mark(3));
	CHECK(std::equal(third.begin(), third.begin() + 30, pattern(30, 2).begin()));
	CHECK(silent(p.b));
}

TEST_CASE("buffers are cancelled while a thread posts the next one")
{
	Options o;
	o.wait = FI_WAIT_FD; // with a thread that makes progress
	o.threading = FI_THREAD_SAFE;
	Pair p(o);
	constexpr int buffers = 4;
	std::vector<unsigned char> memory[buffers];
	for (int round = 0; round < 500; ++round) {
		for (int i = 0; i < buffers; ++i) {
			memory[i].resize(1000);
			post(p.b, memory[i].data(), memory[i].size(), mark(i + 1));
		}
		for (int i = 0; i < buffers; ++i)
			REQUIRE(fi_cancel(&p.b.ep->fid, mark(i + 1)) == 0);
		std::set<void *> given_back;
		for (int i = 0; i < buffers; ++i) {
			const Event e = next(p.b);
			REQUIRE(e.error == FI_ECANCELED);
			REQUIRE((e.details.flags & FI_MULTI_RECV) != 0);
			given_back.insert(e.details.op_context);
		}
		REQUIRE(given_back.size() == buffers);
	}
}

TEST_CASE("a buffer for the messages of one peer")
{
	Node a, b, c;
	const fi_addr_t b_at_c = c.insert(b), c_at_a = a.insert(c), c_at_b = b.insert(c);
	Bytes buffer(200);
	post(c, buffer.data(), buffer.size(), mark(1), b_at_c);
	uint32_t one = 1, two = 2;
	REQUIRE(fi_inject(a.ep, &one, 4, c_at_a) == 0);
	CHECK(silent(c));
	for (int i = 0; i < 2; ++i) {
		REQUIRE(fi_inject(b.ep, &two, 4, c_at_b) == 0);
		const Event e = next(c);
		CHECK(e.source == b_at_c);
		CHECK(!std::memcmp(e.entry.buf, &two, 4));
	}
}

TEST_CASE("options of endpoints")
{
	Pair p;
	size_t value = 0, length = 1;
	CHECK(fi_getopt(&p.a.ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &value, &length) == -FI_ETOOSMALL);
	length = sizeof value;
	CHECK(fi_getopt(&p.a.ep->fid, FI_OPT_ENDPOINT, FI_OPT_CM_DATA_SIZE, &value, &length) == -FI_ENOPROTOOPT);
	CHECK(fi_setopt(&p.a.ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &value, 1) == -FI_ETOOSMALL);
	CHECK(fi_setopt(&p.a.ep->fid, FI_OPT_ENDPOINT, FI_OPT_CM_DATA_SIZE, &value, sizeof value) == -FI_ENOPROTOOPT);
}
