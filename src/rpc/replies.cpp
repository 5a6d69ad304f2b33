// Replies of services: those that are sent, and results that callers fetch.
#include <algorithm>
#include <cstring>
#include <utility>

#include "base/clock.hpp"
#include "rpc/services.hpp"

namespace pt2p::rpc {

// ---- replies that are sent ------------------------------------------------------------------------------------------

void Services::reply(Incoming &in, uint64_t word, const void *data, size_t length)
{
	if (__builtin_expect(!in.peer, 0))
		return forget(in);
	in.state = Incoming::State::replied;
	in.reply.word = word;
	in.reply.length = length;
	if (__builtin_expect(in.reach != nullptr, 0) && windows_.moving(*in.reach)) {
		keep_reply(in, data);
		settle_later(in);
	} else if (__builtin_expect(--quiet_ < 0 || in.reply_by >= PT2P_DELIVERY_READ || in.fetches, 0) &&
	           leave_result(in, data)) {
		forget(in);
	} else if (__builtin_expect((in.reach && in.reach->has_results()) || !send_at_once(in, data), 0)) {
		send_reply(in, data);
	}
}

// In the short form. False: that cannot be done now. The attempt may find out that the caller is lost; then the call
// has ended.
bool Services::send_at_once(Incoming &in, const void *data)
{
	const size_t length = in.reply.length;
	pt2p_status_t status = PT2P_OK;
	if (in.reply.status != PT2P_OK || !peers_.connect(*in.peer, status))
		return in.state != Incoming::State::replied;
	const EndpointLane &lane = lane_for(in);
	if (!lane.replies.empty() || length > Peers::room_after(*lane.channel, sizeof in.reply.word) ||
	    !(__builtin_expect(!in.reply_by, 1)
	          ? peers_.send(*lane.channel, id_short_reply, in.number, in.reply.word, data, length)
	          : peers_.send_by(*lane.channel, static_cast<pt2p_delivery_t>(in.reply_by), id_short_reply, in.number,
	                           &in.reply.word, sizeof in.reply.word, data, length)))
		return in.state != Incoming::State::replied;
	forget(in);
	return true;
}

void *Services::room(Incoming &in, size_t length)
{
	in.data.give(buffers_);
	return in.data.take(buffers_, length);
}

void Services::abandon(Incoming &in)
{
	in.reply.status = PT2P_ERR_ABANDONED;
	reply(in, 0, nullptr, 0);
}

// All that the handler has started is over.
void Services::send_reply(Incoming &in, const void *data)
{
	if (in.settling)
		unqueue(in);
	if (in.reach && in.reach->failure != PT2P_OK) {
		in.reply.status = PT2P_ERR_SYSTEM;
		in.reply.length = 0;
	}
	keep_reply(in, data);
	try {
		if (in.reply.length >= lent_from)
			windows_.lend(in.lent, input_window, in.reply_bytes(), in.reply.length);
	} catch (const std::bad_alloc &) {
		windows_.take_back(in.lent);
		in.reply.status = PT2P_ERR_SYSTEM;
		in.reply.length = 0;
	}
	Peer &peer = *in.peer;
	EndpointLane &lane = lane_for(in);
	const bool next = lane.replies.empty();
	lane.replies.push(in);
	if (next)
		drive(peer, lane);
	if (!lane.replies.empty())
		peers_.list(peer);
}

// Unless it is there already, see room().
void Services::keep_reply(Incoming &in, const void *data)
{
	const size_t length = in.reply.length;
	if (!length || data == in.reply_bytes())
		return;
	unsigned char *copy;
	try {
		if (in.reach) {
			copy = windows_.take_reply(*in.reach, length);
		} else if (in.data.holds(data)) {
			std::memmove(in.data.data(), data, length);
			return;
		} else {
			in.data.give(buffers_);
			copy = in.data.take(buffers_, length);
		}
	} catch (...) {
		in.state = Incoming::State::running; // it still needs a reply
		throw;
	}
	std::memcpy(copy, data, length);
}

void Services::refuse(Incoming &in, pt2p_status_t status)
{
	reporter_.add(Counter::calls_refused);
	if (in.notice || !in.peer)
		forget(in);
	else
		reply_without_data(in, status);
}

void Services::reply_without_data(Incoming &in, pt2p_status_t status)
{
	in.state = Incoming::State::replied;
	in.reply.status = status;
	if (in.reply_by == PT2P_DELIVERY_DATAGRAM && reply_by_datagram(in, nullptr))
		return forget(in);
	in.peer->replies.push(in);
	peers_.list(*in.peer);
}

// Sends the next message of a reply; false: there is no room now.
bool Services::send_some(Channel &c, Incoming &in)
{
	const size_t left = in.reply.length - in.moved;
	if (!in.begun && in.reach && !in.reach->pushed.empty() && in.reply.status == PT2P_OK)
		return send_pushed(c, in);
	if (in.lent) {
		struct {
			ReplyHead head;
			LentMemory lent;
		} const offer{{in.reply.word, in.reply.length, 1, 0, PT2P_OK},
		              windows_.describe(*in.lent, input_window, in.peer->channel->endpoint)};
		in.begun = true; // FETCHED may come within the call
		if (!peers_.send(c, id_reply, in.number, offer, nullptr, 0)) {
			in.begun = false;
			return false;
		}
		in.moved = in.reply.length;
		return true;
	}
	if (!in.begun) {
		const size_t first = std::min(left, Peers::room_after(c, sizeof in.reply));
		if (!peers_.send_by(c, static_cast<pt2p_delivery_t>(in.reply_by), id_reply, in.number, &in.reply,
		                    sizeof in.reply, in.reply_bytes(), first))
			return false;
		in.begun = true;
		in.moved = first;
		return true;
	}
	const size_t piece = std::min(left, c.endpoint.longest_piece());
	if (c.try_send(id_rest, in.number, in.reply_bytes() + in.moved, piece) != Outcome::done)
		return false;
	in.moved += piece;
	return true;
}

unsigned Services::drive(Peer &peer)
{
	unsigned n = __builtin_expect(peer.extras != nullptr, 0) ? drive_datagrams(peer) : 0;
	peer.for_each_lane([&](EndpointLane &lane) { n += drive(peer, lane); });
	return n;
}

unsigned Services::drive(Peer &peer, EndpointLane &lane)
{
	unsigned n = 0;
	pt2p_status_t status = PT2P_OK;
	// What this rank lacks to reach the caller may be there in the next turn.
	if (lane.replies.empty() || !peers_.connect(peer, status))
		return 0;
	if (__builtin_expect(lane.number != 0, 0) && !peer.further_lane(lane.number))
		fall_back(lane, peer);
	while (!lane.replies.empty()) {
		Incoming &in = *lane.replies.front();
		if (!send_some(*lane.channel, in))
			break;
		++n;
		if (!in.begun || in.moved < in.reply.length)
			continue;
		lane.replies.pop();
		if (!in.lent) // else the caller fetches it
			forget(in);
	}
	return n;
}

// The lane is not connected now: replies of which nothing has left go over the first.
void Services::fall_back(EndpointLane &lane, Peer &peer)
{
	lane.replies.remove_if([&peer](Incoming &in) {
		const bool whole = !in.begun && !in.reach;
		if (whole)
			peer.replies.push(in);
		return whole;
	});
	if (!peer.replies.empty())
		peers_.list(peer);
}

// ---- results that are fetched ---------------------------------------------------------------------------------------

// False: the reply is sent over the connection.
bool Services::leave_result(Incoming &in, const void *data)
{
	const bool by_datagram = in.reply_by == PT2P_DELIVERY_DATAGRAM;
	const bool free = in.asked || in.reply_by == PT2P_DELIVERY_AUTO; // the library chooses
	++sample_.calls;
	sample_.input += in.length;
	sample_.reply += in.reply.length;
	if (by_datagram)
		++sample_.by_datagram;
	pt2p_status_t status = PT2P_OK;
	// Whether it could get back in another way than by the reply, as far as the connection decides that.
	const bool open = !leaving_ && !in.reach && (free || !by_datagram) && peers_.connect(*in.peer, status) &&
	                  engine_.channels().router().device_of(*in.peer->channel);
	const laws::Way took = by_datagram ? laws::Way::datagram : in.fetches ? laws::Way::fetch : laws::Way::reply;
	if (quiet_ < 0)
		choose(free && open && way_.watches() ? ways_of(in) : laws::Ways{}, took);
	if (by_datagram) {
		if (reply_by_datagram(in, data))
			return true;
		in.reply_by = PT2P_DELIVERY_AUTO;
		return false;
	}
	const bool fits = open && in.reply.status == PT2P_OK && results_.fits(in.reply.length);
	if (fits && in.fetches && (free || in.reply_by == PT2P_DELIVERY_READ)) {
		results_.store(in, data, free && way_.way() != laws::Way::fetch);
		return true;
	}
	in.fetches = false;
	if (in.reply_by == PT2P_DELIVERY_READ) {
		in.reply_by = PT2P_DELIVERY_AUTO;
		if (open)
			results_.offer(*in.peer, in.by_service ? ToFetch::of_service : ToFetch::nothing,
			               in.by_service ? in.service->id : 0);
	} else if (free && way_.way() == laws::Way::datagram) {
		if (open && fits_datagrams(in))
			in.number |= datagram_bit;
	} else if (free && fits && way_.way() == laws::Way::fetch) {
		if (in.peer->results())
			in.number |= fetch_bit;
		else
			results_.offer(*in.peer, ToFetch::all);
	}
	return false;
}

// Those that the result of a call could take, over the connection or not.
laws::Ways Services::ways_of(const Incoming &in)
{
	laws::Ways ways;
	ways.add(laws::Way::reply);
	if (in.reply.status == PT2P_OK && results_.fits(in.reply.length) && results_.could_offer(*in.peer))
		ways.add(laws::Way::fetch);
	if (fits_datagrams(in))
		ways.add(laws::Way::datagram);
	return ways;
}

// The law sees a call. `can`: the ways that are open to it; none if somebody has chosen.
void Services::choose(laws::Ways can, laws::Way took)
{
	static constexpr const char *names[laws::ways] = {"sent", "fetched", "sent by datagram"};
	const uint32_t trials = way_.trials();
	const bool changed = way_.saw(can, took, std::max(results_.callers(), peers_.with_datagrams()), now_ns);
	if (way_.trials() != trials)
		reporter_.add(Counter::results_trials);
	if (changed)
		reporter_.log(LogLevel::info, "results of calls are %s from now on: that is %.2f times as quick",
		              names[static_cast<size_t>(way_.chosen())], way_.gain());
	const uint64_t served = reporter_.read(Counter::calls_served);
	if (served >= way_.due())
		way_.look(served, now_ns());
	const bool quiet = !way_.watches() && way_.chosen() == laws::Way::reply;
	quiet_ = quiet ? static_cast<int64_t>(way_.due() - served) : 0;
}

const char *Services::on_push_it(Peer &peer, uint64_t number)
{
	if (!peer.results() || slot_of(number) >= peer.results()->count())
		return wrong_message;
	if (Incoming *in = served_in(peer, slot_of(number))) {
		if (in->number == number)
			in->fetches = false;
	} else if (peer.results()->stored[slot_of(number)].number == number) {
		push_result(peer, number);
	} // else its reply is on its way
	return nullptr;
}

void Services::push_result(Peer &peer, uint64_t number)
{
	ResultSlots &slots = *peer.results();
	const ResultSlots::Stored result = std::exchange(slots.stored[slot_of(number)], {});
	Incoming &answer = make(peer, number);
	enter(answer);
	answer.state = Incoming::State::replied;
	answer.reply.word = result.word;
	answer.reply.length = result.length;
	try {
		if (result.length)
			std::memcpy(answer.data.take(buffers_, result.length), slots.at(slot_of(number)) + sizeof(ResultHead),
			            result.length);
	} catch (const std::bad_alloc &) {
		answer.reply.status = PT2P_ERR_SYSTEM;
		answer.reply.length = 0;
	}
	engine_.channels().router().report_consumed(*peer.channel);
	peer.replies.push(answer);
	peers_.list(peer);
}

// The caller may have fetched them; then it drops what is pushed.
void Services::leave()
{
	leaving_ = true;
	refuse_all();
	peers_.for_each([this](Peer &peer) {
		if (!peer.results() || !peer.channel)
			return;
		for (const ResultSlots::Stored &result : peer.results()->stored)
			if (result.number && !served_in(peer, slot_of(result.number)))
				push_result(peer, result.number);
	});
}

} // namespace pt2p::rpc
