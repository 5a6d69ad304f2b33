#include "softhca/nic/qp/queue_pair.hpp"

#include <cstring>
#include <endian.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/ib_user_verbs.h>

#include "softhca/kernel/context.hpp"
#include "softhca/nic/memory.hpp"
#include "softhca/nic/nic.hpp"

namespace softhca {

uint16_t Qp::send_producer() const
{
	if (rings.send.empty())
		return 0;
	return static_cast<uint16_t>(be32toh(__atomic_load_n(rings.doorbell + 1, __ATOMIC_ACQUIRE)));
}

uint16_t Qp::receives_posted() const
{
	if (srq)
		return srq->available();
	if (rings.receive.empty())
		return 0;
	return static_cast<uint16_t>(be32toh(__atomic_load_n(rings.doorbell, __ATOMIC_ACQUIRE)) - rings.received);
}

bool Qp::take_receive(Receive &receive)
{
	Faults &faults = context.nic().faults;
	if (state != QpState::error && !faults.none() && faults.starves(number, context.device())) {
		count(Counter::faults, 1);
		return false;
	}
	if (srq) {
		const uint16_t posted = be32toh(__atomic_load_n(srq->doorbell, __ATOMIC_ACQUIRE)) & 0xffff;
		if (posted != srq->seen)
			count(Counter::srq_refills, 1);
		srq->seen = posted;
		if (!srq->take(receive))
			return false;
	} else {
		if (!receives_posted())
			return false;
		const size_t stride = rings.receive_stride, wqes = rings.receive.size() / stride;
		parse_receive(rings.receive.subspan(rings.received % wqes * stride, stride), receive);
		receive.index = rings.received++;
	}
	count(Counter::receives, 1);
	return true;
}

void Qp::complete(Cq &cq, Completion completion, bool solicited)
{
	completion.qpn = number;
	completion.user_index = user_index;
	const uint32_t events = cq.completion_events;
	if (cq.put(completion, solicited)) {
		count(Counter::cqes, 1);
		if (!completion.payload.empty()) {
			count(Counter::scattered_cqes, 1);
			count(Counter::scattered_bytes, completion.payload.size());
		}
	} else if (!overrun) {
		overrun = true;
		report(Event::qp_fatal); // completions are lost
		context.nic().scheduler().ready(*this);
	}
	count(Counter::events, cq.completion_events - events);
}

void Qp::enter_error(Nic &nic)
{
	if (state == QpState::error)
		return;
	state = QpState::error;
	nic.forget(responder);
	responder.flush();
	for (const auto &[from, initiator] : initiators.connected) {
		nic.forget(*initiator);
		initiator->flush();
	}
	requester.flush();
	if (srq)
		report(Event::last_wqe_reached);
	else
		flush_receives();
}

bool Qp::flush_receives()
{
	Receive receive;
	bool any = false;
	while (!srq && take_receive(receive)) {
		any = true;
		Completion c{};
		c.kind = CqeKind::receive_error;
		c.syndrome = Syndrome::flushed;
		c.index = receive.index;
		complete(*receive_cq, c, false);
	}
	return any;
}

void Qp::report(Event event) { async_events += context.report(event, user_handle); }

void Qp::reset(Nic &nic)
{
	state = QpState::reset;
	nic.settle(*this);
	nic.forget(*this);
	requester.reset();
	responder.begin(0, 0, 0);
	initiators.clear();
	rings.received = 0;
	rings.ahead = {};
	settings = {};
	drain_event = overrun = false;
}

namespace {

// Puts a datagram into a receive, after the 40 bytes that are kept for a global route header.
bool receive_datagram(Qp &qp, const Packet &packet, const uint8_t *payload)
{
	constexpr size_t header_bytes = 40;
	Receive receive;
	if (packet.key != qp.settings.qkey || !qp.take_receive(receive))
		return false;
	Completion c{};
	c.kind = packet.flags & packet_immediate ? CqeKind::received_send_immediate : CqeKind::received_send;
	c.index = receive.index;
	c.source_lid = packet.source_lid;
	c.source_qpn = packet.source;
	c.route = packet.flags & packet_route;
	c.immediate = packet.immediate;
	c.bytes = static_cast<uint32_t>(packet.payload + header_bytes);
	if (c.bytes > receive.length)
		c.syndrome = Syndrome::local_length;
	else if (!segments_allowed(qp, receive.all(), IB_UVERBS_ACCESS_LOCAL_WRITE))
		c.syndrome = Syndrome::local_protection;
	if (c.syndrome != Syndrome::none) {
		c.kind = CqeKind::receive_error;
		qp.complete(*qp.receive_cq, c, false);
		qp.enter_error(qp.context.nic());
		return true;
	}
	if (c.route) {
		// The fields of InfiniBand specification, volume 1, 8.3.
		uint8_t header[header_bytes] = {0x60};
		const uint16_t bytes = htobe16(static_cast<uint16_t>(packet.payload));
		std::memcpy(header + 4, &bytes, sizeof bytes);
		header[6] = 0x1b; // an InfiniBand packet follows
		header[7] = 1;
		const uint64_t from[] = {htobe64(gid_prefix), htobe64(packet.remote_address)},
		               to[] = {htobe64(gid_prefix), htobe64(packet.operand)};
		std::memcpy(header + 8, from, sizeof from);
		std::memcpy(header + 24, to, sizeof to);
		scatter(qp, receive.all(), 0, header, sizeof header);
	}
	scatter(qp, receive.all(), header_bytes, payload, packet.payload);
	qp.complete(*qp.receive_cq, c, packet.flags & packet_solicited);
	return true;
}

} // namespace

void Qp::handle(Nic &nic, const Packet &packet, const uint8_t *payload)
{
	const auto drop = [this] { count(Counter::packets_dropped, 1); };
	count(Counter::packets_received, 1);
	switch (kind) {
	case QpKind::ud:
		if (packet.kind != PacketKind::datagram || !receives() || !receive_datagram(*this, packet, payload))
			drop();
		return;
	case QpKind::dci:
		// The requester knows by the connection which target answers.
		if (is_request(packet.kind) || packet.kind == PacketKind::datagram)
			drop();
		else
			requester.handle(nic, packet, payload);
		return;
	case QpKind::rc:
		if (packet.source != settings.destination || packet.source_lid != settings.path.dlid || !receives() ||
		    packet.kind == PacketKind::datagram || packet.kind == PacketKind::disconnect)
			drop();
		else if (is_request(packet.kind))
			responder.handle(nic, packet, payload);
		else
			requester.handle(nic, packet, payload);
		return;
	case QpKind::dct: initiators.handle(nic, packet, payload);
	}
}

} // namespace softhca
