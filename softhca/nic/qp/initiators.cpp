#include "softhca/nic/qp/initiators.hpp"

#include "softhca/nic/nic.hpp"

namespace softhca {

namespace {

constexpr size_t sweep_every = 1024; // initiators

// Whether one connection of an initiator is older than another: its process numbers them one after the other. What is
// further apart is of another process.
bool is_before(uint32_t one, uint32_t other)
{
	constexpr uint32_t same_process = 1u << 20;
	return other - one - 1 < same_process;
}

} // namespace

void Initiators::forget_dead(Nic &nic)
{
	std::erase_if(left, [&](const auto &entry) { return !nic.alive(static_cast<uint32_t>(entry.first)); });
	std::erase_if(connected, [&](const auto &entry) {
		const auto &[from, initiator] = entry;
		if (nic.alive(static_cast<uint32_t>(from)))
			return false;
		nic.forget(*initiator);
		initiator->flush();
		return true;
	});
}

// Most packets: of a connection that is known.
void Initiators::handle(Nic &nic, const Packet &packet, const uint8_t *payload)
{
	const uint64_t from = static_cast<uint64_t>(packet.source_lid) << 32 | packet.source;
	const auto found = connected.find(from);
	const bool known = found != connected.end() && found->second->connection == packet.connection;
	if (packet.kind == PacketKind::disconnect) {
		if (known)
			disconnect(nic, from);
	} else if (!qp_.receives() || !is_request(packet.kind)) {
		qp_.count(Counter::packets_dropped, 1);
	} else if (known) {
		found->second->handle(nic, packet, payload);
	} else if (!may_connect(from, packet)) {
		qp_.count(Counter::packets_dropped, 1);
	} else if (packet.key != access_key) {
		refuse(nic, packet);
	} else {
		connect(nic, from, packet).handle(nic, packet, payload);
	}
}

void Initiators::disconnect(Nic &nic, uint64_t from)
{
	const auto found = connected.find(from);
	nic.forget(*found->second);
	found->second->flush();
	left[from] = found->second->connection;
	connected.erase(found);
	if (left.size() % sweep_every == 0)
		forget_dead(nic);
}

// A new connection replaces an older one of the same initiator. A late packet of one that has ended must not, or what
// it asks for would be executed twice.
bool Initiators::may_connect(uint64_t from, const Packet &packet) const
{
	if (!(packet.flags & packet_connect))
		return false;
	if (const auto found = connected.find(from); found != connected.end())
		return !is_before(packet.connection, found->second->connection);
	const auto previous = left.find(from);
	return connected.size() < max_initiators &&
	       (previous == left.end() || is_before(previous->second, packet.connection));
}

// The access key is wrong.
void Initiators::refuse(Nic &nic, const Packet &packet)
{
	Packet refusal{};
	refusal.kind = PacketKind::refuse;
	refusal.reason = Refusal::remote_access;
	refusal.destination = packet.source;
	refusal.destination_lid = packet.source_lid;
	refusal.psn = packet.psn;
	refusal.connection = packet.connection;
	nic.transmit(qp_, refusal);
	qp_.count(Counter::naks_sent, 1);
	qp_.report(Event::qp_access_error);
}

Responder &Initiators::connect(Nic &nic, uint64_t from, const Packet &packet)
{
	// An initiator that was killed has not disconnected.
	if (!connected.count(from) && connected.size() % sweep_every == sweep_every - 1)
		forget_dead(nic);
	auto &responder = connected[from];
	if (responder) {
		nic.forget(*responder);
		responder->flush();
	}
	responder = std::make_unique<Responder>(qp_, packet.source_lid, packet.source);
	responder->begin(packet.source_lid, packet.source, packet.psn);
	responder->connection = packet.connection;
	return *responder;
}

} // namespace softhca
