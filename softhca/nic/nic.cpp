#include "softhca/nic/nic.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "softhca/kernel/context.hpp"
#include "softhca/exact/exact.hpp"

namespace softhca {

namespace {

constexpr unsigned frames_at_once = 64, packets_at_once = 32;
constexpr size_t records_at_once = 32, most_recent = 16;

template <class T>
void drop(std::vector<T *> &list, T *item)
{
	list.erase(std::remove(list.begin(), list.end(), item), list.end());
}

} // namespace

Nic &Nic::get()
{
	static Nic &nic = *new Nic; // threads may come by until the very end of the process
	return nic;
}

Nic::Nic()
    : index_bits_(time_is_virtual() ? virtual_index_bits : live_index_bits), table_(size_t{1} << index_bits_),
      fault_file_(Fabric::get() ? Fabric::get()->directory() + "/faults" : "")
{
	const char *rules = std::getenv("SOFTHCA_FAULTS");
	if (const std::string error = rules ? faults.add(rules) : ""; !error.empty())
		std::fprintf(stderr, "softhca: SOFTHCA_FAULTS: %s\n", error.c_str());
	if (!time_is_virtual() || !Fabric::get())
		return;
	const char *profile = std::getenv("SOFTHCA_MODEL");
	try {
		model_ = std::make_unique<model::Model>(*this, model::read_profile(profile && *profile ? profile : "connectx5"),
		                                        Fabric::get()->devices(), most_virtual_queue_pairs);
	} catch (const std::exception &e) {
		std::fprintf(stderr, "softhca: SOFTHCA_MODEL: %s\n", e.what());
		std::exit(2);
	}
}

Time Nic::read_clock()
{
	if (time_is_virtual())
		return softhca_time_now() / 1000; // looking costs the device nothing
	timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return static_cast<Time>(t.tv_sec) * 1'000'000'000 + static_cast<Time>(t.tv_nsec);
}

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
}

// Takes our place on the wire.
bool Nic::join()
{
	const Fabric &fabric = *Fabric::get();
	try {
		wire_ = std::make_unique<Wire>(fabric.directory());
	} catch (const std::exception &e) {
		std::fprintf(stderr, "softhca: no queue pairs in this process: %s\n", e.what());
		return false;
	}
	const unsigned slot = wire_->slot();
	if (model_ && slot != 0) {
		std::fprintf(stderr, "softhca: in virtual time all ranks are threads of one process, and another process has devices open\n");
		std::exit(2);
	}
	accounts_.open(fabric.directory() + "/counters." + std::to_string(slot) + "." + std::to_string(wire_->incarnation(slot)),
	               fabric.host(), fabric.devices());
	return true;
}

void Nic::remove(Qp &qp)
{
	forget(qp);
	Qp *&entry = table_[index_of(qp.number)];
	if (entry != &qp)
		return; // the parent's, from before fork()
	entry = nullptr;
	--count_;
	let_go(qp);
	accounts_.remove(index_of(qp.number));
}

void Nic::settle(Qp &qp)
{
	if (model_)
		model_->turn();
	qp.responder.settle(*this);
	for (const auto &[address, responder] : qp.initiators)
		responder->settle(*this);
	qp.requester.leave(*this);
}

Qp *Nic::find(uint32_t number) const { return wire_ && slot_of(number) == wire_->slot() ? table_[index_of(number)] : nullptr; }

void Nic::watch(Qp &qp)
{
	if (qp.watched)
		return;
	watched_.push_back(&qp);
	qp.watched = watched_.size();
}

void Nic::watch(Cq &cq) { armed_.push_back(&cq); }
void Nic::forget(Cq &cq) { drop(armed_, &cq); }

void Nic::forget(Qp &qp)
{
	if (qp.watched) { // the last takes its place
		watched_[qp.watched - 1] = watched_.back();
		watched_.back()->watched = qp.watched;
		watched_.pop_back();
		qp.watched = 0;
	}
	drop(recent_, &qp);
	drop(ready_, &qp);
	qp.ready = false;
	forget(qp.responder);
	for (const auto &[address, responder] : qp.initiators)
		forget(*responder);
	if (model_)
		model_->forget(qp);
}

void Nic::forget(Responder &responder)
{
	if (responder.queued && model_)
		model_->forget(responder);
	else if (responder.queued)
		drop(owing_, &responder);
	responder.queued = false;
}

void Nic::ready(Qp &qp)
{
	if (model_)
		return model_->ready(qp);
	if (!qp.ready)
		ready_.push_back(&qp);
	qp.ready = true;
}

void Nic::owes(Responder &responder)
{
	if (std::exchange(responder.queued, true))
		return;
	if (model_)
		model_->owes(responder);
	else
		owing_.push_back(&responder);
}

uint16_t Nic::lid(const Qp &qp) const { return lid_of(Fabric::get()->host(), qp.context.device()); }

uint64_t Nic::guid(const Qp &qp) const { return node_guid(Fabric::get()->host(), qp.context.device()); }

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

void Nic::address(const Qp &qp, Packet &packet) const
{
	packet.source = qp.number;
	packet.source_lid = lid(qp);
}

Faults::Fate Nic::fate(Qp &qp, const Packet &packet, Time &delay)
{
	const Time longest_reorder = model_ ? 5'000 : 2'000'000; // there may be no next packet
	const Faults::Fate what = faults.packet(packet, qp.context.device(), now_, delay);
	if (what == Faults::Fate::after_next)
		delay = longest_reorder;
	if (what != Faults::Fate::pass)
		qp.count(Counter::faults, 1);
	++activity_;
	return what;
}

uint8_t *Nic::begin(Qp &qp, const Packet &packet, bool &gone)
{
	uint8_t *frame = nullptr;
	switch (wire_->begin(slot_of(packet.destination), sizeof packet + packet.payload, frame)) {
	case Wire::Room::full:
		return nullptr;
	case Wire::Room::nobody:
		gone = true;
		break;
	case Wire::Room::yes:
		std::memcpy(frame, &packet, sizeof packet);
	}
	++activity_;
	qp.count(Counter::packets_sent, 1);
	return frame ? frame + sizeof packet : nullptr;
}

void Nic::end(const Packet &packet)
{
	wire_->end();
	for (Held &held : held_)
		if (held.after == packet.source)
			held.due = 0;
}

// What a rule holds back of a queue pair that ends has left the device long ago, as far as anybody can tell: it goes out
// now, or an acknowledgement would be lost with a program that ends in time.
void Nic::let_go(const Qp &qp)
{
	if (held_.empty())
		return;
	for (Held &held : held_) {
		Packet packet;
		std::memcpy(&packet, held.frame.data(), sizeof packet);
		if (packet.source == qp.number)
			held.due = 0;
	}
	release_held();
}

// Sends what a rule has held back long enough.
void Nic::release_held()
{
	std::erase_if(held_, [this](const Held &held) {
		if (held.due > now_)
			return false;
		Packet packet;
		std::memcpy(&packet, held.frame.data(), sizeof packet);
		uint8_t *frame;
		switch (wire_->begin(slot_of(packet.destination), held.frame.size(), frame)) {
		case Wire::Room::full:
			return false;
		case Wire::Room::nobody:
			break;
		case Wire::Room::yes:
			std::memcpy(frame, held.frame.data(), held.frame.size());
			wire_->end();
		}
		++activity_;
		return true;
	});
	for (const Held &held : held_)
		remind(held.due);
}

void Nic::refresh_faults() { faults.look_at_file(fault_file_, read_clock()); }

void Nic::fail(unsigned device)
{
	if (failed_[device])
		return;
	failed_[device] = true;
	for (Context *context : contexts_)
		if (context->device() == device)
			context->report(Event::device_fatal, 0);
	for (Qp *qp : table_)
		if (qp && qp->context.device() == device)
			qp->enter_error(*this);
}

Time Nic::look_at_links()
{
	const Time until = faults.links_until(now_);
	if (!until && !any_down_)
		return 0;
	any_down_ = false;
	for (unsigned device = 0; device < most_devices; ++device) {
		const bool down = faults.down(device, now_);
		any_down_ |= down;
		if (down == down_[device])
			continue;
		down_[device] = down;
		constexpr uint64_t port = 1;
		for (Context *context : contexts_)
			if (context->device() == device)
				context->report(down ? Event::port_error : Event::port_active, port);
	}
	return until;
}

void Nic::handle(const Packet &packet, const uint8_t *payload)
{
	Qp *qp = find(packet.destination);
	if (qp && packet.destination_lid == lid(*qp) && !down_[qp->context.device()])
		qp->handle(*this, packet, payload);
}

bool Nic::receive()
{
	unsigned n = 0;
	for (; n < frames_at_once; ++n) {
		const std::span<const uint8_t> frame = wire_->front();
		if (frame.empty())
			break;
		Packet packet;
		if (frame.size() >= sizeof packet) {
			// A copy: what has been checked must not change afterwards.
			std::memcpy(&packet, frame.data(), sizeof packet);
			packet.psn &= psn_mask;
			if (packet.payload <= most_mtu && packet.payload <= frame.size() - sizeof packet)
				handle(packet, frame.data() + sizeof packet);
		}
		wire_->pop();
	}
	activity_ += n;
	return n == frames_at_once;
}

void Nic::ring(Qp &qp)
{
	qp.count(Counter::doorbells, 1);
	look_at(qp);
}

void Nic::take_all()
{
	constexpr unsigned most = 1u << 8; // more than fit in: others may go on sending
	for (unsigned n = 0; n < most && receive(); ++n)
		;
}

void Nic::look_at(Qp &qp)
{
	const uint16_t producer = qp.send_producer();
	if (producer == qp.requester.producer())
		return;
	qp.requester.rung(producer);
	++activity_;
	ready(qp);
	if (std::find(recent_.begin(), recent_.end(), &qp) == recent_.end()) {
		if (recent_.size() == most_recent)
			recent_.erase(recent_.begin());
		recent_.push_back(&qp);
	}
}

// Those that were busy lately every time, the others a few at a time: thousands of idle queue pairs cost little.
void Nic::look_at_doorbells()
{
	const bool all = !exact::wanted(); // otherwise, whoever rings comes by
	for (size_t i = 0; all && i < recent_.size(); ++i) // what is looked at here is in the list already: it stays as it is
		look_at(*recent_[i]);
	for (size_t n = std::min(records_at_once, watched_.size()); n; --n) {
		cursor_ = cursor_ + 1 < watched_.size() ? cursor_ + 1 : 0;
		Qp &qp = *watched_[cursor_];
		if (all)
			look_at(qp);
		// Receives that were posted after the error: nobody rings for these.
		if (qp.state == QpState::error && qp.flush_receives())
			++activity_;
	}
}

void Nic::check_times()
{
	next_deadline_ = 0;
	for (Qp *qp : watched_)
		if (qp->requester.waits())
			qp->requester.check_time(*this);
}

bool Nic::progress()
{
	if (!wire_)
		return false;
	now_ = read_clock();
	const uint64_t before = activity_;
	faults.look_at_file(fault_file_, now_);
	if (!held_.empty())
		release_held();
	look_at_links();
	const bool more = receive();
	look_at_doorbells();
	// Answers go before what the program sends in return: the other side gets its completions in that order.
	working_owing_.swap(owing_);
	for (Responder *responder : working_owing_) {
		responder->queued = false;
		if (responder->respond(*this, packets_at_once))
			owes(*responder);
	}
	working_owing_.clear();
	working_ready_.swap(ready_);
	for (Qp *qp : working_ready_) {
		qp->ready = false;
		if (qp->requester.run(*this, packets_at_once))
			ready(*qp);
	}
	working_ready_.clear();
	for (Cq *cq : armed_)
		if (cq->check_armed())
			++activity_;
	// Only when everything that has come is known.
	if (!more && next_deadline_ && now_ >= next_deadline_)
		check_times();
	return activity_ != before;
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
	recent_.clear();
	ready_.clear();
	owing_.clear();
	armed_.clear();
	count_ = 0;
	next_deadline_ = 0;
	accounts_.abandon();
}

} // namespace softhca
