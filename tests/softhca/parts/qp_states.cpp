// The state transitions of queue pairs: those that a program makes, and all combinations.
#include <catch2/catch.hpp>

#include <random>
#include <vector>

#include "softhca/kernel/qp_states.hpp"

using namespace softhca;

namespace {

constexpr QpState states[] = {QpState::reset, QpState::init, QpState::rtr,  QpState::rts,
                              QpState::sqd,   QpState::sqe,  QpState::error};
constexpr QpKind kinds[] = {QpKind::rc, QpKind::ud, QpKind::dci, QpKind::dct};

struct Step {
	QpState from, to;
	uint32_t mask;
};

// All transitions in turn. Every required attribute of a transition is needed, and none of another kind is taken.
void live(QpKind kind, const std::vector<Step> &steps)
{
	for (const Step &step : steps) {
		const uint32_t mask = qp_state | step.mask;
		CHECK(may_modify(kind, step.from, step.to, mask));
		CHECK_FALSE(may_modify(kind, step.from, step.to, step.mask)); // the state has to be given
		for (uint32_t bit = 2; bit <= qp_dest_qpn; bit <<= 1)
			if (step.mask & bit)
				CHECK_FALSE(may_modify(kind, step.from, step.to, mask & ~bit));
		CHECK_FALSE(may_modify(kind, step.from, step.to, mask | qp_cap));
		CHECK(may_modify(kind, step.to, QpState::reset, qp_state));
		CHECK_FALSE(may_modify(kind, step.to, QpState::reset, qp_state | qp_port));
	}
}

} // namespace

TEST_CASE("a connected queue pair comes up in three steps")
{
	live(QpKind::rc,
	     {{QpState::reset, QpState::init, qp_pkey_index | qp_port | qp_access_flags},
	      {QpState::init, QpState::rtr,
	       qp_av | qp_path_mtu | qp_dest_qpn | qp_rq_psn | qp_max_dest_rd_atomic | qp_min_rnr_timer},
	      {QpState::rtr, QpState::rts, qp_timeout | qp_retry_cnt | qp_rnr_retry | qp_sq_psn | qp_max_rd_atomic}});
	CHECK_FALSE(may_modify(QpKind::rc, QpState::reset, QpState::init, qp_state | qp_pkey_index | qp_port | qp_qkey));
}

TEST_CASE("a datagram queue pair has a key and no partner")
{
	live(QpKind::ud, {{QpState::reset, QpState::init, qp_pkey_index | qp_port | qp_qkey},
	                  {QpState::init, QpState::rtr, 0},
	                  {QpState::rtr, QpState::rts, qp_sq_psn}});
	CHECK(may_modify(QpKind::ud, QpState::sqe, QpState::rts, qp_state));
	CHECK_FALSE(may_modify(QpKind::rc, QpState::sqe, QpState::rts, qp_state));
}

TEST_CASE("initiators and targets of the dynamically connected transport")
{
	live(QpKind::dci,
	     {{QpState::reset, QpState::init, qp_pkey_index | qp_port},
	      {QpState::init, QpState::rtr, qp_path_mtu},
	      {QpState::rtr, QpState::rts, qp_timeout | qp_retry_cnt | qp_rnr_retry | qp_max_rd_atomic | qp_sq_psn}});
	live(QpKind::dct, {{QpState::reset, QpState::init, qp_pkey_index | qp_port | qp_access_flags},
	                   {QpState::init, QpState::rtr, qp_min_rnr_timer | qp_av | qp_path_mtu}});
	CHECK_FALSE(may_modify(QpKind::dct, QpState::rtr, QpState::rts, qp_state)); // a target only receives
}

TEST_CASE("no state is reached past another, and an error is left through reset alone")
{
	std::mt19937 random(1);
	for (QpKind kind : kinds)
		for (QpState from : states)
			for (QpState to : states) {
				const int ahead = static_cast<int>(to) - static_cast<int>(from);
				const bool skips = to <= QpState::rts && from < QpState::rts && ahead > 1;
				const bool revives = from == QpState::error && to != QpState::reset && to != QpState::error;
				const bool back = to != QpState::reset && to < from && from <= QpState::rts;
				if (skips || revives || back)
					for (int i = 0; i < 2000; ++i)
						REQUIRE_FALSE(may_modify(kind, from, to, static_cast<uint32_t>(random()) | qp_state));
			}
}

TEST_CASE("the send queue drains and goes on")
{
	CHECK(may_modify(QpKind::rc, QpState::rts, QpState::sqd, qp_state));
	CHECK(may_modify(QpKind::rc, QpState::rts, QpState::sqd, qp_state | qp_en_sqd_async_notify));
	CHECK(may_modify(QpKind::rc, QpState::sqd, QpState::sqd, qp_av | qp_timeout));
	CHECK(may_modify(QpKind::rc, QpState::sqd, QpState::rts, qp_state | qp_cur_state));
	CHECK_FALSE(may_modify(QpKind::rc, QpState::rts, QpState::sqd, qp_state | qp_av));
	CHECK_FALSE(may_modify(QpKind::dci, QpState::rts, QpState::sqd, qp_state));
}
