#include "softhca/nic/nic.hpp"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "softhca/kernel/context.hpp"

namespace softhca {

Nic::Nic(const Fabric *fabric)
    : fabric_(fabric), index_bits_(time_is_virtual() ? virtual_index_bits : live_index_bits),
      table_(size_t{1} << index_bits_), fault_file_(fabric ? fabric->directory() + "/faults" : "")
{
	const char *rules = std::getenv("SOFTHCA_FAULTS");
	if (const std::string error = rules ? faults.add(rules) : ""; !error.empty())
		std::fprintf(stderr, "softhca: SOFTHCA_FAULTS: %s\n", error.c_str());
}

void Nic::remove(Context &context)
{
	devices.remove(context);
	scheduler_->forget(context);
}

void Nic::fail(unsigned device)
{
	if (!devices.fail(device))
		return;
	for (Qp *qp : table_)
		if (qp && qp->context.device() == device)
			qp->enter_error(*this);
}

// ---- queue pairs ----------------------------------------------------------------------------------------------------

void Nic::add(Qp &qp)
{
	qp.number = 0;
	const bool full = count_ >= table_.size() - first_index;
	if (full || faults.refuses(FaultRule::Object::qp, qp.context.device()) || (!wire_ && !join())) {
		errno = ENOMEM;
		return;
	}
	// Numbers are used again as late as possible, so that packets for an old queue pair do not meet a new one.
	do
		last_index_ = last_index_ + 1 < table_.size() ? last_index_ + 1 : first_index;
	while (table_[last_index_]);
	table_[last_index_] = &qp;
	++count_;
	qp.number = wire_->slot() << index_bits_ | last_index_;
	const unsigned device = qp.context.device();
	qp.counters = &accounts_.add(last_index_, qp.number, static_cast<uint8_t>(qp.kind), device);
	qp.device_counters = &accounts_.device(device);
	scheduler_->start();
}

// Takes a slot on the wire.
bool Nic::join()
{
	try {
		wire_ = std::make_unique<Wire>(fabric_->directory());
	} catch (const std::exception &e) {
		std::fprintf(stderr, "softhca: no queue pairs in this process: %s\n", e.what());
		return false;
	}
	const unsigned slot = wire_->slot();
	if (time_is_virtual() && slot != 0) {
		std::fprintf(stderr, "softhca: in virtual time all ranks are threads of one process, and another process has "
		                     "devices open\n");
		std::exit(2);
	}
	const std::string incarnation = std::to_string(wire_->incarnation(slot));
	accounts_.open(fabric_->directory() + "/counters." + std::to_string(slot) + "." + incarnation, fabric_->host(),
	               fabric_->devices());
	return true;
}

void Nic::remove(Qp &qp)
{
	forget(qp);
	Qp *&listed = table_[index_of(qp.number)];
	if (listed != &qp)
		return; // the parent's, from before fork()
	listed = nullptr;
	--count_;
	scheduler_->release_held(qp);
	accounts_.remove(index_of(qp.number));
}

void Nic::settle(Qp &qp)
{
	scheduler_->begin_turn();
	qp.responder.settle(*this);
	for (const auto &[address, responder] : qp.initiators.connected)
		responder->settle(*this);
	qp.requester.leave(*this);
}

Qp *Nic::find(uint32_t number) const
{
	return wire_ && slot_of(number) == wire_->slot() ? table_[index_of(number)] : nullptr;
}

void Nic::watch(Qp &qp)
{
	if (qp.watched)
		return;
	watched_.push_back(&qp);
	qp.watched = watched_.size();
}

void Nic::forget(Qp &qp)
{
	if (qp.watched) { // the last one moves into its position
		watched_[qp.watched - 1] = watched_.back();
		watched_.back()->watched = qp.watched;
		watched_.pop_back();
		qp.watched = 0;
	}
	forget(qp.responder);
	for (const auto &[address, responder] : qp.initiators.connected)
		forget(*responder);
	scheduler_->forget(qp);
}

void Nic::forget(Responder &responder)
{
	if (std::exchange(responder.queued, false))
		scheduler_->forget(responder);
	std::erase_if(paused_, [&](const auto &paused) { return paused.first == &responder; });
}

// ---- time -----------------------------------------------------------------------------------------------------------

void Nic::remind(Time deadline)
{
	if (!deadline || (next_deadline_ && deadline >= next_deadline_))
		return;
	next_deadline_ = deadline;
	scheduler_->remind(deadline);
}

void Nic::pause(Responder &responder, Time until)
{
	paused_.emplace_back(&responder, until);
	remind(until);
}

void Nic::check_times()
{
	next_deadline_ = 0;
	std::erase_if(paused_, [&](const auto &paused) {
		if (now_ < paused.second) {
			remind(paused.second);
			return false;
		}
		scheduler_->owes(*paused.first);
		return true;
	});
	for (Qp *qp : watched_)
		if (qp->requester.waits())
			qp->requester.check_time(*this);
}

// ---- packets --------------------------------------------------------------------------------------------------------

bool Nic::send(Qp &qp, Packet &packet, const Fill &fill)
{
	packet.source = qp.number;
	packet.source_lid = qp.context.lid();
	Time delay = 0;
	const Faults::Fate fate =
	    faults.none() ? Faults::Fate::pass : faults.packet(packet, qp.context.device(), now_, delay);
	if (fate != Faults::Fate::pass)
		qp.count(Counter::faults, 1);
	return scheduler_->transmit(qp, packet, fate, delay, fill);
}

void Nic::handle(const Packet &packet, const uint8_t *payload)
{
	Qp *qp = find(packet.destination);
	if (qp && packet.destination_lid == qp->context.lid() && !devices.link_down(qp->context.device()))
		qp->handle(*this, packet, payload);
}

bool Nic::lags(uint32_t number, uint64_t position)
{
	const unsigned slot = slot_of(number);
	// A position beyond what was put there belongs to an earlier process.
	return wire_->alive(slot) && wire_->posted(slot) >= position && wire_->taken(slot) < position;
}

uint32_t Nic::next_connection()
{
	constexpr uint32_t far_apart = 0x9e3779b1; // of two incarnations
	return static_cast<uint32_t>(wire_->incarnation(wire_->slot())) * far_apart + ++connections_;
}

void Nic::abandon()
{
	if (wire_)
		wire_->abandon();
	wire_.reset();
	table_.assign(table_.size(), nullptr);
	for (Qp *qp : watched_)
		qp->watched = 0;
	watched_.clear();
	armed_.clear();
	paused_.clear();
	count_ = 0;
	next_deadline_ = 0;
	accounts_.abandon();
	scheduler_->abandon();
}

} // namespace softhca
