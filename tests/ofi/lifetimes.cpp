// SPDX-License-Identifier: BSD-3-Clause
// Objects that are closed: in use, with traffic under way, again and again, and what peers see of it.
#include "tests/ofi/fixture.hpp"

#include <filesystem>
#include <fstream>

using namespace fi_test;

namespace {

size_t entries_of(const char *folder)
{
	size_t n = 0;
	for ([[maybe_unused]] const auto &entry : std::filesystem::directory_iterator(folder))
		++n;
	return n;
}

size_t resident_kib()
{
	std::ifstream statm("/proc/self/statm");
	size_t pages = 0, resident = 0;
	statm >> pages >> resident;
	return resident * 4;
}

// What a process holds.
struct Held {
	size_t descriptors = entries_of("/proc/self/fd"), threads = entries_of("/proc/self/task"), kib = resident_kib();
};

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

TEST_CASE("each kind of object keeps its domain and fabric open")
{
	Options o;
	Domain d(o);
	const auto refused = [&] {
		return fi_close(&d.domain->fid) == -FI_EBUSY && fi_close(&d.domain->fid) == -FI_EBUSY &&
		       fi_close(&d.fabric->fid) == -FI_EBUSY;
	};
	fid_cq *cq = nullptr;
	REQUIRE(fi_cq_open(d.domain, nullptr, &cq, nullptr) == 0);
	CHECK(refused());
	CHECK(fi_close(&cq->fid) == 0);
	fid_cntr *counter = nullptr;
	fi_cntr_attr counter_attr{};
	REQUIRE(fi_cntr_open(d.domain, &counter_attr, &counter, nullptr) == 0);
	CHECK(refused());
	CHECK(fi_close(&counter->fid) == 0);
	fid_poll *set = nullptr;
	fi_poll_attr set_attr{};
	REQUIRE(fi_poll_open(d.domain, &set_attr, &set) == 0);
	CHECK(refused());
	CHECK(fi_close(&set->fid) == 0);
	// An event queue belongs to the fabric; a vector that is bound to it keeps it open.
	fid_eq *eq = nullptr;
	fi_eq_attr eq_attr{};
	REQUIRE(fi_eq_open(d.fabric, &eq_attr, &eq, nullptr) == 0);
	fid_av *av = nullptr;
	fi_av_attr av_attr{};
	av_attr.flags = FI_EVENT;
	REQUIRE(fi_av_open(d.domain, &av_attr, &av, nullptr) == 0);
	REQUIRE(fi_av_bind(av, &eq->fid, 0) == 0);
	CHECK(refused());
	CHECK(fi_close(&eq->fid) == -FI_EBUSY);
	CHECK(fi_close(&av->fid) == 0);
	CHECK(fi_close(&d.fabric->fid) == -FI_EBUSY);
	CHECK(fi_close(&eq->fid) == 0);
	// An endpoint that was never enabled, with nothing bound to it.
	fid_ep *ep = nullptr;
	REQUIRE(fi_endpoint(d.domain, d.info.get(), &ep, nullptr) == 0);
	CHECK(refused());
	CHECK(fi_close(&ep->fid) == 0);
}

TEST_CASE("queues and counters in a poll set are not closed")
{
	Domain d{Options{}};
	fid_cq *cq = nullptr;
	REQUIRE(fi_cq_open(d.domain, nullptr, &cq, nullptr) == 0);
	fid_cntr *counter = nullptr;
	fi_cntr_attr counter_attr{};
	REQUIRE(fi_cntr_open(d.domain, &counter_attr, &counter, nullptr) == 0);
	fid_poll *set = nullptr;
	fi_poll_attr set_attr{};
	REQUIRE(fi_poll_open(d.domain, &set_attr, &set) == 0);
	REQUIRE(fi_poll_add(set, &cq->fid, 0) == 0);
	REQUIRE(fi_poll_add(set, &counter->fid, 0) == 0);
	CHECK(fi_close(&cq->fid) == -FI_EBUSY);
	CHECK(fi_close(&counter->fid) == -FI_EBUSY);
	void *contexts[2];
	CHECK(fi_poll(set, contexts, 2) == 0);
	CHECK(fi_poll_del(set, &cq->fid, 0) == 0);
	CHECK(fi_close(&cq->fid) == 0);
	CHECK(fi_close(&counter->fid) == -FI_EBUSY);
	CHECK(fi_close(&set->fid) == 0);
	CHECK(fi_close(&counter->fid) == 0);
}

TEST_CASE("memory outlives an endpoint that a peer has just asked for it")
{
	for (const bool known : {false, true}) {
		Pair p;
		uint64_t place = 0, out = 5;
		Memory memory(p.b, &place, 8, 1);
		REQUIRE(fi_tinject(p.a.ep, &out, 8, p.b_at_a, 1) == 0); // the endpoints have met
		REQUIRE(fi_trecv(p.b.ep, &place, 8, nullptr, FI_ADDR_UNSPEC, 1, 0, mark(1)) == 0);
		next(p.b);
		if (known) {
			REQUIRE(fi_write(p.a.ep, &out, 8, nullptr, p.b_at_a, 0, 1, mark(1)) == 0);
			CHECK(next(p.a).error == 0);
		}
		REQUIRE(fi_write(p.a.ep, &out, 8, nullptr, p.b_at_a, 0, 1, mark(2)) == 0);
		p.b.close_endpoint();
		memory.close();
		CHECK(next(p.a).entry.op_context == mark(2)); // one way or the other
	}
}

TEST_CASE("queues and counters outlive an endpoint that they are bound to more than once")
{
	Options o;
	o.caps |= FI_RMA_EVENT;
	Node n(o);
	fid_cq *cq = nullptr;
	fid_cntr *counter = nullptr;
	fid_ep *ep = nullptr;
	fi_cntr_attr attr{};
	REQUIRE(fi_cq_open(n.domain->domain, nullptr, &cq, nullptr) == 0);
	REQUIRE(fi_cntr_open(n.domain->domain, &attr, &counter, nullptr) == 0);
	REQUIRE(fi_endpoint(n.domain->domain, n.domain->info.get(), &ep, nullptr) == 0);
	REQUIRE(fi_ep_bind(ep, &n.av->fid, 0) == 0);
	sockaddr_in address;
	size_t length = sizeof address;
	REQUIRE(fi_getname(&ep->fid, &address, &length) == 0); // it has a context from now on
	uint64_t words[2];
	Memory first(n, words, 8, 1), second(n, words + 1, 8, 2);
	for (const Memory *memory : {&first, &second})
		REQUIRE(fi_mr_bind(memory->mr, &counter->fid, FI_REMOTE_WRITE) == 0);
	for (const uint64_t way : {FI_TRANSMIT, FI_RECV})
		REQUIRE(fi_ep_bind(ep, &cq->fid, way) == 0);
	for (const uint64_t kind : {FI_SEND, FI_RECV, FI_REMOTE_WRITE})
		REQUIRE(fi_ep_bind(ep, &counter->fid, kind) == 0);
	REQUIRE(fi_enable(ep) == 0);
	REQUIRE(fi_close(&ep->fid) == 0);
	n.close_endpoint();
	fi_cq_entry entry;
	CHECK(fi_cq_read(cq, &entry, 1) == -FI_EAGAIN);
	CHECK(fi_cntr_read(counter) == 0);
	CHECK(fi_close(&cq->fid) == 0);
	first.close();
	second.close();
	CHECK(fi_close(&counter->fid) == 0);
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
	Held before;
	for (int i = 0; i < 200; ++i) {
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
		if (i == 20)
			before = {};
	}
	const Held after;
	CHECK(after.descriptors <= before.descriptors);
	CHECK(after.threads <= before.threads);
#if !defined __SANITIZE_ADDRESS__ && !defined __SANITIZE_THREAD__ // which need memory of their own
	CHECK(after.kib < before.kib + 4096);
#endif
}
