// Reading completions: what has arrived, in its turn, and what has been sent. See net.hpp.
#include <cstring>
#include <utility>

#include "base/report/report.hpp"
#include "transports/verbs/net.hpp"

namespace pt2p::verbs {

// Null: it is not there any more.
inline SendQueue *Net::queue_of(uint32_t number) const
{
	for (size_t at = number;; ++at) {
		SendQueue *queue = by_number_[at & (by_number_.size() - 1)];
		if (!queue || queue->number() == number)
			return queue;
	}
}

unsigned Net::progress(const void *caller)
{
	if (!driver_)
		driver_ = caller;
	return driver_ == caller ? progress() : 0;
}

inline void Net::on_send_completion(SendQueue *queue, uint32_t number, ibv_wc_status status)
{
	if (!queue || queue->broken())
		return;
	if (status == IBV_WC_SUCCESS)
		return queue->complete(number);
	queue->complete(number - 1);
	report_broken(*queue, status);
}

// True when a message has been delivered.
[[gnu::always_inline]] inline bool Net::on_receive(const unsigned char *message, uint32_t bytes)
{
	const auto *h = reinterpret_cast<const MessageHeader *>(message);
	const auto rank = static_cast<size_t>(h->rank());
	// Not from one of us: there is nobody to blame.
	if (__builtin_expect(bytes < sizeof *h || rank >= static_cast<size_t>(size_), 0)) {
		reporter().add(Counter::auth_refused);
		return false;
	}
	Expected &expected = expected_[rank];
	if (__builtin_expect(h->sequence != expected.sequence || expected.unusual, 0))
		return on_unusual(*h, message + sizeof *h, bytes - sizeof *h);
	++expected.sequence;
	deliver(*h, message + sizeof *h, bytes - sizeof *h);
	return true;
}

bool Net::on_unusual(const MessageHeader &h, const unsigned char *data, size_t length)
{
	const int rank = h.rank();
	if (rank == rank_)
		return false;
	Peer *peer = peers_[static_cast<size_t>(rank)];
	if (!peer || !peer->ready) {
		if (peer && peer->down)
			return false;
		if (connector)
			connector->on_heard(rank);
	}
	Expected &expected = expected_[static_cast<size_t>(rank)];
	// What was written before this was sent is there by now.
	if (h.sequence != expected.sequence && peer && peer->incoming)
		read_ring(*peer, UINT32_MAX);
	if (h.sequence != expected.sequence) {
		if (static_cast<int32_t>(h.sequence - expected.sequence) < 0)
			reporter().add(Counter::net_duplicates);
		else
			hold(h, data, length);
		return false;
	}
	++expected.sequence;
	deliver(h, data, length);
	deliver_held(rank);
	expected.unusual = !peer || !peer->ready || !held_.empty();
	return true;
}

// One completion, read by verbs.
void Net::handle(uint64_t id, ibv_wc_status status, uint32_t bytes, Turn &turn)
{
	if (id & is_send)
		return on_send_completion(queues_[id >> 32 & 0x7fffffff], static_cast<uint32_t>(id), status);
	if (status == IBV_WC_SUCCESS)
		turn.events += on_receive(receives_.at(id * message_bytes_), bytes);
	turn.used[turn.used_count++] = id;
}

// Handles all completions that are there, up to a number. False when there is none.
bool Net::read(CompletionQueue &queue, Turn &turn)
{
	if (device_->extended_poll) {
		ibv_cq_ex *cq = queue.verbs.get();
		ibv_poll_cq_attr attributes{};
		if (ibv_start_poll(cq, &attributes) != 0)
			return false;
		unsigned n = 0;
		do
			handle(cq->wr_id, cq->status, cq->status == IBV_WC_SUCCESS ? ibv_wc_read_byte_len(cq) : 0, turn);
		while (++n < Turn::most && ibv_next_poll(cq) == 0);
		ibv_end_poll(cq);
	} else {
		ibv_wc completions[Turn::most];
		const int n = ibv_poll_cq(queue.cq(), Turn::most, completions);
		if (n <= 0)
			return false;
		for (int i = 0; i < n; ++i)
			handle(completions[i].wr_id, completions[i].status, completions[i].byte_len, turn);
	}
	post_receives(turn.used, turn.used_count);
	turn.used_count = 0;
	return true;
}

// The same without verbs.
inline bool Net::read_directly(mlx5::CompletionRing &ring, Turn &turn)
{
	unsigned n = 0, events = 0;
	for (uint8_t kind; n < Turn::most; ++n, ring.pop()) {
		const mlx5_cqe64 *c = ring.next(kind);
		if (!c)
			break;
		// Most are of this kind.
		if (__builtin_expect(mlx5::opcode(kind) == MLX5_CQE_RESP_SEND, 1)) {
			const uint16_t number = c->wqe_counter;
			const unsigned char *message = mlx5::scattered(*c, kind);
			events += on_receive(message ? message : receives_.at(be16toh(number) * message_bytes_), be32toh(c->byte_cnt));
			receive_ring_->give(number);
			continue;
		}
		switch (mlx5::opcode(kind)) {
		case MLX5_CQE_REQ:
			if (SendQueue *queue = queue_of(mlx5::queue_pair(*c)); queue && !queue->broken())
				queue->complete_entry(be16toh(c->wqe_counter));
			break;
		case MLX5_CQE_REQ_ERR:
			if (SendQueue *queue = queue_of(mlx5::queue_pair(*c)); queue && !queue->broken()) {
				queue->complete_before_entry(be16toh(c->wqe_counter));
				report_broken(*queue, mlx5::status_of(*c));
			}
			break;
		case MLX5_CQE_RESP_ERR:
			receive_ring_->give(c->wqe_counter);
			break;
		default: // passed over
			break;
		}
	}
	if (n == 0)
		return false;
	turn.events += events;
	ring.publish();
	receive_ring_->publish();
	return true;
}

// Connections are asked for rarely. This look goes through libibverbs also where queues are read directly: a device in software
// that stands in front of libibverbs learns from it that this rank waits, and gets a turn.
bool Net::take_wireup()
{
	look_at_wireup_ -= drained_ ? idle_turn_ : 1;
	if (__builtin_expect(look_at_wireup_ > 0, 1))
		return false;
	look_at_wireup_ = look_after;
	WireupMessage message;
	bool any = false;
	while (wireup_->take(message)) {
		any = true;
		if (connector)
			connector->on_wireup(message);
	}
	reporter().add(Counter::auth_refused, wireup_->strange() - std::exchange(strange_, wireup_->strange()));
	return any;
}

unsigned Net::progress()
{
	++turns_;
	if (__builtin_expect(!unrung_.empty(), 0))
		ring_all();
	Turn turn;
	if (__builtin_expect(!ringing_.empty(), 0))
		turn.events = read_rings();
	const bool asked = take_wireup(); // before the rest: what the device does in its turn is found in this one
	drained_ = true;
	// What has come may be passed on, to a rank that is connected to for that, and needs another completion queue.
	for (size_t i = 0; i < completions_.count(); ++i) {
		CompletionQueue &queue = completions_[i];
		drained_ &= !(__builtin_expect(queue.ring != nullptr, 1) ? read_directly(*queue.ring, turn) : read(queue, turn));
	}
	if (__builtin_expect(watching_ != 0, 0))
		environment_.events.pacing.look_soon();
	if (drained_ && !asked && __builtin_expect(broken_.empty(), 1))
		return turn.events;
	if (__builtin_expect(!waiting_.empty(), 0))
		drive_waiting();
	if (__builtin_expect(!broken_.empty(), 0))
		handle_broken();
	if (__builtin_expect(!unrung_.empty(), 0))
		ring_all(); // answers to what has come
	return turn.events;
}

// A message that has overtaken another, which went by another queue pair, waits for it.
void Net::hold(const MessageHeader &h, const unsigned char *data, size_t length)
{
	constexpr uint32_t longest_queue = 16384; // more than PT2P_NET_SEND_DEPTH lets a sender have in flight
	Expected &expected = expected_[static_cast<size_t>(h.rank())];
	expected.unusual = true;
	if (h.sequence - expected.sequence < longest_queue)
		held_[{h.rank(), h.sequence}] = {h, std::vector<unsigned char>(data, data + length)};
	else
		lose(h.rank(), PT2P_ERR_PROTOCOL, 
		     format("message %u from it has come, and message %u has not", h.sequence, expected.sequence));
}

void Net::deliver_held(int rank)
{
	uint32_t &expected = expected_[static_cast<size_t>(rank)].sequence;
	for (;;) {
		const auto found = held_.find({rank, expected});
		if (found == held_.end())
			return;
		const Held held = std::move(found->second);
		held_.erase(found);
		++expected;
		deliver(held.header, held.payload.data(), held.payload.size());
	}
}

// A message that is for us, and not for the layer above.
void Net::take(const MessageHeader &h, const unsigned char *data, size_t length)
{
	const uint8_t id = h.id();
	Peer *peer = peers_[static_cast<size_t>(h.rank())];
	RingRequest request;
	RingOffer offer;
	if (id == id_bye) {
		lose(h.rank(), PT2P_ERR_PEER_FINALIZED, "it has called pt2p_finalize");
	} else if (id == id_ring_request && length == sizeof request) {
		std::memcpy(&request, data, sizeof request);
		if (peer)
			on_ring_request(*peer, request);
	} else if (id == id_ring_offer && length == sizeof offer) {
		std::memcpy(&offer, data, sizeof offer);
		if (peer)
			on_ring_offer(*peer, offer);
	}
}

void Net::post_receives(const uint64_t *buffers, unsigned count)
{
	ibv_recv_wr requests[Turn::most];
	ibv_sge pieces[Turn::most];
	for (unsigned i = 0; i < count; ++i) {
		pieces[i] = {reinterpret_cast<uintptr_t>(receives_.at(buffers[i] * message_bytes_)),
		             static_cast<uint32_t>(message_bytes_), receives_.key()};
		requests[i] = {buffers[i], i + 1 < count ? &requests[i + 1] : nullptr, &pieces[i], 1};
	}
	ibv_recv_wr *bad;
	if (count)
		ibv_post_srq_recv(srq_.get(), requests, &bad);
}

} // namespace pt2p::verbs
