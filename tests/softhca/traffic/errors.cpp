// Every way in which a work request fails: the errors on both sides, and that both work again after a reset.
#include <catch2/catch.hpp>

#include <chrono>
#include <cstring>
#include <string>

#include "softhca/softhca.h"
#include "tests/softhca/traffic/traffic.hpp"

namespace {

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
	// The first packet is too long; only the last is; the last fits into the memory, but not into the receive.
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
		CHECK(no_event(device.context)); // there was a completion
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

TEST_CASE("a work request with memory that it may not use is a local protection error")
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
			// A send: earlier ones complete, later ones are flushed.
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

TEST_CASE("everything in the queues is flushed in order, and so is what is posted later")
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

TEST_CASE("a request without an answer is retried, and then fails")
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
	gives_up(0xffffff, lid);             // no such process
	gives_up(quiet.number(), lid);       // in the state `reset`
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

TEST_CASE("a message without a receive is retried, and then fails")
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
		// A WRITE with immediate data needs a receive only for its last packet.
		ibv_sge piece = memory.piece(0, 4000);
		ibv_send_wr wr = rdma(IBV_WR_RDMA_WRITE_WITH_IMM, {&piece, 1}, memory.address(4096), memory.key());
		post(pair.a.qp, wr);
		expect(pair.a.send_cq, IBV_WC_RNR_RETRY_EXC_ERR);
	}
}

TEST_CASE("a receive that is posted in time gets the message that has waited for it")
{
	Device device;
	Settings settings;
	settings.mtu = IBV_MTU_256;
	settings.rnr_timer = 6;
	Pair pair(device, settings);
	Memory near(device.pd, 65536), far(device.pd, 65536);
	near.fill(1);
	// Messages of all lengths, mixed with operations that need no receive.
	constexpr uint64_t n = 20;
	const auto length = [](uint64_t i) { return i * 111; };
	for (uint64_t i = 0; i < n; ++i) {
		send(pair.a.qp, near.piece(i, length(i)), 2 * i);
		read(pair.a.qp, near.piece(60000 + i, 1), near.address(i), near.key(), 2 * i + 1);
	}
	uint64_t id = 0;
	for (uint64_t i = 0; i < n; ++i) {
		// Each is refused at least once, and cannot complete before.
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

TEST_CASE("an error ends both directions of a connection")
{
	Device device;
	Pair pair(device);
	Memory memory(device.pd, 4096);
	receive(pair.a.qp, {memory.piece(0, 8)}, 1);
	send(pair.b.qp, memory.piece(64, 8), 2);
	expect(pair.b.send_cq);
	expect(pair.a.receive_cq);
	// The requester's error flushes its receives, too. The other side does not know yet.
	receive(pair.a.qp, {memory.piece(0, 8)}, 3);
	write(pair.a.qp, {0, 8, 0xbad}, memory.address(), memory.key(), 4);
	expect(pair.a.send_cq, IBV_WC_LOC_PROT_ERR);
	CHECK(expect(pair.a.receive_cq, IBV_WC_WR_FLUSH_ERR).wr_id == 3);
	CHECK(pair.b.state() == IBV_QPS_RTS);
	check_alive(device, pair);
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
