#include "softhca/live/live.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "softhca/exact/exact.hpp"

namespace softhca::live {

namespace {

constexpr unsigned frames_at_once = 64, packets_at_once = 32;
constexpr size_t doorbells_at_once = 32, max_recent = 16;

} // namespace

void Live::ready(Qp &qp)
{
	if (!std::exchange(qp.ready, true))
		ready_.push_back(&qp);
}

void Live::owes(Responder &responder)
{
	if (!std::exchange(responder.queued, true))
		owing_.push_back(&responder);
}

void Live::forget(Qp &qp)
{
	std::erase(recent_, &qp);
	std::erase(ready_, &qp);
	qp.ready = false;
}

void Live::forget(Responder &responder) { std::erase(owing_, &responder); }

void Live::abandon()
{
	recent_.clear();
	ready_.clear();
	owing_.clear();
	service_.abandon();
}

bool Live::after_poll(int, bool found)
{
	if (found)
		service_.found();
	return !found && service_.polled_in_vain();
}

// ---- packets --------------------------------------------------------------------------------------------------------

bool Live::transmit(Qp &qp, const Packet &packet, Faults::Fate fate, Time delay, const Fill &fill)
{
	constexpr Time max_reorder = 2'000'000; // there may be no next packet
	if (!nic_.faults.none())
		++activity_;
	switch (fate) {
	case Faults::Fate::drop: return true;
	case Faults::Fate::later: hold(packet, fill, nic_.now() + delay, 0); return true;
	case Faults::Fate::after_next: hold(packet, fill, nic_.now() + max_reorder, qp.number); return true;
	case Faults::Fate::twice:
		if (const Wire::Room room = put(qp, packet, fill); room != Wire::Room::yes)
			return room == Wire::Room::nobody;
		break;
	case Faults::Fate::pass: break;
	}
	return put(qp, packet, fill) != Wire::Room::full;
}

void Live::hold(const Packet &packet, const Fill &fill, Time due, uint32_t after)
{
	Held held{due, after, {}};
	held.frame.resize(sizeof packet + packet.payload);
	std::memcpy(held.frame.data(), &packet, sizeof packet);
	fill(held.frame.data() + sizeof packet);
	held_.push_back(std::move(held));
}

// Puts a packet into the inbox of its destination.
Wire::Room Live::put(Qp &qp, const Packet &packet, const Fill &fill)
{
	Wire &wire = *nic_.wire();
	uint8_t *frame = nullptr;
	const Wire::Room room = wire.begin(nic_.slot_of(packet.destination), sizeof packet + packet.payload, frame);
	if (room == Wire::Room::full)
		return room;
	++activity_;
	qp.count(Counter::packets_sent, 1);
	if (room == Wire::Room::nobody)
		return room;
	std::memcpy(frame, &packet, sizeof packet);
	fill(frame + sizeof packet);
	wire.end();
	for (Held &held : held_)
		if (held.after == packet.source)
			held.due = 0;
	return room;
}

void Live::release_held(const Qp &qp)
{
	if (held_.empty())
		return;
	for (Held &held : held_) {
		Packet packet;
		std::memcpy(&packet, held.frame.data(), sizeof packet);
		if (packet.source == qp.number)
			held.due = 0;
	}
	release_due();
}

// Sends what a rule has held back long enough.
void Live::release_due()
{
	Wire &wire = *nic_.wire();
	std::erase_if(held_, [&](const Held &held) {
		if (held.due > nic_.now())
			return false;
		Packet packet;
		std::memcpy(&packet, held.frame.data(), sizeof packet);
		uint8_t *frame;
		const Wire::Room room = wire.begin(nic_.slot_of(packet.destination), held.frame.size(), frame);
		if (room == Wire::Room::full)
			return false;
		if (room == Wire::Room::yes) {
			std::memcpy(frame, held.frame.data(), held.frame.size());
			wire.end();
		}
		++activity_;
		return true;
	});
	for (const Held &held : held_)
		nic_.remind(held.due);
}

// Handles a bounded number of packets. True when there may be more.
bool Live::receive()
{
	Wire &wire = *nic_.wire();
	unsigned n = 0;
	for (; n < frames_at_once; ++n) {
		const std::span<const uint8_t> frame = wire.front();
		if (frame.empty())
			break;
		Packet packet;
		if (frame.size() >= sizeof packet) {
			// A copy: what has been checked must not change afterwards.
			std::memcpy(&packet, frame.data(), sizeof packet);
			packet.psn &= psn_mask;
			if (packet.payload <= max_mtu && packet.payload <= frame.size() - sizeof packet)
				nic_.handle(packet, frame.data() + sizeof packet);
		}
		wire.pop();
	}
	activity_ += n;
	return n == frames_at_once;
}

void Live::receive_all()
{
	constexpr unsigned max_rounds = 1u << 8; // more than fit in: others may go on sending
	for (unsigned n = 0; n < max_rounds && receive(); ++n)
		;
}

// ---- doorbells ------------------------------------------------------------------------------------------------------

void Live::ring(Qp &qp)
{
	qp.count(Counter::doorbells, 1);
	look_at_doorbell(qp);
}

// The WQE need not be fetched.
void Live::blueflame(Qp &qp, size_t, bool first)
{
	if (first)
		qp.requester.blueflame();
}

void Live::look_at_doorbell(Qp &qp)
{
	const uint16_t producer = qp.send_producer();
	if (producer == qp.requester.producer())
		return;
	qp.requester.doorbell(producer);
	++activity_;
	ready(qp);
	if (std::find(recent_.begin(), recent_.end(), &qp) == recent_.end()) {
		if (recent_.size() == max_recent)
			recent_.erase(recent_.begin());
		recent_.push_back(&qp);
	}
}

// Looks at recently used queue pairs every time and at a few of the others: thousands of idle queue pairs cost little.
void Live::look_at_doorbells()
{
	const bool all = !exact::wanted();                 // otherwise ring() is called
	for (size_t i = 0; all && i < recent_.size(); ++i) // these are in the list already: it does not change
		look_at_doorbell(*recent_[i]);
	const std::vector<Qp *> &watched = nic_.watched();
	for (size_t n = std::min(doorbells_at_once, watched.size()); n; --n) {
		cursor_ = cursor_ + 1 < watched.size() ? cursor_ + 1 : 0;
		Qp &qp = *watched[cursor_];
		if (all)
			look_at_doorbell(qp);
		// Receives that were posted after the error have no doorbell.
		if (qp.state == QpState::error && qp.flush_receives())
			++activity_;
	}
}

bool Live::progress()
{
	if (!nic_.wire())
		return false;
	nic_.set_time(read_clock());
	const uint64_t before = activity_;
	nic_.refresh_faults(nic_.now());
	if (!held_.empty())
		release_due();
	nic_.devices.update_links(nic_.faults, nic_.now());
	const bool more = receive();
	look_at_doorbells();
	// Answers go before what the program sends in return: the other side gets its completions in that order.
	working_owing_.swap(owing_);
	for (Responder *responder : working_owing_) {
		responder->queued = false;
		if (responder->respond(nic_, packets_at_once))
			owes(*responder);
	}
	working_owing_.clear();
	working_ready_.swap(ready_);
	for (Qp *qp : working_ready_) {
		qp->ready = false;
		if (qp->requester.run(nic_, packets_at_once))
			ready(*qp);
	}
	working_ready_.clear();
	for (Cq *cq : nic_.armed())
		if (cq->check_armed())
			++activity_;
	// Time-outs only when everything that has come is known.
	if (!more && nic_.next_deadline() && nic_.now() >= nic_.next_deadline())
		nic_.check_times();
	return activity_ != before;
}

} // namespace softhca::live
