#include "softhca/model/units.hpp"

#include <algorithm>

#include "softhca/model/packets.hpp"
#include "softhca/nic/nic.hpp"

namespace softhca::model {

// The unit that has the fewest; of several, in turn.
unsigned Units::bind(Device &device)
{
	const auto units = static_cast<unsigned>(device.bound.size());
	unsigned best = ++device.last_bound % units;
	for (unsigned n = 1; n < units; ++n)
		if (const unsigned other = (device.last_bound + n) % units; device.bound[other] < device.bound[best])
			best = other;
	++device.bound[best];
	return device.last_bound = best;
}

size_t Units::unit_of(Qp &qp)
{
	QpRecord &r = core_.record(qp);
	if (r.unit < 0)
		r.unit = static_cast<int>(bind(core_.device_of(qp)));
	return static_cast<size_t>(r.unit) % static_cast<size_t>(core_.p.units);
}

Picoseconds Units::free(Qp &qp)
{
	const size_t unit = unit_of(qp);
	return core_.device_of(qp).units[unit].free;
}

Connection &Units::connection_of(Qp &target, uint32_t initiator)
{
	auto &connections = core_.record(target).connections;
	if (const auto found = connections.find(initiator); found != connections.end())
		return found->second;
	return connections.emplace(initiator, Connection{bind(core_.device_of(target))}).first->second;
}

// What the initiator has sent since then, on a new connection, waits for the same unit.
void Units::leave(Qp &target, uint32_t initiator)
{
	auto &connections = core_.record(target).connections;
	const auto found = connections.find(initiator);
	if (found == connections.end() || found->second.waiting)
		return;
	--core_.device_of(target).bound[found->second.unit];
	connections.erase(found);
}

// A DC target serves its initiators side by side.
size_t Units::serving_unit_of(Qp &qp, uint32_t requester)
{
	const size_t i = qp.kind == QpKind::dct ? connection_of(qp, requester).unit : unit_of(qp);
	const auto units = static_cast<size_t>(core_.p.units), servers = static_cast<size_t>(core_.p.serve_units);
	return servers ? units + i % servers : i % units;
}

void Units::ready(Qp &qp)
{
	if (!std::exchange(core_.record(qp).due, true))
		submit(core_.device_of(qp), unit_of(qp), {Work::Kind::run, qp.number, nullptr});
}

void Units::owes(Responder &responder)
{
	if (std::exchange(responder.queued, true))
		return;
	owing_.insert(&responder);
	submit(core_.device_of(responder.qp()), serving_unit_of(responder.qp(), responder.requester()),
	       {Work::Kind::respond, 0, &responder});
}

void Units::serve(Qp &qp, uint32_t requester, uint32_t packet)
{
	submit(core_.device_of(qp), serving_unit_of(qp, requester), {Work::Kind::serve, packet, nullptr});
}

void Units::take(Qp &qp, uint32_t packet)
{
	submit(core_.device_of(qp), unit_of(qp), {Work::Kind::serve, packet, nullptr});
}

void Units::forget(Qp &qp)
{
	QpRecord &r = core_.record(qp);
	std::vector<unsigned> &bound = core_.device_of(qp).bound;
	if (r.unit >= 0)
		--bound[static_cast<size_t>(r.unit)];
	for (const auto &[initiator, connection] : r.connections)
		--bound[connection.unit];
	r = {};
}

void Units::submit(Device &device, size_t i, Work work)
{
	Unit &unit = device.units[i];
	unit.work.push_back(work);
	if (unit.scheduled)
		return;
	unit.scheduled = true;
	core_.at<&Units::work>(std::max(unit.free, softhca_time_now()), *this,
	                       static_cast<uint64_t>(&device - core_.devices.data()) << 32 | i);
}

// The unit does the next thing.
void Units::work(uint64_t argument)
{
	Device &device = core_.devices[argument >> 32];
	Unit &unit = device.units[argument & 0xffffffff];
	const Work work = unit.work.front();
	unit.work.pop_front();
	switch (work.kind) {
	case Work::Kind::run:
		if (Qp *qp = core_.nic.find(work.number)) {
			core_.record(*qp).due = false;
			bool more = qp->requester.run(core_.nic, 1);
			while (more && packets_.stays())
				more = qp->requester.run(core_.nic, 1);
			packets_.leave();
			if (more)
				ready(*qp);
		}
		break;
	case Work::Kind::respond:
		if (owing_.erase(work.responder)) {
			work.responder->queued = false;
			if (work.responder->respond(core_.nic, 1))
				owes(*work.responder);
		}
		break;
	case Work::Kind::serve: packets_.serve(work.number); break;
	}
	unit.free = core_.now + core_.busy;
	unit.scheduled = !unit.work.empty();
	if (unit.scheduled)
		core_.at<&Units::work>(unit.free, *this, argument);
}

} // namespace softhca::model
