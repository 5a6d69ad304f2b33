#include "softhca/model/programs.hpp"

#include <algorithm>

#include "softhca/kernel/context.hpp"
#include "softhca/model/units.hpp"
#include "softhca/nic/nic.hpp"

namespace softhca::model {

namespace {

// Calls `function` with the first WQEBB of each WQE in a part of the send queue.
template <class Function>
void for_wqes(const Qp &qp, uint16_t from, uint16_t to, const Function &function)
{
	constexpr size_t segments_at = 7, segment_bytes = 16, segments_mask = 0x3f; // of a control segment
	const std::span<const uint8_t> ring = qp.rings.send;
	const size_t wqebbs = ring.size() / wqebb_bytes;
	for (uint16_t left = static_cast<uint16_t>(to - from); left;) {
		function(from);
		const size_t segments = ring[from % wqebbs * wqebb_bytes + segments_at] & segments_mask;
		const size_t wqebbs_of_it = (segments * segment_bytes + wqebb_bytes - 1) / wqebb_bytes;
		const auto step = static_cast<uint16_t>(std::max<size_t>(1, wqebbs_of_it));
		from = static_cast<uint16_t>(from + step);
		left = static_cast<uint16_t>(left - std::min(left, step));
	}
}

// After a write by the device, and at most.
constexpr unsigned free_polls = 2, max_free_polls = 16;

unsigned count_wqes(const Qp &qp, uint16_t from, uint16_t to)
{
	unsigned n = 0;
	for_wqes(qp, from, to, [&](uint16_t) { ++n; });
	return n;
}

} // namespace

// ---- doorbells ------------------------------------------------------------------------------------------------------

void Programs::ring(Qp &qp)
{
	const Profile &p = core_.p;
	QpRecord &s = core_.record(qp);
	const uint16_t producer = qp.send_producer();
	qp.count(Counter::doorbells, 1);
	if (const int last = std::exchange(s.thread, softhca_time_thread()); last != s.thread) {
		// Programs make queues in one thread and use them in another: the first change counts for nothing.
		if (last && std::exchange(s.moved, true))
			softhca_time_charge(from_ns(p.cpu_handoff));
		posts_by_[s.thread] = &qp.context;
	}
	charge_work(qp.context);
	softhca_time_charge(from_ns(p.cpu_doorbell + p.cpu_wqe * count_wqes(qp, s.posted, producer)));
	s.posted = producer;
	s.doorbells.push_back({producer, false});
	const Picoseconds stored = core_.move_in(core_.device_of(qp), softhca_time_now(), 8 + p.pcie_request),
	                  there = stored + from_ns(p.pcie_store);
	core_.at<&Programs::doorbell_arrives>(there, *this, qp.number);
}

void Programs::blueflame(Qp &qp, size_t bytes, bool first)
{
	const Profile &p = core_.p;
	QpRecord &s = core_.record(qp);
	if (!s.doorbells.empty())
		s.doorbells.back().blueflame = true;
	softhca_time_charge(from_ns(p.cpu_wc_store * static_cast<double>(bytes) / wqebb_bytes));
	core_.move_in(core_.device_of(qp), softhca_time_now(), static_cast<double>(bytes) + (first ? p.pcie_request : 0));
}

void Programs::stored_to_device_memory(unsigned device, size_t bytes)
{
	const Profile &p = core_.p;
	softhca_time_charge(from_ns(p.cpu_wc_store * static_cast<double>(bytes) / wqebb_bytes));
	core_.move_in(core_.devices[device], softhca_time_now(),
	              static_cast<double>(bytes) * (1 + p.pcie_request / wqebb_bytes));
}

void Programs::doorbell_arrives(uint64_t number)
{
	Qp *qp = core_.nic.find(static_cast<uint32_t>(number));
	if (!qp)
		return;
	QpRecord &s = core_.record(*qp);
	if (s.doorbells.empty())
		return;
	Device &device = core_.device_of(*qp);
	const Doorbell doorbell = s.doorbells.front();
	s.doorbells.erase(s.doorbells.begin());
	const uint16_t from = std::exchange(s.asked, doorbell.producer);
	const auto wqebbs = static_cast<uint16_t>(doorbell.producer - from);
	if (qp->kind != QpKind::ud) // a datagram's is used once, as it is read
		for_wqes(*qp, from, doorbell.producer, [&](uint16_t index) { device.wqes.use(wqe_key(qp->number, index)); });
	Picoseconds there = core_.now;
	if (!doorbell.blueflame)
		there = core_.read(device, core_.now, static_cast<double>(wqebbs * wqebb_bytes));
	s.fetched = std::max(s.fetched, there);
	core_.at<&Programs::wqes_arrive>(s.fetched, *this,
	                                 number | uint64_t{doorbell.producer} << 32 | uint64_t{doorbell.blueflame} << 48);
}

void Programs::wqes_arrive(uint64_t argument)
{
	Qp *qp = core_.nic.find(static_cast<uint32_t>(argument));
	if (!qp)
		return;
	const auto producer = static_cast<uint16_t>(argument >> 32);
	qp->requester.doorbell(producer);
	if (qp->kind == QpKind::dci)
		core_.record(*qp).arrivals.emplace_back(producer, core_.now);
	if (argument >> 48)
		qp->requester.blueflame();
	units_.ready(*qp);
}

// ---- polls ----------------------------------------------------------------------------------------------------------

Programs::Program &Programs::program(const Context &context)
{
	const auto [place, made] = programs_.try_emplace(&context);
	core_.devices[context.device()].programs += made;
	return place->second;
}

void Programs::count_work(softhca_work_t (*read)(void *), void *object)
{
	counted_.erase(softhca_time_thread());
	if (read)
		counted_.insert({softhca_time_thread(), {read, object, read(object)}});
}

Context *Programs::posts_by(unsigned device) const
{
	const auto found = posts_by_.find(softhca_time_thread());
	return found != posts_by_.end() && found->second->device() == device ? found->second : nullptr;
}

void Programs::forget(const Context &context)
{
	std::erase_if(posts_by_, [&](const auto &one) { return one.second == &context; });
	core_.devices[context.device()].programs -= programs_.erase(&context);
}

// For what the program has read and done since the last time: completions, lines that the device had written, and what
// it counts. A library that reads its queues in memory polls rarely, but what it finds makes it ring.
void Programs::charge_work(Context &context)
{
	const Profile &p = core_.p;
	const unsigned arrived = std::exchange(program(context).arrived, 0);
	softhca_time_charge(
	    from_ns(p.cpu_completion * static_cast<double>(context.take_consumed()) + p.cpu_arrival * arrived));
	if (const auto found = counted_.find(softhca_time_thread()); found != counted_.end()) {
		Counted &counted = found->second;
		const auto [looks, dispatches] = counted.read(counted.object);
		softhca_time_charge(from_ns(p.cpu_look * static_cast<double>(looks - counted.charged.looks) +
		                            p.cpu_dispatch * static_cast<double>(dispatches - counted.charged.dispatches)));
		counted.charged = {looks, dispatches};
	}
}

void Programs::before_poll(Context &context)
{
	const Profile &p = core_.p;
	const Device &device = core_.devices[context.device()];
	softhca_time_share(device.programs > 1 ? &device : nullptr, from_ns(p.cpu_share));
	charge_work(context);
	softhca_time_charge(from_ns(p.cpu_poll));
	softhca_time_sync();
}

// It would poll again and again: instead it waits until something has changed, here or in what others of its node may
// have stored, but not for ever, as it may look at other things or at the clock. After each change it polls a few times
// without waiting, as it may have found what it has to deal with: it finds what has come without a completion in a turn
// whose poll finds nothing, and each message may take it another turn.
void Programs::after_empty_poll(Context &context)
{
	constexpr Picoseconds min_wait = 31'250;
	constexpr unsigned doublings = 10;
	Program &program = this->program(context);
	if (program.free_polls) {
		--program.free_polls;
		program.idle = 0;
		return;
	}
	softhca_time_poll(&context, min_wait << std::min(program.idle++, doublings));
}

void Programs::completed(const Cq &cq)
{
	core_.move_out(core_.devices[cq.context->device()], softhca_time_now(),
	               static_cast<double>(cq.cqe_bytes) + core_.p.pcie_request);
	wrote(*cq.context);
}

void Programs::wrote(const Context &context)
{
	Program &program = this->program(context);
	program.free_polls = std::min(program.free_polls + free_polls, max_free_polls);
	program.arrived += std::exchange(core_.brings_message, false);
	softhca_time_wake(&context, from_ns(core_.p.cpu_poll));
}

} // namespace softhca::model
