#include "softhca/model/core.hpp"

#include <algorithm>

#include "softhca/kernel/context.hpp"
#include "softhca/nic/nic.hpp"

namespace softhca::model {

Device::Device(const Profile &p, unsigned number)
    : units(static_cast<size_t>(p.units + p.serve_units)), bound(static_cast<size_t>(std::max(p.units, p.serve_units))),
      inward(p.pcie_lane * p.pcie_lanes), outward(p.pcie_lane * p.pcie_lanes), out(p.wire_rate * 125),
      in(p.wire_rate * 125), wqes(static_cast<size_t>(p.wqe_cache)),
      requesters(static_cast<size_t>(p.requester_cache), 3 * number + 2),
      responders(static_cast<size_t>(p.responder_cache), 3 * number + 3)
{
}

Core::Core(Nic &n, const Profile &profile, unsigned device_count, unsigned queue_pairs)
    : nic(n), p(profile), records_(queue_pairs)
{
	for (unsigned i = 0; i < device_count; ++i)
		devices.emplace_back(profile, i);
}

void Core::begin_turn()
{
	now = softhca_time_now();
	nic.set_time(now / 1000);
	busy = late = 0;
	if (const uint64_t until = nic.devices.update_links(nic.faults, nic.now()); until > links_until_) {
		links_until_ = until;
		at<&Core::link_changes>(until * 1000, *this, 0);
	}
}

void Core::count(const Device &device, Counter counter, double bytes)
{
	const auto number = static_cast<unsigned>(&device - devices.data());
	nic.accounts().device(number).add(counter, static_cast<uint64_t>(bytes + 0.5));
}

QpRecord &Core::record(const Qp &qp) { return record(qp.number); }
Device &Core::device_of(const Qp &qp) { return devices[qp.context.device()]; }

Picoseconds Core::move_in(Device &device, Picoseconds when, double bytes)
{
	count(device, Counter::pcie_in_bytes, bytes);
	return device.inward.move(when, bytes);
}

Picoseconds Core::move_out(Device &device, Picoseconds when, double bytes)
{
	count(device, Counter::pcie_out_bytes, bytes);
	return device.outward.move(when, bytes);
}

Picoseconds Core::read(Device &device, Picoseconds when, double bytes)
{
	move_out(device, when, p.pcie_request);
	return move_in(device, when, with_overhead(bytes, p.pcie_read_piece, p.pcie_completion)) + from_ns(p.pcie_read);
}

void Core::wait(Picoseconds whole, double overlap)
{
	const auto waits = static_cast<Picoseconds>(static_cast<double>(whole) / overlap);
	busy += waits;
	late += whole - waits;
}

void Core::miss(Device &device, double bytes, double overlap)
{
	const Picoseconds start = now + busy + late;
	wait(read(device, start, bytes) - start, overlap);
}

bool Core::use_requester(Device &device, Qp &qp)
{
	if (device.requesters.use(qp.number))
		return true;
	qp.count(Counter::requester_misses, 1);
	miss(device, p.context_bytes, p.unit_overlap);
	return false;
}

} // namespace softhca::model
