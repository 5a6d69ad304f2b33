// Polling CQEs: delivers what has arrived, and completes what was sent. See net.hpp.
#include <algorithm>
#include <cstring>
#include <utility>

#include "base/job/job.hpp"
#include "base/report/report.hpp"
#include "transports/verbs/net.hpp"

namespace pt2p::verbs {

namespace {

constexpr unsigned ring_burst = 32; // messages of one write ring before the next one

} // namespace

// True: a message was delivered.
[[gnu::always_inline]] inline bool Net::on_receive(const unsigned char *message, uint32_t bytes)
{
	const auto *h = reinterpret_cast<const MessageHeader *>(message);
	const size_t rank = h->sender();
	if (__builtin_expect(bytes < sizeof *h || rank >= ranks_, 0))
		return on_lane(message, bytes);
	Sequencer::Expected &expected = sequencer_.from(static_cast<int>(rank));
	if (__builtin_expect(h->sequence != expected.sequence || expected.unusual, 0))
		return on_unusual(*h, message + sizeof *h, bytes - sizeof *h);
	++expected.sequence;
	deliver(*h, message + sizeof *h, bytes - sizeof *h);
	return true;
}

// Delivers it, and those that have waited for it. False: it has to wait itself, or has come before.
[[gnu::always_inline]] inline bool Net::take_in_order(Sequencer::Expected &expected, const MessageHeader &h,
                                                      const unsigned char *data, size_t length)
{
	if (__builtin_expect(h.sequence != expected.sequence, 0)) {
		if (static_cast<int32_t>(h.sequence - expected.sequence) < 0)
			environment_.reporter.add(Counter::net_duplicates);
		else if (!sequencer_.hold(expected, h, data, length))
			lose(h.rank(), PT2P_ERR_PROTOCOL,
			     format("message %u from it has come, and message %u has not", h.sequence, expected.sequence));
		return false;
	}
	++expected.sequence;
	deliver(h, data, length);
	if (sequencer_.holds_any())
		deliver_held(expected, h.sender());
	return true;
}

bool Net::on_unusual(const MessageHeader &h, const unsigned char *data, size_t length)
{
	const int rank = h.rank();
	if (rank == environment_.job.rank())
		return false;
	NetPeer *peer = peers_[static_cast<size_t>(rank)];
	if (!peer || !peer->ready) {
		if (peer && peer->down)
			return false;
		if (connections)
			connections->on_heard(rank);
	}
	Sequencer::Expected &expected = sequencer_.from(rank);
	// Messages that were written to the ring before this one was sent have arrived.
	if (h.sequence != expected.sequence && peer && peer->incoming)
		read_ring(*peer, UINT32_MAX);
	if (!take_in_order(expected, h, data, length))
		return false;
	expected.unusual = !peer || !peer->ready || sequencer_.holds_any();
	return true;
}

// A message over a further lane, or one that is not from a rank of this job, so that no peer is at fault.
bool Net::on_lane(const unsigned char *message, uint32_t bytes)
{
	MessageHeader h;
	if (bytes >= sizeof h)
		std::memcpy(&h, message, sizeof h);
	NetPeer *peer = bytes >= sizeof h && static_cast<size_t>(h.rank()) < ranks_ ? this->peer(h.rank()) : nullptr;
	Lane *lane = peer ? peer->lane_from(h.lane()) : nullptr;
	if (!lane) {
		if (!peer || !peer->down)
			environment_.reporter.add(Counter::auth_refused);
		return false;
	}
	return take_in_order(lane->expected, h, message + sizeof h, bytes - sizeof h);
}

// Nothing about it is sure, and no peer is at fault if it is wrong. True: something was delivered.
bool Net::on_datagram(const unsigned char *buffer, uint32_t bytes, uint32_t word)
{
	TransportEvents &events = environment_.events;
	if (bytes == route_header)
		return events.on_immediate(word), true;
	MessageHeader h;
	const bool whole = bytes >= route_header + sizeof h;
	if (whole)
		std::memcpy(&h, buffer + route_header, sizeof h);
	if (!whole || h.sender() >= ranks_ || h.rank() == environment_.job.rank()) {
		environment_.reporter.add(Counter::auth_refused);
		return false;
	}
	const unsigned char *data = buffer + route_header + sizeof h;
	const size_t length = bytes - route_header - sizeof h;
	if (h.id() == id_bundle)
		read_bundle(h.header, data, length, [&](const BundleFrame &frame, const unsigned char *payload) {
			events.on_datagram(h.rank(), static_cast<uint8_t>(frame.id), frame.header, payload, frame.length);
		});
	else if (h.id() < first_own_id)
		events.on_datagram(h.rank(), h.id(), h.header, data, length);
	return true;
}

// A reliable connection or DC target could be sent immediate data as well, by a peer that does not keep to the
// protocol.
bool Net::receives_datagrams(uint32_t queue_pair) const
{
	const SendQueue *queue = queues.find(queue_pair);
	return queue && queue->kind() == QueueKind::datagrams;
}

Net::Told Net::told(ibv_cq_ex *cq)
{
	Told t{cq->wr_id, cq->status};
	if (t.status != IBV_WC_SUCCESS)
		return t;
	t.bytes = ibv_wc_read_byte_len(cq);
	if (ibv_wc_read_wc_flags(cq) & IBV_WC_WITH_IMM) {
		t.datagram_to = ibv_wc_read_qp_num(cq);
		t.immediate = be32toh(ibv_wc_read_imm_data(cq));
	}
	return t;
}

Net::Told Net::told(const ibv_wc &c)
{
	Told t{c.wr_id, c.status, c.byte_len};
	if (c.status == IBV_WC_SUCCESS && c.wc_flags & IBV_WC_WITH_IMM) {
		t.datagram_to = c.qp_num;
		t.immediate = be32toh(c.imm_data);
	}
	return t;
}

// Handles one completion that libibverbs returned. True: a message was delivered.
bool Net::handle(const Told &told, Used &used)
{
	const auto [id, status, bytes, datagram_to, immediate] = told;
	if (id & SendQueues::is_send) {
		SendQueue *queue = queues.at(SendQueues::index_in(id));
		if (!queue || queue->broken())
			return false;
		queue->complete(static_cast<uint32_t>(id) - (status == IBV_WC_SUCCESS ? 0 : 1));
		if (status != IBV_WC_SUCCESS)
			queues.report_broken(*queue, status);
		return false;
	}
	used.numbers[used.count++] = id;
	if (status != IBV_WC_SUCCESS)
		return false;
	if (__builtin_expect(datagram_to != 0, 0))
		return receives_datagrams(datagram_to) && on_datagram(receives.buffer(id), bytes, immediate);
	return on_receive(receives.buffer(id), bytes);
}

// Handles up to max_completions, and counts the messages that were delivered. Returns how many completions there were.
unsigned Net::read(CompletionQueue &queue, unsigned &messages)
{
	Used used;
	unsigned n = 0;
	if (device_->extended_poll) {
		ibv_cq_ex *cq = queue.verbs.get();
		ibv_poll_cq_attr attributes{};
		if (ibv_start_poll(cq, &attributes) != 0)
			return 0;
		do
			messages += handle(told(cq), used);
		while (++n < max_completions && ibv_next_poll(cq) == 0);
		ibv_end_poll(cq);
	} else {
		ibv_wc completions[max_completions];
		n = static_cast<unsigned>(std::max(ibv_poll_cq(queue.cq(), max_completions, completions), 0));
		for (unsigned i = 0; i < n; ++i)
			messages += handle(told(completions[i]), used);
	}
	receives.post(used.numbers, used.count);
	return n;
}

// The same without libibverbs.
[[gnu::always_inline]] inline unsigned Net::read_directly(mlx5::CqBuffer &cq, unsigned &messages)
{
	unsigned n = 0;
	for (uint8_t kind; n < max_completions; ++n, cq.pop()) {
		const mlx5_cqe64 *c = cq.next(kind);
		if (!c)
			break;
		// The usual kind.
		if (__builtin_expect(mlx5::opcode(kind) == MLX5_CQE_RESP_SEND, 1)) {
			const uint16_t number = c->wqe_counter;
			const unsigned char *message = mlx5::scattered(*c, kind);
			messages += on_receive(message ? message : receives.buffer(be16toh(number)), be32toh(c->byte_cnt));
			receives.give(number);
			continue;
		}
		switch (mlx5::opcode(kind)) {
		case MLX5_CQE_REQ:
			if (SendQueue *queue = queues.find(mlx5::queue_pair(*c)); queue && !queue->broken())
				queue->complete_wqe(be16toh(c->wqe_counter));
			break;
		case MLX5_CQE_REQ_ERR:
			if (SendQueue *queue = queues.find(mlx5::queue_pair(*c)); queue && !queue->broken()) {
				queue->complete_before_wqe(be16toh(c->wqe_counter));
				queues.report_broken(*queue, mlx5::status_of(*c));
			}
			break;
		case MLX5_CQE_RESP_SEND_IMM: {
			const uint16_t number = c->wqe_counter;
			const unsigned char *message = mlx5::scattered(*c, kind);
			if (receives_datagrams(mlx5::queue_pair(*c)))
				messages += on_datagram(message ? message : receives.buffer(be16toh(number)), be32toh(c->byte_cnt),
				                        be32toh(c->imm_inval_pkey));
			receives.give(number);
			break;
		}
		case MLX5_CQE_RESP_ERR: receives.give(c->wqe_counter); break;
		default: // skipped
			break;
		}
	}
	if (n == 0)
		return 0;
	cq.publish();
	receives.publish();
	return n;
}

// A few completions, and more while those that are unread may hold more than half of the receives. (libibverbs does not
// tell how many are unread: then all are read.) Without a receive the device refuses a message, which costs its sender
// most of a millisecond, and senders that are quick take the receives that others wait for.
inline void Net::read_some(CompletionQueue &queue, unsigned &messages)
{
	uint32_t n, all = 0;
	do {
		n = __builtin_expect(queue.direct != nullptr, 1) ? read_directly(*queue.direct, messages)
		                                                 : read(queue, messages);
		all += n;
	} while (__builtin_expect(n == max_completions, 0) && all < receives_ &&
	         (!queue.direct || queue.direct->has_more_than(receives_ / 2)));
	if (all)
		drained_ = false;
}

// Requests for connections are rare. This poll goes through libibverbs even if queues are polled directly: a device in
// software behind libibverbs learns from it that this rank waits, and gets a turn.
bool Net::take_wireup()
{
	look_at_wireup_ = wireup_interval;
	WireupMessage message;
	bool any = false;
	while (wireup.take(message)) {
		any = true;
		if (connections)
			connections->on_wireup(message);
	}
	environment_.reporter.add(Counter::auth_refused, wireup.strange() - std::exchange(strange_, wireup.strange()));
	return any;
}

unsigned Net::make_progress()
{
	++turns_;
	if (__builtin_expect(tuner.watches(), 0))
		tuner.before_poll();
	if (__builtin_expect(doorbells.any_waits(), 0))
		doorbells.ring_all();
	unsigned messages = 0;
	if (__builtin_expect(!rings.incoming().empty(), 0)) {
		environment_.reporter.add(Counter::net_ring_looks, rings.incoming().size());
		for (size_t i = 0; i < rings.incoming().size(); ++i) // the list may get shorter
			messages += read_ring(*rings.incoming()[i], ring_burst);
	}
	// First, so that this turn finds what the device does now.
	const bool asked = __builtin_expect(look_at_wireup_ <= 0, 0) && take_wireup();
	drained_ = true;
	// Delivery may forward a message and connect to the next hop, which may add a completion queue.
	for (CompletionQueue &queue : completions)
		read_some(queue, messages);
	rings.count(messages, sequencer_);
	if (__builtin_expect(rings.any_returning(), 0))
		rings.look_after();
	look_at_wireup_ -= drained_ ? idle_turn_ : 1;
	if (__builtin_expect(tuner.watches(), 0))
		tuner.after_poll();
	if (drained_ && !asked && __builtin_expect(!queues.any_broken(), 1))
		return messages;
	if (__builtin_expect(operations.any_waits(), 0))
		operations.drive_waiting();
	if (__builtin_expect(queues.any_broken(), 0))
		queues.handle_broken();
	if (__builtin_expect(doorbells.any_waits(), 0))
		doorbells.ring_all(); // for answers to what has come
	return messages;
}

void Net::deliver_held(Sequencer::Expected &expected, uint32_t sender)
{
	while (const auto held = sequencer_.next(expected, sender))
		deliver(held->header, held->payload.data(), held->payload.size());
}

// Delivers the messages in a write ring whose turn it is.
unsigned Net::read_ring(NetPeer &peer, unsigned max_messages)
{
	unsigned n = 0;
	IncomingWriteRing &ring = *peer.incoming;
	Sequencer::Expected &expected = sequencer_.from(peer.peer);
	while (const RingTrailer *there = n < max_messages && !peer.down ? ring.next() : nullptr) {
		RingTrailer t;
		std::memcpy(&t, there, sizeof t);
		if (t.header.sequence != expected.sequence)
			break; // a message that was sent before it has a CQE that is still to be polled
		if (t.length > ring.max_payload() || t.header.sender() != static_cast<uint32_t>(peer.peer)) {
			take_down(peer, PT2P_ERR_PROTOCOL,
			          format("a message in its ring is from rank %d and has %u bytes, at most %u fit", t.header.rank(),
			                 t.length, ring.max_payload()));
			break;
		}
		++expected.sequence;
		++n;
		deliver(t.header, ring.payload(t.length), t.length);
		ring.pop();
	}
	if (n && sequencer_.holds_any())
		deliver_held(expected, static_cast<uint32_t>(peer.peer));
	if (ring.owes_report())
		rings.report_read(peer);
	return n;
}

// Delivers the messages of a bundle, of which the first has been counted.
void Net::take_bundle(const MessageHeader &h, const unsigned char *data, size_t length)
{
	const int rank = h.rank();
	NetPeer *const peer = peers_[static_cast<size_t>(rank)];
	uint32_t &expected = (h.lane() ? (*peer->further_lanes())[h.lane() - 1]->expected : sequencer_.from(rank)).sequence;
	uint32_t n = 0;
	const char *wrong =
	    read_bundle(h.header, data, length, [&](const BundleFrame &frame, const unsigned char *payload) {
		    expected += n != 0;
		    deliver({frame.header, h.sequence + n++, MessageHeader::pack(rank, static_cast<uint8_t>(frame.id))},
		            payload, frame.length);
	    });
	if (wrong)
		lose(rank, PT2P_ERR_PROTOCOL, format("a bundle of messages from it is malformed: %s", wrong));
}

// Handles a message of this layer.
void Net::take(const MessageHeader &h, const unsigned char *data, size_t length)
{
	const uint8_t id = h.id();
	NetPeer *peer = peers_[static_cast<size_t>(h.rank())];
	RingRequest request;
	RingOffer offer;
	if (id == id_bundle) {
		take_bundle(h, data, length);
	} else if (h.lane()) {
		lose(h.rank(), PT2P_ERR_PROTOCOL, "a message over a further lane is none of a layer above");
	} else if (id == id_bye) {
		lose(h.rank(), PT2P_ERR_PEER_FINALIZED, "it has called pt2p_finalize");
	} else if (id == id_ring_request && length == sizeof request) {
		std::memcpy(&request, data, sizeof request);
		// Who only receives through DC knows nobody.
		if (!peer && answerer)
			peer = answerer->connect_back(h.rank());
		if (peer)
			rings.on_request(*peer, request, h.sequence);
	} else if (id == id_ring_offer && length == sizeof offer) {
		std::memcpy(&offer, data, sizeof offer);
		if (!peer)
			return;
		if (const std::string wrong = rings.on_offer(*peer, offer); !wrong.empty())
			take_down(*peer, PT2P_ERR_PROTOCOL, wrong);
	} else if (id == id_ring_retire && peer) {
		rings.on_retire(*peer);
	} else if (id == id_ring_returned && peer) {
		rings.on_returned(*peer);
	}
}

} // namespace pt2p::verbs
