#include "rpc/calls.hpp"

#include <algorithm>
#include <random>
#include <string>

#include "base/clock.hpp"
#include "base/report/report.hpp"

namespace pt2p::rpc {

namespace {

// What the caller learns of a call that was refused.
std::string refusal_text(const Outgoing &o, pt2p_status_t status)
{
	switch (status) {
	case PT2P_ERR_NO_SERVICE: return "that rank has not opened it, or has closed it";
	case PT2P_ERR_BUSY: return format("lane %u there has as many calls waiting as it may (PT2P_CALL_QUEUE)", o.lane);
	case PT2P_ERR_LENGTH:
		return format("%zu bytes of input are more than it takes (input_max), and the call gives a window besides",
		              o.length);
	case PT2P_ERR_NO_MEMORY: return format("that rank has no memory for %zu bytes of input", o.length);
	case PT2P_ERR_ABANDONED: return "it was given up there without a reply";
	case PT2P_ERR_SYSTEM: return "its bytes cannot be moved there";
	case PT2P_ERR_DEADLINE: return "its deadline had passed before it was started there";
	case PT2P_ERR_CANCELLED: return "it was cancelled before it was started there";
	default: return {};
	}
}

} // namespace

Calls::Calls(Engine &engine, Reporter &reporter, Peers &peers, Windows &windows, size_t fetch_bytes)
    : engine_(engine), reporter_(reporter), peers_(peers), windows_(windows), fetch_bytes_(fetch_bytes),
      pool_(std::random_device{}()), fetches_(std::random_device{}())
{
}

// ---- starting -------------------------------------------------------------------------------------------------------

Outgoing &Calls::make(const CallWork &work, Peer &peer)
{
	Outgoing &o = *pool_.take();
	o.peer = &peer;
	o.via = &peer;
	o.caller = nullptr;
	o.request = nullptr;
	o.state = Outgoing::State::waiting;
	o.notice = o.cancelled = o.nested = o.lossy = false;
	o.lane = work.lane;
	o.by = work.by;
	o.service = work.service;
	o.input = static_cast<const unsigned char *>(work.input);
	o.length = work.length;
	o.moved = 0;
	o.reply = static_cast<unsigned char *>(work.reply);
	o.capacity = work.capacity;
	o.reply_length = o.received = 0;
	o.word = 0;
	o.fetch = nullptr;
	o.over = false;
	o.at = 0;
	++pending_;
	if (__builtin_expect(work.rare || work.length >= lent_from, 0))
		add_rare(o, work);
	if (__builtin_expect(work.deadline != 0, 0))
		add_deadline(o, work.deadline);
	return o;
}

// Where the server has asked for replies by datagram, among threads, or where there are always several lanes.
void Calls::choose_path(Outgoing &o, uintptr_t thread)
{
	if (!o.peer->extras || !goes_as_asked(o))
		choose_lane(o, thread);
}

void Calls::choose_lane(Outgoing &o, uintptr_t thread)
try {
	Peer &peer = *o.peer;
	if (!peer.thread) {
		peer.thread = thread; // the first that calls
		return;
	}
	peer.thread = Callers::all_examined;
	const unsigned max = peer.channel->endpoint.max_lanes;
	// Only the first lane has a write ring; results that are fetched say what was read of it.
	if (max == 1 || o.by.input == PT2P_DELIVERY_WRITE || o.by.reply == PT2P_DELIVERY_WRITE ||
	    o.by.reply == PT2P_DELIVERY_READ)
		return;
	std::unique_ptr<Callers> &callers = peer.make_extras().callers;
	if (!callers)
		callers = std::make_unique<Callers>(peers_.lanes());
	o.caller = &callers->call(thread, bytes_of_messages(o.length));
	const unsigned number = callers->lane_of(*o.caller);
	EndpointLane *lane = number && number < max ? peer.further_lane(number) : nullptr;
	if (lane) {
		o.via = lane;
		reporter_.add(Counter::calls_beside);
	}
} catch (const std::bad_alloc &) {
	// It goes over the first.
}

void Calls::add_deadline(Outgoing &o, int64_t span)
{
	const int64_t now = now_ns();
	deadlines_.add(o, time_after(now, span), now);
	engine_.wake_extensions();
}

void Calls::add_rare(Outgoing &o, const CallWork &work)
{
	o.rare = rares_.take();
	*o.rare = {};
	if (!work.rare)
		return;
	o.rare->give = work.rare->give;
	o.rare->take = work.rare->take;
	o.rare->room = work.rare->room;
	o.rare->argument = work.rare->argument;
}

Request *Calls::call(const CallWork &work, pt2p_status_t &status)
{
	Peer &peer = peers_.at(work.rank);
	if (__builtin_expect(!work.by.automatic(), 0) && work.by.by_datagram())
		return call_lossy(work, peer, status);
	if (!peers_.connect(peer, status))
		return nullptr;
	Request *r = engine_.start_call(work.length, work.rank, work.service);
	Outgoing &o = make(work, peer);
	o.request = r;
	r->mask = o.handle; // for cancel()
	if (__builtin_expect(work.thread != peer.thread, 0))
		choose_path(o, work.thread);
	reporter_.add(Counter::calls_made);
	start_or_queue(o);
	return r;
}

// Half of it by datagram, or all of it, if that can be.
Request *Calls::call_lossy(const CallWork &work, Peer &peer, pt2p_status_t &status)
{
	const CallDelivery by = datagram_way(peer, work);
	const bool input = by.input == PT2P_DELIVERY_DATAGRAM;
	if (!input && !peers_.connect(peer, status))
		return nullptr;
	// Over the connection it has to be one message as well.
	const bool lossy = by.by_datagram() && (input || work.length <= Peers::room_after(*peer.channel, sizeof(CallHead)));
	Request *r = engine_.start_call(work.length, work.rank, work.service);
	Outgoing &o = make(work, peer);
	o.request = r;
	r->mask = o.handle;
	o.lossy = lossy;
	o.by = by;
	if (!lossy)
		o.by.leave_datagrams();
	if (input)
		o.via = peer.datagrams();
	else if (!lossy && work.thread != peer.thread)
		choose_lane(o, work.thread);
	reporter_.add(Counter::calls_made);
	start_or_queue(o);
	return r;
}

pt2p_status_t Calls::notice(const CallWork &work)
{
	Peer &peer = peers_.at(work.rank);
	pt2p_status_t status = PT2P_OK;
	if (!peers_.connect(peer, status))
		return status;
	Outgoing &o = make(work, peer);
	o.by.leave_datagrams(); // nobody would notice that it is lost
	// A long one is a call whose reply nobody waits for.
	o.notice = work.length <= Peers::room_after(*peer.channel, sizeof(CallHead));
	reporter_.add(Counter::calls_made);
	if (o.notice && !peer.notices_wait && start_notice(o))
		return PT2P_OK;
	unsigned char *copy;
	try {
		copy = o.copy.take(buffers_, o.length);
	} catch (...) {
		forget(o);
		throw;
	}
	if (o.length)
		std::memcpy(copy, o.input, o.length);
	o.input = copy;
	if (o.notice)
		queue_notice(o);
	else
		start_or_queue(o);
	return PT2P_OK;
}

void Calls::start_or_queue(Outgoing &o)
{
	if (!(o.via->waiting.empty() && start(o)))
		wait_for_slot(o);
}

// A nested call passes by those that wait for a slot.
void Calls::wait_for_slot(Outgoing &o)
{
	Peer &peer = *o.peer;
	Fifo<Outgoing> &waiting = o.via->waiting;
	o.nested = engine_.callbacks().nested();
	if (o.nested) {
		if ((waiting.empty() || !waiting.front()->nested) && start(o))
			return;
		waiting.insert_after(o, [](const Outgoing &other) { return other.nested; });
	} else {
		waiting.push(o);
	}
	reporter_.add(Counter::calls_waited);
	if (peer.has_work())
		peers_.list(peer);
}

// False: there is no slot or no room now. Everything is in place before the message leaves: a call to this rank itself
// arrives within it. An attempt may find out that the peer is lost; then the call has ended.
bool Calls::start(Outgoing &o)
{
	Peer &peer = *o.peer;
	if (!peer.may_start(o))
		return false;
	if (__builtin_expect(o.rare != nullptr, 0) && !lend(o)) {
		complete(o, PT2P_ERR_NO_MEMORY, "there is no memory to describe what it lends");
		forget(o);
		return true;
	}
	if (__builtin_expect(peer.free_slots.empty(), 0)) {
		peer.free_slots.push_back(static_cast<uint16_t>(peer.slots.size()));
		peer.slots.push_back(nullptr);
	}
	const uint16_t slot = peer.free_slots.back();
	peer.free_slots.pop_back();
	peer.slots[slot] = &o;
	++peer.in_flight;
	o.number = ++peer.calls << 16 | slot;
	o.state = Outgoing::State::sent;
	o.moved = o.length;
	if (wants_fetch(o))
		prepare_fetch(o);
	const bool is_short = !o.at && !o.rare && o.by.automatic() && !o.fetch &&
	                      o.length <= Peers::room_after(*o.via->channel, sizeof(ShortCall));
	if (!(is_short
	          ? peers_.send(*o.via->channel, id_short_call, o.number,
	                        ShortCall{o.service, {o.lane, static_cast<uint16_t>(o.via->number)}}, o.input, o.length)
	          : send_call(o))) {
		if (o.state == Outgoing::State::free)
			return true;
		--peer.calls;
		o.state = Outgoing::State::waiting;
		o.moved = 0;
		free_slot(o);
		return false;
	}
	if (__builtin_expect(o.fetch != nullptr, 0))
		begin_fetch(o);
	if (__builtin_expect(o.moved < o.length && o.state == Outgoing::State::sent, 0)) {
		o.via->streams.push(o);
		peers_.list(peer);
	}
	return true;
}

CallHead Calls::head_of(const Outgoing &o)
{
	const int64_t remaining = o.at ? std::max<int64_t>(o.at - now_ns(), 1) : 0;
	return {o.service, o.lane, o.peer->window, remaining, o.via->number, o.length, 0, o.by.reply, o.fetch != nullptr};
}

// Decides which windows are carried: those that fit in the first message. Lends the others, each once. False: there is
// no memory for that.
bool Calls::lend(Outgoing &o)
try {
	Rare &rare = *o.rare;
	const auto lend = [&](Window window, const void *address, size_t length) {
		if (!rare.lends(window))
			windows_.lend(rare.lent, window, address, length);
	};
	const size_t room =
	    Peers::whole_after(*o.via->channel, sizeof(CallHead) + 2 * sizeof(LentMemory) + sizeof(Carried));
	rare.carries_give =
	    rare.give.length && rare.give.length <= std::min(room, longest_carried) && !rare.lends(give_window);
	rare.carries_take = rare.take.length && rare.take.length <= longest_carried;
	if (o.length >= lent_from)
		lend(input_window, o.input, o.length);
	if (rare.give.length && !rare.carries_give)
		lend(give_window, rare.give.address, rare.give.length);
	if (rare.take.length && !rare.carries_take)
		lend(take_window, rare.take.address, rare.take.length);
	return true;
} catch (const std::bad_alloc &) {
	return false;
}

// In the long form, with as much of the input as there is room for.
bool Calls::send_call(Outgoing &o)
{
	if (__builtin_expect(o.lossy, 0))
		return send_lossy(o);
	Channel &channel = *o.via->channel;
	CallHead head = head_of(o);
	unsigned char heads[sizeof head + window_count * sizeof(LentMemory) + sizeof(Carried) + longest_carried];
	size_t length = sizeof head;
	for (unsigned window = 0; o.lends() && window < window_count; ++window)
		if (o.rare->lends(window)) {
			const LentMemory lent =
			    windows_.describe(*o.rare->lent, static_cast<Window>(window), o.peer->channel->endpoint);
			std::memcpy(heads + length, &lent, sizeof lent);
			length += sizeof lent;
			head.windows |= 1u << window;
		}
	if (o.rare && (o.rare->carries_give || o.rare->carries_take)) {
		const Rare &rare = *o.rare;
		const Carried carried{static_cast<uint16_t>(rare.carries_give ? rare.give.length : 0),
		                      static_cast<uint16_t>(rare.carries_take ? rare.take.length : 0)};
		std::memcpy(heads + length, &carried, sizeof carried);
		length += sizeof carried;
		if (carried.give)
			std::memcpy(heads + length, rare.give.address, carried.give);
		length += carried.give;
		head.windows |= carried_bit;
	}
	std::memcpy(heads, &head, sizeof head);
	const size_t room =
	    head.windows & carried_bit ? Peers::whole_after(channel, length) : Peers::room_after(channel, length);
	const bool input_lent = head.windows & 1u << input_window;
	const size_t first = input_lent ? 0 : std::min(o.length, room);
	o.moved = input_lent ? o.length : first;
	return peers_.send_by(channel, static_cast<pt2p_delivery_t>(o.by.input), id_call, o.number, heads, length, o.input,
	                      first);
}

// Sends more of the input; false: there is no room now.
bool Calls::stream(Outgoing &o)
{
	Channel &c = *o.via->channel;
	const size_t piece = std::min(o.length - o.moved, c.endpoint.longest_piece());
	if (c.try_send(id_more, o.number, o.input + o.moved, piece) != Outcome::done)
		return false;
	o.moved += piece;
	return true;
}

unsigned Calls::drive(Peer &peer)
{
	unsigned n = 0;
	peer.for_each_lane([&](EndpointLane &lane) { n += drive(peer, lane); });
	if (__builtin_expect(peer.notices_wait, 0))
		n += drive_notices(peer);
	return n;
}

unsigned Calls::drive(Peer &peer, EndpointLane &lane)
{
	unsigned n = 0;
	if (__builtin_expect(lane.number != 0, 0) && !lane.waiting.empty() && !peer.connected(lane))
		fall_back(lane, peer);
	while (!lane.waiting.empty()) {
		// Before it is started: it may be over when start() returns.
		Outgoing &o = lane.waiting.pop();
		if (!start(o)) {
			lane.waiting.push_front(o);
			break;
		}
		++n;
	}
	while (!lane.streams.empty()) {
		Outgoing &o = *lane.streams.front();
		if (!stream(o))
			break;
		++n;
		if (o.moved == o.length)
			lane.streams.pop();
	}
	return n;
}

// The lane is not connected now: calls that have not left go over the first.
void Calls::fall_back(EndpointLane &lane, Peer &peer)
{
	while (!lane.waiting.empty()) {
		Outgoing &o = lane.waiting.pop();
		o.via = &peer;
		if (o.nested)
			peer.waiting.insert_after(o, [](const Outgoing &other) { return other.nested; });
		else
			peer.waiting.push(o);
	}
}

// ---- the reply ------------------------------------------------------------------------------------------------------

Outgoing *Calls::find(const Peer &peer, uint64_t number) const
{
	const uint32_t slot = slot_of(number);
	Outgoing *o = slot < peer.slots.size() ? peer.slots[slot] : nullptr;
	return o && o->number == number ? o : nullptr;
}

const char *Calls::on_reply(Peer &peer, uint64_t number, const void *data, size_t length)
{
	ReplyHead head;
	Outgoing *o = find(peer, number);
	if (!o)
		return unknown(peer, id_reply, number, data, length);
	if (length < sizeof head || o->state != Outgoing::State::sent || o->received || o->reply_length)
		return wrong_message;
	std::memcpy(&head, data, sizeof head);
	length -= sizeof head;
	const auto *bytes = static_cast<const unsigned char *>(data) + sizeof head;
	if (__builtin_expect(head.pushed, 0)) {
		Pushed part;
		if (length < sizeof part || head.status != PT2P_OK)
			return wrong_message;
		std::memcpy(&part, bytes, sizeof part);
		bytes += sizeof part;
		length -= sizeof part;
		if (length < part.length || !place_pushed(*o, part.offset, bytes, part.length))
			return wrong_message;
		bytes += part.length;
		length -= part.length;
	}
	LentMemory lent;
	if (head.lent ? length != sizeof lent || !head.length : length > head.length || head.length >= lent_from)
		return wrong_message;
	// The server may reply, or refuse, before it has all of the input.
	if (o->moved < o->length)
		o->via->streams.remove(*o);
	if (head.status != PT2P_OK) {
		auto status = static_cast<pt2p_status_t>(head.status);
		if (status == PT2P_ERR_CANCELLED && o->rare && o->rare->late)
			status = PT2P_ERR_DEADLINE;
		complete(*o, status, refusal_text(*o, status));
		free_slot(*o);
		forget(*o);
		return nullptr;
	}
	o->word = head.word;
	o->reply_length = head.length;
	if (__builtin_expect(head.lent, 0)) {
		if (!o->rare)
			add_rare(*o, {});
		std::memcpy(&lent, bytes, sizeof lent);
		o->rare->reach = &windows_.reach();
		o->rare->reach->lent[input_window] = lent;
		place_later(*o);
		return nullptr;
	}
	begin_reply(*o, bytes, length);
	return nullptr;
}

const char *Calls::on_short_reply(Peer &peer, uint64_t number, const void *data, size_t length)
{
	Outgoing *o = find(peer, number);
	if (__builtin_expect(!o, 0))
		return unknown(peer, id_short_reply, number, data, length);
	if (length < sizeof o->word || o->state != Outgoing::State::sent || o->received | o->reply_length)
		return wrong_message;
	std::memcpy(&o->word, data, sizeof o->word);
	length -= sizeof o->word;
	o->reply_length = length;
	if (__builtin_expect(o->moved < o->length, 0)) // as above
		o->via->streams.remove(*o);
	begin_reply(*o, static_cast<const unsigned char *>(data) + sizeof o->word, length);
	return nullptr;
}

// The first bytes of a reply are here.
void Calls::begin_reply(Outgoing &o, const void *bytes, size_t length)
{
	if (__builtin_expect(o.rare && o.rare->room && o.reply_length > o.capacity, 0))
		gather(o);
	take_bytes(o, bytes, length);
}

const char *Calls::on_rest(Peer &peer, uint64_t number, const void *data, size_t length)
{
	Outgoing *o = find(peer, number);
	if (!o)
		return unknown(peer, id_rest, number, data, length);
	if (!length || o->state != Outgoing::State::sent || length > o->reply_length - o->received)
		return wrong_message;
	take_bytes(*o, data, length);
	return nullptr;
}

// More of the reply is here.
void Calls::take_bytes(Outgoing &o, const void *data, size_t length)
{
	if (o.received < o.capacity && length)
		std::memcpy(o.reply + o.received, data, std::min(length, o.capacity - o.received));
	o.received += length;
	if (o.received < o.reply_length)
		return;
	free_slot(o);
	if (__builtin_expect(o.rare && o.rare->gathered, 0))
		return place_later(o);
	complete(o, o.reply_length > o.capacity ? PT2P_ERR_TRUNCATED : PT2P_OK);
	forget_at_once(o);
}

// ---- the end --------------------------------------------------------------------------------------------------------

void Calls::forget_rare(Outgoing &o)
{
	windows_.let_go(o.rare->reach);
	rares_.give(std::exchange(o.rare, nullptr));
}

void Calls::forget(Outgoing &o) { forget_at_once(o); }

void Calls::forget_at_once(Outgoing &o)
{
	deadlines_.remove(o);
	o.state = Outgoing::State::free;
	if (__builtin_expect(o.rare != nullptr, 0))
		forget_rare(o);
	o.copy.give(buffers_);
	pool_.give(&o);
	pending_ -= !o.over;
}

} // namespace pt2p::rpc
