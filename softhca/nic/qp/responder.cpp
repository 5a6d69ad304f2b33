// The responder executes requests in the order of their PSNs, once each, and answers (InfiniBand specification, volume
// 1, 9.7.4, 9.7.5.1, 9.9.3).
#include <algorithm>
#include <cstring>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/ib_user_verbs.h>

#include "softhca/kernel/context.hpp"
#include "softhca/nic/memory.hpp"
#include "softhca/nic/nic.hpp"

namespace softhca {

void Responder::begin(uint16_t lid, uint32_t number, uint32_t psn)
{
	lid_ = lid;
	number_ = number;
	expected_ = psn;
	refused_ = not_ready_ = false;
	message_ = Message::none;
	has_receive_ = false;
	final_ = Refusal::none;
	ended_ = told_ = false;
	owed_.clear();
	atomics_.clear();
}

void Responder::flush()
{
	if (has_receive_) {
		has_receive_ = false;
		Completion c{};
		c.kind = CqeKind::receive_error;
		c.syndrome = Syndrome::flushed;
		c.index = receive_.index;
		qp_.complete(*qp_.receive_cq, c, false);
	}
	message_ = Message::none;
	owed_.clear();
}

void Responder::handle(Nic &nic, const Packet &packet, const uint8_t *payload)
{
	if (final_ != Refusal::none) {
		qp_.count(Counter::packets_dropped, 1);
		if (owed_.empty()) // again: it may have been lost
			owe(nic, {PacketKind::refuse, final_, final_psn_});
		return;
	}
	const int32_t ahead = psn_distance(packet.psn, expected_);
	if (ahead < 0) {
		duplicate(nic, packet);
		return;
	}
	if (ahead > 0) {
		qp_.count(Counter::packets_dropped, 1);
		qp_.count(Counter::rnr_dropped, not_ready_);
		if (!refused_) {
			refused_ = true;
			owe(nic, {PacketKind::refuse, Refusal::sequence, expected_});
		}
		return;
	}
	refused_ = not_ready_ = false;
	const Refusal reason = execute(nic, packet, payload);
	switch (reason) {
	case Refusal::none: break;
	case Refusal::receiver_not_ready:
		refused_ = not_ready_ = true;
		owe(nic, {PacketKind::refuse, reason, packet.psn});
		return;
	default: break_off(nic, packet.psn, reason); return;
	}
	if (packet.kind == PacketKind::read)
		return; // the PSNs of its responses are counted already
	expected_ = psn_add(expected_, 1);
	if (packet.kind != PacketKind::atomic && (packet.flags & packet_ack_request))
		owe(nic, {PacketKind::acknowledge, Refusal::none, packet.psn});
}

Refusal Responder::execute(Nic &nic, const Packet &packet, const uint8_t *payload)
{
	const bool first = packet.flags & packet_first, last = packet.flags & packet_last;
	const uint32_t mtu = qp_.settings.mtu_bytes();
	const Message message = packet.kind == PacketKind::send    ? Message::send
	                        : packet.kind == PacketKind::write ? Message::write
	                                                           : Message::none;
	// A message begins when none is being received, and stays of one kind. All its packets but the last are full.
	if (first != (message_ == Message::none) || (!first && message != message_))
		return Refusal::invalid_request;
	if (message != Message::none && (last ? packet.payload > mtu : packet.payload != mtu))
		return Refusal::invalid_request;
	switch (packet.kind) {
	case PacketKind::send: return receive_send(packet, payload);
	case PacketKind::write: return receive_write(packet, payload);
	case PacketKind::read: return receive_read(nic, packet);
	case PacketKind::atomic: return receive_atomic(nic, packet);
	default: return Refusal::invalid_request;
	}
}

// The packet has been executed before: its answer was lost.
void Responder::duplicate(Nic &nic, const Packet &packet)
{
	if (packet.kind == PacketKind::read) {
		if ((qp_.settings.access & IB_UVERBS_ACCESS_REMOTE_READ) && packet.length <= max_message &&
		    !owes_too_much(true))
			owe_read(nic, packet, true);
		return;
	}
	if (packet.kind == PacketKind::atomic) {
		const auto found = std::find_if(atomics_.begin(), atomics_.end(),
		                                [&](const AtomicResult &result) { return result.psn == packet.psn; });
		if (found != atomics_.end() && !owes_too_much(true))
			owe(nic, {PacketKind::atomic_response, Refusal::none, packet.psn, true, 0, 0, 0, false, found->value});
		return;
	}
	if (packet.flags & packet_ack_request)
		owe(nic, {PacketKind::acknowledge, Refusal::none, packet.psn});
}

Refusal Responder::take_receive()
{
	if (has_receive_)
		return Refusal::none;
	if (!qp_.take_receive(receive_))
		return Refusal::receiver_not_ready;
	has_receive_ = true;
	return Refusal::none;
}

Refusal Responder::receive_send(const Packet &packet, const uint8_t *payload)
{
	if (packet.flags & packet_first) {
		if (const Refusal reason = take_receive(); reason != Refusal::none)
			return reason;
		// All of the receive is checked, also what this message does not fill.
		if (!segments_allowed(qp_, receive_.all(), IB_UVERBS_ACCESS_LOCAL_WRITE))
			return fail_receive(packet, Syndrome::local_protection, Refusal::remote_operation);
		message_ = Message::send;
		done_ = 0;
	}
	if (done_ + packet.payload > receive_.length)
		return fail_receive(packet, Syndrome::local_length, Refusal::invalid_request);
	// A small message comes in the CQE; libmlx5 copies it to the memory of the receive.
	const bool in_cqe =
	    packet.flags & packet_first && packet.flags & packet_last && packet.payload <= qp_.payload_in_cqe.received;
	if (!in_cqe && !scatter(qp_, receive_.all(), done_, payload, packet.payload))
		return fail_receive(packet, Syndrome::local_protection, Refusal::remote_operation);
	done_ += packet.payload;
	if (packet.flags & packet_last) {
		const bool immediate = packet.flags & packet_immediate;
		finish_receive(packet, immediate ? CqeKind::received_send_immediate : CqeKind::received_send, done_,
		               {payload, in_cqe ? packet.payload : 0});
		message_ = Message::none;
	}
	return Refusal::none;
}

Refusal Responder::receive_write(const Packet &packet, const uint8_t *payload)
{
	if (packet.flags & packet_first) {
		if (!(qp_.settings.access & IB_UVERBS_ACCESS_REMOTE_WRITE))
			return Refusal::invalid_request;
		address_ = packet.remote_address;
		key_ = packet.remote_key;
		length_ = packet.length;
		done_ = 0;
		// The whole message is checked before its first byte is written.
		if (length_ && !qp_.context.memory(*qp_.pd, key_, address_, length_, IB_UVERBS_ACCESS_REMOTE_WRITE).bytes)
			return Refusal::remote_access;
	}
	const bool last = packet.flags & packet_last;
	if (done_ + packet.payload > length_ || (last && done_ + packet.payload != length_))
		return Refusal::invalid_request;
	if (last && (packet.flags & packet_immediate))
		if (const Refusal reason = take_receive(); reason != Refusal::none)
			return reason;
	if (packet.payload) {
		const Memory memory =
		    qp_.context.memory(*qp_.pd, key_, address_ + done_, packet.payload, IB_UVERBS_ACCESS_REMOTE_WRITE);
		if (!memory.bytes)
			return Refusal::remote_access;
		place(memory.bytes, payload, packet.payload);
		count_write(qp_, memory, packet.payload);
	}
	message_ = last ? Message::none : Message::write;
	done_ += packet.payload;
	if (last && (packet.flags & packet_immediate))
		finish_receive(packet, CqeKind::received_write_immediate, done_);
	return Refusal::none;
}

Refusal Responder::receive_read(Nic &nic, const Packet &packet)
{
	if (!(qp_.settings.access & IB_UVERBS_ACCESS_REMOTE_READ) || packet.length > max_message || owes_too_much(false))
		return Refusal::invalid_request;
	if (packet.length &&
	    !qp_.context
	         .memory(*qp_.pd, packet.remote_key, packet.remote_address, packet.length, IB_UVERBS_ACCESS_REMOTE_READ)
	         .bytes)
		return Refusal::remote_access;
	owe_read(nic, packet, false);
	const uint32_t mtu = qp_.settings.mtu_bytes();
	expected_ = psn_add(expected_, std::max<uint32_t>(1, (packet.length + mtu - 1) / mtu));
	return Refusal::none;
}

Refusal Responder::receive_atomic(Nic &nic, const Packet &packet)
{
	uint64_t old = packet.compare;
	if (!(qp_.settings.access & IB_UVERBS_ACCESS_REMOTE_ATOMIC) || packet.remote_address % sizeof old ||
	    owes_too_much(false))
		return Refusal::invalid_request;
	const Memory memory = qp_.context.memory(*qp_.pd, packet.remote_key, packet.remote_address, sizeof old,
	                                         IB_UVERBS_ACCESS_REMOTE_ATOMIC);
	if (!memory.bytes || reinterpret_cast<uintptr_t>(memory.bytes) % sizeof old)
		return Refusal::remote_access;
	// The processor's own operations: atomic for every process that has the memory mapped.
	auto *word = reinterpret_cast<uint64_t *>(memory.bytes);
	if (packet.flags & packet_compare)
		__atomic_compare_exchange_n(word, &old, packet.operand, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
	else
		old = __atomic_fetch_add(word, packet.operand, __ATOMIC_SEQ_CST);
	count_read(qp_, memory, sizeof old);
	count_write(qp_, memory, sizeof old);
	// Results are kept for as many as may be outstanding: when an answer is lost, the operation must not be executed
	// again.
	constexpr size_t max_results = 2 * max_rd_atomic;
	atomics_.push_back({packet.psn, old});
	if (atomics_.size() > max_results)
		atomics_.pop_front();
	owe(nic, {PacketKind::atomic_response, Refusal::none, packet.psn, false, 0, 0, 0, false, old});
	return Refusal::none;
}

Completion Responder::completion(const Packet &packet) const
{
	Completion c{};
	c.source_lid = packet.source_lid;
	c.source_qpn = packet.source;
	c.index = receive_.index;
	c.immediate = packet.immediate;
	return c;
}

void Responder::finish_receive(const Packet &packet, CqeKind kind, uint64_t bytes, std::span<const uint8_t> payload)
{
	Completion c = completion(packet);
	c.kind = kind;
	c.bytes = static_cast<uint32_t>(bytes);
	c.payload = payload;
	has_receive_ = false;
	qp_.complete(*qp_.receive_cq, c, packet.flags & packet_solicited);
}

// The receive is at fault: this side's completion says why, the other side gets a NAK.
Refusal Responder::fail_receive(const Packet &packet, Syndrome syndrome, Refusal reason)
{
	Completion c = completion(packet);
	c.kind = CqeKind::receive_error;
	c.syndrome = syndrome;
	has_receive_ = false;
	told_ = true;
	qp_.complete(*qp_.receive_cq, c, false);
	return reason;
}

// Request `psn` cannot be executed. The connection ends when the NAK is sent, after all answers before it.
void Responder::break_off(Nic &nic, uint32_t psn, Refusal reason)
{
	final_ = reason;
	final_psn_ = psn;
	owe(nic, {PacketKind::refuse, reason, psn});
}

// An error of the other side raises an event here. One of a receive has had its completion.
void Responder::end(Nic &nic)
{
	if (ended_)
		return;
	ended_ = true;
	if (!told_ && final_ == Refusal::remote_access)
		qp_.report(Event::qp_access_error);
	else if (!told_ && final_ == Refusal::invalid_request)
		qp_.report(Event::qp_request_error);
	if (qp_.kind == QpKind::dct) // serves others as well
		flush();
	else
		qp_.enter_error(nic);
}

// Repeated answers do not count as outstanding.
bool Responder::owes_too_much(bool again) const
{
	const auto responses = std::count_if(owed_.begin(), owed_.end(), [&](const Owed &owed) {
		return owed.again == again &&
		       (owed.kind == PacketKind::read_response || owed.kind == PacketKind::atomic_response);
	});
	const unsigned most = qp_.kind == QpKind::dct ? max_rd_atomic : qp_.settings.max_dest_rd_atomic;
	return responses >= static_cast<std::ptrdiff_t>(most);
}

void Responder::owe(Nic &nic, const Owed &owed)
{
	// One acknowledgement covers all before it.
	if (owed.kind == PacketKind::acknowledge && !owed_.empty() && owed_.back().kind == PacketKind::acknowledge) {
		if (psn_distance(owed.psn, owed_.back().psn) > 0)
			owed_.back().psn = owed.psn;
	} else {
		owed_.push_back(owed);
	}
	nic.scheduler().owes(*this);
}

void Responder::owe_read(Nic &nic, const Packet &packet, bool again)
{
	owe(nic, {PacketKind::read_response, Refusal::none, packet.psn, again, packet.remote_address, packet.length,
	          packet.remote_key});
}

// Whether the next packet of a READ's response may be sent, or all of them where a fault rule tears it.
bool Responder::readable(const Owed &owed) const
{
	const uint32_t bytes = owed.torn ? owed.bytes : std::min(owed.bytes, qp_.settings.mtu_bytes());
	return bytes == 0 || qp_.context.memory(*qp_.pd, owed.key, owed.address, bytes, IB_UVERBS_ACCESS_REMOTE_READ).bytes;
}

// Whether nothing keeps the response to a READ from being sent. A fault rule may have its bytes taken in pieces: then
// the program goes on after each of them.
bool Responder::complete(Nic &nic, Owed &owed)
{
	constexpr uint32_t longest = 1u << 20;
	if (!owed.looked && !nic.faults.none() && owed.bytes <= longest)
		if (const auto tear = nic.faults.tears(qp_.number, number_, qp_.context.device())) {
			std::vector<Piece> pieces = pieces_of(owed.address, owed.bytes, tear->seed);
			if (pieces.size() > 1) {
				qp_.count(Counter::faults, 1);
				owed.torn = std::make_shared<Torn>(
				    Torn{std::move(pieces), std::vector<uint8_t>(owed.bytes), owed.address, tear->pause, 0});
			}
		}
	owed.looked = true;
	if (!owed.torn || owed.begun)
		return true;
	Torn &torn = *owed.torn;
	if (nic.now() < torn.until)
		return false;
	if (torn.pieces.empty())
		return true;
	const Piece piece = torn.pieces.back();
	torn.pieces.pop_back();
	const Memory memory =
	    qp_.context.memory(*qp_.pd, owed.key, owed.address + piece.offset, piece.bytes, IB_UVERBS_ACCESS_REMOTE_READ);
	std::memcpy(&torn.bytes[piece.offset], memory.bytes, piece.bytes);
	count_read(qp_, memory, piece.bytes);
	if (torn.pieces.empty())
		return true;
	torn.until = nic.now() + torn.pause;
	nic.pause(*this, torn.until);
	return false;
}

bool Responder::respond(Nic &nic, unsigned burst)
{
	for (; burst && !owed_.empty(); --burst) {
		if (owed_.front().kind == PacketKind::read_response && !readable(owed_.front())) {
			// The region was deregistered since the request came. A late repetition of an answered request is no error.
			if (owed_.front().again) {
				owed_.pop_front();
				continue;
			}
			const uint32_t psn = owed_.front().psn;
			owed_.clear();
			break_off(nic, psn, Refusal::remote_access);
		}
		Owed &owed = owed_.front();
		if (owed.kind == PacketKind::read_response && !complete(nic, owed))
			return false; // the NIC calls when the pause is over
		if (!pay(nic, owed))
			return true;
		if (final_ != Refusal::none && owed_.size() == 1 && owed.kind == PacketKind::refuse) {
			owed_.clear();
			end(nic);
			return false;
		}
		// A READ stays until its last packet is sent.
		if (owed.kind != PacketKind::read_response || owed.bytes == 0)
			owed_.pop_front();
	}
	return !owed_.empty();
}

void Responder::settle(Nic &nic)
{
	while (!owed_.empty() && owed_.front().kind != PacketKind::read_response && pay(nic, owed_.front()))
		owed_.pop_front();
}

// Sends the next packet of an answer. False when there is no room for it now.
bool Responder::pay(Nic &nic, Owed &owed)
{
	Packet p{};
	p.kind = owed.kind;
	p.destination = number_;
	p.destination_lid = lid_;
	p.connection = connection;
	p.psn = owed.psn;
	Memory memory;
	switch (owed.kind) {
	case PacketKind::read_response:
		p.payload = std::min(owed.bytes, qp_.settings.mtu_bytes());
		p.flags = static_cast<uint8_t>((owed.begun ? 0 : packet_first) | (p.payload == owed.bytes ? packet_last : 0));
		if (p.payload && !owed.torn)
			memory = qp_.context.memory(*qp_.pd, owed.key, owed.address, p.payload, IB_UVERBS_ACCESS_REMOTE_READ);
		break;
	case PacketKind::atomic_response: p.operand = owed.value; break;
	case PacketKind::refuse:
		p.reason = owed.reason;
		p.timer = qp_.settings.min_rnr_timer;
		break;
	default: break;
	}
	if (!nic.transmit(qp_, p, [&](uint8_t *to) {
		    if (!p.payload)
			    return;
		    if (owed.torn) {
			    std::memcpy(to, &owed.torn->bytes[owed.address - owed.torn->address], p.payload);
			    return;
		    }
		    std::memcpy(to, memory.bytes, p.payload);
		    count_read(qp_, memory, p.payload);
	    }))
		return false;
	if (p.kind == PacketKind::refuse)
		qp_.count(p.reason == Refusal::receiver_not_ready ? Counter::rnr_naks_sent : Counter::naks_sent, 1);
	if (owed.kind == PacketKind::read_response) {
		owed.begun = true;
		owed.psn = psn_add(owed.psn, 1);
		owed.address += p.payload;
		owed.bytes -= p.payload;
	}
	return true;
}

} // namespace softhca
