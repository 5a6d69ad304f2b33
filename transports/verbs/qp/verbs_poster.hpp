// Posts work requests by libibverbs: for devices of other makers, and where PT2P_NET_DIRECT=0.
#pragma once

#include <infiniband/mlx5dv.h>

#include "transports/verbs/qp/work_request.hpp"

namespace pt2p::verbs {

class VerbsPoster {
public:
	// `dc`: whether it is a DC initiator.
	VerbsPoster(ibv_qp *qp, bool dc) : qp_(ibv_qp_to_qp_ex(qp)), dc_(dc ? mlx5dv_qp_ex_from_ibv_qp_ex(qp_) : nullptr) {}

	// `id` is that of the completion.
	void post(const WorkRequest &request, uint64_t id, bool signalled);
	// It cannot fail while the queue pair works; when it does not, its work requests are posted again later.
	void ring()
	{
		started_ = false;
		ibv_wr_complete(qp_);
	}
	// What no doorbell was rung for is not posted.
	void abort()
	{
		started_ = false;
		ibv_wr_abort(qp_);
	}

private:
	ibv_qp_ex *qp_;
	mlx5dv_qp_ex *dc_; // null: a reliable connection
	bool started_ = false;
};

} // namespace pt2p::verbs
