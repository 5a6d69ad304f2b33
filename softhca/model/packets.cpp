#include "softhca/model/packets.hpp"

#include <algorithm>
#include <cmath>

#include "softhca/kernel/context.hpp"
#include "softhca/model/units.hpp"
#include "softhca/nic/nic.hpp"

namespace softhca::model {

namespace {

bool asks(PacketKind kind) { return is_request(kind) || kind == PacketKind::datagram; }
bool is_response(PacketKind kind) { return kind == PacketKind::read_response || kind == PacketKind::atomic_response; }
// Whether it goes from a requester to a responder.
bool is_forth(PacketKind kind) { return asks(kind) || kind == PacketKind::disconnect; }

// A READ or an atomic operation needs state until its answer comes: a unit turns to another queue pair after each. More
// of them outstanding are not quicker (S0), unlike WRITEs.
bool may_stay(PacketKind kind) { return kind == PacketKind::write || kind == PacketKind::send; }

// Whether it is the end of a message to a program, which will look at it.
bool brings_message(const Packet &packet)
{
	return packet.kind == PacketKind::datagram || (may_stay(packet.kind) && packet.flags & packet_last);
}

// Headers beyond those of every packet (InfiniBand specification, volume 1, 9.2 to 9.3).
double extended_headers(const Packet &packet)
{
	switch (packet.kind) {
	case PacketKind::read: return 16;
	case PacketKind::write: return packet.flags & packet_first ? 16 : 0;
	case PacketKind::atomic: return 28;
	case PacketKind::atomic_response: return 12;
	case PacketKind::datagram: return 8;
	case PacketKind::send: return 0;
	default: return 4;
	}
}

// Of the context of a responder; a DC target has one for each initiator, a queue pair of datagrams one for all.
uint64_t responder_key(const Packet &packet)
{
	return uint64_t{packet.destination} << 32 | (packet.kind == PacketKind::datagram ? 0 : packet.source);
}

} // namespace

// Whether a WQE is looked at when its answer comes.
bool Packets::is_needed_again(PacketKind request) const
{
	return request == PacketKind::read || request == PacketKind::atomic ||
	       (request != PacketKind::datagram && core_.p.write_wqe_kept != 0);
}

// The requester's side of what a packet belongs to.
QpRecord &Packets::requester_of(const Packet &packet, bool forth)
{
	return core_.record(forth ? packet.source : packet.destination);
}

uint32_t Packets::new_flight(const Packet &packet)
{
	if (free_.empty()) {
		free_.push_back(static_cast<uint32_t>(flights_.size()));
		flights_.emplace_back();
	}
	const uint32_t number = free_.back();
	free_.pop_back();
	flights_[number].packet = packet;
	flights_[number].payload.resize(packet.payload);
	return number;
}

void Packets::completed(const Qp &qp, const Wqe &wqe)
{
	core_.device_of(qp).wqes.forget(wqe_key(qp.number, wqe.index));
}

// ---- out ------------------------------------------------------------------------------------------------------------

// A request that has arrived begins when its unit has taken the last answer. Here it begins only when the program can
// see that answer: how much later that is.
Picoseconds Packets::waited_for_memory(Qp &qp, Picoseconds arrived)
{
	const Picoseconds visible = core_.record(qp).answers.executed,
	                  taken = visible - std::min(visible, from_ns(core_.p.pcie_write));
	return visible - std::min(visible, std::max({taken, arrived, units_.free(qp)}));
}

// A DC initiator has another target. It disconnects from the old one right after the last request to that, if it knows
// the next target by then.
Packets::Start Packets::connect(Qp &qp, QpRecord &r, Picoseconds arrived)
{
	core_.busy += from_ns(core_.p.dc_connect);
	const bool leaves_another = std::exchange(r.left, false);
	return {leaves_another ? std::max(r.last, arrived) + from_ns(core_.p.dc_switch) : 0,
	        waited_for_memory(qp, arrived)};
}

// A unit begins a request.
Packets::Start Packets::begin_request(Qp &qp, QpRecord &r, const Packet &packet, bool idle)
{
	const Profile &p = core_.p;
	Device &device = core_.device_of(qp);
	const bool dc = qp.kind == QpKind::dci, first = packet.flags & packet_first;
	const double whole = packet.kind == PacketKind::datagram ? p.unit_datagram : p.unit_request;
	core_.busy += from_ns((first ? whole : p.unit_packet) + (dc ? p.unit_dc : 0));
	if (!core_.use_requester(device, qp) && may_stay(packet.kind))
		stay_.left = static_cast<unsigned>(p.unit_stay);
	const Wqe *wqe = qp.requester.sending();
	if (wqe && first && packet.kind != PacketKind::datagram && !device.wqes.use(wqe_key(qp.number, wqe->index))) {
		qp.count(Counter::wqe_misses, 1);
		if (!stay_.left && may_stay(packet.kind) && p.wqe_burst > 1)
			stay_.left = static_cast<unsigned>(p.wqe_burst);
		if (std::exchange(stay_.reads_wqes, stay_.left != 0))
			core_.read(device, core_.now + core_.busy + core_.late, wqebb_bytes);
		else
			core_.miss(device, wqebb_bytes, p.unit_overlap);
	}
	if (wqe && packet.flags & packet_last && !is_needed_again(packet.kind))
		device.wqes.forget(wqe_key(qp.number, wqe->index));
	Picoseconds arrived = core_.now;
	while (dc && wqe && !r.arrivals.empty()) {
		arrived = r.arrivals.front().second;
		if (static_cast<uint16_t>(r.arrivals.front().first - wqe->index - 1) < 0x8000)
			break;
		r.arrivals.erase(r.arrivals.begin());
	}
	const bool first_of_all = first && wqe && wqe == qp.requester.oldest();
	return packet.flags & packet_connect || (idle && first_of_all) ? connect(qp, r, arrived) : Start{};
}

// What acknowledging the message costs the unit does not become less with the number of acknowledgements.
void Packets::stay(Flight &flight, uint32_t number)
{
	if (!may_stay(flight.packet.kind))
		stay_.left = 0;
	if (!stay_.left)
		return;
	--stay_.left;
	if (!(flight.packet.flags & packet_ack_request))
		return;
	stay_.unasked = stay_.left != 0;
	if (!stay_.unasked)
		return;
	flight.packet.flags &= static_cast<uint8_t>(~packet_ack_request);
	core_.busy += from_ns(core_.p.unit_acknowledged);
	stay_.flight = number;
}

// Whatever ended the stay, the last message asks: that one's acknowledgement is paid for when it comes.
void Packets::leave()
{
	if (stay_.unasked) {
		flights_[stay_.flight].packet.flags |= packet_ack_request;
		core_.busy -= from_ns(core_.p.unit_acknowledged);
	}
	stay_ = {};
}

void Packets::send(Qp &qp, const Packet &given, const Fill &fill, Time held)
{
	const Profile &p = core_.p;
	const uint32_t number = new_flight(given);
	Flight &flight = flights_[number];
	const Packet &packet = flight.packet;
	const auto read_so_far = [&](Counter counter) { return qp.counters->get(counter); };
	const uint64_t memory = read_so_far(Counter::payload_read_bytes),
	               device_memory = read_so_far(Counter::dm_read_bytes);
	fill(flight.payload.data());
	const uint64_t from_memory = read_so_far(Counter::payload_read_bytes) - memory,
	               from_device_memory = read_so_far(Counter::dm_read_bytes) - device_memory;

	flight.device = qp.context.device();
	flight.early = 0;
	const bool request = asks(packet.kind), leaving = packet.kind == PacketKind::disconnect;
	const bool dc = qp.kind == QpKind::dci;
	QpRecord &r = requester_of(packet, is_forth(packet.kind));
	Direction &direction = is_forth(packet.kind) ? r.requests : r.answers;
	Start start;
	// An initiator that has had nothing to do for long enough has disconnected by itself.
	const bool idle = dc && core_.now >= r.answers.executed + from_ns(p.dc_idle);
	if (leaving && !idle) {
		// It is acknowledged too.
		core_.busy += from_ns(p.unit_request + p.unit_acknowledged);
		r.left = true;
		r.last = direction.departed;
	} else if (request) {
		start = begin_request(qp, r, packet, idle);
	} else if (!leaving) {
		core_.busy += from_ns(p.unit_respond);
		flight.early = from_ns(p.pcie_write);
	}
	const Picoseconds busy = core_.busy + core_.late;
	Picoseconds leaves = std::max({core_.now, core_.now + busy - std::min(busy, start.earlier), start.not_before});
	if (packet.kind == PacketKind::acknowledge)
		leaves += from_ns(p.acknowledge_after);
	if (from_memory)
		leaves = core_.read(core_.device_of(qp), leaves, static_cast<double>(from_memory));
	else if (from_device_memory)
		leaves += from_ns(p.dm_read);
	const Picoseconds passage = from_ns(p.latency), sooner = std::min(flight.early, passage);
	flight.early -= sooner;
	leaves += passage - sooner + held * 1000;
	direction.departed = std::max(direction.departed, leaves);
	flight.bytes = packet.payload + p.header_bytes + extended_headers(packet) + (dc && request ? p.dc_header_bytes : 0);
	core_.at<&Packets::depart>(held ? leaves : direction.departed, *this, number);
	if (request)
		stay(flight, number);
}

// ---- in -------------------------------------------------------------------------------------------------------------

void Packets::depart(uint64_t number)
{
	Flight &flight = flights_[number];
	const Picoseconds gone = core_.devices[flight.device].out.move(core_.now, flight.bytes),
	                  crossing = from_ns(core_.p.wire_latency);
	core_.at<&Packets::arrive>(gone + crossing - std::min(crossing, flight.early), *this, number);
}

void Packets::arrive(uint64_t number)
{
	Flight &flight = flights_[number];
	const auto n = static_cast<uint32_t>(number);
	Qp *qp = core_.nic.find(flight.packet.destination);
	if (!qp)
		return free(n);
	flight.there = core_.device_of(*qp).in.arrive(core_.now, flight.bytes);
	if (!is_forth(flight.packet.kind))
		return units_.take(*qp, n);
	if (qp->kind == QpKind::dct)
		++units_.connection_of(*qp, flight.packet.source).waiting;
	units_.serve(*qp, flight.packet.source, n);
}

// A message takes a receive, whose WQE says where its payload goes. The device reads several WQEs at once, ahead of the
// messages, so that each costs a share of a read. A message without payload does not need the WQE: otherwise it could
// not be as quick as a WRITE, which is published.
void Packets::use_receive(Qp &qp, Device &device, const Packet &packet)
{
	if ((packet.kind != PacketKind::send && packet.kind != PacketKind::datagram) || !(packet.flags & packet_first))
		return;
	ReadAhead &ahead = qp.srq ? qp.srq->ahead : qp.rings.ahead;
	if (!ahead.left && packet.payload) {
		const auto burst = static_cast<unsigned>(core_.p.receive_burst);
		const uint32_t stride = qp.srq ? qp.srq->stride : qp.rings.receive_stride;
		const Picoseconds start = core_.now + core_.busy + core_.late;
		ahead.left = std::clamp<unsigned>(qp.receives_posted(), 1, burst);
		ahead.share = (core_.read(device, start, ahead.left * stride) - start) / burst;
		qp.count(Counter::receive_reads, 1);
		qp.count(Counter::receive_read_bytes, ahead.left * stride);
	}
	if (packet.payload)
		core_.busy += ahead.share;
	if (ahead.left)
		--ahead.left;
}

// The responder's unit takes a request.
void Packets::serve_request(Qp &qp, Device &device, const Packet &packet)
{
	const Profile &p = core_.p;
	core_.busy += from_ns(p.unit_serve);
	// The context of a connection that begins is made here, not read.
	if (!device.responders.use(responder_key(packet)) && !(packet.flags & packet_connect)) {
		qp.count(Counter::responder_misses, 1);
		core_.miss(device, p.context_bytes, 1); // requests are taken in order
		core_.busy += from_ns(p.responder_miss);
	}
	use_receive(qp, device, packet);
	if (packet.kind == PacketKind::atomic) {
		constexpr uint64_t lock_mask = 0xfff; // K16, 3.3: by the low 12 bits
		const Picoseconds start = core_.now + core_.busy + core_.late;
		Picoseconds &lock = device.locks[packet.remote_address & lock_mask];
		lock = std::max(lock, start) + from_ns(p.pcie_read); // it holds the lock until it has read
		core_.wait(lock - start, p.unit_atomics);
	}
}

// The requester's unit takes an answer.
void Packets::serve_answer(Qp &qp, Device &device, const Packet &packet)
{
	const Profile &p = core_.p;
	core_.busy += from_ns(is_response(packet.kind) ? p.unit_response : p.unit_acknowledged);
	core_.use_requester(device, qp);
	const Wqe *wqe = qp.requester.oldest();
	if (wqe && is_needed_again(is_response(packet.kind) ? PacketKind::read : PacketKind::write) &&
	    !device.wqes.has(wqe_key(qp.number, wqe->index))) {
		qp.count(Counter::wqe_misses, 1);
		core_.miss(device, wqebb_bytes, p.unit_overlap);
	}
}

void Packets::serve(uint32_t number)
{
	const Profile &p = core_.p;
	const Flight &flight = flights_[number];
	const Packet &packet = flight.packet;
	Qp *qp = core_.nic.find(packet.destination);
	if (!qp)
		return free(number);
	Device &device = core_.device_of(*qp);
	const bool forth = is_forth(packet.kind);
	if (forth && qp->kind == QpKind::dct)
		--units_.connection_of(*qp, packet.source).waiting;
	if (packet.payload)
		core_.busy += from_ns(p.unit_piece * (std::ceil(packet.payload / p.pcie_write_piece) - 1));
	if (asks(packet.kind)) {
		serve_request(*qp, device, packet);
	} else if (packet.kind == PacketKind::disconnect) {
		core_.busy += from_ns(p.unit_serve + p.unit_respond);
		device.responders.forget(responder_key(packet));
		units_.leave(*qp, packet.source);
	} else {
		serve_answer(*qp, device, packet);
	}
	QpRecord &r = requester_of(packet, forth);
	Direction &direction = forth ? r.requests : r.answers;
	Picoseconds seen = std::max(core_.now + core_.busy + core_.late, flight.there) + from_ns(p.latency);
	if (packet.payload)
		seen = core_.move_out(device, seen, with_overhead(packet.payload, p.pcie_write_piece, p.pcie_request));
	direction.executed = std::max(direction.executed, seen + from_ns(p.pcie_write));
	core_.at<&Packets::execute>(direction.executed, *this, number);
}

void Packets::execute(uint64_t number)
{
	const Flight &flight = flights_[number];
	core_.brings_message = brings_message(flight.packet);
	core_.nic.handle(flight.packet, flight.payload.data());
	core_.brings_message = false;
	free(static_cast<uint32_t>(number));
}

} // namespace softhca::model
