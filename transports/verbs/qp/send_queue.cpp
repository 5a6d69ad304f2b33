#include "transports/verbs/qp/send_queue.hpp"

#include <bit>
#include <utility>

namespace pt2p::verbs {

SendQueue::SendQueue(SendShared &shared, QueueOwner &o, QpOwner qp, uint32_t max_inline, QueueKind kind)
    : owner(o), shared_(shared), qp_(std::move(qp)),
      mlx5_(shared.direct
                ? std::optional<Mlx5Poster>(std::in_place, qp_.get(), shared.registers, shared.blueflame, kind)
                : std::nullopt),
      verbs_(shared.direct ? std::nullopt : std::optional<VerbsPoster>(std::in_place, qp_.get(), kind)), kind_(kind),
      depth_(mlx5_ ? std::min(shared.depth, mlx5_->depth()) : shared.depth), mask_(std::bit_ceil(depth_) - 1),
      max_inline_(std::min<uint32_t>(max_inline, WorkRequest::max_inline)), max_short_(longest_short(kind)),
      period_(kind == QueueKind::datagrams ? std::max(1u, depth_ / 4) : std::clamp(shared.period, 1u, depth_)),
      window_(depth_), limit_(depth_), requests_(std::make_unique_for_overwrite<WorkRequest[]>(mask_ + 1))
{
	// Nobody waits for a datagram to complete, so there is no latency to be weighed.
	if (shared.tuner.on() && kind != QueueKind::datagrams)
		tuner_.emplace(shared.tuner, depth_);
	signalled(0);
	qp_->qp_context = this; // for asynchronous events
	shared_.queues.add(*this);
}

// The payload that fits into two WQEBBs, if a doorbell can carry these.
uint32_t SendQueue::longest_short(QueueKind kind) const
{
	const uint32_t room = one_wqebb + mlx5::wqebb_bytes - (kind == QueueKind::connection ? 0 : sizeof(mlx5_wqe_av));
	return mlx5_ && mlx5_->queue().max_blueflame() >= 2 * mlx5::wqebb_bytes
	           ? std::min({shared_.max_inline, max_inline_, room})
	           : 0;
}

SendQueue::~SendQueue()
{
	drop_all();
	tuner_.reset();
	const ibv_cq *cq = qp_->send_cq;
	const uint32_t number = qp_->qp_num;
	qp_.reset();
	shared_.doorbells.rung(*this);
	shared_.queues.remove(*this, cq, number);
}

// ---- posting --------------------------------------------------------------------------------------------------------

// Encodes the last work request into the device's queue.
inline void SendQueue::post(const WorkRequest &request, bool signal)
{
	const uint32_t number = posted_;
	const bool due = number == due_, wanted = due || signal;
	++unrung_;
	if (__builtin_expect(mlx5_.has_value(), 1))
		mlx5_->post(request, number, wanted);
	else
		verbs_->post(request, SendQueues::id(index, number), wanted);
	if (wanted)
		end_period(number, !due);
}

void SendQueue::submit(bool signal)
{
	post(at(posted_ - 1), signal);
	shared_.doorbells.posted(*this, unrung_);
}

// Whether to signal before the period ends, as places for payload are scarce.
bool SendQueue::early(Shortage shortage) const
{
	constexpr uint32_t soon = 8; // work requests
	return shortage == Shortage::severe || (shortage == Shortage::scarce && posted_ - signalled_ >= soon);
}

void SendQueue::submit_message(Shortage shortage) { submit(early(shortage)); }

void SendQueue::submit_open(Shortage shortage)
{
	PT2P_ASSERT(bundles());
	open_ = true;
	open_signal_ = early(shortage);
	shared_.doorbells.opened(*this);
}

void SendQueue::close()
{
	open_ = false;
	post(at(posted_ - 1), open_signal_);
}

void SendQueue::submit_sample(int64_t since)
{
	PT2P_ASSERT(!samples());
	tuner_->sample_posted(posted_, since);
	const uint32_t due = due_;
	post(at(posted_ - 1), true);
	// The sample must not move the end of the period, or no period longer than the distance of samples would ever end.
	// But the end must not be beyond the limit, and the period may have become shorter.
	if (due != posted_ && static_cast<int32_t>(due - due_) < 0)
		due_ = due;
	shared_.doorbells.posted(*this, unrung_);
}

void SendQueue::probe(Target &target)
{
	if (open_)
		close();
	WorkRequest &request = append(target, Kind::probe, 0);
	request.payload = Payload::none;
	request.remote_address = request.remote_key = 0;
	post(request, true);
	ring();
}

void SendQueue::flush()
{
	// It may exceed the window: what is in flight must complete.
	if (posted_ == signalled_ || broken() || in_flight() >= depth_ || kind_ == QueueKind::datagrams)
		return;
	Target *last = at(posted_ - 1).target;
	if (__builtin_expect(last->down, 0))
		last = owner.substitute();
	if (last)
		probe(*last);
}

void SendQueue::signal_each(uint32_t work_requests)
{
	if (!std::exchange(each_, work_requests))
		due_ = encoded() + 1;
}

void SendQueue::ring()
{
	if (__builtin_expect(listed, 0)) {
		shared_.doorbells.rung(*this);
		if (open_)
			close();
	}
	if (!unrung_)
		return;
	const bool alone = unrung_ == 1;
	if (__builtin_expect(!alone, 0)) {
		counted_.rung_together += unrung_;
		++counted_.together;
	}
	if (__builtin_expect(tuner_.has_value(), 0))
		tuner_->rang(unrung_);
	unrung_ = 0;
	if (__builtin_expect(mlx5_.has_value(), 1))
		return mlx5_->queue().ring_doorbell(alone);
	verbs_->ring();
}

// ---- completing -----------------------------------------------------------------------------------------------------

void SendQueue::release(WorkRequest &request)
{
	--request.target->in_flight;
	if (request.is_inline_message())
		request.target->inline_bytes += request.length;
	switch (request.payload) {
	case Payload::buffer: return shared_.memory.give_buffer(request.place);
	case Payload::device_memory: return shared_.memory.device_memory.give(request.place);
	case Payload::result: return shared_.memory.give_result(request.place);
	default: return;
	}
}

void SendQueue::complete(uint32_t upto)
{
	// Tune before anything is released: callbacks may post, and overwrite what is read here.
	if (__builtin_expect(tuner_.has_value(), 0) && static_cast<int32_t>(upto - completed_) > 0)
		tune(upto);
	counted_.max_in_flight = std::max(counted_.max_in_flight, in_flight());
	if (__builtin_expect(posted_ - counted_.upto > UINT32_MAX / 4, 0)) // before the numbers wrap around
		count();
	while (static_cast<int32_t>(upto - completed_) > 0) {
		// A run of plain work requests to the same target.
		Target &target = *at(completed_).target;
		target.answered = true;
		uint32_t n = completed_;
		uint64_t bytes = 0;
		for (; n != upto; ++n) {
			const WorkRequest &request = at(n);
			if (request.target != &target || __builtin_expect(!request.is_plain(), 0))
				break;
			bytes += request.length;
		}
		target.in_flight -= n - completed_;
		target.inline_bytes += bytes;
		completed_ = n;
		if (n != upto && __builtin_expect(!at(n).is_plain(), 0))
			complete_other(at(completed_++));
	}
}

void SendQueue::complete_other(WorkRequest &request)
{
	request.target->answered = true;
	Operation *const operation = request.is_operation() ? request.operation : nullptr;
	const uint32_t length = request.length;
	if (operation && request.copy_to)
		std::memcpy(request.copy_to, reinterpret_cast<const void *>(request.local_address), length);
	release(request);
	if (operation)
		shared_.parts.part_done(*operation, length);
}

// ---- failures -------------------------------------------------------------------------------------------------------

bool SendQueue::works_for(const Target &target) const
{
	for (uint32_t n = completed_; n != posted_; ++n)
		if (at(n).target == &target)
			return true;
	return false;
}

void SendQueue::drop(Target &target)
{
	for (uint32_t n = completed_; n != posted_; ++n)
		if (at(n).target == &target)
			abandon(at(n), PT2P_ERR_PEER_LOST);
}

void SendQueue::drop_all()
{
	open_ = false;
	while (completed_ != posted_) {
		WorkRequest &request = at(completed_++);
		abandon(request, PT2P_ERR_PEER_LOST);
		release(request);
	}
	signalled(posted_);
}

void SendQueue::abandon(WorkRequest &request, pt2p_status_t status, const char *reason)
{
	if (request.is_operation())
		shared_.parts.part_failed(*request.operation, request.length, status, reason);
	request.abandoned = true;
}

void SendQueue::set_broken()
{
	if (open_)
		close();
	// The device's queue will be overwritten.
	if (!broken() && mlx5_) {
		uint16_t wqe = mlx5_->first();
		for (uint32_t n = completed_; n != posted_; ++n)
			wqe = mlx5_->keep(wqe, at(n));
	}
	limit_ = 0;
	if (tuner_)
		tuner_->stop();
	if (unrung_) {
		unrung_ = 0;
		shared_.doorbells.rung(*this);
		if (verbs_)
			verbs_->abort();
	}
}

void SendQueue::was_reset()
{
	if (mlx5_)
		mlx5_->reset();
	shared_.queues.forget(qp_->send_cq, qp_->qp_num);
}

void SendQueue::post_again()
{
	limit_ = depth_;
	const uint32_t first = completed_, end = posted_;
	count();
	posted_ = counted_.upto = completed_;
	signalled(posted_);
	for (uint32_t n = first; n != end; ++n) {
		WorkRequest request;
		std::memcpy(static_cast<void *>(&request), &at(n), sizeof request);
		const bool in_doubt = request.is_atomic();
		const bool stale = request.kind == Kind::ring_write && request.target->has_read(request);
		if (request.abandoned || request.target->down || in_doubt || stale) {
			abandon(request, request.target->down ? PT2P_ERR_PEER_LOST : PT2P_ERR_SYSTEM,
			        in_doubt ? "its queue pair broke: whether it was done is not known" : "");
			release(request);
			continue;
		}
		WorkRequest &again = at(posted_++);
		std::memcpy(static_cast<void *>(&again), &request, sizeof request);
		post(again, n + 1 == end);
	}
	ring();
}

// ---- totals ---------------------------------------------------------------------------------------------------------

void SendQueue::count() { counted_.work_requests += posted_ - std::exchange(counted_.upto, posted_); }

uint64_t SendQueue::inline_bytes_in_flight(const Target &target) const
{
	uint64_t bytes = 0;
	for (uint32_t n = completed_; n != posted_; ++n)
		if (const WorkRequest &request = at(n); request.target == &target && request.is_inline_message())
			bytes += request.length;
	return bytes;
}

SendQueue::Totals SendQueue::totals()
{
	count();
	counted_.max_in_flight = std::max(counted_.max_in_flight, in_flight());
	Totals totals;
	totals.work_requests = counted_.work_requests;
	totals.doorbells = counted_.work_requests - unrung_ - counted_.rung_together + counted_.together;
	totals.fetched =
	    mlx5_ && mlx5_->queue().max_blueflame() ? counted_.rung_together + unrung_ : counted_.work_requests;
	totals.max_in_flight = counted_.max_in_flight;
	return totals;
}

// ---- tuning ---------------------------------------------------------------------------------------------------------

inline tune::Observed SendQueue::observed(uint32_t number) const
{
	const WorkRequest &request = at(number - 1);
	return {*request.target->tuner, request.size_class(), request.target->peer};
}

void SendQueue::tune(uint32_t upto)
{
	if (tuner_->sees_sample(upto))
		tuner_->see_sample(observed(tuner_->sample()), at(tuner_->sample() - 1).length);
	if (tuner_->sees_watched(upto))
		tuner_->see_watched(observed(tuner_->watched()));
	const tune::QueueTuner::Limits limits = tuner_->completed(observed(upto), upto, upto - completed_, posted_ - upto);
	period_ = limits.period;
	window_ = limits.window;
	if (limits.signal_next)
		due_ = encoded() + 1;
}

} // namespace pt2p::verbs
