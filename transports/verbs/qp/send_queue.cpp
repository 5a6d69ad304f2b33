#include "transports/verbs/qp/send_queue.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <infiniband/mlx5dv.h>
#include <utility>

#include "base/clock.hpp"
#include "base/report/report.hpp"
#include "transports/verbs/net.hpp"

namespace pt2p::verbs {

// The longest entry: a short message that is written into the ring of a DC target's owner.
static_assert(mlx5::SendRing::control_bytes + sizeof(mlx5_wqe_av) + sizeof(mlx5_wqe_raddr_seg) + sizeof(mlx5_wqe_inl_data_seg) +
                  SendQueue::most_inline <= mlx5::SendRing::most_bytes);

SendQueue::SendQueue(Net &net, QueueOwner &o, QpOwner qp, uint32_t max_inline, bool dc)
    : owner(o), net_(net), from_(MessageHeader::pack(net.rank(), 0)), qp_(std::move(qp)), ex_(ibv_qp_to_qp_ex(qp_.get())),
      direct_(net.direct() ? std::optional<mlx5::SendRing>(std::in_place, qp_.get(), net.registers, net.entries_with_doorbells())
                           : std::optional<mlx5::SendRing>()),
      depth_(direct_ ? std::min(net.depth(), direct_->blocks() / mlx5::SendRing::most_blocks) : net.depth()),
      mask_(std::bit_ceil(depth_) - 1),
      max_inline_(std::min<uint32_t>(max_inline, most_inline)), period_(std::clamp(net.period(), 1u, depth_)),
      most_at_once_(direct_ && direct_->most_with_doorbell() >= 2 * mlx5::block_bytes
                        ? std::min<int64_t>(net.most_inline_payload(), most_at_once)
                        : -1),
      tuned_(net.tuning() != tune::Mode::off), tied_(net.tuning() == tune::Mode::tied),
      ring_(std::make_unique_for_overwrite<WorkRequest[]>(mask_ + 1))
{
	window_ = tied_ ? 0 : depth_;
	limit_ = depth_;
	signalled(0);
	if (dc)
		dc_ = mlx5dv_qp_ex_from_ibv_qp_ex(ex_);
	if (direct_)
		numbers_ = std::make_unique<uint32_t[]>(direct_->blocks());
	qp_->qp_context = this; // for events
	net_.add(*this);
}

SendQueue::~SendQueue()
{
	drop_all();
	stop_watching();
	const ibv_cq *cq = qp_->send_cq;
	const uint32_t number = qp_->qp_num;
	qp_.reset();
	net_.remove(*this, cq, number);
}

bool SendQueue::send(Peer &peer, uint8_t id, uint64_t header, const void *data, size_t length)
{
	const bool deposit = __builtin_expect(static_cast<int64_t>(length) <= peer.ring.most, 0) && net_.ring_has_room(peer);
	// What goes with the payload: in front of it, or in a ring behind it.
	const MessageHeader front{header, static_cast<uint32_t>(peer.next_sequence), from_ | id};
	const RingTrailer back{front, static_cast<uint32_t>(length), peer.ring.sent + 1};
	const Piece pieces[] = {{&front, deposit ? 0 : sizeof front}, {data, length}, {&back, deposit ? sizeof back : 0}};
	const auto bytes = static_cast<uint32_t>(length + (deposit ? sizeof back : sizeof front));

	uint32_t place = Places::none;
	bool on_device = false, scarce = false, sample = false;
	int64_t since = 0;
	if (__builtin_expect(bytes > max_inline_, 0)) {
		const bool fits = bytes <= net_.device_memory.cell_bytes();
		tune::StagingTuner *const tuner = fits && net_.tunes_staging() ? &peer.tuner->stagings.of(bytes) : nullptr;
		bool to_device = fits;
		if (tuner) {
			const auto next = tuner->next(net_.device_memory.scarce());
			sample = next.sample && !sampling_;
			to_device = (sample ? next.what : tuner->chosen()) == tune::Staging::device_memory;
			since = sample ? now_ticks() : 0;
		}
		if (to_device) {
			place = net_.device_memory.take();
			on_device = place != Places::none;
			if (!on_device)
				net_.reporter().add(Counter::net_device_memory_full);
		}
		if (!on_device)
			place = net_.take_buffer();
		if (place == Places::none)
			return false;
		scarce = on_device ? net_.device_memory.scarce() : net_.buffers_scarce();
		auto &way = on_device ? peer.by_device_memory : peer.by_buffer;
		++way.messages;
		way.bytes += bytes;
		peer.device_memory_full += to_device && !on_device;
		if (tuner)
			tuner->sent(on_device ? tune::Staging::device_memory : tune::Staging::buffer, sample);
	}
	WorkRequest &request = next(peer, deposit ? Kind::deposit : Kind::message, bytes);
	request.placed = place != Places::none;
	request.on_device = on_device;
	request.place = place;
	if (__builtin_expect(on_device, 0)) {
		net_.device_memory.write(place, pieces);
		net_.reporter().add(Counter::net_device_memory_messages);
	} else {
		unsigned char *to = place == Places::none ? request.bytes : net_.buffer(place);
		if (__builtin_expect(!deposit, 1)) {
			std::memcpy(to, &front, sizeof front);
			if (length)
				std::memcpy(to + sizeof front, data, length);
		} else {
			if (length)
				std::memcpy(to, data, length);
			std::memcpy(to + length, &back, sizeof back);
		}
	}
	if (deposit) {
		request.number = ++peer.ring.sent;
		net_.reporter().add(Counter::net_deposits);
	}
	++peer.next_sequence;
	++peer.laid_down.messages;
	if (__builtin_expect(sample, 0)) {
		sampling_ = true;
		sample_ = {posted_, since};
		net_.begin_watch();
	}
	const uint32_t due = due_;
	submit(request, scarce || sample);
	// The end of the period stays where it was, or none that is longer than the time between two samples would ever end; but
	// not behind the limit, which is that of a period that may have become shorter.
	if (__builtin_expect(sample, 0) && due != posted_ && static_cast<int32_t>(due - due_) < 0)
		due_ = due;
	net_.posted(*this, unrung_);
	return true;
}

void SendQueue::tell(Peer &peer, const RingRequest &where, uint64_t value)
{
	WorkRequest &request = next(peer, Kind::told, sizeof(uint64_t));
	std::memcpy(request.bytes, &value, sizeof value);
	std::memcpy(request.bytes + sizeof value, &where, sizeof where);
	submit(request, false);
	net_.posted(*this, unrung_);
}

void SendQueue::post(Peer &peer, Operation &operation, size_t offset, size_t length, bool signal)
{
	WorkRequest &request = next(peer, operation.kind, static_cast<uint32_t>(length));
	request.operation = &operation;
	request.offset = offset;
	++peer.bulk.messages;
	peer.bulk.bytes += request.wire_length();
	if (operation.place == Operation::Place::entry)
		std::memcpy(request.bytes, operation.local, length);
	else if (operation.kind == Kind::write)
		peer.bulk_written += length;
	if (request.is_atomic()) {
		request.placed = true;
		request.place = net_.take_result();
	} else if (operation.place == Operation::Place::buffer) {
		request.placed = true;
		request.place = net_.take_buffer();
		if (operation.kind == Kind::write)
			std::memcpy(net_.buffer(request.place), operation.local + offset, length);
	}
	submit(request, signal);
	net_.posted(*this, unrung_);
}

void SendQueue::probe(Peer &peer)
{
	submit(next(peer, Kind::probe, 0), true);
	ring();
}

void SendQueue::flush()
{
	if (posted_ == signalled_ || !room())
		return;
	Peer *last = at(posted_ - 1).peer;
	if (__builtin_expect(last->down, 0))
		last = owner.substitute();
	if (last)
		probe(*last);
}

void SendQueue::signal_each(uint32_t work_requests)
{
	if (!std::exchange(each_, work_requests))
		due_ = posted_ + 1;
}

// Writes the last work request where the device will find it.
inline void SendQueue::submit(const WorkRequest &request, bool signal)
{
	const uint32_t number = posted_;
	const bool due = number == due_, wanted = due || signal;
	++unrung_;
	if (__builtin_expect(direct_.has_value(), 1)) {
		lay_down(request, number, wanted);
	} else {
		if (unrung_ == 1)
			ibv_wr_start(ex_);
		hand_over(request, number, wanted);
	}
	if (due)
		end_period(number);
	else if (wanted)
		signalled(number);
}

// What the device is to read, or to write: not for what goes inline.
inline SendQueue::Where SendQueue::where_is(const WorkRequest &request) const
{
	if (!request.placed)
		return {reinterpret_cast<uintptr_t>(request.operation->local + request.offset), request.operation->registration->local_key()};
	if (request.is_atomic())
		return {reinterpret_cast<uintptr_t>(net_.result(request.place)), net_.result_key()};
	if (request.on_device)
		return {net_.device_memory.address(request.place), net_.device_memory.key()};
	return {reinterpret_cast<uintptr_t>(net_.buffer(request.place)), net_.buffer_key()};
}

// Where a WRITE of a message, or of a word, or of nothing, goes.
inline RemoteMemory SendQueue::destination(const WorkRequest &request)
{
	switch (request.kind) {
	case Kind::deposit: return {request.peer->ring.place(request.number, request.length), request.peer->ring.key};
	case Kind::told: {
		RingRequest where;
		std::memcpy(&where, request.bytes + request.length, sizeof where);
		return {where.told_at, where.key};
	}
	case Kind::read:
	case Kind::write: return {request.operation->remote.address + request.offset, request.operation->remote.key};
	case Kind::fetch_add:
	case Kind::compare_swap: return request.operation->remote;
	default: return {};
	}
}

// By verbs.
void SendQueue::hand_over(const WorkRequest &request, uint32_t number, bool signalled)
{
	const bool is_inline = request.is_inline();
	ex_->wr_id = Net::send_id(index, number);
	ex_->wr_flags = (signalled ? unsigned{IBV_SEND_SIGNALED} : 0) | (is_inline ? unsigned{IBV_SEND_INLINE} : 0);
	const RemoteMemory to = destination(request);
	const auto key = static_cast<uint32_t>(to.key);
	const Operation *operation = request.operation;
	switch (request.kind) {
	case Kind::message: ibv_wr_send(ex_); break;
	case Kind::deposit:
	case Kind::told:
	case Kind::probe:
	case Kind::write: ibv_wr_rdma_write(ex_, key, to.address); break;
	case Kind::read: ibv_wr_rdma_read(ex_, key, to.address); break;
	case Kind::fetch_add: ibv_wr_atomic_fetch_add(ex_, key, to.address, operation->operand); break;
	case Kind::compare_swap: ibv_wr_atomic_cmp_swp(ex_, key, to.address, operation->compare, operation->operand); break;
	}
	if (dc_)
		mlx5dv_wr_set_dc_addr(dc_, request.peer->ah, request.peer->dct, request.peer->dc_key);
	if (request.kind == Kind::probe)
		return ibv_wr_set_sge_list(ex_, 0, nullptr);
	if (is_inline)
		return ibv_wr_set_inline_data(ex_, const_cast<unsigned char *>(request.bytes), request.length);
	const Where where = where_is(request);
	ibv_wr_set_sge(ex_, where.key, where.address, request.wire_length());
}

// Directly: control segment, address of a DC target, remote address, operands of an atomic operation, payload or where it is.
void SendQueue::lay_down(const WorkRequest &request, uint32_t number, bool signalled)
{
	using mlx5::store;
	static constexpr uint8_t opcodes[] = {MLX5_OPCODE_SEND,      MLX5_OPCODE_RDMA_WRITE, MLX5_OPCODE_RDMA_WRITE, MLX5_OPCODE_RDMA_WRITE,
	                                      MLX5_OPCODE_RDMA_READ, MLX5_OPCODE_RDMA_WRITE, MLX5_OPCODE_ATOMIC_FA,  MLX5_OPCODE_ATOMIC_CS};
	unsigned char *const entry = direct_->begin();
	unsigned char *to = entry + mlx5::SendRing::control_bytes;
	if (dc_) {
		std::memcpy(to, &request.peer->dc_address, sizeof request.peer->dc_address);
		to += sizeof request.peer->dc_address;
	}
	if (__builtin_expect(request.kind != Kind::message, 0))
		to = lay_down_remote(request, to);
	if (__builtin_expect(request.is_inline(), 1)) {
		store(to, htobe32(MLX5_INLINE_SEG | request.length));
		to += sizeof(uint32_t);
		std::memcpy(to, request.bytes, request.length);
		to += request.length;
	} else if (request.kind != Kind::probe) {
		const Where where = where_is(request);
		store(to, htobe32(request.wire_length()));
		store(to + 4, htobe32(where.key));
		store(to + 8, htobe64(where.address));
		to += sizeof(mlx5_wqe_data_seg);
	}
	const uint32_t before = direct_->next();
	const uint16_t place = direct_->end(opcodes[static_cast<size_t>(request.kind)], signalled, static_cast<uint32_t>(to - entry));
	if (signalled)
		number_of(place) = number;
	++request.peer->laid_down.entries;
	request.peer->laid_down.blocks += direct_->next() - before;
}

unsigned char *SendQueue::lay_down_remote(const WorkRequest &request, unsigned char *to)
{
	using mlx5::store;
	const RemoteMemory there = destination(request);
	store(to, htobe64(there.address));
	store(to + 8, uint64_t{htobe32(static_cast<uint32_t>(there.key))});
	to += sizeof(mlx5_wqe_raddr_seg);
	if (request.is_atomic()) {
		store(to, htobe64(request.operation->operand));
		store(to + 8, request.kind == Kind::compare_swap ? htobe64(request.operation->compare) : 0);
		to += sizeof(mlx5_wqe_atomic_seg);
	}
	return to;
}

void SendQueue::ring()
{
	if (!unrung_)
		return;
	const bool alone = unrung_ == 1;
	if (__builtin_expect(!alone, 0)) {
		rung_together_ += unrung_;
		++together_;
	}
	if (__builtin_expect(tuned_, 0))
		net_.rang(unrung_);
	unrung_ = 0;
	net_.rung(*this);
	if (__builtin_expect(direct_.has_value(), 1))
		return direct_->ring(alone);
	// It cannot fail while the queue pair works; when it does not, its work requests are posted again later.
	ibv_wr_complete(ex_);
}

bool SendQueue::works_for(const Peer &peer) const
{
	for (uint32_t n = completed_; n != posted_; ++n)
		if (ring_[n & mask_].peer == &peer)
			return true;
	return false;
}

void SendQueue::drop(Peer &peer)
{
	for (uint32_t n = completed_; n != posted_; ++n)
		if (at(n).peer == &peer)
			abandon(at(n), PT2P_ERR_PEER_LOST);
}

void SendQueue::drop_all()
{
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
		net_.part_failed(*request.operation, request.length, status, reason);
	request.abandoned = true;
}

void SendQueue::set_broken()
{
	if (!broken() && direct_)
		keep_messages();
	limit_ = 0;
	stop_watching();
	if (unrung_) {
		unrung_ = 0;
		net_.rung(*this);
		if (!direct_)
			ibv_wr_abort(ex_);
	}
}

// Takes messages out of the device's queue, which will be written anew.
void SendQueue::keep_messages()
{
	const size_t front = mlx5::SendRing::control_bytes + (dc_ ? sizeof(mlx5_wqe_av) : 0) + sizeof(mlx5_wqe_inl_data_seg);
	unsigned char bytes[mlx5::SendRing::most_bytes];
	uint16_t entry = first_entry_;
	for (uint32_t n = completed_; n != posted_; ++n, entry = direct_->after(entry)) {
		WorkRequest &request = at(n);
		if (request.kind != Kind::message || !request.is_inline())
			continue;
		direct_->read(entry, bytes, front + request.length);
		std::memcpy(request.bytes, bytes + front, request.length);
	}
}

void SendQueue::was_reset()
{
	if (direct_)
		direct_->reset();
	first_entry_ = 0;
	net_.forget(qp_->send_cq, qp_->qp_num);
}

void SendQueue::post_again()
{
	limit_ = depth_;
	const uint32_t first = completed_, end = posted_;
	count();
	posted_ = counted_ = completed_;
	signalled(posted_);
	for (uint32_t n = first; n != end; ++n) {
		WorkRequest request;
		std::memcpy(static_cast<void *>(&request), &at(n), sizeof request);
		const bool in_doubt = request.is_atomic();
		// A deposit that has been read: its slot may hold a later one.
		const bool stale = request.kind == Kind::deposit && net_.has_been_read(*request.peer, request.number);
		if (request.abandoned || request.peer->down || in_doubt || stale) {
			abandon(request, request.peer->down ? PT2P_ERR_PEER_LOST : PT2P_ERR_SYSTEM,
			        in_doubt ? "its queue pair broke: whether it was done is not known" : "");
			release(request);
			continue;
		}
		WorkRequest &again = at(posted_++);
		std::memcpy(static_cast<void *>(&again), &request, sizeof request);
		submit(again, n + 1 == end);
	}
	ring();
}

void SendQueue::release(WorkRequest &request)
{
	--request.peer->in_flight;
	if (request.is_inline_message())
		request.peer->inline_bytes += request.length;
	if (!request.placed)
		return;
	if (request.is_atomic())
		net_.give_result(request.place);
	else if (request.on_device)
		net_.device_memory.give(request.place);
	else
		net_.give_buffer(request.place);
}

void SendQueue::complete_entry(uint16_t entry)
{
	first_entry_ = direct_->after(entry);
	complete(number_of(entry));
}

// One that has failed need not have been signalled, so that it has to be looked for.
void SendQueue::complete_before_entry(uint16_t entry)
{
	uint32_t n = completed_;
	for (; n != posted_ && first_entry_ != entry; ++n)
		first_entry_ = direct_->after(first_entry_);
	complete(n);
}

void SendQueue::complete(uint32_t upto)
{
	// Before anything is released: who is told of that may post, and overwrite what is looked at here.
	if (__builtin_expect(tuned_, 0) && static_cast<int32_t>(upto - completed_) > 0)
		tune(upto);
	most_in_flight_ = std::max(most_in_flight_, outstanding());
	if (__builtin_expect(posted_ - counted_ > UINT32_MAX / 4, 0)) // or the numbers would come round
		count();
	while (static_cast<int32_t>(upto - completed_) > 0) {
		// Those in a row that are to the same peer and hold nothing.
		Peer &peer = *at(completed_).peer;
		peer.answered = true;
		uint32_t n = completed_;
		uint64_t bytes = 0;
		for (; n != upto; ++n) {
			const WorkRequest &request = at(n);
			if (request.peer != &peer || __builtin_expect(!request.is_plain(), 0))
				break;
			bytes += request.length;
		}
		peer.in_flight -= n - completed_;
		peer.inline_bytes += bytes;
		completed_ = n;
		if (n != upto && __builtin_expect(!at(n).is_plain(), 0))
			complete_other(at(completed_++));
	}
}

void SendQueue::complete_other(WorkRequest &request)
{
	request.peer->answered = true;
	Operation *operation = nullptr;
	if (request.is_operation()) {
		operation = request.operation;
		if (request.is_atomic())
			*operation->result = *net_.result(request.place);
		else if (request.placed && request.kind == Kind::read)
			std::memcpy(operation->local + request.offset, net_.buffer(request.place), request.length);
	}
	release(request);
	if (operation)
		net_.part_done(*operation, request.length);
}

// ---- totals ----------------------------------------------------------------------------------------------------------

void SendQueue::count()
{
	work_requests_ += posted_ - std::exchange(counted_, posted_);
}

uint64_t SendQueue::inline_bytes_under_way(const Peer &peer) const
{
	uint64_t bytes = 0;
	for (uint32_t n = completed_; n != posted_; ++n)
		if (const WorkRequest &request = at(n); request.peer == &peer && request.is_inline_message())
			bytes += request.length;
	return bytes;
}

SendQueue::Totals SendQueue::totals()
{
	count();
	most_in_flight_ = std::max(most_in_flight_, outstanding());
	Totals totals;
	totals.work_requests = work_requests_;
	totals.doorbells = work_requests_ - unrung_ - rung_together_ + together_;
	totals.fetched = direct_ && direct_->most_with_doorbell() ? rung_together_ + unrung_ : work_requests_;
	totals.most_in_flight = most_in_flight_;
	return totals;
}

// ---- what is tuned ---------------------------------------------------------------------------------------------------

// TPL paper, section 4.1: the latency of what was posted to an idle channel is the normal one, the others are compared with it.
void SendQueue::tune(uint32_t upto)
{
	constexpr uint32_t look_again = 64;
	if (sampling_ && static_cast<int32_t>(upto - sample_.number) >= 0)
		see_sample();
	if (watching_ && static_cast<int32_t>(upto - watched_.number) >= 0) {
		watching_ = false;
		net_.end_watch();
		const int64_t latency = now_ticks() - watched_.since;
		const WorkRequest &watched = at(watched_.number - 1);
		tune::ChannelTuner &tuner = *watched.peer->tuner;
		const tune::SizeClass kind = watched.size_class();
		const bool normal = watched_.alone && (!tuner.period(kind).normal_is_measured() || std::exchange(measure_normal_, false));
		// A channel that is idle so often needs no longer period; but where one period waits for the other, one of a single work
		// request never meets anything else.
		const bool last = !normal && (!watched_.alone || tied_);
		if (normal)
			tuner.see_normal(kind, net_.saw_normal(latency));
		else if (last)
			tuner.see_last(kind, latency, watched_.since + latency, net_.least_normal());
		if (const int64_t known = tuner.period(kind).normal(); last && known)
			net_.saw(static_cast<double>(latency) / static_cast<double>(known));
		if (net_.traces() && (normal || last))
			net_.trace(*watched.peer, kind, latency, normal);
		// The normal latency drifts: when the channel happens to be idle, it is observed again.
		if (upto == posted_ && ++times_idle_ % look_again == 0) {
			measure_normal_ = true;
			due_ = posted_ + 1;
			periods_ = 0;
		}
	}
	const WorkRequest &latest = at(upto - 1);
	tune::ChannelTuner &tuner = *latest.peer->tuner;
	period_ = tuner.period(latest.size_class()).period();
	if (!tied_) {
		window_ = tuner.completed(latest.size_class(), upto - completed_, upto == posted_);
		period_ = tune::period_of(window_, net_.shares_doorbells());
	}
	net_.completed(upto - completed_);
}

void SendQueue::see_sample()
{
	sampling_ = false;
	net_.end_watch();
	const WorkRequest &request = at(sample_.number - 1);
	request.peer->tuner->stagings.of(request.length)
	    .see(request.on_device ? tune::Staging::device_memory : tune::Staging::buffer, now_ticks() - sample_.since);
}

void SendQueue::stop_watching()
{
	if (std::exchange(watching_, false))
		net_.end_watch();
	if (std::exchange(sampling_, false))
		net_.end_watch();
}

} // namespace pt2p::verbs
