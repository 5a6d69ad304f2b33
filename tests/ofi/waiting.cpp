// SPDX-License-Identifier: BSD-3-Clause
// Counters, and waiting for counters and queues: with time limits, with descriptors, and woken by others.
#include "tests/ofi/fixture.hpp"

#include <atomic>

#include <poll.h>

using namespace fi_test;

namespace {

using Clock = std::chrono::steady_clock;

int64_t ms_since(Clock::time_point begin)
{
	return std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - begin).count();
}

bool readable(int fd, int timeout)
{
	pollfd p{fd, POLLIN, 0};
	return poll(&p, 1, timeout) == 1;
}

Options waiting()
{
	Options o;
	o.wait = FI_WAIT_FD;
	o.threading = FI_THREAD_SAFE;
	return o;
}

} // namespace

TEST_CASE("counters of all kinds of operations")
{
	Options o;
	o.counters = true;
	Pair p(o);
	uint64_t in = 0, in2 = 0, out = 5, memory_of_b[2] = {}, sum = 1;
	Memory memory(p.b, memory_of_b, 16, 1);
	REQUIRE(fi_trecv(p.b.ep, &in, 8, nullptr, FI_ADDR_UNSPEC, 1, 0, mark(1)) == 0);
	REQUIRE(fi_recv(p.b.ep, &in2, 8, nullptr, FI_ADDR_UNSPEC, mark(1)) == 0);
	REQUIRE(fi_tsend(p.a.ep, &out, 8, nullptr, p.b_at_a, 1, mark(2)) == 0);
	REQUIRE(fi_inject(p.a.ep, &out, 8, p.b_at_a) == 0);
	REQUIRE(fi_write(p.a.ep, &out, 8, nullptr, p.b_at_a, 0, 1, mark(3)) == 0);
	REQUIRE(fi_inject_write(p.a.ep, &out, 8, p.b_at_a, 0, 1) == 0);
	REQUIRE(fi_atomic(p.a.ep, &sum, 1, nullptr, p.b_at_a, 8, 1, FI_UINT64, FI_SUM, mark(3)) == 0);
	REQUIRE(fi_read(p.a.ep, &in, 8, nullptr, p.b_at_a, 0, 1, mark(4)) == 0);
	CHECK(drive([&] {
		return fi_cntr_read(p.a.sends) == 2 && fi_cntr_read(p.a.writes) == 3 && fi_cntr_read(p.a.reads) == 1 &&
		       fi_cntr_read(p.b.receives) == 2;
	}));
	CHECK(fi_cntr_read(p.b.sends) == 0);
	CHECK(fi_cntr_read(p.b.writes) == 0);
	REQUIRE(fi_write(p.a.ep, &out, 8, nullptr, p.b_at_a, 0, 99, mark(3)) == 0);
	CHECK(drive([&] { return fi_cntr_readerr(p.a.writes) == 1; }));
	CHECK(fi_cntr_read(p.a.writes) == 3);
}

TEST_CASE("counters that are bound to an endpoint which is enabled already")
{
	for (const fi_progress progress : {FI_PROGRESS_MANUAL, FI_PROGRESS_AUTO}) {
		Options o;
		o.progress = progress;
		Pair p(o);
		fi_cntr_attr attr{};
		attr.events = FI_CNTR_EVENTS_COMP;
		fid_cntr *writes = nullptr;
		REQUIRE(fi_cntr_open(p.a.domain->domain, &attr, &writes, nullptr) == 0);
		REQUIRE(fi_ep_bind(p.a.ep, &writes->fid, FI_WRITE) == 0);
		uint64_t place = 0, out = 5;
		Memory memory(p.b, &place, 8, 1);
		REQUIRE(fi_inject_write(p.a.ep, &out, 8, p.b_at_a, 0, 1) == 0);
		CHECK(drive([&] { return fi_cntr_read(writes) == 1; }));
		CHECK(place == 5);
		CHECK(fi_close(&writes->fid) == -FI_EBUSY);
		p.a.close_endpoint();
		CHECK(fi_close(&writes->fid) == 0);
	}
}

TEST_CASE("counters are set, added to, and waited for")
{
	Options o;
	o.counters = true;
	Pair p(o);
	fid_cntr *c = p.a.sends;
	CHECK(fi_cntr_set(c, 10) == 0);
	CHECK(fi_cntr_add(c, 5) == 0);
	CHECK(fi_cntr_read(c) == 15);
	CHECK(fi_cntr_seterr(c, 2) == 0);
	CHECK(fi_cntr_adderr(c, 2) == 0);
	CHECK(fi_cntr_readerr(c) == 4);
	CHECK(fi_cntr_wait(c, 15, 0) == 0);
	CHECK(fi_cntr_wait(c, 15, -1) == 0);
	const auto begin = Clock::now();
	CHECK(fi_cntr_wait(c, 16, 100) == -FI_ETIMEDOUT);
	CHECK(ms_since(begin) >= 99);
	uint64_t in = 0, out = 1;
	REQUIRE(fi_trecv(p.b.ep, &in, 8, nullptr, FI_ADDR_UNSPEC, 1, 0, mark(1)) == 0);
	REQUIRE(fi_tsend(p.a.ep, &out, 8, nullptr, p.b_at_a, 1, mark(2)) == 0);
	CHECK(fi_cntr_wait(c, 16, 10000) == 0);
	CHECK(fi_cntr_wait(p.b.receives, 1, 10000) == 0);
}

TEST_CASE("a wait for a counter ends when an error is counted, or when another thread adds to it")
{
	for (const fi_wait_obj wait : {FI_WAIT_NONE, FI_WAIT_FD}) {
		Options o = waiting();
		o.counters = true;
		o.wait = wait;
		Node n(o);
		std::thread adds([&] {
			std::this_thread::sleep_for(std::chrono::milliseconds(100));
			fi_cntr_add(n.sends, 3);
		});
		CHECK(fi_cntr_wait(n.sends, 3, 20000) == 0);
		adds.join();
		std::thread fails([&] {
			std::this_thread::sleep_for(std::chrono::milliseconds(100));
			fi_cntr_adderr(n.sends, 1);
		});
		CHECK(fi_cntr_wait(n.sends, 4, 20000) == -FI_EAVAIL);
		fails.join();
	}
}

TEST_CASE("a wait for a counter ends at once when an operation has failed before it and nobody has asked")
{
	Options o;
	o.counters = true;
	Pair p(o);
	const uint64_t out = 5;
	REQUIRE(fi_write(p.a.ep, &out, 8, nullptr, p.b_at_a, 0, 99, mark(1)) == 0); // b has no such memory
	CHECK(next(p.a).error != 0);
	CHECK(fi_cntr_wait(p.a.writes, 1, 20000) == -FI_EAVAIL);
	CHECK(fi_cntr_wait(p.a.writes, 1, 20) == -FI_ETIMEDOUT); // it has been told
	CHECK(fi_cntr_adderr(p.a.writes, 1) == 0);
	CHECK(fi_cntr_readerr(p.a.writes) == 2);
	CHECK(fi_cntr_wait(p.a.writes, 1, 20) == -FI_ETIMEDOUT);
	CHECK(fi_cntr_seterr(p.a.writes, 0) == 0);
	CHECK(fi_cntr_wait(p.a.writes, 1, 20) == -FI_ETIMEDOUT);
}

TEST_CASE("fi_cq_sread: time limits, completions, and fi_cq_signal")
{
	Pair p(waiting());
	p.b.asleep = true;
	fi_cq_tagged_entry e;
	auto begin = Clock::now();
	CHECK(fi_cq_sread(p.b.cq, &e, 1, nullptr, 0) == -FI_EAGAIN);
	CHECK(fi_cq_sread(p.b.cq, &e, 1, nullptr, 100) == -FI_EAGAIN);
	CHECK(ms_since(begin) >= 99);
	uint32_t in = 0, out = 4;
	REQUIRE(fi_trecv(p.b.ep, &in, 4, nullptr, p.a_at_b, 1, 0, mark(1)) == 0);
	std::thread sender([&] {
		std::this_thread::sleep_for(std::chrono::milliseconds(50));
		fi_tinject(p.a.ep, &out, 4, p.b_at_a, 1);
	});
	fi_addr_t source = 0;
	CHECK(fi_cq_sreadfrom(p.b.cq, &e, 1, &source, nullptr, 20000) == 1);
	sender.join();
	CHECK(in == 4);
	CHECK(source == p.a_at_b);
	for (int i = 0; i < 2; ++i) { // before the wait, and during it
		std::thread waker([&] {
			if (i)
				std::this_thread::sleep_for(std::chrono::milliseconds(100));
			fi_cq_signal(p.b.cq);
		});
		if (!i)
			waker.join();
		begin = Clock::now();
		CHECK(fi_cq_sread(p.b.cq, &e, 1, nullptr, 20000) == -FI_EAGAIN);
		CHECK(ms_since(begin) < 10000);
		if (i)
			waker.join();
	}
	begin = Clock::now(); // a signal ends one wait only
	CHECK(fi_cq_sread(p.b.cq, &e, 1, nullptr, 50) == -FI_EAGAIN);
	CHECK(ms_since(begin) >= 49);
	Node plain;
	CHECK(fi_cq_sread(plain.cq, &e, 1, nullptr, 0) == -FI_ENOSYS);
	CHECK(fi_cq_signal(plain.cq) == -FI_ENOSYS);
}

TEST_CASE("fi_trywait and the descriptor of a queue")
{
	Pair p(waiting());
	p.b.asleep = true;
	int fd = -1;
	REQUIRE(fi_control(&p.b.cq->fid, FI_GETWAIT, &fd) == 0);
	REQUIRE(fd >= 0);
	fid *object = &p.b.cq->fid;
	uint32_t in = 0, out = 4;
	fi_cq_tagged_entry e;
	for (int i = 0; i < 20; ++i) {
		REQUIRE(fi_trywait(p.b.domain->fabric, &object, 1) == 0);
		CHECK(!readable(fd, 0));
		REQUIRE(fi_trecv(p.b.ep, &in, 4, nullptr, FI_ADDR_UNSPEC, 1, 0, mark(1)) == 0);
		REQUIRE(fi_tinject(p.a.ep, &out, 4, p.b_at_a, 1) == 0);
		REQUIRE(readable(fd, 20000));
		CHECK(fi_trywait(p.b.domain->fabric, &object, 1) == -FI_EAGAIN);
		REQUIRE(fi_cq_read(p.b.cq, &e, 1) == 1);
	}
	REQUIRE(fi_trywait(p.b.domain->fabric, &object, 1) == 0);
	REQUIRE(fi_cq_signal(p.b.cq) == 0);
	CHECK(readable(fd, 1000));
	CHECK(fi_trywait(p.b.domain->fabric, &object, 1) == -FI_EAGAIN);
	CHECK(fi_cq_read(p.b.cq, &e, 1) == -FI_EAGAIN);
	CHECK(fi_trywait(p.b.domain->fabric, &object, 1) == 0);
	CHECK(!readable(fd, 0));
	Node plain;
	object = &plain.cq->fid;
	CHECK(fi_control(object, FI_GETWAIT, &fd) == -FI_ENOSYS);
}

TEST_CASE("the descriptor of a queue is not readable once all completions have been read")
{
	Pair p(waiting());
	int fd = -1;
	REQUIRE(fi_control(&p.b.cq->fid, FI_GETWAIT, &fd) == 0);
	for (uint64_t round = 0; round < 3; ++round) {
		uint64_t in = 0;
		REQUIRE(fi_trecv(p.b.ep, &in, 8, nullptr, FI_ADDR_UNSPEC, 1, 0, mark(1)) == 0);
		REQUIRE(fi_tinject(p.a.ep, &round, 8, p.b_at_a, 1) == 0);
		CHECK(readable(fd, 5000));
		fi_cq_tagged_entry entry;
		CHECK(fi_cq_read(p.b.cq, &entry, 1) == 1);
		CHECK(fi_cq_read(p.b.cq, &entry, 1) == -FI_EAGAIN);
		CHECK(!readable(fd, 0));
		CHECK(in == round);
	}
}

TEST_CASE("the descriptor of a counter")
{
	Options o = waiting();
	o.counters = true;
	Pair p(o);
	p.b.asleep = true;
	int fd = -1;
	REQUIRE(fi_control(&p.b.receives->fid, FI_GETWAIT, &fd) == 0);
	fid *object = &p.b.receives->fid;
	REQUIRE(fi_trywait(p.b.domain->fabric, &object, 1) == 0);
	CHECK(!readable(fd, 0));
	uint32_t in = 0, out = 4;
	REQUIRE(fi_trecv(p.b.ep, &in, 4, nullptr, FI_ADDR_UNSPEC, 1, 0, mark(1)) == 0);
	REQUIRE(fi_tinject(p.a.ep, &out, 4, p.b_at_a, 1) == 0);
	REQUIRE(readable(fd, 20000));
	CHECK(fi_trywait(p.b.domain->fabric, &object, 1) == -FI_EAGAIN);
	CHECK(fi_cntr_read(p.b.receives) == 1);
	CHECK(fi_trywait(p.b.domain->fabric, &object, 1) == 0);
}

TEST_CASE("poll sets")
{
	Options o;
	o.counters = true;
	Pair p(o);
	p.b.asleep = true;
	fid_poll *set = nullptr;
	fi_poll_attr attr{};
	REQUIRE(fi_poll_open(p.b.domain->domain, &attr, &set) == 0);
	p.b.cq->fid.context = mark(1);
	p.b.receives->fid.context = mark(2);
	REQUIRE(fi_poll_add(set, &p.b.cq->fid, 0) == 0);
	REQUIRE(fi_poll_add(set, &p.b.receives->fid, 0) == 0);
	CHECK(fi_poll_add(set, &p.b.ep->fid, 0) == -FI_EINVAL);
	void *ready[4] = {};
	CHECK(fi_poll(set, ready, 4) == 0);
	uint32_t in = 0, out = 4;
	REQUIRE(fi_trecv(p.b.ep, &in, 4, nullptr, FI_ADDR_UNSPEC, 1, 0, mark(1)) == 0);
	REQUIRE(fi_tinject(p.a.ep, &out, 4, p.b_at_a, 1) == 0);
	CHECK(drive([&] { return fi_poll(set, ready, 4) == 2; }));
	CHECK(ready[0] == mark(1));
	CHECK(ready[1] == mark(2));
	CHECK(fi_poll_del(set, &p.b.cq->fid, 0) == 0);
	CHECK(fi_poll(set, ready, 4) == 0);
	CHECK(fi_close(&set->fid) == 0);
}

TEST_CASE("FI_PROGRESS_AUTO: what peers want from a program that makes no calls")
{
	Options automatic;
	automatic.progress = FI_PROGRESS_AUTO;
	automatic.threading = FI_THREAD_SAFE;
	Pair p({}, automatic);
	Bytes of_b = pattern(3000000, 1), in(3000000), out = pattern(3000000, 2), large(3000000);
	uint64_t value[2] = {}, one = 1;
	Memory memory(p.b, of_b.data(), of_b.size(), 1), values(p.b, value, sizeof value, 2);
	p.b.asleep = true;
	REQUIRE(fi_read(p.a.ep, in.data(), in.size(), nullptr, p.b_at_a, 0, 1, mark(1)) == 0);
	CHECK(next(p.a).error == 0);
	CHECK((in == of_b));
	REQUIRE(fi_atomic(p.a.ep, &one, 1, nullptr, p.b_at_a, 8, 2, FI_UINT64, FI_SUM, mark(1)) == 0);
	CHECK(next(p.a).error == 0);
	REQUIRE(fi_trecv(p.b.ep, large.data(), large.size(), nullptr, FI_ADDR_UNSPEC, 1, 0, mark(1)) == 0);
	REQUIRE(fi_tsend(p.a.ep, out.data(), out.size(), nullptr, p.b_at_a, 1, mark(2)) == 0);
	CHECK(next(p.a).error == 0);
	REQUIRE(fi_tsend(p.b.ep, out.data(), out.size(), nullptr, p.a_at_b, 1, mark(3)) == 0);
	REQUIRE(fi_trecv(p.a.ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, 1, 0, mark(1)) == 0);
	CHECK(next(p.a).error == 0);
	CHECK((in == out));
	p.b.asleep = false;
	CHECK(next(p.b).error == 0);
	CHECK(next(p.b).error == 0);
	CHECK((large == out));
	CHECK(value[1] == 1);
}
