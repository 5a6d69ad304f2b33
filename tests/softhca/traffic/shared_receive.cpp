// Shared receive queues.
#include <catch2/catch.hpp>

#include <cerrno>

#include "tests/softhca/traffic/traffic.hpp"

namespace {

int modify(ibv_srq *srq, uint32_t limit, int mask = IBV_SRQ_LIMIT, uint32_t entries = 0)
{
	ibv_srq_attr attributes{};
	attributes.srq_limit = limit;
	attributes.max_wr = entries;
	return ibv_modify_srq(srq, &attributes, mask);
}

ibv_srq_attr query(ibv_srq *srq)
{
	ibv_srq_attr attributes{};
	REQUIRE(ibv_query_srq(srq, &attributes) == 0);
	return attributes;
}

} // namespace

TEST_CASE("queue pairs take receives from a shared queue in order")
{
	Device device;
	Srq srq(device, 64, 3);
	Cq receives(device.context);
	Settings shared;
	shared.srq = srq.srq;
	shared.receive_cq = receives;
	Pair one(device, {}, shared), other(device, {}, shared);
	constexpr size_t slot = 256;
	constexpr uint64_t rounds = 40, slots = 16;
	Memory near(device.pd, 4096), far(device.pd, slots * slot);
	near.fill(1);
	uint64_t posted = 0, taken = 0;
	for (; posted < slots; ++posted)
		srq.post(far.piece(posted % slots * slot, slot), posted);
	for (uint64_t round = 0; round < rounds; ++round) {
		// Three messages from one and two from the other at the same time, in any order among the two.
		for (unsigned i = 0; i < 3; ++i)
			send(one.a.qp, near.piece(round * 5 + i, 40 + i));
		for (unsigned i = 3; i < 5; ++i)
			send(other.a.qp, near.piece(round * 5 + i, 40 + i));
		for (int i = 0; i < 3; ++i)
			expect(one.a.send_cq);
		for (int i = 0; i < 2; ++i)
			expect(other.a.send_cq);
		unsigned next_one = 0, next_other = 3;
		for (const ibv_wc &wc : wait(receives, 5)) {
			REQUIRE(wc.status == IBV_WC_SUCCESS);
			REQUIRE(wc.wr_id == taken);
			unsigned &i = wc.qp_num == one.b.number() ? next_one : next_other;
			REQUIRE((wc.qp_num == one.b.number() || wc.qp_num == other.b.number()));
			REQUIRE(wc.byte_len == 40 + i);
			REQUIRE(same(far.at(taken % slots * slot), near.at(round * 5 + i), wc.byte_len) == wc.byte_len);
			++i;
			++taken;
			srq.post(far.piece(posted % slots * slot, slot), posted);
			++posted;
		}
	}
}

TEST_CASE("a receive in a shared queue may have several pieces, or none")
{
	Device device;
	Srq srq(device, 8, 3);
	Settings shared;
	shared.srq = srq.srq;
	Pair pair(device, {}, shared);
	Memory near(device.pd, 4096), far(device.pd, 4096);
	near.fill(2);
	ibv_sge pieces[] = {far.piece(0, 10), far.piece(100, 1), far.piece(200, 3000)};
	ibv_recv_wr wr{}, *bad;
	wr.sg_list = pieces;
	wr.num_sge = 3;
	REQUIRE(ibv_post_srq_recv(srq.srq, &wr, &bad) == 0);
	wr.num_sge = 0;
	REQUIRE(ibv_post_srq_recv(srq.srq, &wr, &bad) == 0);
	send(pair.a.qp, near.piece(0, 2000));
	send(pair.a.qp, near.piece(0, 0));
	CHECK(expect(pair.b.receive_cq).byte_len == 2000);
	CHECK(expect(pair.b.receive_cq).byte_len == 0);
	CHECK(same(far.at(), near.at(), 10) == 10);
	CHECK(far.at(100)[0] == near.at(10)[0]);
	CHECK(same(far.at(200), near.at(11), 1989) == 1989);
	CHECK(far.at(200 + 1989)[0] == 0);
}

TEST_CASE("the limit of a shared queue raises one event each time that it is set")
{
	Device device;
	Srq srq(device, 16, 1);
	Settings shared;
	shared.srq = srq.srq;
	Pair pair(device, {}, shared);
	Memory memory(device.pd, 4096);
	const auto take = [&] {
		send(pair.a.qp, memory.piece(0, 8));
		expect(pair.a.send_cq);
		expect(pair.b.receive_cq);
	};
	for (int i = 0; i < 10; ++i)
		srq.post(memory.piece(64, 8));
	REQUIRE(modify(srq.srq, 8) == 0);
	CHECK(query(srq.srq).srq_limit == 8);
	take();
	take();
	CHECK(no_event(device.context)); // eight are left
	take();
	CHECK(next_event(device.context, IBV_EVENT_SRQ_LIMIT_REACHED).element.srq == srq.srq);
	CHECK(query(srq.srq).srq_limit == 0);
	take();
	CHECK(no_event(device.context));
	REQUIRE(modify(srq.srq, 6) == 0);
	CHECK(no_event(device.context));
	take();
	CHECK(next_event(device.context, IBV_EVENT_SRQ_LIMIT_REACHED).element.srq == srq.srq);
	// Fewer than the limit are left.
	REQUIRE(modify(srq.srq, 9) == 0);
	CHECK(next_event(device.context, IBV_EVENT_SRQ_LIMIT_REACHED).element.srq == srq.srq);
	REQUIRE(modify(srq.srq, 3) == 0);
	REQUIRE(modify(srq.srq, 0) == 0); // no limit any more
	for (int i = 0; i < 5; ++i)
		take();
	CHECK(no_event(device.context));
}

TEST_CASE("a shared queue says what it is, and changes nothing but its limit")
{
	Device device;
	Srq srq(device, 20, 4);
	const ibv_srq_attr attributes = query(srq.srq);
	CHECK(attributes.max_wr >= 20);
	CHECK(attributes.max_sge >= 4);
	CHECK(attributes.srq_limit == 0);
	CHECK(modify(srq.srq, attributes.max_wr + 1) == EINVAL);
	CHECK(modify(srq.srq, 0, IBV_SRQ_MAX_WR, 100) != 0);
	CHECK(query(srq.srq).srq_limit == 0);
	CHECK(query(srq.srq).max_wr == attributes.max_wr);
	// Full.
	Memory memory(device.pd, 64);
	ibv_sge piece = memory.piece(0, 8);
	ibv_recv_wr wr{}, *bad;
	wr.sg_list = &piece;
	wr.num_sge = 1;
	uint32_t posted = 0;
	while (posted <= attributes.max_wr && ibv_post_srq_recv(srq.srq, &wr, &bad) == 0)
		++posted;
	CHECK(posted >= 20); // libmlx5 keeps some WQEs for itself
	CHECK(posted <= attributes.max_wr);
	wr.num_sge = static_cast<int>(attributes.max_sge) + 1;
	CHECK(ibv_post_srq_recv(srq.srq, &wr, &bad) != 0);
	ibv_srq_init_attr too_large{};
	too_large.attr.max_wr = 1 << 20;
	too_large.attr.max_sge = 1;
	CHECK_FALSE(ibv_create_srq(device.pd, &too_large));
}

TEST_CASE("messages wait while a shared queue is empty")
{
	Device device;
	Srq srq(device);
	Settings shared, sender;
	shared.srq = srq.srq;
	sender.rnr_retries = 2;
	Pair pair(device, {}, shared), impatient(device, sender, shared);
	Memory memory(device.pd, 4096);
	send(impatient.a.qp, memory.piece(0, 8));
	expect(impatient.a.send_cq, IBV_WC_RNR_RETRY_EXC_ERR);
	for (uint64_t i = 0; i < 5; ++i)
		send(pair.a.qp, memory.piece(0, 8), i);
	for (uint64_t i = 0; i < 5; ++i) {
		ibv_wc wc;
		for (int polls = 0; polls < 10; ++polls)
			REQUIRE(ibv_poll_cq(pair.b.receive_cq, 1, &wc) == 0);
		srq.post(memory.piece(64, 8), 100 + i);
		CHECK(expect(pair.b.receive_cq).wr_id == 100 + i);
		CHECK(expect(pair.a.send_cq).wr_id == i);
	}
}

TEST_CASE("a receive that a broken message has taken is flushed, and the others stay")
{
	Device device;
	Srq srq(device);
	Settings shared;
	shared.srq = srq.srq;
	Pair pair(device, {}, shared), other(device, {}, shared);
	Memory memory(device.pd, 8192);
	srq.post(memory.piece(0, 100), 1);
	srq.post(memory.piece(0, 100), 2);
	send(pair.a.qp, memory.piece(4096, 101));
	expect(pair.a.send_cq, IBV_WC_REM_INV_REQ_ERR);
	CHECK(expect(pair.b.receive_cq, IBV_WC_LOC_LEN_ERR).wr_id == 1);
	next_event(device.context, IBV_EVENT_QP_LAST_WQE_REACHED);
	send(other.a.qp, memory.piece(4096, 100));
	expect(other.a.send_cq);
	CHECK(expect(other.b.receive_cq).wr_id == 2);
}

TEST_CASE("a shared queue in use cannot be destroyed")
{
	Device device;
	Srq srq(device);
	Settings shared;
	shared.srq = srq.srq;
	Endpoint end(device, shared);
	CHECK(ibv_destroy_srq(srq.srq) == EBUSY);
	CHECK(ibv_destroy_cq(end.receive_cq) == EBUSY);
	CHECK(ibv_dealloc_pd(device.pd) == EBUSY);
}
