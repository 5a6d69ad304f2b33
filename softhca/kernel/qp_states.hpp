// The states of a queue pair, and which attributes each step between them needs and allows.
#pragma once

#include <cstdint>

namespace softhca {

// In the order of the verbs interface.
enum class QpState : uint8_t { reset, init, rtr, rts, sqd, sqe, error };
enum class QpKind : uint8_t { rc, ud, dci, dct };

// Bits of an attribute mask, as in the verbs interface.
enum QpAttribute : uint32_t {
	qp_state = 1u << 0,
	qp_cur_state = 1u << 1,
	qp_en_sqd_async_notify = 1u << 2,
	qp_access_flags = 1u << 3,
	qp_pkey_index = 1u << 4,
	qp_port = 1u << 5,
	qp_qkey = 1u << 6,
	qp_av = 1u << 7,
	qp_path_mtu = 1u << 8,
	qp_timeout = 1u << 9,
	qp_retry_cnt = 1u << 10,
	qp_rnr_retry = 1u << 11,
	qp_rq_psn = 1u << 12,
	qp_max_rd_atomic = 1u << 13,
	qp_alt_path = 1u << 14,
	qp_min_rnr_timer = 1u << 15,
	qp_sq_psn = 1u << 16,
	qp_max_dest_rd_atomic = 1u << 17,
	qp_path_mig_state = 1u << 18,
	qp_cap = 1u << 19,
	qp_dest_qpn = 1u << 20,
};

// Whether a queue pair of that kind may go from `from` to `to` with the attributes of `mask`: all that the step needs,
// and none that it does not allow. RC and UD: InfiniBand specification, volume 1, 11.2.5.2 (table of QP state
// transition properties). DCI and DCT: as the kernel's mlx5 driver.
bool may_modify(QpKind kind, QpState from, QpState to, uint32_t mask);

} // namespace softhca
