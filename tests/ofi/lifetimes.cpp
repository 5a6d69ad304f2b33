// SPDX-License-Identifier: BSD-3-Clause
// Objects that are closed: in use, with traffic under way, again and again, and what peers see of it.
#include "tests/ofi/fixture.hpp"

#include <filesystem>

using namespace fi_test;

namespace {

size_t descriptors()
{
	size_t n = 0;
	for ([[maybe_unused]] const auto &entry : std::filesystem::directory_iterator("/proc/self/fd"))
		++n;
	return n;
}

bool gone(int error) { return error == FI_ESHUTDOWN || error == FI_ECONNRESET; }

} // namespace

TEST_CASE("objects in use are not closed")
{
	Options o;
	o.counters = true;
	Node n(o);
	CHECK(fi_close(&n.av->fid) == -FI_EBUSY);
	CHECK(fi_close(&n.cq->fid) == -FI_EBUSY);
	CHECK(fi_close(&n.sends->fid) == -FI_EBUSY);
	CHECK(fi_close(&n.domain->domain->fid) == -FI_EBUSY);
	CHECK(fi_close(&n.domain->fabric->fid) == -FI_EBUSY);
	uint64_t value = 0;
	{
		Memory memory(n, &value, 8, 1);
		n.close_endpoint();
		CHECK(fi_close(&n.domain->domain->fid) == -FI_EBUSY);
	}
	CHECK(fi_close(&std::exchange(n.sends, nullptr)->fid) == 0);
}

TEST_CASE("what an enabled endpoint refuses, and what it needs")
{
	Node n;
	CHECK(fi_ep_bind(n.ep, &n.cq->fid, FI_TRANSMIT) == -FI_EOPBADSTATE);
	CHECK(fi_enable(n.ep) == 0);
	fid_ep *ep = nullptr;
	REQUIRE(fi_endpoint(n.domain->domain, n.domain->info.get(), &ep, nullptr) == 0);
	REQUIRE(fi_ep_bind(ep, &n.av->fid, 0) == 0);
	CHECK(fi_ep_bind(ep, &n.av->fid, 0) == -FI_EINVAL);
	CHECK(fi_enable(ep) == -FI_ENOCQ);
	CHECK(fi_ep_bind(ep, &n.cq->fid, 0) == -FI_EINVAL);
	REQUIRE(fi_ep_bind(ep, &n.cq->fid, FI_TRANSMIT) == 0);
	CHECK(fi_ep_bind(ep, &n.cq->fid, FI_TRANSMIT) == -FI_EINVAL);
	CHECK(fi_enable(ep) == -FI_ENOCQ);
	REQUIRE(fi_ep_bind(ep, &n.cq->fid, FI_RECV) == 0);
	CHECK(fi_enable(ep) == 0);
	CHECK(fi_close(&ep->fid) == 0);
}

namespace {

void close_with_traffic(bool receiver_first)
{
	Pair p;
	Bytes out = pattern(3000000, 1), in(3000000), many(2000), of_b(3000000);
	Memory memory(p.b, of_b.data(), of_b.size(), 1);
	uint32_t small[4] = {};
	for (uint32_t &v : small)
		REQUIRE(fi_trecv(p.b.ep, &v, 4, nullptr, FI_ADDR_UNSPEC, 100, 0, &v) == 0);
	REQUIRE(fi_recv(p.b.ep, small, 4, nullptr, FI_ADDR_UNSPEC, mark(1)) == 0);
	const iovec place{many.data(), many.size()};
	const fi_msg m{&place, nullptr, 1, FI_ADDR_UNSPEC, mark(5), 0};
	REQUIRE(fi_recvmsg(p.b.ep, &m, FI_MULTI_RECV) == 0);
	REQUIRE(fi_recv(p.b.ep, small, 4, nullptr, FI_ADDR_UNSPEC, mark(6)) == 0);
	REQUIRE(fi_trecv(p.b.ep, in.data(), in.size(), nullptr, p.a_at_b, 1, 0, mark(2)) == 0);
	REQUIRE(fi_tsend(p.a.ep, out.data(), out.size(), nullptr, p.b_at_a, 1, mark(3)) == 0);
	REQUIRE(fi_tsend(p.a.ep, out.data(), out.size(), nullptr, p.b_at_a, 2, mark(4)) == 0);
	REQUIRE(fi_write(p.a.ep, out.data(), out.size(), nullptr, p.b_at_a, 0, 1, mark(7)) == 0);
	uint64_t one = 1;
	REQUIRE(fi_atomic(p.a.ep, &one, 1, nullptr, p.b_at_a, 0, 1, FI_UINT64, FI_SUM, mark(8)) == 0);
	(receiver_first ? p.b : p.a).close_endpoint();
	Node &rest = receiver_first ? p.a : p.b;
	if (receiver_first) {
		for (int i = 0; i < 4; ++i)
			next(rest); // each operation ends, one way or the other
	} else {
		const Event e = next(rest); // the directed receive
		CHECK(e.entry.op_context == mark(2));
	}
	CHECK(silent(rest));
}

} // namespace

TEST_CASE("an endpoint is closed with receives posted and with traffic under way") { close_with_traffic(true); }

TEST_CASE("an endpoint is closed whose large messages are being received") { close_with_traffic(false); }

TEST_CASE("a peer that has closed its endpoint")
{
	Pair p;
	Node other;
	const fi_addr_t a_at_other = other.insert(p.a);
	uint64_t value = 0, memory_of_b = 0, out = 5;
	Memory memory(p.b, &memory_of_b, 8, 1);
	REQUIRE(fi_write(p.a.ep, &out, 8, nullptr, p.b_at_a, 0, 1, mark(1)) == 0);
	CHECK(next(p.a).error == 0);
	REQUIRE(fi_trecv(p.a.ep, &value, 8, nullptr, p.b_at_a, 1, 0, mark(2)) == 0);
	uint64_t any = 0;
	REQUIRE(fi_trecv(p.a.ep, &any, 8, nullptr, FI_ADDR_UNSPEC, 2, 0, mark(3)) == 0);
	p.b.close_endpoint();
	const Event e = next(p.a);
	CHECK(e.entry.op_context == mark(2));
	CHECK(gone(e.error));
	char text[200] = "";
	CHECK(std::string(fi_cq_strerror(p.a.cq, e.details.prov_errno, nullptr, text, sizeof text)).size() > 3);
	// From now on each operation fails, at once or later.
	const auto fails = [&](ssize_t error) { return error ? gone(int(-error)) : gone(next(p.a).error); };
	CHECK(fails(fi_tsend(p.a.ep, &out, 8, nullptr, p.b_at_a, 1, mark(4))));
	CHECK(fails(fi_send(p.a.ep, &out, 8, nullptr, p.b_at_a, mark(4))));
	CHECK(fails(fi_trecv(p.a.ep, &value, 8, nullptr, p.b_at_a, 1, 0, mark(5))));
	CHECK(fails(fi_write(p.a.ep, &out, 8, nullptr, p.b_at_a, 0, 1, mark(6))));
	CHECK(fails(fi_read(p.a.ep, &out, 8, nullptr, p.b_at_a, 0, 2, mark(6))));
	CHECK(fails(fi_atomic(p.a.ep, &out, 1, nullptr, p.b_at_a, 0, 1, FI_UINT64, FI_SUM, mark(7))));
	CHECK(gone(int(-fi_tinject(p.a.ep, &out, 8, p.b_at_a, 1))));
	// Others are not concerned.
	REQUIRE(fi_tinject(other.ep, &out, 8, a_at_other, 2) == 0);
	const Event last = next(p.a);
	CHECK(last.error == 0);
	CHECK(last.entry.op_context == mark(3));
	CHECK(any == 5);
}

TEST_CASE("an endpoint that is opened again where another one was")
{
	Node a;
	sockaddr_in where{};
	for (int i = 0; i < 4; ++i) {
		Options o;
		auto domain = std::make_shared<Domain>(o);
		if (i) {
			fi_info &info = *domain->info;
			std::free(info.src_addr);
			info.src_addr = std::malloc(sizeof where);
			std::memcpy(info.src_addr, &where, sizeof where);
			info.src_addrlen = sizeof where;
		}
		Node b(o, domain);
		if (i)
			CHECK(b.address.sin_port == where.sin_port);
		where = b.address;
		fi_addr_t to_b = a.insert(b);
		uint32_t in = 0, out = 3;
		REQUIRE(fi_trecv(b.ep, &in, 4, nullptr, FI_ADDR_UNSPEC, 1, 0, mark(1)) == 0);
		CHECK(fi_tinject(a.ep, &out, 4, to_b, 1) == 0);
		CHECK(next(b).error == 0);
		CHECK(in == 3);
		REQUIRE(fi_av_remove(a.av, &to_b, 1, 0) == 0);
	}
}

TEST_CASE("open and close: nothing is left behind")
{
	size_t before = 0;
	for (int i = 0; i < 30; ++i) {
		Options o;
		if (i % 3 == 1) {
			o.wait = FI_WAIT_FD;
			o.counters = true;
		}
		if (i % 3 == 2)
			o.progress = FI_PROGRESS_AUTO;
		{
			Pair p(o);
			uint32_t in = 0, out = 3;
			Memory memory(p.b, &in, 4, 1);
			REQUIRE(fi_write(p.a.ep, &out, 4, nullptr, p.b_at_a, 0, 1, mark(1)) == 0);
			CHECK(next(p.a).error == 0);
			REQUIRE(fi_trecv(p.b.ep, &in, 4, nullptr, FI_ADDR_UNSPEC, 1, 0, mark(1)) == 0);
			if (i % 2) {
				REQUIRE(fi_tinject(p.a.ep, &out, 4, p.b_at_a, 1) == 0);
				CHECK(next(p.b).error == 0);
			}
		}
		if (i == 5)
			before = descriptors();
	}
	CHECK(descriptors() <= before);
}
