// The send side of a queue pair, reliable connection or DC initiator alike: work requests in order, kept until their
// completion is known, so that they can be posted again when the queue pair breaks.
//
//   posted -----> doorbell rung -----> executed by the device -----> completed
//          ring()                                  a completion frees all before it; it is asked for every `period`
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "base/assert.hpp"
#include "transports/verbs/device/device.hpp"
#include "transports/verbs/device/send_memory.hpp"
#include "transports/verbs/qp/doorbells.hpp"
#include "transports/verbs/qp/mlx5_poster.hpp"
#include "transports/verbs/qp/send_queues.hpp"
#include "transports/verbs/qp/verbs_poster.hpp"
#include "transports/verbs/qp/work_request.hpp"
#include "transports/verbs/tuning/queue_tuner.hpp"

namespace pt2p::verbs {

// Who looks after a queue pair.
class QueueOwner {
public:
	// It is in error: completions up to the failure have been read. `status` is that of the first that failed, success
	// when none has.
	virtual void on_broken(SendQueue &queue, ibv_wc_status status) = 0;
	// Whether all that it could still deliver is for somebody who has left: nothing need be waited for.
	virtual bool left() const { return false; }
	// Who answers when everything before is complete, when the last target of a queue is down; null: nobody.
	virtual Target *substitute() { return nullptr; }
	// Every few milliseconds: whether what is first in it keeps others waiting for ever.
	virtual void look_after(SendQueue &queue) { (void)queue; }

protected:
	~QueueOwner() = default;
};

// Who posts parts of operations.
class PartEvents {
public:
	virtual void part_done(Operation &operation, size_t bytes) = 0;
	virtual void part_failed(Operation &operation, size_t bytes, pt2p_status_t status, const char *reason) = 0;

protected:
	~PartEvents() = default;
};

// What the send queues of a device have in common. All outlive them.
struct SendShared {
	SendMemory &memory;
	Doorbells &doorbells;
	SendQueues &queues;
	PartEvents &parts;
	tune::DeviceTuner &tuner;
	uint32_t depth = 0;      // work requests
	uint32_t period = 0;     // signal period at first, work requests
	uint32_t max_inline = 0; // PT2P_NET_INLINE, bytes
	bool direct = false;     // WQEs are written and CQEs read here, without libibverbs
	bool blueflame = true;
	Mlx5Poster::Registers registers{};
};

class SendQueue {
public:
	// Takes the queue pair over, which is a DC initiator or not, and has room for so many bytes of inline payload.
	SendQueue(SendShared &shared, QueueOwner &owner, QpOwner qp, uint32_t max_inline, bool dc);
	~SendQueue();
	SendQueue(const SendQueue &) = delete;
	SendQueue &operator=(const SendQueue &) = delete;

	ibv_qp *qp() const { return qp_.get(); }
	uint32_t number() const { return qp_->qp_num; } // of the queue pair
	bool can_post() const { return posted_ - completed_ < limit_; }
	// Whether everything that was posted is complete, as far as known.
	bool idle() const { return posted_ == completed_; }
	uint32_t in_flight() const { return posted_ - completed_; }
	// The number of the last work request; whether that of this number is complete.
	uint32_t posted() const { return posted_; }
	bool has_completed(uint32_t number) const { return static_cast<int32_t>(completed_ - number) >= 0; }
	bool works_for(const Target &target) const;

	// ---- posting ----

	// The next work request, to be filled in, and then given to submit(). Needs can_post().
	WorkRequest &next(Target &target, Kind kind, uint32_t length)
	{
		PT2P_ASSERT(can_post());
		WorkRequest &request = at(posted_++);
		request.make(kind);
		request.target = &target;
		request.length = length;
		++target.in_flight;
		return request;
	}
	// Posts it. `signal`: its completion is wanted whatever the period.
	void submit(bool signal);
	// The same, where its latency is a sample of where it is staged; `since`, ticks: when its staging began. Needs
	// !samples().
	void submit_sample(int64_t since);
	bool samples() const { return tuner_ && tuner_->samples(); }
	// The short path: an inline SEND of so many bytes, which writes one WQE and its doorbell and calls nothing. `fill`
	// puts the payload where it is told. `av`: of a DC target. Needs posts_short(bytes).
	template <bool dc>
	bool posts_short(uint32_t bytes) const
	{
		return bytes <= max_short_ && can_post() && (!dc || mlx5_->queue().is_contiguous(2));
	}
	template <bool dc, class Fill>
	void post_short(Target &target, const mlx5_wqe_av *av, uint32_t bytes, Fill &&fill);
	// Longest inline payload of any work request, bytes.
	uint32_t max_inline() const { return max_inline_; }
	// A write of no bytes, whose completion, or failure, tells whether the target is there and frees all before it.
	// Needs can_post().
	void probe(Target &target);
	// Asks for a completion of everything that was posted, unless that has been done.
	void flush();
	// For who has to know when all is done: each of so many from the next one on is signalled, whatever the period.
	void signal_each(uint32_t work_requests);
	// Makes the device see what has been posted.
	void ring();

	// ---- completing ----

	// A completion has been read: of this work request and all before it.
	void complete(uint32_t upto);
	// The same of the WQE with this index, and all before it; or of all before it.
	void complete_wqe(uint16_t index) { complete(mlx5_->complete(index)); }
	void complete_before_wqe(uint16_t index) { complete(completed_ + mlx5_->complete_before(index, in_flight())); }

	// ---- what breaks ----

	// The queue pair has been reset.
	void was_reset();
	// The queue pair is in error: nothing is posted, completions of flushed work requests mean nothing.
	bool broken() const { return limit_ == 0; }
	void set_broken();
	// The first that is not complete: after a failure, the one that has failed. Null: there is none.
	WorkRequest *front() { return idle() ? nullptr : &at(completed_); }
	// The queue pair works again: posts what is not complete once more, in order. Not what is for a target that is
	// down, and not atomics, which may have been executed already: those fail.
	void post_again();
	// Its operation fails, and it is not posted again.
	void abandon(WorkRequest &request, pt2p_status_t status, const char *reason = "");
	// The operations of this target fail; its work requests are not posted again.
	void drop(Target &target);
	// Forgets everything that is not complete. The device must have stopped.
	void drop_all();

	// ---- what has gone through it since it was made ----

	struct Totals {
		uint64_t work_requests = 0, doorbells = 0;
		uint64_t fetched = 0; // of the work requests, those whose WQEs did not go along with a doorbell
		uint32_t max_in_flight = 0;
	};
	Totals totals();
	uint32_t depth() const { return depth_; }
	// What the target's counts do not have yet: of inline messages that are not complete.
	uint64_t inline_bytes_in_flight(const Target &target) const;

	QueueOwner &owner;
	uint32_t index = 0;  // among the send queues
	bool listed = false; // among those whose doorbell waits

private:
	void signalled(uint32_t number)
	{
		signalled_ = number;
		due_ = number + (each_ ? 1 : period_);
		each_ -= each_ != 0;
		// Together, or the limit could be reached before anything is signalled.
		if (!broken())
			limit_ = std::max(period_, window_);
	}
	// This work request is signalled because a period is over.
	void end_period(uint32_t number)
	{
		if (tuner_)
			tuner_->posted(number, completed_ == number - 1, each_ != 0);
		signalled(number);
	}
	uint32_t longest_short() const;
	void tune(uint32_t upto);
	tune::Observed observed(uint32_t number) const;
	void count();
	void post(const WorkRequest &request, bool signal);
	void release(WorkRequest &request);
	void complete_other(WorkRequest &request);
	WorkRequest &at(uint32_t number) const { return requests_[number & mask_]; }

	SendShared &shared_;
	QpOwner qp_;
	// One of the two.
	std::optional<Mlx5Poster> mlx5_;
	std::optional<VerbsPoster> verbs_;
	const uint32_t depth_, mask_, max_inline_;
	const uint32_t max_short_; // bytes of a message with its header; 0: there is no short path
	std::optional<tune::QueueTuner> tuner_;
	uint32_t period_;
	uint32_t
	    window_; // what may be in flight beside a period: the depth, or what is tuned; nothing where that is the period
	uint32_t each_ = 0; // so many more are signalled before the period counts again
	// Counted from the beginning; work request n is at n of the ring.
	uint32_t posted_ = 0, completed_ = 0, signalled_ = 0;
	uint32_t due_ = 0;    // to be signalled
	uint32_t limit_;      // to what may be in flight; nothing while it is broken
	uint32_t unrung_ = 0; // posted, and no doorbell was rung for them
	struct {
		uint32_t upto = 0; // this number
		uint64_t work_requests = 0;
		uint64_t rung_together = 0, together = 0; // work requests that shared a doorbell, and such doorbells
		uint32_t max_in_flight = 0;
	} counted_; // for totals()
	std::unique_ptr<WorkRequest[]> requests_;
};

template <bool dc, class Fill>
[[gnu::always_inline]] inline void SendQueue::post_short(Target &target, const mlx5_wqe_av *av, uint32_t bytes,
                                                         Fill &&fill)
{
	constexpr uint32_t wqebbs = dc ? 2 : 1;
	constexpr size_t front_bytes =
	    mlx5::WqeEncoder::control_bytes + (dc ? sizeof *av : 0) + sizeof(mlx5_wqe_inl_data_seg);
	mlx5::SendWorkQueue &sq = mlx5_->queue();
	const uint32_t index = sq.producer();
	unsigned char *const at = sq.at(index);
	mlx5::WqeEncoder wqe(at);
	if constexpr (dc)
		wqe.address_vector(*av);
	fill(wqe.inline_payload(bytes));

	const uint32_t number = posted_ + 1; // stores behind this one may alias
	next(target, Kind::send, bytes);
	bool due = false;
	if (__builtin_expect(number == due_, 0)) {
		due = true;
		mlx5_->number_of(index) = number;
		end_period(number);
	}
	sq.end_and_ring<wqebbs>(at, index, MLX5_OPCODE_SEND, due, static_cast<uint32_t>(front_bytes) + bytes);
}

inline SendQueue *SendQueues::find(uint32_t number) const
{
	for (size_t at = number;; ++at) {
		SendQueue *queue = hash_[at & (hash_.size() - 1)];
		if (!queue || queue->number() == number)
			return queue;
	}
}

} // namespace pt2p::verbs
