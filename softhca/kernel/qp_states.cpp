#include "softhca/kernel/qp_states.hpp"

namespace softhca {

namespace {

struct Step {
	QpKind kind;
	QpState from, to;
	uint32_t needed, allowed; // beside the state itself
};

using enum QpState;
using enum QpKind;

constexpr uint32_t rts_options = qp_cur_state | qp_alt_path | qp_access_flags | qp_min_rnr_timer | qp_path_mig_state;

// Steps to reset and to error are not listed: they are possible from everywhere, with nothing but the state.
constexpr Step steps[] = {
    {rc, reset, init, qp_pkey_index | qp_port | qp_access_flags, 0},
    {rc, init, init, 0, qp_pkey_index | qp_port | qp_access_flags},
    {rc, init, rtr, qp_av | qp_path_mtu | qp_dest_qpn | qp_rq_psn | qp_max_dest_rd_atomic | qp_min_rnr_timer,
     qp_alt_path | qp_access_flags | qp_pkey_index},
    {rc, rtr, rts, qp_timeout | qp_retry_cnt | qp_rnr_retry | qp_sq_psn | qp_max_rd_atomic, rts_options},
    {rc, rts, rts, 0, rts_options},
    {rc, rts, sqd, 0, qp_en_sqd_async_notify},
    {rc, sqd, rts, 0, rts_options},
    {rc, sqd, sqd, 0,
     qp_port | qp_av | qp_timeout | qp_retry_cnt | qp_rnr_retry | qp_max_rd_atomic | qp_max_dest_rd_atomic |
         qp_alt_path | qp_access_flags | qp_pkey_index | qp_min_rnr_timer | qp_path_mig_state},

    {ud, reset, init, qp_pkey_index | qp_port | qp_qkey, 0},
    {ud, init, init, 0, qp_pkey_index | qp_port | qp_qkey},
    {ud, init, rtr, 0, qp_pkey_index | qp_qkey},
    {ud, rtr, rts, qp_sq_psn, qp_cur_state | qp_qkey},
    {ud, rts, rts, 0, qp_cur_state | qp_qkey},
    {ud, rts, sqd, 0, qp_en_sqd_async_notify},
    {ud, sqd, rts, 0, qp_cur_state | qp_qkey},
    {ud, sqd, sqd, 0, qp_pkey_index | qp_qkey},
    {ud, sqe, rts, 0, qp_cur_state | qp_qkey}, // only datagrams come back from an error of the send queue

    {dci, reset, init, qp_pkey_index | qp_port, 0},
    {dci, init, init, 0, qp_pkey_index | qp_port},
    {dci, init, rtr, qp_path_mtu, qp_pkey_index | qp_av},
    {dci, rtr, rts, qp_timeout | qp_retry_cnt | qp_rnr_retry | qp_max_rd_atomic | qp_sq_psn, qp_min_rnr_timer},
    {dci, rts, rts, 0, qp_min_rnr_timer},

    {dct, reset, init, qp_pkey_index | qp_port | qp_access_flags, 0},
    {dct, init, rtr, qp_min_rnr_timer | qp_av | qp_path_mtu, 0},
};

} // namespace

bool may_modify(QpKind kind, QpState from, QpState to, uint32_t mask)
{
	const uint32_t others = mask & ~static_cast<uint32_t>(qp_state);
	if (from != to && !(mask & qp_state))
		return false;
	if (to == reset || to == error)
		return others == 0 && (mask & qp_state) && !(kind == dct && to == error);
	for (const Step &step : steps)
		if (step.kind == kind && step.from == from && step.to == to)
			return (others & step.needed) == step.needed && (others & ~(step.needed | step.allowed)) == 0;
	return false;
}

} // namespace softhca
