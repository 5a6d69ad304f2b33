// Posts work requests through libibverbs: on devices other than mlx5, and with PT2P_NET_DIRECT=0.
#pragma once

#include <infiniband/mlx5dv.h>

#include "transports/verbs/qp/work_request.hpp"

namespace pt2p::verbs {

class VerbsPoster {
public:
	VerbsPoster(ibv_qp *qp, QueueKind kind)
	    : datagrams_(kind == QueueKind::datagrams), qp_(ibv_qp_to_qp_ex(qp)),
	      dc_(kind == QueueKind::initiator ? mlx5dv_qp_ex_from_ibv_qp_ex(qp_) : nullptr)
	{
	}

	// `id`: of the completion.
	void post(const WorkRequest &request, uint64_t id, bool signalled);
	// This cannot fail while the queue pair works. If it is broken, its work requests are posted again later.
	void ring()
	{
		started_ = false;
		ibv_wr_complete(qp_);
	}
	// Discards what waits for a doorbell.
	void abort()
	{
		started_ = false;
		ibv_wr_abort(qp_);
	}

private:
	const bool datagrams_;
	ibv_qp_ex *qp_;
	mlx5dv_qp_ex *dc_; // null: no initiator
	bool started_ = false;
};

} // namespace pt2p::verbs
