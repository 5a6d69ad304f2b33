// The life of queue pairs through ibv_modify_qp, what ibv_query_qp says of it, and reuse after every end.
#include <catch2/catch.hpp>

#include <cerrno>

#include "tests/softhca/traffic/traffic.hpp"

namespace {

struct Queried {
	explicit Queried(ibv_qp *qp)
	{
		constexpr int everything = (1 << 21) - 1;
		REQUIRE(ibv_query_qp(qp, &attr, everything, &init) == 0);
	}
	ibv_qp_attr attr{};
	ibv_qp_init_attr init{};
};

constexpr int init_mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
constexpr int rtr_mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                         IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
constexpr int rts_mask =
    IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;

ibv_qp_attr good(ibv_qp_state state, uint16_t lid)
{
	ibv_qp_attr a{};
	a.qp_state = state;
	a.port_num = 1;
	a.qp_access_flags = static_cast<unsigned>(all_access);
	a.path_mtu = IBV_MTU_2048;
	a.dest_qp_num = 0x1234;
	a.rq_psn = 0xabcdef;
	a.sq_psn = 0x123456;
	a.max_dest_rd_atomic = 5;
	a.max_rd_atomic = 3;
	a.min_rnr_timer = 12;
	a.timeout = 13;
	a.retry_cnt = 6;
	a.rnr_retry = 5;
	a.ah_attr.dlid = lid;
	a.ah_attr.sl = 2;
	a.ah_attr.port_num = 1;
	return a;
}

} // namespace

TEST_CASE("a queue pair goes through its states, and a query returns what was set")
{
	Device device;
	const uint16_t lid = lid_of(device.context);
	for (bool all : {false, true}) {
		Settings settings;
		settings.signal_all = all;
		Endpoint end(device, settings);
		Queried q(end.qp);
		CHECK(q.attr.qp_state == IBV_QPS_RESET);
		CHECK(q.init.sq_sig_all == all);
		CHECK(q.init.qp_type == IBV_QPT_RC);
		CHECK(q.init.cap.max_send_wr >= settings.send_wr);
		CHECK(q.init.cap.max_recv_wr >= settings.receive_wr);
		CHECK(q.init.cap.max_send_sge >= settings.pieces);
		CHECK(q.init.cap.max_recv_sge >= settings.pieces);
		CHECK(q.init.cap.max_inline_data >= settings.inline_bytes);

		ibv_qp_attr a = good(IBV_QPS_INIT, lid);
		REQUIRE(ibv_modify_qp(end.qp, &a, init_mask) == 0);
		CHECK(end.state() == IBV_QPS_INIT);
		a.qp_state = IBV_QPS_RTR;
		REQUIRE(ibv_modify_qp(end.qp, &a, rtr_mask) == 0);
		CHECK(end.state() == IBV_QPS_RTR);
		a.qp_state = IBV_QPS_RTS;
		REQUIRE(ibv_modify_qp(end.qp, &a, rts_mask) == 0);
		const Queried r(end.qp);
		CHECK(r.attr.qp_state == IBV_QPS_RTS);
		CHECK(r.attr.cur_qp_state == IBV_QPS_RTS);
		CHECK(r.attr.port_num == 1);
		CHECK(r.attr.pkey_index == 0);
		CHECK(r.attr.qp_access_flags == static_cast<unsigned>(all_access));
		CHECK(r.attr.path_mtu == IBV_MTU_2048);
		CHECK(r.attr.dest_qp_num == 0x1234);
		CHECK(r.attr.rq_psn == 0xabcdef);
		CHECK(r.attr.sq_psn == 0x123456);
		CHECK(r.attr.max_dest_rd_atomic == 5);
		CHECK(r.attr.max_rd_atomic == 3);
		CHECK(r.attr.min_rnr_timer == 12);
		CHECK(r.attr.timeout == 13);
		CHECK(r.attr.retry_cnt == 6);
		CHECK(r.attr.rnr_retry == 5);
		CHECK(r.attr.ah_attr.dlid == lid);
		CHECK(r.attr.ah_attr.sl == 2);
		CHECK(r.attr.ah_attr.port_num == 1);
		CHECK(r.attr.sq_draining == 0);
		end.to(IBV_QPS_RESET);
		CHECK(end.state() == IBV_QPS_RESET);
		CHECK(Queried(end.qp).attr.dest_qp_num == 0);
	}
}

TEST_CASE("a transition that does not exist, or that lacks an attribute, changes nothing")
{
	Device device;
	const uint16_t lid = lid_of(device.context);
	Endpoint end(device, {});
	const auto refused = [&](ibv_qp_state to, int mask) {
		ibv_qp_attr a = good(to, lid);
		const ibv_qp_state before = end.state();
		CHECK(ibv_modify_qp(end.qp, &a, mask) == EINVAL);
		CHECK(end.state() == before);
	};
	const auto steps_refused = [&](std::initializer_list<ibv_qp_state> states) {
		for (ibv_qp_state to : states) {
			INFO("to " << to);
			refused(to, to == IBV_QPS_INIT  ? init_mask
			            : to == IBV_QPS_RTR ? rtr_mask
			            : to == IBV_QPS_RTS ? rts_mask
			                                : 1);
		}
	};
	const auto each_needed = [&](ibv_qp_state to, int mask) {
		for (int bit = 2; bit <= mask; bit <<= 1)
			if (mask & bit) {
				INFO("to " << to << " without " << bit);
				refused(to, mask & ~bit);
			}
		refused(to, mask | IBV_QP_QKEY); // only of datagrams
	};
	steps_refused({IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPS_SQD, IBV_QPS_SQE});
	each_needed(IBV_QPS_INIT, init_mask);
	ibv_qp_attr a = good(IBV_QPS_INIT, lid);
	REQUIRE(ibv_modify_qp(end.qp, &a, init_mask) == 0);
	steps_refused({IBV_QPS_RTS, IBV_QPS_SQD, IBV_QPS_SQE});
	each_needed(IBV_QPS_RTR, rtr_mask);
	a.qp_state = IBV_QPS_RTR;
	REQUIRE(ibv_modify_qp(end.qp, &a, rtr_mask) == 0);
	steps_refused({IBV_QPS_INIT, IBV_QPS_SQD, IBV_QPS_SQE});
	each_needed(IBV_QPS_RTS, rts_mask);
	a.qp_state = IBV_QPS_RTS;
	REQUIRE(ibv_modify_qp(end.qp, &a, rts_mask) == 0);
	steps_refused({IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_SQE});
	end.to(IBV_QPS_ERR);
	steps_refused({IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPS_SQD, IBV_QPS_SQE});
}

TEST_CASE("impossible values are refused")
{
	Device device;
	const uint16_t lid = lid_of(device.context);
	Endpoint end(device, {});
	const auto refused = [&](int mask, ibv_qp_attr a) {
		CHECK(ibv_modify_qp(end.qp, &a, mask) == EINVAL);
		CHECK(end.state() == (a.qp_state == IBV_QPS_INIT  ? IBV_QPS_RESET
		                      : a.qp_state == IBV_QPS_RTR ? IBV_QPS_INIT
		                                                  : IBV_QPS_RTR));
	};
	ibv_qp_attr a = good(IBV_QPS_INIT, lid), bad = a;
	bad.port_num = 2;
	refused(init_mask, bad);
	bad = a;
	bad.pkey_index = 1;
	refused(init_mask, bad);
	bad = a;
	bad.cur_qp_state = IBV_QPS_INIT;
	refused(init_mask | IBV_QP_CUR_STATE, bad);
	REQUIRE(ibv_modify_qp(end.qp, &a, init_mask) == 0);
	a.qp_state = IBV_QPS_RTR;
	bad = a;
	bad.max_dest_rd_atomic = 17;
	refused(rtr_mask, bad);
	bad = a;
	bad.path_mtu = static_cast<ibv_mtu>(6);
	refused(rtr_mask, bad);
	bad.path_mtu = static_cast<ibv_mtu>(0);
	refused(rtr_mask, bad);
	bad = a;
	bad.min_rnr_timer = 32;
	refused(rtr_mask, bad);
	REQUIRE(ibv_modify_qp(end.qp, &a, rtr_mask) == 0);
	a.qp_state = IBV_QPS_RTS;
	bad = a;
	bad.max_rd_atomic = 17;
	refused(rts_mask, bad);
	bad = a;
	bad.retry_cnt = 8;
	refused(rts_mask, bad);
	bad = a;
	bad.rnr_retry = 8;
	refused(rts_mask, bad);
	bad = a;
	bad.timeout = 32;
	refused(rts_mask, bad);
	REQUIRE(ibv_modify_qp(end.qp, &a, rts_mask) == 0);
}

TEST_CASE("a queue pair starts afresh after a reset, from every state and with anything in its queues")
{
	Device device;
	Memory memory(device.pd, 4096);
	Settings settings;
	settings.send_wr = settings.receive_wr = 16;
	Pair pair(device, settings);
	for (unsigned round = 0; round < 12; ++round) {
		INFO("round " << round);
		// Odd numbers of WQEs, so that the producer indices are somewhere in the middle.
		for (unsigned i = 0; i < round % 4; ++i)
			exchange(device, pair.a, pair.b);
		for (unsigned i = 0; i < 1 + round % 3; ++i) {
			receive(pair.a.qp, {memory.piece(0, 8)});
			send(pair.a.qp, memory.piece(64, 8)); // there is no receive for it
		}
		if (round % 2)
			pair.a.to(IBV_QPS_ERR);
		if (round % 3 == 0)
			pair.b.to(IBV_QPS_ERR);
		reconnect(pair.a, pair.b);
		// Nothing is left from before the reset, not even completions.
		ibv_wc wc;
		CHECK(ibv_poll_cq(pair.a.send_cq, 1, &wc) == 0);
		CHECK(ibv_poll_cq(pair.a.receive_cq, 1, &wc) == 0);
		CHECK(ibv_poll_cq(pair.b.receive_cq, 1, &wc) == 0);
		exchange(device, pair.a, pair.b);
	}
	Endpoint fresh(device, {});
	fresh.to(IBV_QPS_ERR);
	CHECK(fresh.state() == IBV_QPS_ERR);
	fresh.to(IBV_QPS_RESET);
	fresh.to_init();
	fresh.to(IBV_QPS_ERR);
	receive(fresh.qp, {memory.piece(0, 8)}, 3);
	CHECK(expect(fresh.receive_cq, IBV_WC_WR_FLUSH_ERR).wr_id == 3);
}

TEST_CASE("a queue pair in the state RTR only receives")
{
	Device device;
	Memory memory(device.pd, 4096);
	Endpoint a(device, {}), b(device, {});
	a.to_init();
	b.to_init();
	receive(b.qp, {memory.piece(0, 8)}, 1);
	a.to_rtr(b.number(), lid_of(device.context), 0);
	b.to_rtr(a.number(), lid_of(device.context), 0);
	a.to_rts();
	send(a.qp, memory.piece(64, 8), 2);
	CHECK(expect(a.send_cq).wr_id == 2);
	CHECK(expect(b.receive_cq).wr_id == 1);
	CHECK(b.state() == IBV_QPS_RTR);
	b.to_rts();
	exchange(device, a, b);
}

TEST_CASE("a send queue in the state SQD finishes what it has begun, and goes on later")
{
	Device device;
	Settings settings;
	settings.mtu = IBV_MTU_256;
	Pair pair(device, settings);
	constexpr size_t bytes = 4 << 20;
	Memory near(device.pd, bytes), far(device.pd, bytes);
	near.fill(1);
	const auto drain = [&](bool notify) {
		ibv_qp_attr a{};
		a.qp_state = IBV_QPS_SQD;
		a.en_sqd_async_notify = notify;
		REQUIRE(ibv_modify_qp(pair.a.qp, &a, IBV_QP_STATE | (notify ? IBV_QP_EN_SQD_ASYNC_NOTIFY : 0)) == 0);
	};
	for (unsigned round = 0; round < 5; ++round) {
		far.clear();
		write(pair.a.qp, near.whole(), far.address(), far.key(), 1);
		read(pair.a.qp, far.piece(0, 100), near.address(), near.key(), 2);
		drain(true);
		CHECK(next_event(device.context, IBV_EVENT_SQ_DRAINED).element.qp == pair.a.qp);
		CHECK(Queried(pair.a.qp).attr.sq_draining == 0);
		CHECK(pair.a.state() == IBV_QPS_SQD);
		// No further completion comes.
		std::vector<ibv_wc> done;
		ibv_wc wc;
		while (ibv_poll_cq(pair.a.send_cq, 1, &wc) == 1)
			done.push_back(wc);
		if (!done.empty())
			CHECK(same(far.at(), near.at(), bytes) == bytes);
		send(pair.a.qp, near.piece(0, 100), 3);
		receive(pair.b.qp, {far.piece(0, 100)});
		// The other direction is not affected.
		receive(pair.a.qp, {far.piece(200, 8)});
		send(pair.b.qp, near.piece(0, 8));
		expect(pair.b.send_cq);
		expect(pair.a.receive_cq);
		CHECK(ibv_poll_cq(pair.a.send_cq, 1, &wc) == 0);
		// Some attributes may be changed in this state.
		ibv_qp_attr a{};
		a.timeout = 12;
		a.retry_cnt = 5;
		a.ah_attr.dlid = lid_of(device.context);
		a.ah_attr.port_num = 1;
		CHECK(ibv_modify_qp(pair.a.qp, &a, IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_AV) == 0);
		CHECK(Queried(pair.a.qp).attr.timeout == 12);
		pair.a.to(IBV_QPS_RTS);
		for (uint64_t id = done.size() + 1; id <= 3; ++id)
			CHECK(expect(pair.a.send_cq).wr_id == id);
		expect(pair.b.receive_cq);
	}
	CHECK(no_event(device.context));
	drain(false);
	pair.a.to(IBV_QPS_RTS);
	exchange(device, pair.a, pair.b);
	CHECK(no_event(device.context)); // nobody has asked
}

TEST_CASE("what others use cannot go")
{
	Device device;
	Endpoint end(device, {});
	CHECK(ibv_destroy_cq(end.send_cq) == EBUSY);
	CHECK(ibv_destroy_cq(end.receive_cq) == EBUSY);
	CHECK(ibv_dealloc_pd(device.pd) == EBUSY);
}
