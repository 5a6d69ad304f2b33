#include "softhca/nic/queue_pair.hpp"

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
	if (send_ring.empty())
		return 0;
	return static_cast<uint16_t>(be32toh(__atomic_load_n(doorbell + 1, __ATOMIC_ACQUIRE)));
}

bool Qp::take_receive(Receive &receive)
{
	Faults &faults = Nic::get().faults;
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
		if (receive_ring.empty() ||
		    static_cast<uint16_t>(be32toh(__atomic_load_n(doorbell, __ATOMIC_ACQUIRE))) == received)
			return false;
		const size_t entries = receive_ring.size() / receive_stride;
		parse_receive(receive_ring.subspan(received % entries * receive_stride, receive_stride), receive);
		receive.index = received++;
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
		report(Event::qp_fatal); // its work can no longer be accounted for
		Nic::get().ready(*this);
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
	for (const auto &[from, initiator] : initiators) {
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
	last_connections.clear();
	received = 0;
	settings = {};
	drain_event = overrun = false;
}

namespace {

bool is_request(PacketKind kind)
{
	return kind == PacketKind::send || kind == PacketKind::write || kind == PacketKind::read ||
	       kind == PacketKind::atomic;
}

bool receives(QpState state) { return state >= QpState::rtr && state <= QpState::sqe; }

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
	else if (!pieces_allowed(qp, receive.all(), IB_UVERBS_ACCESS_LOCAL_WRITE))
		c.syndrome = Syndrome::local_protection;
	if (c.syndrome != Syndrome::none) {
		c.kind = CqeKind::receive_error;
		qp.complete(*qp.receive_cq, c, false);
		qp.enter_error(Nic::get());
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

// Whether one connection of an initiator is older than another: its process numbers them one after the other. What is further apart
// is of another process.
static bool is_before(uint32_t one, uint32_t other)
{
	constexpr uint32_t same_process = 1u << 20;
	return other - one - 1 < same_process;
}

void Qp::handle(Nic &nic, const Packet &packet, const uint8_t *payload)
{
	const auto drop = [this] { count(Counter::packets_dropped, 1); };
	count(Counter::packets_received, 1);
	switch (kind) {
	case QpKind::ud:
		if (packet.kind != PacketKind::datagram || !receives(state) || !receive_datagram(*this, packet, payload))
			drop();
		return;
	case QpKind::dci:
		// Which target answers, the requester knows by the connection.
		if (is_request(packet.kind) || packet.kind == PacketKind::datagram)
			drop();
		else
			requester.handle(nic, packet, payload);
		return;
	case QpKind::rc:
		if (packet.source != settings.destination || packet.source_lid != settings.path.dlid || !receives(state) ||
		    packet.kind == PacketKind::datagram || packet.kind == PacketKind::disconnect)
			drop();
		else if (is_request(packet.kind))
			responder.handle(nic, packet, payload);
		else
			requester.handle(nic, packet, payload);
		return;
	case QpKind::dct:
		handle_initiator(nic, packet, payload);
	}
}

void Qp::forget_dead_initiators(Nic &nic)
{
	std::erase_if(last_connections, [&](const auto &entry) { return !nic.alive(static_cast<uint32_t>(entry.first)); });
	std::erase_if(initiators, [&](const auto &entry) {
		const auto &[from, initiator] = entry;
		if (nic.alive(static_cast<uint32_t>(from)))
			return false;
		nic.forget(*initiator);
		initiator->flush();
		return true;
	});
}

void Qp::handle_initiator(Nic &nic, const Packet &packet, const uint8_t *payload)
{
	const uint64_t from = static_cast<uint64_t>(packet.source_lid) << 32 | packet.source;
	const auto found = initiators.find(from);
	constexpr size_t sweep_every = 1024;
	if (packet.kind == PacketKind::disconnect) {
		if (found != initiators.end() && found->second->connection == packet.connection) {
			nic.forget(*found->second);
			found->second->flush();
			initiators.erase(found);
			last_connections[from] = packet.connection;
			if (last_connections.size() % sweep_every == 0)
				forget_dead_initiators(nic);
		}
		return;
	}
	if (!receives(state) || !is_request(packet.kind)) {
		count(Counter::packets_dropped, 1);
		return;
	}
	if (found != initiators.end() && found->second->connection == packet.connection) {
		found->second->handle(nic, packet, payload);
		return;
	}
	// A new connection, which replaces an older one of the same initiator: not a late packet of one that has ended, or what it asks
	// for would be carried out twice.
	const auto last = last_connections.find(from);
	const bool late = found != initiators.end()         ? is_before(packet.connection, found->second->connection)
	                  : last != last_connections.end() ? !is_before(last->second, packet.connection)
	                                                   : false;
	if (late || !(packet.flags & packet_connect) || (found == initiators.end() && initiators.size() >= max_initiators)) {
		count(Counter::packets_dropped, 1);
		return;
	}
	if (packet.key != access_key) {
		Packet refusal{};
		refusal.kind = PacketKind::refuse;
		refusal.reason = Refusal::remote_access;
		refusal.destination = packet.source;
		refusal.destination_lid = packet.source_lid;
		refusal.psn = packet.psn;
		refusal.connection = packet.connection;
		nic.transmit(*this, refusal);
		count(Counter::naks_sent, 1);
		report(Event::qp_access_error);
		return;
	}
	// An initiator that was killed has not said that it leaves.
	if (found == initiators.end() && initiators.size() % sweep_every == sweep_every - 1)
		forget_dead_initiators(nic);
	auto &responder_of = initiators[from];
	if (responder_of) {
		nic.forget(*responder_of);
		responder_of->flush();
	}
	responder_of = std::make_unique<Responder>(*this, packet.source_lid, packet.source);
	responder_of->begin(packet.source_lid, packet.source, packet.psn);
	responder_of->connection = packet.connection;
	responder_of->handle(nic, packet, payload);
}

} // namespace softhca
