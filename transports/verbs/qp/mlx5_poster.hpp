// Posts work requests by writing WQEs into the queue of an mlx5 device.
#pragma once

#include <memory>

#include "transports/verbs/mlx5/queues.hpp"
#include "transports/verbs/qp/work_request.hpp"

namespace pt2p::verbs {

class Mlx5Poster {
public:
	using Registers = std::vector<std::unique_ptr<mlx5::DoorbellRegister>>;
	// All queue pairs of an ibv_context share `registers`. `blueflame`: whether a doorbell may carry a WQE.
	Mlx5Poster(ibv_qp *qp, Registers &registers, bool blueflame, QueueKind kind)
	    : datagrams_(kind == QueueKind::datagrams), queue_(qp, registers, blueflame),
	      numbers_(std::make_unique<uint32_t[]>(queue_.wqebbs()))
	{
	}

	mlx5::SendWorkQueue &queue() { return queue_; }
	const mlx5::SendWorkQueue &queue() const { return queue_; }
	// How many work requests the queue can hold, of any length.
	uint32_t depth() const { return queue_.wqebbs() / mlx5::SendWorkQueue::max_wqebbs; }

	void post(const WorkRequest &request, uint32_t number, bool signalled);
	// The number of the signalled work request whose WQE has this index.
	uint32_t &number_of(uint32_t wqe) { return numbers_[wqe & (queue_.wqebbs() - 1)]; }

	// The WQE with this index and all before it have completed. Returns the number of its work request.
	uint32_t complete(uint16_t wqe)
	{
		first_ = queue_.after(wqe);
		return number_of(wqe);
	}
	// All WQEs before this one have completed; it need not be signalled. Returns how many of the `pending` work
	// requests these are.
	uint32_t complete_before(uint16_t wqe, uint32_t pending)
	{
		uint32_t n = 0;
		for (; n != pending && first_ != wqe; ++n)
			first_ = queue_.after(first_);
		return n;
	}
	// The index of the first WQE that is not complete.
	uint16_t first() const { return first_; }
	// Copies the payload of an inline message from the queue into the request. Returns the index of the next WQE.
	uint16_t keep(uint16_t wqe, WorkRequest &request) const;
	// The queue pair has been reset.
	void reset()
	{
		queue_.reset();
		first_ = 0;
	}

private:
	const bool datagrams_;
	mlx5::SendWorkQueue queue_;
	std::unique_ptr<uint32_t[]> numbers_; // of signalled work requests, by index of their WQE
	uint16_t first_ = 0;
};

} // namespace pt2p::verbs
