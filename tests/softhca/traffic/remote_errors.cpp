// Requests that the other side refuses: keys, bounds, rights, and regions that are deregistered. The errors on both
// sides, and that both work again after a reset.
#include <catch2/catch.hpp>

#include <chrono>
#include <cstring>
#include <string>
#include <vector>

#include "tests/softhca/traffic/traffic.hpp"

namespace {

struct RemoteCase {
	const char *what;
	uint64_t address;
	uint32_t key;
	int access;               // of the queue pair
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

		// One byte out of bounds at either end. Already the first packet of a longer message must be refused.
		Settings settings;
		settings.mtu = IBV_MTU_256;
		Memory large(device.pd, 65536);
		for (auto [address, bytes] : {std::pair<uint64_t, size_t>{far.address(), 4097},
		                              {far.address(1), 4096},
		                              {far.address() - 1, 4096},
		                              {far.address(4096), 1}}) {
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
		// No bytes are moved, so the key does not matter.
		Pair pair(device);
		write(pair.a.qp, near.piece(0, 0), 0, 0xdead);
		expect(pair.a.send_cq);
		read(pair.a.qp, near.piece(0, 0), 0, 0xdead);
		expect(pair.a.send_cq);
	}
	CHECK(ibv_dealloc_pd(other_pd) == 0);
}

TEST_CASE("an operation that the queue pair does not allow is an invalid request")
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

TEST_CASE("the key of a deregistered region stays invalid, whatever is registered afterwards")
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

// The operations are long, so the region nearly always goes in the middle of one.
TEST_CASE("a region can be deregistered while it is used")
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
		int complete = 0;                                          // already
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

// The response to a READ before the bad request fills the ring back. The refusal has to wait until there is room.
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
