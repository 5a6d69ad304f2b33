// The send side of a queue pair: a reliable connection, a DC initiator, or one for datagrams. It keeps work requests in
// order until they complete, so that it can post them again after the queue pair has broken.
//
//   posted -----> doorbell rung -----> executed by the device -----> completed
//          ring()                                 a completion covers all before it; one is requested per period
//
// While doorbells are corked and messages bundled, the last work request may be open: its payload still grows. It is
// encoded for the device when the next one is posted or the doorbell is rung.
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

// The owner of a queue pair.
class QueueOwner {
public:
	// The queue pair is in error, and completions up to the failure have been read. `status` is that of the first
	// failed work request; success: none has failed.
	virtual void on_broken(SendQueue &queue, ibv_wc_status status) = 0;
	// Whether all pending work is for ranks that have left, so that nobody need wait for it.
	virtual bool left() const { return false; }
	// A target for a probe when the last target of the queue is down; null: there is none.
	virtual Target *substitute() { return nullptr; }
	// Called every few milliseconds, to find a first work request that keeps others waiting for ever.
	virtual void look_after(SendQueue &queue) { (void)queue; }

protected:
	~QueueOwner() = default;
};

// Hears what becomes of parts of operations.
class PartEvents {
public:
	virtual void part_done(Operation &operation, size_t bytes) = 0;
	virtual void part_failed(Operation &operation, size_t bytes, pt2p_status_t status, const char *reason) = 0;

protected:
	~PartEvents() = default;
};

// What all send queues of a device share. Everything here outlives them.
struct SendShared {
	SendMemory &memory;
	Doorbells &doorbells;
	SendQueues &queues;
	PartEvents &parts;
	tune::DeviceTuner &tuner;
	uint32_t depth = 0;      // work requests
	uint32_t period = 0;     // first signal period, work requests
	uint32_t max_inline = 0; // PT2P_NET_INLINE, bytes
	bool direct = false;     // WQEs are written and CQEs read without libibverbs
	bool blueflame = true;
	Mlx5Poster::Registers registers{};
};

class SendQueue {
public:
	// Takes over a queue pair that can inline `max_inline` bytes.
	SendQueue(SendShared &shared, QueueOwner &owner, QpOwner qp, uint32_t max_inline, QueueKind kind);
	~SendQueue();
	SendQueue(const SendQueue &) = delete;
	SendQueue &operator=(const SendQueue &) = delete;

	ibv_qp *qp() const { return qp_.get(); }
	uint32_t number() const { return qp_->qp_num; } // of the queue pair
	QueueKind kind() const { return kind_; }
	bool can_post() const { return posted_ - completed_ < limit_; }
	// Whether everything that was posted is known to be complete.
	bool idle() const { return posted_ == completed_; }
	uint32_t in_flight() const { return posted_ - completed_; }
	// Whether it kept the device busy within the last windows of PT2P_TUNE=on (WindowTuner::saturated()).
	bool saturated() const { return tuner_ && tuner_->saturated(); }
	// The number of the last work request; whether the one with this number has completed.
	uint32_t posted() const { return posted_; }
	bool has_completed(uint32_t number) const { return static_cast<int32_t>(completed_ - number) >= 0; }
	bool works_for(const Target &target) const;

	// ---- posting ----

	// The next work request; the caller fills it in and calls submit(). Needs can_post().
	WorkRequest &next(Target &target, Kind kind, uint32_t length)
	{
		PT2P_ASSERT(can_post());
		if (open_)
			close();
		return append(target, kind, length);
	}
	// Posts it. `signal`: request a completion whatever the period.
	void submit(bool signal);
	// The same for a message whose payload is in a place of which there is a shortage.
	void submit_message(Shortage shortage);
	// The same for a sample of staging, which began at `since` (ticks). Needs !samples().
	void submit_sample(int64_t since);
	bool tunes() const { return tuner_.has_value(); }
	bool samples() const { return tuner_ && tuner_->samples(); }
	// The same, but the work request stays open. Needs bundles().
	void submit_open(Shortage shortage);
	bool bundles() const { return shared_.doorbells.bundles(); }
	// The open work request, if it is for that target; null: there is none. When it has changed, submit_open() follows.
	WorkRequest *open_for(const Target &target)
	{
		WorkRequest *const last = open_ ? &at(posted_ - 1) : nullptr;
		return last && last->target == &target ? last : nullptr;
	}
	// Whether something waits for a doorbell.
	bool waits() const { return unrung_ != 0 || open_; }
	// The short path: an inline SEND of so many bytes. It writes one WQE and its doorbell, and calls no function.
	// `fill` writes the payload. `av`: of a target that each work request names. Needs posts_short(bytes).
	template <QueueKind kind>
	bool posts_short(uint32_t bytes) const
	{
		return bytes <= max_short_ && can_post() &&
		       ((kind == QueueKind::connection && bytes <= one_wqebb) || mlx5_->queue().is_contiguous(2));
	}
	template <QueueKind kind, class Fill>
	[[gnu::always_inline]] void post_short(Target &target, const mlx5_wqe_av *av, uint32_t bytes, Fill &&fill)
	{
		if (kind != QueueKind::connection || __builtin_expect(bytes > one_wqebb, 0))
			post_short_in<kind, 2>(target, av, bytes, fill);
		else
			post_short_in<QueueKind::connection, 1>(target, av, bytes, fill);
	}
	// Longest inline payload, bytes.
	uint32_t max_inline() const { return max_inline_; }
	// Posts a WRITE of no bytes. Its completion or failure tells whether the target is alive, and frees all before it.
	// Needs can_post().
	void probe(Target &target);
	// Requests a completion of everything that was posted, unless that was done. Nobody waits for that of datagrams.
	void flush();
	// Signals each of the next `work_requests`, whatever the period.
	void signal_each(uint32_t work_requests);
	// Rings the doorbell for what was posted.
	void ring();

	// ---- completing ----

	// A CQE was read: work request `upto` and all before it have completed.
	void complete(uint32_t upto);
	// The same for the WQE with this index and all before it; for all before it.
	void complete_wqe(uint16_t index) { complete(mlx5_->complete(index)); }
	void complete_before_wqe(uint16_t index) { complete(completed_ + mlx5_->complete_before(index, in_flight())); }

	// ---- failures ----

	// The queue pair has been reset.
	void was_reset();
	// The queue pair is in error. Nothing is posted, and completions of flushed work requests mean nothing.
	bool broken() const { return limit_ == 0; }
	void set_broken();
	// The first that is not complete; after a failure, the one that failed. Null: there is none.
	WorkRequest *front() { return idle() ? nullptr : &at(completed_); }
	// The queue pair works again. Posts again, in order, what is not complete. Work requests of a target that is down
	// fail, and so do atomics, because the device may have executed them.
	void post_again();
	// Its operation fails, and it is not posted again.
	void abandon(WorkRequest &request, pt2p_status_t status, const char *reason = "");
	// The operations of this target fail; its work requests are not posted again.
	void drop(Target &target);
	// Forgets everything that is not complete. The device must have stopped.
	void drop_all();

	// ---- totals ----

	struct Totals {
		uint64_t work_requests = 0, doorbells = 0;
		uint64_t fetched = 0; // work requests whose WQEs no doorbell carried
		uint32_t max_in_flight = 0;
	};
	Totals totals();
	uint32_t depth() const { return depth_; }
	// Bytes of inline messages that are not complete, which the target's counts do not include yet.
	uint64_t inline_bytes_in_flight(const Target &target) const;

	QueueOwner &owner;
	uint32_t index = 0;  // among the send queues
	bool listed = false; // a doorbell waits

private:
	void signalled(uint32_t number)
	{
		signalled_ = number;
		due_ = number + (each_ ? 1 : period_);
		each_ -= each_ != 0;
		// The limit changes together with the period, or it could be reached before anything is signalled.
		if (!broken())
			limit_ = std::max(period_, window_);
	}
	// This work request is signalled because it ends a period. `early`: the period is cut short.
	void end_period(uint32_t number, bool early)
	{
		if (tuner_)
			tuner_->posted(number, completed_ == number - 1, early || each_ != 0);
		signalled(number);
	}
	WorkRequest &append(Target &target, Kind kind, uint32_t length)
	{
		WorkRequest &request = at(posted_++);
		request.make(kind);
		request.target = &target;
		request.length = length;
		++target.in_flight;
		return request;
	}
	// Longest inline payload in the first WQEBB of a reliable connection, bytes.
	static constexpr uint32_t one_wqebb =
	    mlx5::wqebb_bytes - mlx5::WqeEncoder::control_bytes - sizeof(mlx5_wqe_inl_data_seg);
	template <QueueKind kind, uint32_t wqebbs, class Fill>
	void post_short_in(Target &target, const mlx5_wqe_av *av, uint32_t bytes, Fill &&fill);
	uint32_t longest_short(QueueKind kind) const;
	void tune(uint32_t upto);
	tune::Observed observed(uint32_t number) const;
	void count();
	void post(const WorkRequest &request, bool signal);
	void close();
	bool early(Shortage shortage) const;
	// Of the last work request that is encoded.
	uint32_t encoded() const { return posted_ - open_; }
	void release(WorkRequest &request);
	void complete_other(WorkRequest &request);
	WorkRequest &at(uint32_t number) const { return requests_[number & mask_]; }

	SendShared &shared_;
	QpOwner qp_;
	// One of the two.
	std::optional<Mlx5Poster> mlx5_;
	std::optional<VerbsPoster> verbs_;
	const QueueKind kind_;
	const uint32_t depth_, mask_, max_inline_;
	const uint32_t max_short_; // bytes of a message with its header; 0: no short path
	std::optional<tune::QueueTuner> tuner_;
	uint32_t period_;
	uint32_t window_;   // the depth, or as tuned
	uint32_t each_ = 0; // so many more are signalled before the period counts again
	// Numbers of work requests, from the beginning.
	uint32_t posted_ = 0, completed_ = 0, signalled_ = 0;
	uint32_t due_ = 0;         // the next to be signalled
	uint32_t limit_;           // of what is in flight; 0: broken
	uint32_t unrung_ = 0;      // encoded, and waiting for a doorbell
	bool open_ = false;        // the last one is not encoded yet
	bool open_signal_ = false; // ... and is to be signalled
	struct {
		uint32_t upto = 0; // counted up to this number
		uint64_t work_requests = 0;
		uint64_t rung_together = 0, together = 0; // work requests that shared a doorbell; doorbells that were shared
		uint32_t max_in_flight = 0;
	} counted_; // for totals()
	std::unique_ptr<WorkRequest[]> requests_;
};

template <QueueKind kind, uint32_t wqebbs, class Fill>
[[gnu::always_inline]] inline void SendQueue::post_short_in(Target &target, const mlx5_wqe_av *av, uint32_t bytes,
                                                            Fill &&fill)
{
	constexpr bool connected = kind == QueueKind::connection;
	constexpr size_t front_bytes =
	    mlx5::WqeEncoder::control_bytes + (connected ? 0 : sizeof *av) + sizeof(mlx5_wqe_inl_data_seg);
	constexpr uint8_t opcode = kind == QueueKind::datagrams ? MLX5_OPCODE_SEND_IMM : MLX5_OPCODE_SEND;
	mlx5::SendWorkQueue &sq = mlx5_->queue();
	const uint32_t index = sq.producer();
	unsigned char *const at = sq.at(index);
	mlx5::WqeEncoder wqe(at);
	if constexpr (!connected)
		wqe.address_vector(*av);
	fill(wqe.inline_payload(bytes));
	if constexpr (connected && wqebbs == 2)
		++target.encoded.wqebbs;

	const uint32_t number = posted_ + 1; // read before stores that may alias
	PT2P_ASSERT(can_post() && !open_);
	append(target, Kind::send, bytes);
	bool due = false;
	if (__builtin_expect(number == due_, 0)) {
		due = true;
		mlx5_->number_of(index) = number;
		end_period(number, false);
	}
	sq.end_and_ring<wqebbs>(at, index, opcode, due, static_cast<uint32_t>(front_bytes) + bytes);
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
