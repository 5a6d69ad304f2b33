// Every way in which a work request fails: what each side is told, and that both sides work again after a reset.
#include <catch2/catch.hpp>

#include <chrono>
#include <cstring>
#include <string>

#include "softhca/softhca.h"
#include "tests/softhca/traffic.hpp"

namespace {

// The state is `error` at once, or soon: the other side may just be hearing of it.
void check_broken(Endpoint &end)
{
	const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
	while (end.state() != IBV_QPS_ERR && std::chrono::steady_clock::now() < until) {
		ibv_wc wc;
		REQUIRE(ibv_poll_cq(end.send_cq, 1, &wc) == 0);
	}
	CHECK(end.state() == IBV_QPS_ERR);
}

void check_alive(Device &device, Pair &pair)
{
	reconnect(pair.a, pair.b);
	exchange(device, pair.a, pair.b);
}

void empty(ibv_cq *cq)
{
	ibv_wc wc;
	CHECK(ibv_poll_cq(cq, 1, &wc) == 0);
}

Settings quick()
{
	Settings settings;
	settings.timeout = 8; // 1 ms
	settings.retries = 2;
	return settings;
}

} // namespace

TEST_CASE("a message that is longer than its receive fails on both sides")
{
	Device device;
	Memory memory(device.pd, 65536);
	// The first packet is too long already; only the last is; the last would have fitted into the memory, not the receive.
	for (auto [length, room] : {std::pair<size_t, size_t>{100, 99}, {5000, 4999}, {5000, 0}, {1, 0}}) {
		Pair pair(device);
		INFO(length << " into " << room);
		memory.clear();
		receive(pair.b.qp, {memory.piece(0, room)}, 1);
		receive(pair.b.qp, {memory.piece(20000, 10000)}, 2);
		send(pair.a.qp, memory.piece(32768, length), 3);
		send(pair.a.qp, memory.piece(32768, 1), 4);
		CHECK(expect(pair.a.send_cq, IBV_WC_REM_INV_REQ_ERR).wr_id == 3);
		CHECK(expect(pair.a.send_cq, IBV_WC_WR_FLUSH_ERR).wr_id == 4);
		CHECK(expect(pair.b.receive_cq, IBV_WC_LOC_LEN_ERR).wr_id == 1);
		CHECK(expect(pair.b.receive_cq, IBV_WC_WR_FLUSH_ERR).wr_id == 2);
		for (size_t i = room; i < 10000; ++i)
			REQUIRE(memory.at()[i] == 0);
		check_broken(pair.a);
		check_broken(pair.b);
		CHECK(no_event(device.context)); // the completion has told
		check_alive(device, pair);
	}
}

TEST_CASE("a message beyond the largest one is refused where it is sent")
{
	Device device;
	Pair pair(device);
	Memory memory(device.pd, 4096);
	ibv_sge pieces[] = {{memory.address(), 1u << 30, memory.key()}, {memory.address(), 1, memory.key()}};
	ibv_send_wr wr = request(IBV_WR_SEND, pieces);
	post(pair.a.qp, wr);
	expect(pair.a.send_cq, IBV_WC_LOC_LEN_ERR);
	check_broken(pair.a);
	CHECK(pair.b.state() == IBV_QPS_RTS);
}

TEST_CASE("READs and atomic operations need resources at both ends")
{
	Device device;
	Memory memory(device.pd, 4096);
	Settings none;
	none.rd_atomic = 0;
	Pair poor(device, none);
	read(poor.a.qp, memory.piece(0, 8), memory.address(64), memory.key());
	expect(poor.a.send_cq, IBV_WC_LOC_QP_OP_ERR);
	check_broken(poor.a);

	Settings few;
	few.dest_rd_atomic = 0;
	Pair pair(device, few);
	read(pair.a.qp, memory.piece(0, 8), memory.address(64), memory.key());
	expect(pair.a.send_cq, IBV_WC_REM_INV_REQ_ERR);
	next_event(device.context, IBV_EVENT_QP_REQ_ERR);
	check_broken(pair.b);
}

TEST_CASE("memory that a work request may not use is a local protection error")
{
	Device device;
	ibv_pd *other_pd = ibv_alloc_pd(device.context);
	REQUIRE(other_pd);
	{
		Memory memory(device.pd, 4096), foreign(other_pd, 4096), constant(device.pd, 4096, remote_read);
		Memory gone(device.pd, 4096);
		const ibv_sge gone_piece = gone.piece(0, 8);
		gone.deregister();
		ibv_sge unknown = memory.piece(0, 8), past = memory.piece(4090, 7), before = memory.piece(0, 8);
		unknown.lkey ^= 0x55;
		before.addr -= 1;
		for (const ibv_sge &bad : {unknown, past, before, foreign.piece(0, 8), gone_piece}) {
			Pair pair(device);
			// Sent; what went before is complete, what comes after is flushed.
			receive(pair.b.qp, {memory.piece(0, 100)});
			send(pair.a.qp, memory.piece(200, 100), 1);
			send(pair.a.qp, bad, 2);
			send(pair.a.qp, memory.piece(0, 8), 3);
			CHECK(expect(pair.a.send_cq).wr_id == 1);
			CHECK(expect(pair.a.send_cq, IBV_WC_LOC_PROT_ERR).wr_id == 2);
			CHECK(expect(pair.a.send_cq, IBV_WC_WR_FLUSH_ERR).wr_id == 3);
			expect(pair.b.receive_cq);
			CHECK(pair.b.state() == IBV_QPS_RTS);
			// In the second piece, and of a READ.
			reconnect(pair.a, pair.b);
			ibv_sge pieces[] = {memory.piece(0, 8), bad};
			ibv_send_wr wr = rdma(IBV_WR_RDMA_READ, pieces, memory.address(512), memory.key());
			post(pair.a.qp, wr);
			expect(pair.a.send_cq, IBV_WC_LOC_PROT_ERR);
			CHECK(memory.word(0) == 0);
			// Received.
			reconnect(pair.a, pair.b);
			receive(pair.b.qp, {bad}, 4);
			send(pair.a.qp, memory.piece(0, 4), 5);
			CHECK(expect(pair.a.send_cq, IBV_WC_REM_OP_ERR).wr_id == 5);
			CHECK(expect(pair.b.receive_cq, IBV_WC_LOC_PROT_ERR).wr_id == 4);
			check_broken(pair.a);
			check_broken(pair.b);
			CHECK(no_event(device.context));
			check_alive(device, pair);
		}
		// Memory that may only be read can be sent, and not be received into.
		Pair pair(device);
		receive(pair.b.qp, {memory.piece(0, 8)});
		send(pair.a.qp, constant.piece(0, 8));
		expect(pair.a.send_cq);
		expect(pair.b.receive_cq);
		read(pair.a.qp, constant.piece(0, 8), memory.address(), memory.key());
		expect(pair.a.send_cq, IBV_WC_LOC_PROT_ERR);
		reconnect(pair.a, pair.b);
		receive(pair.b.qp, {constant.piece(0, 8)});
		send(pair.a.qp, memory.piece(0, 8));
		expect(pair.a.send_cq, IBV_WC_REM_OP_ERR);
		expect(pair.b.receive_cq, IBV_WC_LOC_PROT_ERR);
	}
	CHECK(ibv_dealloc_pd(other_pd) == 0);
}

TEST_CASE("everything in the queues is flushed, in order, also what is posted later")
{
	Device device;
	Settings settings;
	settings.send_wr = settings.receive_wr = 32;
	Pair pair(device, settings);
	Memory memory(device.pd, 4096);
	for (uint64_t i = 0; i < 20; ++i)
		receive(pair.b.qp, {memory.piece(0, 8)}, i);
	pair.b.to(IBV_QPS_ERR);
	for (uint64_t i = 0; i < 20; ++i)
		CHECK(expect(pair.b.receive_cq, IBV_WC_WR_FLUSH_ERR).wr_id == i);
	// Three rounds of the ring.
	for (uint64_t i = 0; i < 100; ++i) {
		receive(pair.b.qp, {memory.piece(0, 8)}, 1000 + i);
		send(pair.b.qp, memory.piece(0, 8), 2000 + i, i % 2 ? IBV_SEND_SIGNALED : 0);
		CHECK(expect(pair.b.receive_cq, IBV_WC_WR_FLUSH_ERR).wr_id == 1000 + i);
		CHECK(expect(pair.b.send_cq, IBV_WC_WR_FLUSH_ERR).wr_id == 2000 + i);
	}
	// Sends without receives wait at the other side; then they are flushed.
	reconnect(pair.a, pair.b);
	for (uint64_t i = 0; i < 20; ++i)
		send(pair.a.qp, memory.piece(0, 8), i, i % 3 ? IBV_SEND_SIGNALED : 0);
	pair.a.to(IBV_QPS_ERR);
	for (uint64_t i = 0; i < 20; ++i)
		CHECK(expect(pair.a.send_cq, IBV_WC_WR_FLUSH_ERR).wr_id == i);
	empty(pair.a.send_cq);
	check_alive(device, pair);
}

TEST_CASE("the queue of receives is flushed when a message of several packets is under way")
{
	Device device;
	Settings settings;
	settings.mtu = IBV_MTU_256;
	Pair pair(device, settings);
	constexpr size_t bytes = 8 << 20;
	Memory memory(device.pd, bytes), from(device.pd, bytes);
	receive(pair.b.qp, {memory.whole()}, 7);
	receive(pair.b.qp, {memory.whole()}, 8);
	send(pair.a.qp, from.whole(), 9);
	pair.b.to(IBV_QPS_ERR);
	// It has arrived as a whole, or is flushed.
	const auto wcs = wait(pair.b.receive_cq, 2);
	CHECK(wcs[0].wr_id == 7);
	CHECK((wcs[0].status == IBV_WC_WR_FLUSH_ERR || wcs[0].status == IBV_WC_SUCCESS));
	CHECK(wcs[1].wr_id == 8);
	CHECK(wcs[1].status == IBV_WC_WR_FLUSH_ERR);
	pair.a.to(IBV_QPS_ERR);
	CHECK(wait(pair.a.send_cq, 1)[0].wr_id == 9);
	check_alive(device, pair);
}

namespace {

struct RemoteCase {
	const char *what;
	uint64_t address;
	uint32_t key;
	int access; // of the queue pair
	bool write, read, atomic; // what fails
};

// Tries the three operations against that address and key.
void try_remote(Device &device, Memory &near, const RemoteCase &c, ibv_wc_status status, ibv_event_type event)
{
	const auto check = [&](ibv_wr_opcode opcode, bool fails, size_t bytes) {
		INFO(c.what << ", operation " << opcode);
		Settings settings;
		settings.access = c.access;
		Pair pair(device, settings);
		receive(pair.b.qp, {near.piece(2048, 8)}, 50); // flushed with the rest
		ibv_sge piece = near.piece(0, bytes);
		ibv_send_wr wr = rdma(opcode, {&piece, 1}, c.address, c.key, 1);
		if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
			wr.wr.atomic.remote_addr = c.address;
			wr.wr.atomic.compare_add = 1;
			wr.wr.atomic.rkey = c.key;
		}
		post(pair.a.qp, wr);
		send(pair.a.qp, piece, 2);
		CHECK(expect(pair.a.send_cq, fails ? status : IBV_WC_SUCCESS).wr_id == 1);
		if (fails) {
			CHECK(expect(pair.a.send_cq, IBV_WC_WR_FLUSH_ERR).wr_id == 2);
			CHECK(expect(pair.b.receive_cq, IBV_WC_WR_FLUSH_ERR).wr_id == 50);
			const ibv_async_event e = next_event(device.context, event);
			CHECK(e.element.qp == pair.b.qp);
			check_broken(pair.b);
			check_alive(device, pair);
		} else {
			expect(pair.a.send_cq);
			expect(pair.b.receive_cq);
		}
		CHECK(no_event(device.context));
	};
	check(IBV_WR_RDMA_WRITE, c.write, 8);
	check(IBV_WR_RDMA_READ, c.read, 8);
	check(IBV_WR_ATOMIC_FETCH_AND_ADD, c.atomic, 8);
}

} // namespace

TEST_CASE("a key that does not allow an operation is a remote access error")
{
	Device device;
	ibv_pd *other_pd = ibv_alloc_pd(device.context);
	REQUIRE(other_pd);
	{
		Memory near(device.pd, 4096), far(device.pd, 4096), foreign(other_pd, 4096), gone(device.pd, 4096);
		Memory local(device.pd, 4096, local_write), writable(device.pd, 4096, local_write | remote_write);
		Memory readable(device.pd, 4096, remote_read), atomics(device.pd, 4096, local_write | remote_atomic);
		const uint32_t gone_key = gone.key();
		gone.deregister();
		const RemoteCase cases[] = {
		    {"all is well", far.address(64), far.key(), all_access, false, false, false},
		    {"a wrong key", far.address(64), far.key() ^ 1, all_access, true, true, true},
		    {"no key", far.address(64), 0, all_access, true, true, true},
		    {"beyond the end", far.address(4096 + 8), far.key(), all_access, true, true, true},
		    {"the last eight bytes", far.address(4096 - 8), far.key(), all_access, false, false, false},
		    {"the start of the address space", 0, far.key(), all_access, true, true, true},
		    {"the end of the address space", ~UINT64_C(7), far.key(), all_access, true, true, true},
		    {"another protection domain", foreign.address(), foreign.key(), all_access, true, true, true},
		    {"a region that has gone", gone.address(), gone_key, all_access, true, true, true},
		    {"for local use", local.address(), local.key(), all_access, true, true, true},
		    {"for WRITE", writable.address(), writable.key(), all_access, false, true, true},
		    {"for READ", readable.address(), readable.key(), all_access, true, false, true},
		    {"for atomic operations", atomics.address(), atomics.key(), all_access, true, true, false},
		};
		for (const RemoteCase &c : cases)
			try_remote(device, near, c, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);

		// By one byte at either end; the last packet of a longer message must not be what finds out.
		Settings settings;
		settings.mtu = IBV_MTU_256;
		Memory large(device.pd, 65536);
		for (auto [address, bytes] : {std::pair<uint64_t, size_t>{far.address(), 4097}, {far.address(1), 4096},
		                              {far.address() - 1, 4096}, {far.address(4096), 1}}) {
			Pair pair(device, settings);
			far.clear();
			large.fill(1);
			write(pair.a.qp, large.piece(0, bytes), address, far.key());
			expect(pair.a.send_cq, IBV_WC_REM_ACCESS_ERR);
			next_event(device.context, IBV_EVENT_QP_ACCESS_ERR);
			for (size_t i = 0; i < far.size(); ++i)
				REQUIRE(far.at()[i] == 0);
			reconnect(pair.a, pair.b);
			read(pair.a.qp, large.piece(0, bytes), address, far.key());
			expect(pair.a.send_cq, IBV_WC_REM_ACCESS_ERR);
			next_event(device.context, IBV_EVENT_QP_ACCESS_ERR);
		}
		// Nothing is moved: the key does not matter.
		Pair pair(device);
		write(pair.a.qp, near.piece(0, 0), 0, 0xdead);
		expect(pair.a.send_cq);
		read(pair.a.qp, near.piece(0, 0), 0, 0xdead);
		expect(pair.a.send_cq);
	}
	CHECK(ibv_dealloc_pd(other_pd) == 0);
}

TEST_CASE("an operation that the queue pair is not open for is an invalid request")
{
	Device device;
	Memory near(device.pd, 4096), far(device.pd, 4096);
	const RemoteCase cases[] = {
	    {"for nothing", far.address(), far.key(), 0, true, true, true},
	    {"for WRITE", far.address(), far.key(), remote_write, false, true, true},
	    {"for READ", far.address(), far.key(), remote_read, true, false, true},
	    {"for atomic operations", far.address(), far.key(), remote_atomic, true, true, false},
	    {"at an odd address", far.address(4), far.key(), all_access, false, false, true},
	};
	for (const RemoteCase &c : cases)
		try_remote(device, near, c, IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR);
}

TEST_CASE("a key stays invalid when its region has gone, whatever is registered afterwards")
{
	Device device;
	Memory near(device.pd, 4096), far(device.pd, 4096, 0);
	Memory first(device.pd, 4096);
	const uint32_t old = first.key();
	const uint64_t address = first.address();
	first.deregister();
	for (unsigned i = 0; i < 1000; ++i) {
		ibv_mr *mr = ibv_reg_mr(device.pd, first.at(), 4096, all_access);
		REQUIRE(mr);
		REQUIRE(mr->rkey != old);
		if (i % 250 == 0) {
			Pair pair(device);
			write(pair.a.qp, near.piece(0, 8), address, mr->rkey);
			expect(pair.a.send_cq);
			write(pair.a.qp, near.piece(0, 8), address, old);
			expect(pair.a.send_cq, IBV_WC_REM_ACCESS_ERR);
			next_event(device.context, IBV_EVENT_QP_ACCESS_ERR);
		}
		REQUIRE(ibv_dereg_mr(mr) == 0);
	}
}

// The operations are long, so that the region goes in the middle nearly always.
TEST_CASE("a region may go while it is being used")
{
	Device device;
	Settings settings;
	settings.mtu = IBV_MTU_256;
	constexpr size_t bytes = 16 << 20;
	Memory near(device.pd, bytes);
	unsigned failed[4] = {};
	for (unsigned round = 0; round < 80; ++round) {
		const unsigned what = round % 4;
		if (failed[what] == 3)
			continue;
		INFO("round " << round);
		Pair pair(device, settings);
		Memory far(device.pd, bytes);
		ibv_wc_status status = IBV_WC_REM_ACCESS_ERR;
		switch (what) {
		case 0: // the destination of a WRITE
			write(pair.a.qp, near.whole(), far.address(), far.key());
			break;
		case 1: // the source of a READ
			read(pair.a.qp, near.whole(), far.address(), far.key());
			break;
		case 2: // the source of a WRITE
			status = IBV_WC_LOC_PROT_ERR;
			write(pair.a.qp, far.whole(), near.address(), near.key());
			break;
		case 3: // the destination of a READ
			status = IBV_WC_LOC_PROT_ERR;
			read(pair.a.qp, far.whole(), near.address(), near.key());
			break;
		}
		ibv_wc wc;
		int complete = 0; // already
		for (unsigned i = 0; i < round % 12 * 3 && !complete; ++i) // further in
			complete = ibv_poll_cq(pair.a.send_cq, 1, &wc);
		far.deregister();
		if (!complete)
			wc = wait(pair.a.send_cq, 1)[0];
		if (wc.status != IBV_WC_SUCCESS) {
			INFO(ibv_wc_status_str(wc.status));
			CHECK(wc.status == status);
			++failed[what];
			if (status == IBV_WC_REM_ACCESS_ERR) {
				const ibv_async_event event = next_event(device.context, IBV_EVENT_QP_ACCESS_ERR);
				CHECK(event.element.qp == pair.b.qp);
				check_broken(pair.b);
			}
			check_broken(pair.a);
		}
		check_alive(device, pair);
	}
	for (unsigned n : failed)
		CHECK(n == 3);
}

// The answer to a READ that comes before the bad request fills the way back: the refusal has to wait until there is room.
TEST_CASE("an error is reported after everything that came before it")
{
	Device device;
	Settings settings;
	settings.mtu = IBV_MTU_4096;
	Pair pair(device, settings);
	constexpr size_t bytes = 126 * 4096; // just within what may be outstanding
	Memory near(device.pd, bytes), far(device.pd, bytes);
	for (unsigned round = 0; round < 20; ++round) {
		far.fill(round);
		ibv_sge whole = near.whole(), some = near.piece(0, 8);
		ibv_send_wr list[] = {rdma(IBV_WR_RDMA_READ, {&whole, 1}, far.address(), far.key(), 1),
		                      rdma(IBV_WR_RDMA_WRITE, {&some, 1}, far.address(), far.key() + 1, 2),
		                      rdma(IBV_WR_RDMA_READ, {&whole, 1}, far.address(), far.key(), 3)};
		list[0].next = &list[1]; // they arrive at once
		list[1].next = &list[2];
		post(pair.a.qp, list[0]);
		CHECK(expect(pair.a.send_cq).wr_id == 1);
		CHECK(same(near.at(), far.at(), bytes) == bytes);
		CHECK(expect(pair.a.send_cq, IBV_WC_REM_ACCESS_ERR).wr_id == 2);
		CHECK(expect(pair.a.send_cq, IBV_WC_WR_FLUSH_ERR).wr_id == 3);
		next_event(device.context, IBV_EVENT_QP_ACCESS_ERR);
		check_broken(pair.b);
		check_alive(device, pair);
	}
}

TEST_CASE("without an answer, a request is tried again and given up")
{
	Device device;
	Memory memory(device.pd, 4096);
	const uint16_t lid = lid_of(device.context);
	const auto gives_up = [&](uint32_t number, uint16_t to) {
		Endpoint end(device, quick());
		end.to_init();
		end.to_rtr(number, to, 0);
		end.to_rts();
		const auto before = std::chrono::steady_clock::now();
		send(end.qp, memory.piece(0, 8), 1);
		send(end.qp, memory.piece(0, 8), 2);
		CHECK(expect(end.send_cq, IBV_WC_RETRY_EXC_ERR).wr_id == 1);
		CHECK(expect(end.send_cq, IBV_WC_WR_FLUSH_ERR).wr_id == 2);
		// Three time-outs of a millisecond each have to pass.
		CHECK(std::chrono::steady_clock::now() - before >= std::chrono::milliseconds(3));
		check_broken(end);
	};
	Endpoint quiet(device, {});
	gives_up(quiet.number() + 999, lid); // no such queue pair
	gives_up(0xffffff, lid);           // no such process
	gives_up(quiet.number(), lid);     // in the state `reset`
	gives_up(quiet.number(), static_cast<uint16_t>(lid + 100));
	// Connected, then destroyed, broken, or connected to somebody else.
	for (unsigned how = 0; how < 3; ++how) {
		Pair pair(device, quick());
		exchange(device, pair.a, pair.b);
		std::unique_ptr<Endpoint> other;
		if (how == 0) {
			pair.b.destroy();
		} else {
			pair.b.to(how == 1 ? IBV_QPS_ERR : IBV_QPS_RESET);
			if (how == 2) {
				other = std::make_unique<Endpoint>(device, quick());
				connect(*other, pair.b);
			}
		}
		write(pair.a.qp, memory.piece(0, 8), memory.address(64), memory.key(), 5);
		CHECK(expect(pair.a.send_cq, IBV_WC_RETRY_EXC_ERR).wr_id == 5);
		if (other)
			exchange(device, *other, pair.b);
	}
}

TEST_CASE("without a receive, a message is tried again and given up")
{
	Device device;
	Memory memory(device.pd, 8192);
	for (uint8_t times : {uint8_t{0}, uint8_t{1}, uint8_t{5}}) {
		Settings settings;
		settings.rnr_retries = times;
		settings.mtu = IBV_MTU_256;
		Pair pair(device, settings);
		receive(pair.b.qp, {memory.piece(0, 8)});
		send(pair.a.qp, memory.piece(0, 8), 1);
		send(pair.a.qp, memory.piece(0, 4000), 2);
		send(pair.a.qp, memory.piece(0, 8), 3);
		CHECK(expect(pair.a.send_cq).wr_id == 1);
		CHECK(expect(pair.a.send_cq, IBV_WC_RNR_RETRY_EXC_ERR).wr_id == 2);
		CHECK(expect(pair.a.send_cq, IBV_WC_WR_FLUSH_ERR).wr_id == 3);
		expect(pair.b.receive_cq);
		CHECK(pair.b.state() == IBV_QPS_RTS);
		check_alive(device, pair);
		// A WRITE with immediate data needs a receive at its end only.
		ibv_sge piece = memory.piece(0, 4000);
		ibv_send_wr wr = rdma(IBV_WR_RDMA_WRITE_WITH_IMM, {&piece, 1}, memory.address(4096), memory.key());
		post(pair.a.qp, wr);
		expect(pair.a.send_cq, IBV_WC_RNR_RETRY_EXC_ERR);
	}
}

TEST_CASE("a receive that is posted in time takes the message that has waited for it")
{
	Device device;
	Settings settings;
	settings.mtu = IBV_MTU_256;
	settings.rnr_timer = 6;
	Pair pair(device, settings);
	Memory near(device.pd, 65536), far(device.pd, 65536);
	near.fill(1);
	// Messages of all lengths, mixed with what needs no receive.
	constexpr uint64_t n = 20;
	const auto length = [](uint64_t i) { return i * 111; };
	for (uint64_t i = 0; i < n; ++i) {
		send(pair.a.qp, near.piece(i, length(i)), 2 * i);
		read(pair.a.qp, near.piece(60000 + i, 1), near.address(i), near.key(), 2 * i + 1);
	}
	uint64_t id = 0;
	for (uint64_t i = 0; i < n; ++i) {
		// So that each is refused at least once: until then it cannot be complete.
		ibv_wc wc;
		for (unsigned polls = 0; polls < 20; ++polls)
			REQUIRE(ibv_poll_cq(pair.b.receive_cq, 1, &wc) == 0);
		far.clear();
		receive(pair.b.qp, {far.piece(0, 4096)}, i);
		wc = expect(pair.b.receive_cq);
		CHECK(wc.wr_id == i);
		CHECK(wc.byte_len == length(i));
		CHECK(same(far.at(), near.at(i), length(i)) == length(i));
		for (unsigned k = 0; k < 2; ++k)
			CHECK(expect(pair.a.send_cq).wr_id == id++);
	}
	// The last packet of a WRITE waits for the receive.
	ibv_sge piece = near.piece(0, 5000);
	ibv_send_wr wr = rdma(IBV_WR_RDMA_WRITE_WITH_IMM, {&piece, 1}, far.address(), far.key());
	post(pair.a.qp, wr);
	empty(pair.b.receive_cq);
	empty(pair.a.send_cq);
	receive(pair.b.qp, {}, 99);
	CHECK(expect(pair.b.receive_cq).byte_len == 5000);
	expect(pair.a.send_cq);
	CHECK(same(far.at(), near.at(), 5000) == 5000);
}

TEST_CASE("both directions of a connection end with it")
{
	Device device;
	Pair pair(device);
	Memory memory(device.pd, 4096);
	receive(pair.a.qp, {memory.piece(0, 8)}, 1);
	send(pair.b.qp, memory.piece(64, 8), 2);
	expect(pair.b.send_cq);
	expect(pair.a.receive_cq);
	// The requester's error flushes its receives too; the other side does not know yet.
	receive(pair.a.qp, {memory.piece(0, 8)}, 3);
	write(pair.a.qp, {0, 8, 0xbad}, memory.address(), memory.key(), 4);
	expect(pair.a.send_cq, IBV_WC_LOC_PROT_ERR);
	CHECK(expect(pair.a.receive_cq, IBV_WC_WR_FLUSH_ERR).wr_id == 3);
	CHECK(pair.b.state() == IBV_QPS_RTS);
	check_alive(device, pair);
}

namespace {

// Fault rules for the time of its life.
struct Rules {
	explicit Rules(const std::string &rules)
	{
		REQUIRE(softhca_fault);
		REQUIRE(softhca_fault(rules.c_str(), nullptr, 0) == 0);
	}
	~Rules() { softhca_fault("clear", nullptr, 0); }
	Rules(const Rules &) = delete;
	Rules &operator=(const Rules &) = delete;
};

uint64_t counter(const char *name, const Endpoint &end)
{
	uint64_t value;
	REQUIRE(softhca_counter(name, -1, end.number(), &value) == 0);
	return value;
}

} // namespace

TEST_CASE("one packet that is lost is made good, whichever it is")
{
	Device device;
	Settings settings;
	settings.mtu = IBV_MTU_256;
	settings.timeout = 12; // 17 ms
	settings.retries = 2;
	settings.psn = 0xffffe0;
	constexpr size_t bytes = 5000;
	Memory near(device.pd, 4 * bytes), far(device.pd, 4 * bytes);
	for (const char *kind : {"send", "write", "read", "atomic", "read_response", "atomic_response", "acknowledge", "refuse"})
		for (unsigned after : {0u, 1u, 2u, 7u, 18u, 19u, 20u}) {
			INFO(kind << " after " << after);
			Pair pair(device, settings);
			const Rules rules("drop count=1 kind=" + std::string(kind) + " after=" + std::to_string(after));
			near.fill(after);
			far.clear();
			send(pair.a.qp, near.piece(0, bytes), 0);
			for (uint64_t i = 1; i < 4; ++i) {
				ibv_sge piece = near.piece(i, 8);
				ibv_send_wr wr = request(IBV_WR_ATOMIC_FETCH_AND_ADD, {&piece, 1}, i);
				wr.wr.atomic.remote_addr = far.address(3 * bytes / 8 * 8);
				wr.wr.atomic.rkey = far.key();
				wr.wr.atomic.compare_add = 1;
				if (i == 1)
					write(pair.a.qp, near.piece(bytes, bytes), far.address(bytes), far.key(), 10);
				if (i == 2)
					read(pair.a.qp, near.piece(2 * bytes, bytes), far.address(bytes), far.key(), 11);
				post(pair.a.qp, wr);
			}
			receive(pair.b.qp, {far.piece(0, bytes)});
			for (uint64_t id : {0, 10, 1, 11, 2, 3})
				REQUIRE(expect(pair.a.send_cq).wr_id == id);
			REQUIRE(expect(pair.b.receive_cq).byte_len == bytes);
			for (size_t i = 16; i < bytes; ++i) // the first bytes have been overwritten by what was there
				REQUIRE(far.at()[i] == pattern(after, i));
			REQUIRE(same(far.at(bytes), near.at(bytes), bytes) == bytes);
			REQUIRE(same(near.at(2 * bytes), near.at(bytes), bytes) == bytes);
			REQUIRE(far.word(3 * bytes / 8 * 8) == 3);
		}
}

TEST_CASE("a response that is lost is asked for once, however many have come after it")
{
	Device device;
	Settings settings;
	settings.mtu = IBV_MTU_256;
	settings.retries = 1;
	constexpr size_t bytes = 1000 * 256;
	Memory near(device.pd, bytes), far(device.pd, bytes);
	far.fill(1);
	for (unsigned after : {0u, 5u, 100u, 700u}) {
		INFO("after " << after);
		Pair pair(device, settings);
		const Rules rules("drop count=1 kind=read_response after=" + std::to_string(after));
		near.clear();
		read(pair.a.qp, near.whole(), far.address(), far.key());
		expect(pair.a.send_cq);
		CHECK(same(near.at(), far.at(), bytes) == bytes);
		CHECK(counter("retransmissions", pair.a) == 1);
	}
}

TEST_CASE("READs that arrive twice do not count as more than are allowed")
{
	Device device;
	Settings settings;
	settings.mtu = IBV_MTU_256;
	settings.rd_atomic = settings.dest_rd_atomic = 4;
	Pair pair(device, settings);
	const Rules rules("duplicate kind=read");
	constexpr size_t n = 50, bytes = 30 * 256; // four fit into what may be outstanding
	Memory near(device.pd, bytes), far(device.pd, bytes);
	far.fill(1);
	ibv_sge piece = near.whole();
	std::vector<ibv_send_wr> reads; // in one list, so that many arrive at once
	for (uint64_t i = 0; i < n; ++i)
		reads.push_back(rdma(IBV_WR_RDMA_READ, {&piece, 1}, far.address(), far.key(), i));
	for (size_t i = 1; i < n; ++i)
		reads[i - 1].next = &reads[i];
	post(pair.a.qp, reads[0]);
	for (uint64_t i = 0; i < n; ++i)
		REQUIRE(expect(pair.a.send_cq).wr_id == i);
	CHECK(same(near.at(), far.at(), bytes) == bytes);
	CHECK(counter("faults", pair.a) == n);
}

TEST_CASE("a queue pair without a send queue is not disturbed by its doorbell")
{
	Device device;
	Settings receiver;
	receiver.send_wr = 0;
	receiver.inline_bytes = 0;
	Pair pair(device, {}, receiver);
	mlx5dv_qp direct{};
	mlx5dv_obj object{};
	object.qp.in = pair.b.qp;
	object.qp.out = &direct;
	REQUIRE(mlx5dv_init_obj(&object, MLX5DV_OBJ_QP) == 0);
	REQUIRE(direct.sq.wqe_cnt == 0);
	__atomic_store_n(&direct.dbrec[1], htobe32(5), __ATOMIC_RELEASE);
	Memory memory(device.pd, 64);
	for (int i = 0; i < 10; ++i) {
		receive(pair.b.qp, {memory.piece(0, 8)});
		send(pair.a.qp, memory.piece(8, 8));
		expect(pair.a.send_cq);
		expect(pair.b.receive_cq);
	}
	pair.b.to(IBV_QPS_ERR);
	ibv_wc wc;
	for (int i = 0; i < 10; ++i)
		CHECK(ibv_poll_cq(pair.b.send_cq, 1, &wc) == 0);
}
