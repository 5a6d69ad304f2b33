#include "transports/verbs/send_queue.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <infiniband/mlx5dv.h>

#include "report/report.hpp"
#include "transports/verbs/net.hpp"

namespace pt2p::verbs {

SendQueue::SendQueue(Net &net, QueueOwner &o, QpOwner qp, uint32_t max_inline, bool dc)
    : owner(o), net_(net), qp_(std::move(qp)), ex_(ibv_qp_to_qp_ex(qp_.get())), depth_(net.depth()),
      mask_(std::bit_ceil(depth_) - 1), max_inline_(std::min<uint32_t>(max_inline, most_inline)),
      period_(std::clamp(net.period(), 1u, depth_)), ring_(std::make_unique_for_overwrite<WorkRequest[]>(mask_ + 1))
{
	if (dc)
		dc_ = mlx5dv_qp_ex_from_ibv_qp_ex(ex_);
	qp_->qp_context = this; // for events
	net_.add(*this);
}

SendQueue::~SendQueue()
{
	drop_all();
	net_.remove(*this);
}

inline WorkRequest &SendQueue::next(Peer &peer, Kind kind, uint32_t length)
{
	WorkRequest &request = at(posted_);
	request.kind = kind;
	request.peer = &peer;
	request.length = length;
	request.place = WorkRequest::no_place;
	request.on_device = request.abandoned = false;
	++peer.in_flight;
	return request;
}

bool SendQueue::send(Peer &peer, uint8_t id, uint64_t header, const void *data, size_t length)
{
	const bool deposit = __builtin_expect(static_cast<int64_t>(length) <= peer.ring.most, 0) && net_.ring_has_room(peer);
	// What goes with the payload: in front of it, or in a ring behind it.
	const MessageHeader front{header, peer.next_sequence, MessageHeader::pack(net_.rank(), id)};
	const RingTrailer back{front, static_cast<uint32_t>(length), peer.ring.sent + 1};
	const Piece pieces[] = {{&front, deposit ? 0 : sizeof front}, {data, length}, {&back, deposit ? sizeof back : 0}};
	const auto bytes = static_cast<uint32_t>(length + (deposit ? sizeof back : sizeof front));

	uint32_t place = WorkRequest::no_place;
	bool on_device = false, scarce = false;
	if (__builtin_expect(bytes > max_inline_, 0)) {
		if (bytes <= net_.device_memory.cell_bytes()) {
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
	}
	WorkRequest &request = next(peer, deposit ? Kind::deposit : Kind::message, bytes);
	request.place = place;
	request.on_device = on_device;
	if (__builtin_expect(on_device, 0)) {
		net_.device_memory.write(place, pieces);
		net_.reporter().add(Counter::net_device_memory_messages);
	} else {
		unsigned char *to = place == WorkRequest::no_place ? request.bytes : net_.buffer(place);
		if (__builtin_expect(!deposit, 1)) {
			std::memcpy(to, &front, sizeof front);
			if (__builtin_expect(length == 8, 1))
				std::memcpy(to + sizeof front, data, 8);
			else if (length)
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
	submit(request, scarce);
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

void SendQueue::post(Peer &peer, Operation &operation, size_t offset, size_t length, bool last)
{
	WorkRequest &request = next(peer, operation.kind, static_cast<uint32_t>(length));
	request.operation = &operation;
	request.offset = offset;
	if (operation.kind == Kind::fetch_add || operation.kind == Kind::compare_swap)
		request.place = net_.take_result();
	submit(request, last);
	net_.posted(*this, unrung_);
}

void SendQueue::probe(Peer &peer)
{
	submit(next(peer, Kind::probe, 0), true);
	ring();
}

void SendQueue::flush()
{
	if (posted_ != signalled_ && room())
		probe(*at(posted_ - 1).peer);
}

// Gives the work request a number and writes it where the device will find it.
inline void SendQueue::submit(WorkRequest &request, bool signal)
{
	const uint32_t number = posted_ + 1;
	request.signalled = signal || number - signalled_ >= period_;
	if (request.signalled)
		signalled_ = number;
	if (unrung_++ == 0)
		ibv_wr_start(ex_);
	hand_over(request, number);
	posted_ = number;
}

inline void SendQueue::set_address(const WorkRequest &request)
{
	if (dc_)
		mlx5dv_wr_set_dc_addr(dc_, request.peer->ah, request.peer->dct, request.peer->dc_key);
}

// Of a message.
inline void SendQueue::set_payload(const WorkRequest &request)
{
	set_address(request);
	if (request.place == WorkRequest::no_place)
		ibv_wr_set_inline_data(ex_, const_cast<unsigned char *>(request.bytes), request.length);
	else if (request.on_device)
		ibv_wr_set_sge(ex_, net_.device_memory.key(), net_.device_memory.address(request.place), request.length);
	else
		ibv_wr_set_sge(ex_, net_.buffer_key(), reinterpret_cast<uintptr_t>(net_.buffer(request.place)), request.length);
}

void SendQueue::hand_over(WorkRequest &request, uint32_t number)
{
	ex_->wr_id = Net::send_id(index, number);
	ex_->wr_flags = request.signalled ? IBV_SEND_SIGNALED : 0;
	if (request.kind <= Kind::told && request.place == WorkRequest::no_place)
		ex_->wr_flags |= IBV_SEND_INLINE;
	const Operation *operation = request.operation;
	switch (request.kind) {
	case Kind::message:
		ibv_wr_send(ex_);
		return set_payload(request);
	case Kind::deposit:
		ibv_wr_rdma_write(ex_, request.peer->ring.key, request.peer->ring.place(request.number, request.length));
		return set_payload(request);
	case Kind::told: {
		RingRequest where;
		std::memcpy(&where, request.bytes + request.length, sizeof where);
		ibv_wr_rdma_write(ex_, where.key, where.told_at);
		return set_payload(request);
	}
	case Kind::probe:
		ibv_wr_rdma_write(ex_, 0, 0);
		set_address(request);
		return ibv_wr_set_sge_list(ex_, 0, nullptr);
	case Kind::read:
		ibv_wr_rdma_read(ex_, static_cast<uint32_t>(operation->remote.key), operation->remote.address + request.offset);
		break;
	case Kind::write:
		ibv_wr_rdma_write(ex_, static_cast<uint32_t>(operation->remote.key), operation->remote.address + request.offset);
		break;
	case Kind::fetch_add:
		ibv_wr_atomic_fetch_add(ex_, static_cast<uint32_t>(operation->remote.key), operation->remote.address,
		                        operation->operand);
		break;
	case Kind::compare_swap:
		ibv_wr_atomic_cmp_swp(ex_, static_cast<uint32_t>(operation->remote.key), operation->remote.address,
		                      operation->compare, operation->operand);
		break;
	}
	set_address(request);
	if (request.place != WorkRequest::no_place)
		ibv_wr_set_sge(ex_, net_.result_key(), reinterpret_cast<uintptr_t>(net_.result(request.place)), sizeof(uint64_t));
	else
		ibv_wr_set_sge(ex_, operation->registration->local_key(),
		               reinterpret_cast<uintptr_t>(operation->local + request.offset), request.length);
}

void SendQueue::ring()
{
	if (!unrung_)
		return;
	unrung_ = 0;
	net_.rung(*this);
	// It cannot fail while the queue pair works; when it does not, its work requests are posted again later.
	ibv_wr_complete(ex_);
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
	signalled_ = posted_;
}

void SendQueue::abandon(WorkRequest &request, pt2p_status_t status)
{
	if (request.is_operation())
		net_.part_failed(*request.operation, request.length, status);
	request.abandoned = true;
}

void SendQueue::set_broken()
{
	broken_ = true;
	if (unrung_) {
		unrung_ = 0;
		net_.rung(*this);
		ibv_wr_abort(ex_);
	}
}

void SendQueue::post_again()
{
	broken_ = false;
	const uint32_t first = completed_, end = posted_;
	posted_ = signalled_ = completed_;
	for (uint32_t n = first; n != end; ++n) {
		WorkRequest request;
		std::memcpy(static_cast<void *>(&request), &at(n), sizeof request);
		const bool in_doubt = request.kind == Kind::fetch_add || request.kind == Kind::compare_swap;
		// A deposit that has been read: its slot may hold a later one.
		const bool stale = request.kind == Kind::deposit && net_.has_been_read(*request.peer, request.number);
		if (request.abandoned || request.peer->down || in_doubt || stale) {
			abandon(request, request.peer->down ? PT2P_ERR_PEER_LOST : PT2P_ERR_SYSTEM);
			release(request);
			continue;
		}
		WorkRequest &again = at(posted_);
		std::memcpy(static_cast<void *>(&again), &request, sizeof request);
		submit(again, request.signalled || n + 1 == end);
	}
	ring();
}

void SendQueue::release(WorkRequest &request)
{
	--request.peer->in_flight;
	if (request.place == WorkRequest::no_place)
		return;
	if (request.kind >= Kind::read)
		net_.give_result(request.place);
	else if (request.on_device)
		net_.device_memory.give(request.place);
	else
		net_.give_buffer(request.place);
}

void SendQueue::complete(uint32_t upto)
{
	while (static_cast<int32_t>(upto - completed_) > 0) {
		WorkRequest &request = at(completed_++);
		request.peer->answered = true;
		Operation *operation = nullptr;
		if (__builtin_expect(request.is_operation(), 0)) {
			operation = request.operation;
			if (request.place != WorkRequest::no_place)
				*operation->result = *net_.result(request.place);
		}
		release(request);
		if (operation)
			net_.part_done(*operation, request.length);
	}
}

} // namespace pt2p::verbs
