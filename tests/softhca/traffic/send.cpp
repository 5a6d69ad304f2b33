// SEND and RECV between two queue pairs of one process: all sizes, pieces, order, and options.
#include <catch2/catch.hpp>

#include <cstring>
#include <deque>

#include "tests/softhca/traffic/traffic.hpp"

namespace {

constexpr size_t mtu_bytes(ibv_mtu mtu) { return size_t{128} << mtu; }

// Sends `bytes` from an odd address to another, and checks every byte of the receiver, also around the message.
void send_once(Pair &pair, Memory &from, Memory &to, size_t bytes, unsigned seed)
{
	constexpr size_t from_offset = 13, to_offset = 7, guard = 64;
	INFO(bytes << " bytes, packets of " << mtu_bytes(pair.a.settings.mtu));
	from.fill(seed);
	std::memset(to.at(), 0xee, std::min(to.size(), bytes + 2 * guard));
	receive(pair.b.qp, {to.piece(to_offset, bytes)}, 77);
	send(pair.a.qp, from.piece(from_offset, bytes), 88);
	const ibv_wc sent = expect(pair.a.send_cq);
	CHECK(sent.wr_id == 88);
	CHECK(sent.opcode == IBV_WC_SEND);
	CHECK(sent.qp_num == pair.a.number());
	const ibv_wc received = expect(pair.b.receive_cq);
	CHECK(received.wr_id == 77);
	CHECK(received.opcode == IBV_WC_RECV);
	CHECK(received.byte_len == bytes);
	CHECK(received.qp_num == pair.b.number());
	CHECK(received.wc_flags == 0);
	CHECK(same(from.at(from_offset), to.at(to_offset), bytes) == bytes);
	for (size_t i = 0; i < to_offset; ++i)
		REQUIRE(to.at()[i] == 0xee);
	for (size_t i = 0; i < guard; ++i)
		REQUIRE(to.at(to_offset + bytes)[i] == 0xee);
}

} // namespace

TEST_CASE("messages of every length arrive, byte by byte, with every size of packets")
{
	Device device;
	constexpr size_t most = (1 << 20) + 256;
	Memory from(device.pd, most), to(device.pd, most);
	unsigned seed = 0;
	for (ibv_mtu mtu : {IBV_MTU_256, IBV_MTU_512, IBV_MTU_1024, IBV_MTU_2048, IBV_MTU_4096}) {
		Settings settings;
		settings.mtu = mtu;
		Pair pair(device, settings);
		const size_t m = mtu_bytes(mtu);
		for (size_t bytes : {size_t{0}, size_t{1}, m - 1, m, m + 1, 2 * m - 1, 2 * m, 40 * m + 3, size_t{1} << 20})
			send_once(pair, from, to, bytes, ++seed);
	}
}

TEST_CASE("packet numbers wrap around")
{
	Device device;
	Memory from(device.pd, 1 << 18), to(device.pd, 1 << 18);
	for (uint32_t psn : {0xffffffu, 0xfffffeu, 0xffffe0u, 0x7fffffu, 0x800000u}) {
		Settings settings;
		settings.mtu = IBV_MTU_256;
		settings.psn = psn;
		Pair pair(device, settings);
		for (unsigned i = 0; i < 10; ++i)
			send_once(pair, from, to, 2000, i);
		send_once(pair, from, to, 200'000, 3);
		// Responses have packet numbers, too.
		to.clear();
		read(pair.b.qp, to.piece(0, 200'000), from.address(), from.key());
		expect(pair.b.send_cq);
		CHECK(same(to.at(), from.at(), 200'000) == 200'000);
	}
}

TEST_CASE("a message is gathered from pieces and scattered to others")
{
	Device device;
	Pair pair(device);
	Memory from(device.pd, 16384), to(device.pd, 16384);
	from.fill(5);
	std::vector<uint8_t> wanted;
	std::vector<ibv_sge> pieces = {from.piece(1000, 3000), from.piece(10, 0), from.piece(5001, 1),
	                               from.piece(9000, 2222)};
	for (const ibv_sge &piece : pieces) {
		const auto *bytes = reinterpret_cast<const uint8_t *>(piece.addr);
		wanted.insert(wanted.end(), bytes, bytes + piece.length);
	}
	// The last piece of the receive has room to spare.
	receive(pair.b.qp, {to.piece(0, 1), to.piece(100, 0), to.piece(2000, 4000), to.piece(8000, 5000)});
	ibv_send_wr wr = request(IBV_WR_SEND, pieces);
	post(pair.a.qp, wr);
	expect(pair.a.send_cq);
	CHECK(expect(pair.b.receive_cq).byte_len == wanted.size());
	CHECK(to.at()[0] == wanted[0]);
	CHECK(same(to.at(2000), &wanted[1], 4000) == 4000);
	CHECK(same(to.at(8000), &wanted[4001], wanted.size() - 4001) == wanted.size() - 4001);
	CHECK(to.at()[1] == 0);
	CHECK(to.at(8000)[wanted.size() - 4001] == 0);

	// A message without pieces, or with empty ones, has no bytes.
	receive(pair.b.qp, {});
	receive(pair.b.qp, {to.piece(0, 0), to.piece(8, 0)});
	wr = request(IBV_WR_SEND, {});
	post(pair.a.qp, wr);
	std::vector<ibv_sge> nothing = {from.piece(0, 0), from.piece(1, 0)};
	wr = request(IBV_WR_SEND, nothing);
	post(pair.a.qp, wr);
	for (int i = 0; i < 2; ++i) {
		expect(pair.a.send_cq);
		CHECK(expect(pair.b.receive_cq).byte_len == 0);
	}
}

TEST_CASE("inline data is taken when it is posted, from memory that is not registered")
{
	Device device;
	Settings settings;
	settings.inline_bytes = 400;
	settings.mtu = IBV_MTU_256;
	Pair pair(device, settings);
	Memory to(device.pd, 4096);
	uint8_t local[400];
	for (uint32_t bytes : {0u, 1u, 12u, 44u, 45u, 60u, 255u, 256u, 257u, 400u}) {
		INFO(bytes << " bytes");
		for (size_t i = 0; i < bytes; ++i)
			local[i] = pattern(bytes, i);
		receive(pair.b.qp, {to.piece(0, 1000)});
		send(pair.a.qp, {reinterpret_cast<uintptr_t>(local), bytes, 0xdead}, 0, IBV_SEND_SIGNALED | IBV_SEND_INLINE);
		std::memset(local, 0xaa, sizeof local);
		expect(pair.a.send_cq);
		CHECK(expect(pair.b.receive_cq).byte_len == bytes);
		for (size_t i = 0; i < bytes; ++i)
			REQUIRE(to.at()[i] == pattern(bytes, i));
	}
	// Two pieces, written to remote memory.
	uint8_t text[] = "one two";
	ibv_sge pieces[] = {{reinterpret_cast<uintptr_t>(text), 4, 0}, {reinterpret_cast<uintptr_t>(text + 4), 4, 0}};
	ibv_send_wr wr =
	    rdma(IBV_WR_RDMA_WRITE, pieces, to.address(3001), to.key(), 0, IBV_SEND_SIGNALED | IBV_SEND_INLINE);
	post(pair.a.qp, wr);
	std::memset(text, 0, sizeof text);
	expect(pair.a.send_cq);
	CHECK(std::memcmp(to.at(3001), "one two", 8) == 0);
}

TEST_CASE("immediate data comes with the message")
{
	Device device;
	Pair pair(device);
	Memory memory(device.pd, 8192);
	for (size_t bytes : {size_t{0}, size_t{100}, size_t{3000}}) {
		receive(pair.b.qp, {memory.piece(4096, 4096)});
		ibv_sge piece = memory.piece(0, bytes);
		ibv_send_wr wr = request(IBV_WR_SEND_WITH_IMM, {&piece, 1});
		wr.imm_data = htobe32(0xfeed0000 + static_cast<uint32_t>(bytes));
		post(pair.a.qp, wr);
		CHECK(expect(pair.a.send_cq).opcode == IBV_WC_SEND);
		const ibv_wc wc = expect(pair.b.receive_cq);
		CHECK(wc.opcode == IBV_WC_RECV);
		CHECK(wc.wc_flags == IBV_WC_WITH_IMM);
		CHECK(be32toh(wc.imm_data) == 0xfeed0000 + bytes);
		CHECK(wc.byte_len == bytes);
	}
}

TEST_CASE("only signalled work requests have completions, which complete all before them")
{
	Device device;
	Settings settings;
	settings.send_wr = 32;
	settings.receive_wr = 128;
	Pair pair(device, settings);
	Memory memory(device.pd, 4096);
	constexpr unsigned period = 16, rounds = 50;
	uint64_t received = 0;
	for (unsigned round = 0; round < rounds; ++round) {
		for (unsigned i = 0; i < period; ++i)
			receive(pair.b.qp, {memory.piece(8 * i, 8)}, round * period + i);
		for (unsigned i = 0; i < period; ++i)
			send(pair.a.qp, memory.piece(2048 + 8 * i, 8), round * period + i, i + 1 == period ? IBV_SEND_SIGNALED : 0);
		CHECK(expect(pair.a.send_cq).wr_id == round * period + period - 1);
		for (const ibv_wc &wc : wait(pair.b.receive_cq, period)) {
			REQUIRE(wc.status == IBV_WC_SUCCESS);
			REQUIRE(wc.wr_id == received++);
		}
	}
	ibv_wc wc;
	CHECK(ibv_poll_cq(pair.a.send_cq, 1, &wc) == 0);

	settings.signal_all = true;
	Pair loud(device, settings);
	receive(loud.b.qp, {memory.piece(0, 8)});
	send(loud.a.qp, memory.piece(0, 8), 5, 0);
	CHECK(expect(loud.a.send_cq).wr_id == 5);
	expect(loud.b.receive_cq);
}

TEST_CASE("thousands of messages arrive in order, over rings that wrap, in both directions at once")
{
	Device device;
	Settings settings;
	settings.mtu = IBV_MTU_256;
	settings.send_wr = 16;
	settings.receive_wr = 16;
	Pair pair(device, settings);
	constexpr size_t slot = 1024, slots = 16;
	constexpr uint64_t messages = 3000;
	// Sizes repeat only after a while. The first eight bytes are the message's number.
	const auto length = [](uint64_t i) { return 8 + i * 37 % 900; };
	struct Side {
		Endpoint &end;
		Memory out, in;
		uint64_t posted = 0, sent = 0, awaited = 0, received = 0;
	};
	Side sides[] = {{pair.a, {device.pd, slot * slots}, {device.pd, slot * slots}},
	                {pair.b, {device.pd, slot * slots}, {device.pd, slot * slots}}};
	const auto post_receive = [&](Side &side) {
		const uint64_t i = side.awaited++;
		receive(side.end.qp, {side.in.piece(i % slots * slot, slot)}, i);
	};
	for (Side &side : sides)
		for (size_t i = 0; i < slots; ++i)
			post_receive(side);
	unsigned idle = 0;
	while (sides[0].received < messages || sides[1].received < messages) {
		bool moved = false;
		for (Side &side : sides) {
			for (; side.posted < messages && side.posted - side.sent < 10; ++side.posted) {
				uint8_t *bytes = side.out.at(side.posted % slots * slot);
				std::memcpy(bytes, &side.posted, 8);
				for (size_t i = 8; i < length(side.posted); ++i)
					bytes[i] = pattern(static_cast<unsigned>(side.posted), i);
				send(side.end.qp, side.out.piece(side.posted % slots * slot, length(side.posted)), side.posted);
			}
			ibv_wc wc;
			while (ibv_poll_cq(side.end.send_cq, 1, &wc) == 1) {
				REQUIRE(wc.status == IBV_WC_SUCCESS);
				REQUIRE(wc.wr_id == side.sent++);
				moved = true;
			}
			while (ibv_poll_cq(side.end.receive_cq, 1, &wc) == 1) {
				REQUIRE(wc.status == IBV_WC_SUCCESS);
				REQUIRE(wc.wr_id == side.received);
				REQUIRE(wc.byte_len == length(side.received));
				const uint8_t *bytes = side.in.at(side.received % slots * slot);
				REQUIRE(std::memcmp(bytes, &side.received, 8) == 0);
				for (size_t i = 8; i < length(side.received); ++i)
					REQUIRE(bytes[i] == pattern(static_cast<unsigned>(side.received), i));
				++side.received;
				post_receive(side);
				moved = true;
			}
		}
		idle = moved ? 0 : idle + 1;
		REQUIRE(idle < 10'000'000);
	}
}

TEST_CASE("lists of work requests are posted at once, and a ring that is full takes no more")
{
	Device device;
	Settings settings;
	settings.send_wr = 8;
	settings.receive_wr = 8;
	Pair pair(device, settings);
	Memory memory(device.pd, 4096);
	std::vector<ibv_recv_wr> receives(8);
	std::vector<ibv_sge> pieces(8);
	for (size_t i = 0; i < 8; ++i) {
		pieces[i] = memory.piece(i * 16, 16);
		receives[i] = {i, i + 1 < 8 ? &receives[i + 1] : nullptr, &pieces[i], 1};
	}
	ibv_recv_wr *bad_receive;
	REQUIRE(ibv_post_recv(pair.b.qp, receives.data(), &bad_receive) == 0);
	CHECK(ibv_post_recv(pair.b.qp, receives.data(), &bad_receive) == ENOMEM);
	CHECK(bad_receive == receives.data());

	std::vector<ibv_send_wr> sends(8);
	std::vector<ibv_sge> sources(8);
	memory.fill(9);
	std::memset(memory.at(), 0, 128);
	for (size_t i = 0; i < 8; ++i) {
		sources[i] = memory.piece(1024 + i * 16, 16);
		sends[i] = request(IBV_WR_SEND, {&sources[i], 1}, i);
		sends[i].next = i + 1 < 8 ? &sends[i + 1] : nullptr;
	}
	post(pair.a.qp, sends[0]);
	for (uint64_t i = 0; i < 8; ++i) {
		CHECK(expect(pair.a.send_cq).wr_id == i);
		CHECK(expect(pair.b.receive_cq).wr_id == i);
	}
	CHECK(same(memory.at(), memory.at(1024), 128) == 128);
}

namespace {

// Posts two sends and a write in one list. Then a list is aborted, and nothing of it may happen.
void post_three(ibv_qp_ex *ex, Memory &memory)
{
	ibv_wr_start(ex);
	ex->wr_id = 1;
	ex->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_send(ex);
	const ibv_sge pieces[] = {memory.piece(4096, 1000), memory.piece(5096, 1500)};
	ibv_wr_set_sge_list(ex, 2, pieces);
	ex->wr_id = 2;
	ex->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_send_imm(ex, htobe32(4711));
	ibv_wr_set_inline_data(ex, memory.at(4096), 20);
	ex->wr_id = 3;
	ibv_wr_rdma_write(ex, memory.key(), memory.address(4000));
	ibv_wr_set_sge(ex, pieces[0].lkey, pieces[0].addr, 50);
	REQUIRE(ibv_wr_complete(ex) == 0);
	ibv_wr_start(ex);
	ex->wr_id = 99;
	ibv_wr_send(ex);
	ibv_wr_set_sge(ex, 0xbad, 0, 50);
	ibv_wr_abort(ex);
}

// Takes the completions of both sides and checks them.
void poll_all(ibv_cq_ex *extended, Pair &pair)
{
	std::deque<uint64_t> sent = {1, 2, 3}, received = {500, 501};
	ibv_poll_cq_attr none{};
	for (unsigned tries = 0; !sent.empty() || !received.empty(); ++tries) {
		REQUIRE(tries < 10'000'000);
		if (ibv_start_poll(extended, &none) == ENOENT)
			continue;
		do {
			REQUIRE(extended->status == IBV_WC_SUCCESS);
			const bool receive_side = ibv_wc_read_opcode(extended) & IBV_WC_RECV;
			CHECK(ibv_wc_read_qp_num(extended) == (receive_side ? pair.b.number() : pair.a.number()));
			std::deque<uint64_t> &ids = receive_side ? received : sent;
			REQUIRE(!ids.empty());
			CHECK(extended->wr_id == ids.front());
			ids.pop_front();
			if (extended->wr_id == 500)
				CHECK(ibv_wc_read_byte_len(extended) == 2500);
			if (extended->wr_id == 501) {
				CHECK(ibv_wc_read_byte_len(extended) == 20);
				CHECK(ibv_wc_read_wc_flags(extended) == IBV_WC_WITH_IMM);
				CHECK(be32toh(ibv_wc_read_imm_data(extended)) == 4711);
			}
		} while (ibv_next_poll(extended) == 0);
		ibv_end_poll(extended);
	}
}

} // namespace

TEST_CASE("the newer interface for posting and polling does the same")
{
	Device device;
	ibv_cq_init_attr_ex wanted{};
	wanted.cqe = 64;
	wanted.wc_flags = IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_IMM | IBV_WC_EX_WITH_QP_NUM | IBV_WC_EX_WITH_SRC_QP |
	                  IBV_WC_EX_WITH_SLID;
	ibv_cq_ex *extended = ibv_create_cq_ex(device.context, &wanted);
	REQUIRE(extended);
	ibv_cq *cq = ibv_cq_ex_to_cq(extended);
	{
		Settings settings;
		settings.send_cq = settings.receive_cq = cq;
		settings.operations = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_WRITE;
		Pair pair(device, settings);
		Memory memory(device.pd, 8192);
		memory.fill(3);
		std::memset(memory.at(), 0, 4096);
		receive(pair.b.qp, {memory.piece(0, 3000)}, 500);
		receive(pair.b.qp, {memory.piece(3000, 500)}, 501);
		post_three(ibv_qp_to_qp_ex(pair.a.qp), memory);
		poll_all(extended, pair);
		CHECK(same(memory.at(), memory.at(4096), 2500) == 2500);
		CHECK(same(memory.at(3000), memory.at(4096), 20) == 20);
		CHECK(same(memory.at(4000), memory.at(4096), 50) == 50);
	}
	CHECK(ibv_destroy_cq(cq) == 0);
}

TEST_CASE("a queue pair may be connected to itself")
{
	Device device;
	Endpoint end(device, {});
	end.to_init();
	end.to_rtr(end.number(), lid_of(device.context), 0);
	end.to_rts();
	Memory memory(device.pd, 8192);
	memory.fill(1);
	receive(end.qp, {memory.piece(0, 4096)});
	send(end.qp, memory.piece(4096, 4096));
	expect(end.send_cq);
	expect(end.receive_cq);
	CHECK(same(memory.at(), memory.at(4096), 4096) == 4096);
}
