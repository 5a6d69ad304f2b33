// SPDX-License-Identifier: BSD-3-Clause
// Address vectors.
#include "tests/ofi/fixture.hpp"

#include <arpa/inet.h>

using namespace fi_test;

namespace {

sockaddr_in made_up(uint16_t port)
{
	sockaddr_in a{};
	a.sin_family = AF_INET;
	a.sin_port = htons(port);
	a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	return a;
}

bool holds(Node &n, fi_addr_t number, const sockaddr_in &wanted)
{
	sockaddr_in found{};
	size_t length = sizeof found;
	return fi_av_lookup(n.av, number, &found, &length) == 0 && length == sizeof found &&
	       found.sin_port == wanted.sin_port && found.sin_addr.s_addr == wanted.sin_addr.s_addr;
}

// A message from one to the other; the receive names the source as the receiver's vector does.
int carry(Node &from, fi_addr_t to, Node &at, Event *event = nullptr, fi_addr_t source = FI_ADDR_UNSPEC)
{
	uint32_t in = 0, out = 8;
	REQUIRE(fi_trecv(at.ep, &in, 4, nullptr, source, 1, 0, mark(1)) == 0);
	if (const auto error = fi_tinject(from.ep, &out, 4, to, 1)) {
		REQUIRE(fi_cancel(&at.ep->fid, mark(1)) == 0);
		next(at);
		return int(error);
	}
	const Event e = next(at);
	CHECK(in == 8);
	if (event)
		*event = e;
	return e.error;
}

} // namespace

TEST_CASE("a table numbers addresses from 0 on")
{
	Options o;
	o.av_type = FI_AV_TABLE;
	Node n(o), other;
	const sockaddr_in three[] = {made_up(1001), made_up(1002), other.address};
	REQUIRE(fi_av_insert(n.av, three, 3, nullptr, 0, nullptr) == 3);
	for (fi_addr_t i = 0; i < 3; ++i)
		CHECK(holds(n, i, three[i]));
	CHECK(carry(n, 2, other) == 0);
	CHECK(n.insert(made_up(1004)) == 3);
	sockaddr_in found;
	size_t length = 5;
	CHECK(fi_av_lookup(n.av, 4, &found, &length) == -FI_EINVAL);
	CHECK(fi_av_lookup(n.av, 3, &found, &length) == -FI_ETOOSMALL);
	CHECK(length == sizeof found);
	fi_addr_t gone = 1;
	REQUIRE(fi_av_remove(n.av, &gone, 1, 0) == 0);
	CHECK(!holds(n, 1, three[1]));
	CHECK(holds(n, 2, three[2]));
	CHECK(fi_av_remove(n.av, &gone, 1, 0) == -FI_EINVAL);
}

TEST_CASE("removed and inserted again")
{
	for (const fi_av_type type : {FI_AV_MAP, FI_AV_TABLE}) {
		Options o;
		o.av_type = type;
		Node a(o), b, c;
		fi_addr_t to_b = a.insert(b);
		CHECK(carry(a, to_b, b) == 0);
		for (int i = 0; i < 5; ++i) {
			REQUIRE(fi_av_remove(a.av, &to_b, 1, 0) == 0);
			CHECK(carry(a, to_b, b) == -FI_EINVAL);
			fi_addr_t to_c = a.insert(c); // perhaps with the number that b had
			CHECK(carry(a, to_c, c) == 0);
			to_b = a.insert(b);
			CHECK(to_b != to_c);
			CHECK(carry(a, to_b, b) == 0);
			REQUIRE(fi_av_remove(a.av, &to_c, 1, 0) == 0);
		}
	}
}

TEST_CASE("two numbers for one address: both lead there")
{
	Node a, b;
	fi_addr_t first = a.insert(b);
	const fi_addr_t second = a.insert(b);
	CHECK(carry(a, first, b) == 0);
	CHECK(carry(a, second, b) == 0);
	if (first != second) {
		REQUIRE(fi_av_remove(a.av, &first, 1, 0) == 0);
		CHECK(carry(a, second, b) == 0);
	}
	// What b sends is from an address that a still has.
	const fi_addr_t to_a = b.insert(a);
	Event e;
	CHECK(carry(b, to_a, a, &e) == 0);
	CHECK(e.source == second);
}

TEST_CASE("one vector for two endpoints")
{
	Node a, b;
	fid_ep *ep = nullptr;
	fid_domain *d = a.domain->domain;
	REQUIRE(fi_endpoint(d, a.domain->info.get(), &ep, nullptr) == 0);
	REQUIRE(fi_ep_bind(ep, &a.av->fid, 0) == 0);
	REQUIRE(fi_ep_bind(ep, &a.cq->fid, FI_TRANSMIT | FI_RECV) == 0);
	REQUIRE(fi_enable(ep) == 0);
	const fi_addr_t to_b = a.insert(b);
	CHECK(carry(a, to_b, b) == 0);
	uint32_t in = 0, out = 3;
	REQUIRE(fi_trecv(b.ep, &in, 4, nullptr, FI_ADDR_UNSPEC, 1, 0, mark(1)) == 0);
	REQUIRE(fi_tinject(ep, &out, 4, to_b, 1) == 0);
	CHECK(next(b).error == 0);
	CHECK(in == 3);
	CHECK(fi_close(&a.av->fid) == -FI_EBUSY);
	CHECK(fi_close(&ep->fid) == 0);
}

TEST_CASE("addresses as text, and from text")
{
	Node a, b;
	char text[64];
	size_t length = sizeof text;
	const sockaddr_in where = made_up(4711);
	CHECK(std::string(fi_av_straddr(a.av, &where, text, &length)).find("127.0.0.1:4711") != std::string::npos);
	CHECK(length == std::strlen(text) + 1);
	size_t small = 5;
	char cut[8] = "zzzzzzz";
	fi_av_straddr(a.av, &where, cut, &small);
	CHECK(small == length);
	CHECK(cut[4] == 0);
	CHECK(cut[5] == 'z');
	fi_addr_t number = FI_ADDR_NOTAVAIL;
	const std::string port = std::to_string(ntohs(b.address.sin_port));
	char host[64];
	inet_ntop(AF_INET, &b.address.sin_addr, host, sizeof host);
	REQUIRE(fi_av_insertsvc(a.av, host, port.c_str(), &number, 0, nullptr) == 1);
	CHECK(holds(a, number, b.address));
	CHECK(carry(a, number, b) == 0);
	CHECK(fi_av_insertsvc(a.av, "no.such.host.invalid", "1", &number, 0, nullptr) < 0);
	CHECK(fi_av_insertsvc(a.av, nullptr, "1", &number, 0, nullptr) == -FI_EINVAL);
	fi_addr_t three[3];
	REQUIRE(fi_av_insertsym(a.av, "127.0.0.1", 1, "2000", 3, three, 0, nullptr) == 3);
	for (uint16_t i = 0; i < 3; ++i)
		CHECK(holds(a, three[i], made_up(uint16_t(2000 + i))));
}

TEST_CASE("bad addresses: which one of several is told")
{
	Node a;
	sockaddr_in three[] = {made_up(1), made_up(2), made_up(3)};
	three[1].sin_family = AF_INET6;
	fi_addr_t numbers[3] = {};
	int errors[3] = {9, 9, 9};
	CHECK(fi_av_insert(a.av, three, 3, numbers, FI_SYNC_ERR, errors) == 2);
	CHECK(errors[0] == 0);
	CHECK(errors[1] == FI_EINVAL);
	CHECK(errors[2] == 0);
	CHECK(numbers[1] == FI_ADDR_NOTAVAIL);
	CHECK(holds(a, numbers[0], three[0]));
	CHECK(holds(a, numbers[2], three[2]));
	CHECK(fi_av_insert(a.av, three, 1, numbers, FI_COMPLETION, nullptr) == -FI_EBADFLAGS);
	// Nobody listens there.
	uint32_t value = 0;
	const auto begin = std::chrono::steady_clock::now();
	const fi_addr_t nobody = a.insert(made_up(1));
	CHECK(fi_tinject(a.ep, &value, 4, nobody, 1) == -FI_EHOSTUNREACH);
	CHECK(fi_tsend(a.ep, &value, 4, nullptr, nobody, 1, nullptr) == -FI_EHOSTUNREACH);
	CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(10));
	CHECK(silent(a));
}

TEST_CASE("FI_AV_USER_ID: completions name the program's ids")
{
	Options o;
	o.av_flags = FI_AV_USER_ID;
	Node a(o), b;
	fi_addr_t to_b = 0xabcdef; // in: the id; out: the number
	REQUIRE(fi_av_insert(a.av, &b.address, 1, &to_b, 0, nullptr) == 1);
	const fi_addr_t to_a = b.insert(a);
	CHECK(carry(a, to_b, b) == 0);
	Event e;
	CHECK(carry(b, to_a, a, &e) == 0);
	CHECK(e.source == 0xabcdef);
	Node c, d;
	fi_addr_t to_d = 77;
	REQUIRE(fi_av_insert(c.av, &d.address, 1, &to_d, FI_AV_USER_ID, nullptr) == 1);
	const fi_addr_t to_c = d.insert(c);
	CHECK(carry(c, to_d, d) == 0);
	CHECK(carry(d, to_c, c, &e) == 0);
	CHECK(e.source == 77);
}

TEST_CASE("insertions are told by an event queue")
{
	Node n;
	fid_eq *eq = nullptr;
	fi_eq_attr attr{};
	attr.wait_obj = FI_WAIT_UNSPEC;
	attr.flags = FI_WRITE;
	REQUIRE(fi_eq_open(n.domain->fabric, &attr, &eq, nullptr) == 0);
	fi_av_attr av_attr{};
	av_attr.flags = FI_EVENT;
	fid_av *av = nullptr;
	REQUIRE(fi_av_open(n.domain->domain, &av_attr, &av, nullptr) == 0);
	CHECK(av_attr.type != FI_AV_UNSPEC);
	REQUIRE(fi_av_bind(av, &eq->fid, 0) == 0);
	CHECK(fi_close(&eq->fid) == -FI_EBUSY);
	uint32_t event = 0;
	fi_eq_entry entry{};
	CHECK(fi_eq_sread(eq, &event, &entry, sizeof entry, 20, 0) == -FI_EAGAIN);
	sockaddr_in three[] = {made_up(1), made_up(0), made_up(3)};
	three[1].sin_family = 0;
	fi_addr_t numbers[3] = {};
	REQUIRE(fi_av_insert(av, three, 3, numbers, 0, mark(7)) == 0);
	CHECK(fi_eq_sread(eq, &event, &entry, sizeof entry, 1000, 0) == -FI_EAVAIL);
	fi_eq_err_entry error{};
	REQUIRE(fi_eq_readerr(eq, &error, 0) == sizeof error);
	CHECK(error.fid == &av->fid);
	CHECK(error.context == mark(7));
	CHECK(error.data == 1);
	CHECK(error.err == FI_EINVAL);
	CHECK(fi_eq_read(eq, &event, &entry, 1, 0) == -FI_ETOOSMALL);
	for (const uint64_t flags : {uint64_t{FI_PEEK}, uint64_t{0}}) {
		REQUIRE(fi_eq_sread(eq, &event, &entry, sizeof entry, 1000, flags) == sizeof entry);
		CHECK(event == FI_AV_COMPLETE);
		CHECK(entry.fid == &av->fid);
		CHECK(entry.context == mark(7));
		CHECK(entry.data == 2);
	}
	CHECK(fi_eq_read(eq, &event, &entry, sizeof entry, 0) == -FI_EAGAIN);
	// Events of the program's own.
	uint64_t own = 5;
	REQUIRE(fi_eq_write(eq, 1234, &own, sizeof own, 0) == sizeof own);
	uint64_t got = 0;
	REQUIRE(fi_eq_read(eq, &event, &got, sizeof got, 0) == sizeof got);
	CHECK(event == 1234);
	CHECK(got == 5);
	CHECK(fi_close(&av->fid) == 0);
	CHECK(fi_close(&eq->fid) == 0);
}
