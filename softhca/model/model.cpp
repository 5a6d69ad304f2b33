#include "softhca/model/model.hpp"

#include <algorithm>
#include <cmath>
#include <endian.h>

#include "softhca/kernel/context.hpp"
#include "softhca/nic/nic.hpp"
#include "softhca/nic/queue_pair.hpp"

// Where the code of this library is, which stands for the device.
extern "C" {
[[gnu::visibility("hidden")]] extern const char __ehdr_start, etext;
}

namespace softhca::model {

namespace {

constexpr size_t unit_bytes = 64;

bool is_request(PacketKind kind) { return kind <= PacketKind::atomic || kind == PacketKind::datagram; }
bool is_response(PacketKind kind) { return kind == PacketKind::read_response || kind == PacketKind::atomic_response; }

// With what goes around it in pieces of so many bytes.
double with_overhead(double bytes, double piece, double overhead) { return bytes + std::ceil(bytes / piece) * overhead; }

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

uint64_t entry_key(const Qp &qp, uint16_t index) { return uint64_t{qp.number} << 16 | index; }
// Of the context of one that is sent to; a DC target has one for each initiator.
uint64_t responder_key(const Packet &packet) { return uint64_t{packet.destination} << 32 | packet.source; }

} // namespace

Model::Device::Device(const Profile &p, unsigned number)
    : units(static_cast<size_t>(p.units + p.serve_units)), bound(static_cast<size_t>(std::max(p.units, p.serve_units))),
      inward(p.pcie_lane * p.pcie_lanes), outward(p.pcie_lane * p.pcie_lanes), out(p.wire_rate * 125), in(p.wire_rate * 125),
      entries(static_cast<size_t>(p.entry_cache)), requesters(static_cast<size_t>(p.requester_cache), 3 * number + 2),
      responders(static_cast<size_t>(p.responder_cache), 3 * number + 3)
{
}

Model::Model(Nic &nic, const Profile &profile, unsigned devices, unsigned queue_pairs)
    : nic_(nic), p_(profile), states_(queue_pairs)
{
	for (unsigned i = 0; i < devices; ++i)
		devices_.emplace_back(profile, i);
	if (p_.cpu_copy > 0)
		softhca_time_copies(static_cast<uint64_t>(1024 * 1e6 / p_.cpu_copy), &__ehdr_start, &etext);
	softhca_time_trap_counter();
}

void Model::turn()
{
	now_ = softhca_time_now();
	nic_.set_time(now_ / 1000);
	busy_ = late_ = 0;
	if (const uint64_t until = nic_.look_at_links(); until > links_until_) {
		links_until_ = until;
		at<&Model::links_change>(until * 1000, 0);
	}
}

void Model::links_change(uint64_t) {} // every event looks at them

Model::State &Model::state(const Qp &qp) { return states_[qp.number % states_.size()]; }
Model::Device &Model::device_of(const Qp &qp) { return devices_[qp.context.device()]; }

// ---- the program ------------------------------------------------------------------------------------------------------

// The entries between two places of the send ring: where each begins.
template <class Function>
void Model::for_entries(const Qp &qp, uint16_t from, uint16_t to, const Function &function) const
{
	constexpr size_t segments_at = 7, segment_bytes = 16, segments_mask = 0x3f; // of a control segment
	const size_t units = qp.send_ring.size() / unit_bytes;
	for (uint16_t left = static_cast<uint16_t>(to - from); left;) {
		function(from);
		const size_t segments = qp.send_ring[from % units * unit_bytes + segments_at] & segments_mask;
		const auto step = static_cast<uint16_t>(std::max<size_t>(1, (segments * segment_bytes + unit_bytes - 1) / unit_bytes));
		from = static_cast<uint16_t>(from + step);
		left = static_cast<uint16_t>(left - std::min(left, step));
	}
}

unsigned Model::entries_between(const Qp &qp, uint16_t from, uint16_t to) const
{
	unsigned n = 0;
	for_entries(qp, from, to, [&](uint16_t) { ++n; });
	return n;
}

void Model::ring(Qp &qp)
{
	State &s = state(qp);
	const uint16_t producer = qp.send_producer();
	qp.count(Counter::doorbells, 1);
	softhca_time_charge(from_ns(p_.cpu_doorbell + p_.cpu_entry * entries_between(qp, s.posted, producer)));
	s.posted = producer;
	s.bells.push_back({producer, false});
	const Picoseconds there = device_of(qp).inward.move(softhca_time_now(), 8 + p_.pcie_request) + from_ns(p_.pcie_store);
	at<&Model::bell>(there, qp.number);
}

void Model::along(Qp &qp, size_t bytes, bool first)
{
	State &s = state(qp);
	if (!s.bells.empty())
		s.bells.back().along = true;
	softhca_time_charge(from_ns(p_.cpu_line * static_cast<double>(bytes) / unit_bytes));
	device_of(qp).inward.move(softhca_time_now(), static_cast<double>(bytes) + (first ? p_.pcie_request : 0));
}

void Model::stored_to_device_memory(unsigned device, size_t bytes)
{
	softhca_time_charge(from_ns(p_.cpu_line * static_cast<double>(bytes) / unit_bytes));
	devices_[device].inward.move(softhca_time_now(), static_cast<double>(bytes) * (1 + p_.pcie_request / unit_bytes));
}

Model::Program &Model::program(const Context &context)
{
	const auto [place, made] = programs_.try_emplace(&context);
	devices_[context.device()].programs += made;
	return place->second;
}

void Model::forget(const Context &context) { devices_[context.device()].programs -= programs_.erase(&context); }

// What the program has read since the last time, it has read by now.
void Model::before_poll(Context &context)
{
	program(context);
	const Device &device = devices_[context.device()];
	softhca_time_share(device.programs > 1 ? &device : nullptr, from_ns(p_.cpu_share));
	softhca_time_charge(from_ns(p_.cpu_poll + p_.cpu_completion * static_cast<double>(context.take_consumed())));
	softhca_time_sync();
}

// It would look again and again: instead it waits until something has changed, here or in what others of its node may have
// stored, but not for ever, as it may look at other things or at the clock.
void Model::after_empty_poll(Context &context)
{
	constexpr Picoseconds shortest = 500'000;
	constexpr unsigned doublings = 6;
	Program &program = this->program(context);
	if (program.seen != program.writes) {
		program.seen = program.writes;
		program.idle = 0;
		return;
	}
	softhca_time_poll(&context, shortest << std::min(program.idle++, doublings));
	Program &later = this->program(context);
	later.seen = later.writes;
}

void Model::completed(const Context &context, size_t bytes)
{
	devices_[context.device()].outward.move(softhca_time_now(), static_cast<double>(bytes) + p_.pcie_request);
	wrote(context);
}

void Model::wrote(const Context &context)
{
	++program(context).writes;
	softhca_time_wake(&context, from_ns(p_.cpu_poll));
}

// ---- entries ----------------------------------------------------------------------------------------------------------

// Bytes of host memory that the device reads; when the last is there.
Picoseconds Model::read(Device &device, Picoseconds when, double bytes)
{
	device.outward.move(when, p_.pcie_request);
	return device.inward.move(when, with_overhead(bytes, p_.pcie_read_piece, p_.pcie_completion)) + from_ns(p_.pcie_read);
}

// What the unit works on goes on after that; it does something else meanwhile, with so many under way at once.
void Model::wait(Picoseconds whole, double overlap)
{
	const auto waits = static_cast<Picoseconds>(static_cast<double>(whole) / overlap);
	busy_ += waits;
	late_ += whole - waits;
}

// The unit needs that before it can go on with this.
void Model::miss(Device &device, double bytes, double overlap)
{
	const Picoseconds start = now_ + busy_ + late_;
	wait(read(device, start, bytes) - start, overlap);
}

void Model::bell(uint64_t number)
{
	Qp *qp = nic_.find(static_cast<uint32_t>(number));
	if (!qp)
		return;
	State &s = state(*qp);
	if (s.bells.empty())
		return;
	const Bell bell = s.bells.front();
	s.bells.erase(s.bells.begin());
	const uint16_t from = std::exchange(s.asked, bell.producer);
	const auto units = static_cast<uint16_t>(bell.producer - from);
	for_entries(*qp, from, bell.producer, [&](uint16_t index) { device_of(*qp).entries.use(entry_key(*qp, index)); });
	Picoseconds there = now_;
	if (!bell.along)
		there = read(device_of(*qp), now_, static_cast<double>(units * unit_bytes));
	s.fetched = std::max(s.fetched, there);
	at<&Model::fetched>(s.fetched, number | uint64_t{bell.producer} << 32 | uint64_t{bell.along} << 48);
}

void Model::fetched(uint64_t argument)
{
	Qp *qp = nic_.find(static_cast<uint32_t>(argument));
	if (!qp)
		return;
	qp->requester.rung(static_cast<uint16_t>(argument >> 32));
	if (qp->kind == QpKind::dci)
		state(*qp).arrivals.emplace_back(static_cast<uint16_t>(argument >> 32), now_);
	if (argument >> 48)
		qp->requester.brought_along();
	ready(*qp);
}

void Model::done(const Qp &qp, const Wqe &entry) { device_of(qp).entries.forget(entry_key(qp, entry.index)); }

// ---- units ------------------------------------------------------------------------------------------------------------

// No unit has more than others: it is one of those that have the fewest, in turn.
unsigned Model::bind(Device &device)
{
	const auto units = static_cast<unsigned>(device.bound.size());
	unsigned best = ++device.last_bound % units;
	for (unsigned n = 1; n < units; ++n)
		if (const unsigned other = (device.last_bound + n) % units; device.bound[other] < device.bound[best])
			best = other;
	++device.bound[best];
	return device.last_bound = best;
}

// When a queue pair is first used.
size_t Model::unit_of(Device &device, uint32_t queue_pair)
{
	State &s = states_[queue_pair % states_.size()];
	if (s.unit < 0)
		s.unit = static_cast<int>(bind(device));
	return static_cast<size_t>(s.unit) % static_cast<size_t>(p_.units);
}

// A target of DC initiators has a context for each of them, which are served side by side.
Model::Connection &Model::connection_of(Qp &target, uint32_t initiator)
{
	auto &connections = state(target).connections;
	const auto found = connections.find(initiator);
	return found != connections.end() ? found->second : connections.emplace(initiator, Connection{bind(device_of(target))}).first->second;
}

// The initiator has left. What it has sent since then, on a new connection, is before the same unit.
void Model::leave(Qp &target, uint32_t initiator)
{
	const auto found = state(target).connections.find(initiator);
	if (found == state(target).connections.end() || found->second.waiting)
		return;
	--device_of(target).bound[found->second.unit];
	state(target).connections.erase(found);
}

size_t Model::serving_unit_of(Qp &qp, uint32_t requester)
{
	const size_t i = qp.kind == QpKind::dct ? connection_of(qp, requester).unit : unit_of(device_of(qp), qp.number);
	const auto units = static_cast<size_t>(p_.units), servers = static_cast<size_t>(p_.serve_units);
	return servers ? units + i % servers : i % units;
}

void Model::submit(Device &device, size_t i, Work work)
{
	Unit &unit = device.units[i];
	unit.work.push_back(work);
	if (unit.scheduled)
		return;
	unit.scheduled = true;
	at<&Model::work>(std::max(unit.free, softhca_time_now()), static_cast<uint64_t>(&device - devices_.data()) << 32 | i);
}

void Model::work(uint64_t argument)
{
	Device &device = devices_[argument >> 32];
	Unit &unit = device.units[argument & 0xffffffff];
	const Work work = unit.work.front();
	unit.work.pop_front();
	switch (work.kind) {
	case Work::Kind::run:
		if (Qp *qp = nic_.find(work.number)) {
			state(*qp).due = false;
			if (qp->requester.run(nic_, 1))
				ready(*qp);
		}
		break;
	case Work::Kind::respond:
		if (owing_.erase(work.responder)) {
			work.responder->queued = false;
			if (work.responder->respond(nic_, 1))
				nic_.owes(*work.responder);
		}
		break;
	case Work::Kind::serve: serve(work.number);
	}
	unit.free = now_ + busy_;
	unit.scheduled = !unit.work.empty();
	if (unit.scheduled)
		at<&Model::work>(unit.free, argument);
}

void Model::ready(Qp &qp)
{
	State &s = state(qp);
	if (std::exchange(s.due, true))
		return;
	submit(device_of(qp), unit_of(device_of(qp), qp.number), {Work::Kind::run, qp.number, nullptr});
}

void Model::owes(Responder &responder)
{
	owing_.insert(&responder);
	submit(device_of(responder.qp()), serving_unit_of(responder.qp(), responder.requester()),
	       {Work::Kind::respond, 0, &responder});
}

void Model::forget(Qp &qp)
{
	State &s = state(qp);
	std::vector<unsigned> &bound = device_of(qp).bound;
	if (s.unit >= 0)
		--bound[static_cast<size_t>(s.unit)];
	for (const auto &[initiator, connection] : s.connections)
		--bound[connection.unit];
	s = {};
}

// ---- packets ----------------------------------------------------------------------------------------------------------

// Whether an entry is looked at when its answer comes.
bool Model::is_needed_again(PacketKind request) const
{
	return request == PacketKind::read || request == PacketKind::atomic ||
	       (request != PacketKind::datagram && p_.write_entry_kept != 0);
}

// The requester's side of what a packet belongs to.
Model::State &Model::requester_of(const Packet &packet, bool request)
{
	return states_[(request ? packet.source : packet.destination) % states_.size()];
}

uint8_t *Model::begin(const Packet &packet)
{
	if (free_frames_.empty()) {
		free_frames_.push_back(static_cast<uint32_t>(frames_.size()));
		frames_.emplace_back();
	}
	frame_ = free_frames_.back();
	free_frames_.pop_back();
	Frame &frame = frames_[frame_];
	frame.packet = packet;
	frame.payload.resize(packet.payload);
	return frame.payload.data();
}

// A request that is there has to wait for the last answer: until the unit has taken it, not until the program can see it, when
// the request is begun here. How much that is later.
Picoseconds Model::waited_for_memory(Qp &qp, Picoseconds arrived)
{
	Device &device = device_of(qp);
	const Picoseconds visible = state(qp).answers.executed, taken = visible - std::min(visible, from_ns(p_.pcie_write));
	return visible - std::min(visible, std::max({taken, arrived, device.units[unit_of(device, qp.number)].free}));
}

// A requester's context, which the device keeps or reads.
void Model::use_requester(Device &device, Qp &qp)
{
	if (device.requesters.use(qp.number))
		return;
	qp.count(Counter::requester_misses, 1);
	miss(device, p_.context_bytes, p_.unit_overlap);
}

// A DC initiator has another target; the old one is told behind the last request for it, if the next is known to be for another by
// then.
Model::Start Model::connect(Qp &qp, State &s, Picoseconds arrived)
{
	busy_ += from_ns(p_.dc_connect);
	const bool leaves_another = std::exchange(s.left, false);
	return {leaves_another ? std::max(s.last, arrived) + from_ns(p_.dc_switch) : 0, waited_for_memory(qp, arrived)};
}

// A unit begins a request.
Model::Start Model::begin_request(Qp &qp, State &s, const Packet &packet, bool idle)
{
	Device &device = device_of(qp);
	const bool dc = qp.kind == QpKind::dci, first = packet.flags & packet_first;
	busy_ += from_ns((first ? p_.unit_request : p_.unit_packet) + (dc ? p_.unit_dc : 0));
	use_requester(device, qp);
	const Wqe *entry = qp.requester.sending();
	if (entry && first && !device.entries.use(entry_key(qp, entry->index))) {
		qp.count(Counter::wqe_misses, 1);
		miss(device, unit_bytes, p_.unit_overlap);
	}
	if (entry && packet.flags & packet_last && !is_needed_again(packet.kind))
		device.entries.forget(entry_key(qp, entry->index));
	Picoseconds arrived = now_;
	while (dc && entry && !s.arrivals.empty()) {
		arrived = s.arrivals.front().second;
		if (static_cast<uint16_t>(s.arrivals.front().first - entry->index - 1) < 0x8000)
			break;
		s.arrivals.erase(s.arrivals.begin());
	}
	const bool first_of_all = first && entry && entry == qp.requester.oldest();
	return packet.flags & packet_connect || (idle && first_of_all) ? connect(qp, s, arrived) : Start{};
}

void Model::end(Qp &qp, uint64_t from_memory, uint64_t from_device_memory, uint64_t held)
{
	Frame &frame = frames_[frame_];
	const Packet &packet = frame.packet;
	Device &device = device_of(qp);
	frame.device = qp.context.device();
	frame.early = 0;
	const bool request = is_request(packet.kind), leaving = packet.kind == PacketKind::disconnect, dc = qp.kind == QpKind::dci;
	State &s = requester_of(packet, request || leaving);
	Way &way = request || leaving ? s.requests : s.answers;
	Start start;
	// An initiator that has had nothing to do for long enough has disconnected by itself.
	const bool idle = dc && now_ >= s.answers.executed + from_ns(p_.dc_idle);
	if (leaving && !idle) {
		// It is acknowledged too.
		busy_ += from_ns(p_.unit_request + p_.unit_acknowledged);
		s.left = true;
		s.last = way.departed;
	} else if (request) {
		start = begin_request(qp, s, packet, idle);
	} else if (!leaving) {
		busy_ += from_ns(p_.unit_respond);
		frame.early = from_ns(p_.pcie_write);
	}
	const Picoseconds busy = busy_ + late_;
	Picoseconds leaves = std::max({now_, now_ + busy - std::min(busy, start.earlier), start.not_before});
	if (packet.kind == PacketKind::acknowledge)
		leaves += from_ns(p_.acknowledge_after);
	if (from_memory)
		leaves = read(device, leaves, static_cast<double>(from_memory));
	else if (from_device_memory)
		leaves += from_ns(p_.dm_read);
	const Picoseconds passage = from_ns(p_.latency), sooner = std::min(frame.early, passage);
	frame.early -= sooner;
	leaves += passage - sooner + held * 1000;
	way.departed = std::max(way.departed, leaves);
	frame.bytes = packet.payload + p_.header_bytes + extended_headers(packet) + (dc && request ? p_.dc_header_bytes : 0);
	at<&Model::depart>(held ? leaves : way.departed, frame_);
}

void Model::depart(uint64_t number)
{
	Frame &frame = frames_[number];
	const Picoseconds gone = devices_[frame.device].out.move(now_, frame.bytes), way = from_ns(p_.wire_latency);
	at<&Model::arrive>(gone + way - std::min(way, frame.early), number);
}

void Model::arrive(uint64_t number)
{
	Frame &frame = frames_[number];
	Qp *qp = nic_.find(frame.packet.destination);
	if (!qp) {
		free_frames_.push_back(static_cast<uint32_t>(number));
		return;
	}
	Device &device = device_of(*qp);
	frame.there = device.in.arrive(now_, frame.bytes);
	const bool serves = is_request(frame.packet.kind) || frame.packet.kind == PacketKind::disconnect;
	if (serves && qp->kind == QpKind::dct)
		++connection_of(*qp, frame.packet.source).waiting;
	submit(device, serves ? serving_unit_of(*qp, frame.packet.source) : unit_of(device, qp->number),
	       {Work::Kind::serve, static_cast<uint32_t>(number), nullptr});
}

// A unit takes a packet that has come.
void Model::serve(uint32_t number)
{
	const Frame &frame = frames_[number];
	const Packet &packet = frame.packet;
	Qp *qp = nic_.find(packet.destination);
	if (!qp) {
		free_frames_.push_back(number);
		return;
	}
	Device &device = device_of(*qp);
	Picoseconds not_before = frame.there;
	const bool request = is_request(packet.kind), leaving = packet.kind == PacketKind::disconnect;
	if ((request || leaving) && qp->kind == QpKind::dct)
		--connection_of(*qp, packet.source).waiting;
	if (packet.payload)
		busy_ += from_ns(p_.unit_piece * (std::ceil(packet.payload / p_.pcie_write_piece) - 1));
	if (request) {
		busy_ += from_ns(p_.unit_serve);
		// The context of a connection that begins is made here, not read.
		if (!device.responders.use(responder_key(packet)) && !(packet.flags & packet_connect)) {
			qp->count(Counter::responder_misses, 1);
			miss(device, p_.context_bytes, 1); // requests are taken in order
			busy_ += from_ns(p_.responder_miss);
		}
		if (packet.kind == PacketKind::atomic) {
			constexpr uint64_t lock_mask = 0xfff; // K16, 3.3: by the low 12 bits
			const Picoseconds start = now_ + busy_ + late_;
			Picoseconds &lock = device.locks[packet.remote_address & lock_mask];
			lock = std::max(lock, start) + from_ns(p_.pcie_read); // it holds the lock until it has read
			wait(lock - start, p_.unit_atomics);
		}
	} else if (leaving) {
		busy_ += from_ns(p_.unit_serve + p_.unit_respond);
		device.responders.forget(responder_key(packet));
		leave(*qp, packet.source);
	} else {
		busy_ += from_ns(is_response(packet.kind) ? p_.unit_response : p_.unit_acknowledged);
		use_requester(device, *qp);
		const Wqe *entry = qp->requester.oldest();
		if (entry && is_needed_again(is_response(packet.kind) ? PacketKind::read : PacketKind::write) &&
		    !device.entries.has(entry_key(*qp, entry->index))) {
			qp->count(Counter::wqe_misses, 1);
			miss(device, unit_bytes, p_.unit_overlap);
		}
	}
	State &s = requester_of(packet, request || leaving);
	Way &way = request || leaving ? s.requests : s.answers;
	Picoseconds seen = std::max(now_ + busy_ + late_, not_before) + from_ns(p_.latency);
	if (packet.payload)
		seen = device.outward.move(seen, with_overhead(packet.payload, p_.pcie_write_piece, p_.pcie_request));
	way.executed = std::max(way.executed, seen + from_ns(p_.pcie_write));
	at<&Model::execute>(way.executed, number);
}

void Model::execute(uint64_t number)
{
	const Frame &frame = frames_[number];
	nic_.handle(frame.packet, frame.payload.data());
	free_frames_.push_back(static_cast<uint32_t>(number));
}

// ---- time-outs --------------------------------------------------------------------------------------------------------

void Model::remind(uint64_t deadline)
{
	if (deadline_ && deadline_ <= deadline)
		return;
	deadline_ = deadline;
	at<&Model::check_times>(deadline * 1000, deadline);
}

void Model::check_times(uint64_t deadline)
{
	if (deadline != deadline_)
		return;
	deadline_ = 0;
	nic_.check_times();
}

} // namespace softhca::model
