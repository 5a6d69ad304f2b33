// Unreliable datagrams.
#include <catch2/catch.hpp>

#include <cerrno>
#include <cstring>

#include "tests/softhca/traffic/traffic.hpp"

namespace {

constexpr size_t header = 40; // room for a global route header, before every datagram

void send_to(Datagrams &from, ibv_ah *ah, uint32_t number, uint32_t qkey, std::span<ibv_sge> pieces, uint64_t id = 0,
             ibv_wr_opcode opcode = IBV_WR_SEND, uint32_t immediate = 0)
{
	ibv_send_wr wr = request(opcode, pieces, id);
	wr.wr.ud.ah = ah;
	wr.wr.ud.remote_qpn = number;
	wr.wr.ud.remote_qkey = qkey;
	wr.imm_data = htobe32(immediate);
	post(from.qp, wr);
}

} // namespace

TEST_CASE("datagrams of every length arrive behind the room for a header, with their source")
{
	Device device;
	Datagrams from(device), to(device);
	AddressHandle peer(device, lid_of(device.context));
	Memory near(device.pd, 8192), far(device.pd, 8192);
	for (size_t bytes : {size_t{0}, size_t{1}, size_t{100}, size_t{4095}, size_t{4096}}) {
		INFO(bytes << " bytes");
		near.fill(static_cast<unsigned>(bytes));
		std::memset(far.at(), 0xee, far.size());
		receive(to.qp, {far.piece(8, header + bytes)}, 5);
		ibv_sge pieces[] = {near.piece(0, bytes / 3), near.piece(bytes / 3, bytes - bytes / 3)};
		send_to(from, peer.ah, to.number(), to.settings.qkey, pieces, 6);
		CHECK(expect(from.send_cq).wr_id == 6);
		const ibv_wc wc = expect(to.receive_cq);
		CHECK(wc.wr_id == 5);
		CHECK(wc.opcode == IBV_WC_RECV);
		CHECK(wc.byte_len == header + bytes);
		CHECK(wc.src_qp == from.number());
		CHECK(wc.slid == lid_of(device.context));
		CHECK(wc.wc_flags == 0);
		CHECK(same(far.at(8 + header), near.at(), bytes) == bytes);
		CHECK(far.at(8 + header + bytes)[0] == 0xee);
	}
	// Two pieces that meet within the header, immediate data, and back to the source.
	near.fill(1);
	receive(to.qp, {far.piece(0, 30), far.piece(100, 3000)});
	ibv_sge piece = near.piece(0, 1000);
	send_to(from, peer.ah, to.number(), to.settings.qkey, {&piece, 1}, 0, IBV_WR_SEND_WITH_IMM, 0xabcdef01);
	expect(from.send_cq);
	const ibv_wc wc = expect(to.receive_cq);
	CHECK(wc.byte_len == header + 1000);
	CHECK(wc.wc_flags == IBV_WC_WITH_IMM);
	CHECK(be32toh(wc.imm_data) == 0xabcdef01);
	CHECK(same(far.at(110), near.at(), 1000) == 1000);
}

TEST_CASE("a datagram with a global route carries its header, which is enough to answer it")
{
	Device device;
	Datagrams from(device), to(device);
	union ibv_gid gid;
	REQUIRE(ibv_query_gid(device.context, 1, 0, &gid) == 0);
	AddressHandle peer(device, lid_of(device.context), &gid);
	Memory near(device.pd, 4096), far(device.pd, 4096);
	near.fill(1);
	receive(to.qp, {far.piece(0, 1000)});
	ibv_sge piece = near.piece(0, 100);
	send_to(from, peer.ah, to.number(), to.settings.qkey, {&piece, 1});
	expect(from.send_cq);
	ibv_wc wc = expect(to.receive_cq);
	CHECK(wc.wc_flags == IBV_WC_GRH);
	CHECK(wc.byte_len == header + 100);
	auto *grh = reinterpret_cast<ibv_grh *>(far.at());
	CHECK(be32toh(grh->version_tclass_flow) >> 28 == 6);
	CHECK(be16toh(grh->paylen) >= 100);
	CHECK(grh->next_hdr == 0x1b);
	CHECK(std::memcmp(&grh->sgid, &gid, sizeof gid) == 0);
	CHECK(std::memcmp(&grh->dgid, &gid, sizeof gid) == 0);
	CHECK(same(far.at(header), near.at(), 100) == 100);

	ibv_ah *back = ibv_create_ah_from_wc(device.pd, &wc, grh, 1);
	REQUIRE(back);
	receive(from.qp, {far.piece(2000, 1000)});
	send_to(to, back, wc.src_qp, from.settings.qkey, {&piece, 1});
	expect(to.send_cq);
	CHECK(expect(from.receive_cq).src_qp == to.number());
	CHECK(ibv_destroy_ah(back) == 0);
}

TEST_CASE("datagrams that nobody wants are dropped, and those after them arrive")
{
	Device device;
	Datagrams from(device), to(device);
	const uint16_t lid = lid_of(device.context);
	AddressHandle peer(device, lid), elsewhere(device, static_cast<uint16_t>(lid + 50));
	Pair reliable(device);
	Endpoint idle(device, {}, IBV_QPT_UD);
	Memory memory(device.pd, 8192);
	ibv_sge piece = memory.piece(0, 8);
	const uint32_t key = to.settings.qkey;
	// Nobody has posted a receive yet.
	send_to(from, peer.ah, to.number(), key, {&piece, 1});
	expect(from.send_cq);
	exchange(device, reliable.a, reliable.b); // all that was sent before has arrived
	receive(to.qp, {memory.piece(1000, 100)}, 1);
	receive(to.qp, {memory.piece(1000, 100)}, 2);
	send_to(from, peer.ah, to.number(), key + 1, {&piece, 1});       // another key
	send_to(from, elsewhere.ah, to.number(), key, {&piece, 1});      // another port
	send_to(from, peer.ah, to.number() + 999, key, {&piece, 1});     // no such queue pair
	send_to(from, peer.ah, 0xfffff0, key, {&piece, 1});              // no such process
	send_to(from, peer.ah, reliable.b.number(), key, {&piece, 1});   // a connected one
	send_to(from, peer.ah, idle.number(), key, {&piece, 1});         // not ready
	send_to(from, peer.ah, to.number(), 0x80000000, {&piece, 1}, 7); // stands for the sender's own key
	memory.at()[0] = 9;
	for (int i = 0; i < 7; ++i)
		expect(from.send_cq); // a datagram is complete when it is sent
	CHECK(expect(to.receive_cq).wr_id == 1);
	ibv_wc wc;
	CHECK(ibv_poll_cq(to.receive_cq, 1, &wc) == 0);
	exchange(device, reliable.a, reliable.b);
	// The key can be changed.
	ibv_qp_attr a{};
	a.qkey = key + 1;
	REQUIRE(ibv_modify_qp(to.qp, &a, IBV_QP_QKEY) == 0);
	send_to(from, peer.ah, to.number(), key, {&piece, 1});
	send_to(from, peer.ah, to.number(), key + 1, {&piece, 1});
	CHECK(expect(to.receive_cq).wr_id == 2);
	CHECK(wait(from.send_cq, 2).size() == 2);
	CHECK(no_event(device.context));
}

TEST_CASE("a failed datagram stops the send queue only, until it is started again")
{
	Device device;
	Datagrams end(device), other(device);
	AddressHandle peer(device, lid_of(device.context));
	Memory memory(device.pd, 16384);
	const uint32_t key = end.settings.qkey;
	ibv_sge bad = memory.piece(0, 8), large = memory.piece(0, 4097), good = memory.piece(0, 100);
	bad.lkey ^= 1;
	for (auto [piece, status] : {std::pair{bad, IBV_WC_LOC_PROT_ERR}, {large, IBV_WC_LOC_LEN_ERR}}) {
		receive(other.qp, {memory.piece(8192, 200)});
		send_to(end, peer.ah, other.number(), key, {&good, 1}, 1);
		send_to(end, peer.ah, other.number(), key, {&piece, 1}, 2);
		send_to(end, peer.ah, other.number(), key, {&good, 1}, 3);
		CHECK(expect(end.send_cq).wr_id == 1);
		CHECK(expect(end.send_cq, status).wr_id == 2);
		CHECK(expect(end.send_cq, IBV_WC_WR_FLUSH_ERR).wr_id == 3);
		expect(other.receive_cq);
		CHECK(end.state() == IBV_QPS_SQE);
		send_to(end, peer.ah, other.number(), key, {&good, 1}, 4);
		CHECK(expect(end.send_cq, IBV_WC_WR_FLUSH_ERR).wr_id == 4);
		// It still receives.
		receive(end.qp, {memory.piece(8192, 200)});
		send_to(other, peer.ah, end.number(), key, {&good, 1});
		expect(other.send_cq);
		expect(end.receive_cq);
		end.to(IBV_QPS_RTS);
		CHECK(end.state() == IBV_QPS_RTS);
		receive(other.qp, {memory.piece(8192, 200)});
		send_to(end, peer.ah, other.number(), key, {&good, 1}, 5);
		CHECK(expect(end.send_cq).wr_id == 5);
		expect(other.receive_cq);
	}
}

TEST_CASE("a datagram that does not fit into its receive is an error of the receiver only")
{
	Device device;
	Datagrams from(device), to(device);
	AddressHandle peer(device, lid_of(device.context));
	Memory memory(device.pd, 8192);
	ibv_sge piece = memory.piece(0, 100);
	receive(to.qp, {memory.piece(1000, header + 99)}, 1);
	receive(to.qp, {memory.piece(1000, header + 100)}, 2);
	send_to(from, peer.ah, to.number(), to.settings.qkey, {&piece, 1});
	expect(from.send_cq);
	CHECK(expect(to.receive_cq, IBV_WC_LOC_LEN_ERR).wr_id == 1);
	CHECK(expect(to.receive_cq, IBV_WC_WR_FLUSH_ERR).wr_id == 2);
	CHECK(to.state() == IBV_QPS_ERR);
	CHECK(from.state() == IBV_QPS_RTS);
}

TEST_CASE("datagram queue pairs take only operations and transitions for datagrams")
{
	Device device;
	Endpoint end(device, {}, IBV_QPT_UD);
	ibv_qp_attr a{};
	a.qp_state = IBV_QPS_INIT;
	a.port_num = 1;
	CHECK(ibv_modify_qp(end.qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT) == EINVAL); // no key
	CHECK(ibv_modify_qp(end.qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == EINVAL);
	end.to_init();
	a.qp_state = IBV_QPS_RTS;
	CHECK(ibv_modify_qp(end.qp, &a, IBV_QP_STATE | IBV_QP_SQ_PSN) == EINVAL);
	end.to_rtr(0, 0, 0);
	end.to_rts();
	CHECK(end.state() == IBV_QPS_RTS);
	ibv_qp_attr q{};
	ibv_qp_init_attr init;
	REQUIRE(ibv_query_qp(end.qp, &q, IBV_QP_QKEY, &init) == 0);
	CHECK(q.qkey == end.settings.qkey);
	CHECK(init.qp_type == IBV_QPT_UD);
}

TEST_CASE("many datagrams keep their order, and a shared queue takes them")
{
	Device device;
	Srq srq(device, 64);
	Settings settings;
	settings.srq = srq.srq;
	Datagrams from(device), to(device, settings);
	AddressHandle peer(device, lid_of(device.context));
	Memory near(device.pd, 4096), far(device.pd, 64 * 64);
	for (uint64_t i = 0; i < 600; ++i) {
		srq.post(far.piece(i % 64 * 64, 64), i);
		near.word(8 * (i % 16)) = i;
		ibv_sge piece = near.piece(8 * (i % 16), 8);
		send_to(from, peer.ah, to.number(), to.settings.qkey, {&piece, 1}, i);
		if (i % 16 == 15)
			for (uint64_t k = i - 15; k <= i; ++k) {
				REQUIRE(expect(from.send_cq).wr_id == k);
				REQUIRE(expect(to.receive_cq).wr_id == k);
				REQUIRE(far.word(k % 64 * 64 + header) == k);
			}
	}
}
