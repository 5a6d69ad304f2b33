// Calls that end without their reply: cancelled, late, or with the rank that serves them.
#include <algorithm>
#include <utility>

#include "base/clock.hpp"
#include "rpc/calls.hpp"

namespace pt2p::rpc {

void Calls::cancel(Request &r)
{
	Outgoing *o = pool_.find(r.mask);
	if (!o || o->request != &r)
		return; // it is over
	if (o->state == Outgoing::State::waiting) {
		o->via->waiting.remove(*o);
		complete(*o, PT2P_ERR_CANCELLED, "before it left");
		forget(*o);
		return;
	}
	if (o->state != Outgoing::State::sent || std::exchange(o->cancelled, true))
		return; // its reply is here, or the server knows
	push_it(*o, true);
	const uint8_t abandoned = 0;
	engine_.channels().control(*o->via->channel, id_cancel, o->number, &abandoned, sizeof abandoned);
}

// The deadline has passed. The program's buffers are its own again, so nothing is read or written any more. The slot is
// kept until the server agrees: it may be replying. So is all of a call that lends memory.
void Calls::give_up(Outgoing &o)
{
	const bool waits = o.state == Outgoing::State::waiting, lends = !waits && o.lends();
	if (o.notice)
		unqueue_notice(o);
	else
		(waits ? o.via->waiting : o.via->streams).remove(o);
	if (lends) {
		o.rare->late = true;
	} else {
		const size_t whole = std::exchange(o.reply_length, 0); // nothing of it for the program
		complete(o, PT2P_ERR_DEADLINE, waits ? "it has not left this rank" : "there is no reply yet");
		o.reply_length = whole;
	}
	reporter_.add(Counter::calls_late);
	if (waits)
		return forget(o);
	o.moved = o.length;
	if (!lends) {
		o.capacity = 0;
		if (o.rare) {
			o.rare->room = nullptr;
			o.rare->gathered = false;
		}
	}
	push_it(o, false);
	const uint8_t abandoned = 1;
	engine_.channels().control(*o.via->channel, id_cancel, o.number, &abandoned, sizeof abandoned);
}

unsigned Calls::drive_deadlines()
{
	if (deadlines_.empty())
		return 0;
	unsigned n = 0;
	const int64_t now = now_ns();
	while (Deadline *d = deadlines_.next_passed(now)) {
		give_up(static_cast<Outgoing &>(*d));
		++n;
	}
	return n;
}

size_t Calls::unawaited() const
{
	size_t n = 0;
	pool_.for_each([&n](const Outgoing &o) { n += o.state != Outgoing::State::free && !o.request && !o.over; });
	return n;
}

void Calls::end(Peer &peer, pt2p_status_t status, std::string_view reason, bool only_waiting)
{
	peer.for_each_lane([&](EndpointLane &lane) {
		while (!lane.waiting.empty()) {
			Outgoing &o = lane.waiting.pop();
			complete(o, status, reason);
			forget(o);
		}
	});
	end_notices(peer);
	if (only_waiting)
		return;
	peer.for_each_lane([](EndpointLane &lane) { lane.streams.clear(); });
	for (size_t slot = 0; slot < peer.slots.size(); ++slot)
		if (Outgoing *o = peer.slots[slot]) {
			if (o->state == Outgoing::State::placing)
				placing_.remove(*o);
			else if (o->state == Outgoing::State::fetching)
				fetching_.remove(*o);
			complete(*o, status, reason);
			free_slot(*o);
			forget(*o);
		}
}

} // namespace pt2p::rpc
