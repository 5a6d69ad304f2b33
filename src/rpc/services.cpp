#include "rpc/services.hpp"

#include <algorithm>
#include <random>

#include "base/clock.hpp"
#include "base/report/report.hpp"

namespace pt2p::rpc {

namespace {

constexpr unsigned handled_in_turn = 32; // calls

} // namespace

Services::Services(Engine &engine, Reporter &reporter, Peers &peers, size_t queue, pt2p_context_t *context)
    : engine_(engine), reporter_(reporter), peers_(peers), queue_(queue), context_(context),
      services_(std::random_device{}()), pool_(std::random_device{}())
{
}

// ---- services -------------------------------------------------------------------------------------------------------

Service *Services::find(uint64_t handle) const
{
	Service *s = services_.find(handle);
	return s && s->open ? s : nullptr;
}

Service *Services::open(uint32_t id, pt2p_handler_t handler, void *argument, uint32_t lanes, size_t input_max)
{
	if (by_id_.count(id))
		return nullptr;
	Service *s = services_.take();
	s->open = true;
	s->id = id;
	s->handler = handler;
	s->argument = argument;
	s->input_max = input_max;
	s->lanes.clear();
	s->lanes.resize(lanes);
	s->running = s->users = 0;
	by_id_[id] = s;
	return s;
}

void Services::refuse_all(Service &s)
{
	s.open = false;
	by_id_.erase(s.id);
	engine_.wake_extensions(); // threads in pt2p_serve
	for_each_call([&](Incoming &in) {
		if (in.service == &s && (in.state == Incoming::State::coming || in.state == Incoming::State::queued)) {
			unqueue(in);
			refuse(in, PT2P_ERR_NO_SERVICE);
		}
	});
}

void Services::refuse_all()
{
	while (!by_id_.empty())
		refuse_all(*by_id_.begin()->second);
}

void Services::close(Service &s) { services_.give(&s); }

// ---- calls that come ------------------------------------------------------------------------------------------------

Incoming &Services::make(Peer &peer, uint64_t number)
{
	Incoming &in = *pool_.take();
	in.peer = &peer;
	in.caller = peer.rank;
	in.service = nullptr;
	in.state = Incoming::State::coming;
	in.notice = in.cancelled = in.handling = false;
	in.lane = 0;
	in.number = number;
	in.deadline = 0;
	in.length = in.received = in.moved = 0;
	in.reply = {};
	++pending_;
	return in;
}

const char *Services::on_call(Peer &peer, uint64_t number, bool notice, const void *data, size_t length)
{
	CallHead head;
	if (length < sizeof head)
		return wrong_message;
	std::memcpy(&head, data, sizeof head);
	length -= sizeof head;
	const uint32_t slot = slot_of(number);
	if (length > head.length || head.remaining < 0 || (notice && length != head.length) ||
	    (!notice && (slot >= max_window || served_in(peer, slot))))
		return wrong_message;
	Incoming &in = make(peer, number);
	in.notice = notice;
	in.lane = head.lane;
	in.length = head.length;
	in.received = length;
	if (head.remaining)
		in.deadline = now_ns() + head.remaining;
	if (notice) {
		peer.notices_window = head.window;
	} else {
		if (slot >= peer.served.size())
			peer.served.resize(slot + size_t{1});
		peer.served[slot] = &in;
	}
	const auto service = by_id_.find(head.service);
	if (service == by_id_.end()) {
		refuse(in, PT2P_ERR_NO_SERVICE);
	} else if (head.length > service->second->input_max) {
		refuse(in, PT2P_ERR_LENGTH);
	} else {
		in.service = service->second;
		unsigned char *input = in.input.take(buffers_, in.length);
		if (length)
			std::memcpy(input, static_cast<const unsigned char *>(data) + sizeof head, length);
		if (in.received == in.length)
			queue(in);
	}
	return nullptr;
}

const char *Services::on_more(Peer &peer, uint64_t number, const void *data, size_t length)
{
	Incoming *in = served_in(peer, slot_of(number));
	// It may have been refused or cancelled, before the caller knew.
	if (!in || in->number != number || in->state != Incoming::State::coming)
		return length ? nullptr : wrong_message;
	if (!length || length > in->length - in->received)
		return wrong_message;
	std::memcpy(in->input.data() + in->received, data, length);
	in->received += length;
	if (in->received == in->length)
		queue(*in);
	return nullptr;
}

void Services::queue(Incoming &in)
{
	Service &s = *in.service;
	if (s.lanes.empty()) {
		ready_.push(in);
	} else {
		Service::Lane &lane = s.lane(in.lane);
		if (lane.length >= queue_)
			return refuse(in, PT2P_ERR_BUSY);
		lane.queue.push(in);
		++lane.length;
	}
	in.state = Incoming::State::queued;
	engine_.wake_extensions();
}

// Takes it out of the queue where it waits, if it does.
void Services::unqueue(Incoming &in)
{
	if (in.state != Incoming::State::queued)
		return;
	if (in.service->lanes.empty())
		return ready_.remove(in);
	Service::Lane &lane = in.service->lane(in.lane);
	lane.queue.remove(in);
	--lane.length;
}

// Ends a call whose handler has not replied, as the caller sees it.
void Services::give_slot_back(Peer &peer, uint64_t number)
{
	Incoming &in = make(peer, number);
	peer.served[slot_of(number)] = &in;
	reply_without_data(in, PT2P_ERR_DEADLINE);
}

const char *Services::on_cancel(Peer &peer, uint64_t number, const void *data, size_t length)
{
	uint8_t abandoned;
	if (!wire::read(abandoned, data, length))
		return wrong_message;
	Incoming *in = served_in(peer, slot_of(number));
	if (!in || in->number != number)
		return nullptr; // the reply is on its way
	switch (in->state) {
	case Incoming::State::coming:
	case Incoming::State::queued:
		unqueue(*in);
		refuse(*in, PT2P_ERR_CANCELLED);
		break;
	case Incoming::State::running:
		in->cancelled = true;
		if (!abandoned)
			break;
		in->peer = nullptr; // the handler's reply goes nowhere
		give_slot_back(peer, number);
		break;
	default: break;
	}
	return nullptr;
}

// ---- handlers -------------------------------------------------------------------------------------------------------

// The next call of a queue that is to be started; null: there is none.
Incoming *Services::take_queued(Fifo<Incoming> &queue, size_t *length)
{
	while (!queue.empty()) {
		Incoming &in = queue.pop();
		if (length)
			--*length;
		if (!in.deadline || now_ns() < in.deadline)
			return &in;
		refuse(in, PT2P_ERR_DEADLINE);
	}
	return nullptr;
}

unsigned Services::drive_handlers()
{
	unsigned n = 0;
	Callbacks &callbacks = engine_.callbacks();
	while (n < handled_in_turn && !ready_.empty() && callbacks.may_call()) {
		Incoming *in = take_queued(ready_, nullptr);
		if (!in)
			break;
		run(*in, [&callbacks](const auto &function) { callbacks.call(function); });
		++n;
	}
	return n;
}

Incoming *Services::find_running(const pt2p_call_t *call) const
{
	Incoming *in = pool_.find(reinterpret_cast<uint64_t>(call));
	return in && in->state == Incoming::State::running ? in : nullptr;
}

// ---- replies --------------------------------------------------------------------------------------------------------

void Services::reply(Incoming &in, uint64_t word, const void *data, size_t length)
{
	if (!in.peer)
		return forget(in);
	in.state = Incoming::State::replied;
	in.reply.word = word;
	in.reply.length = length;
	Peer &peer = *in.peer;
	pt2p_status_t status = PT2P_OK;
	if (peer.replies.empty() && peers_.connect(peer, status) &&
	    length <= Peers::room_after(*peer.channel, sizeof in.reply) &&
	    peers_.send(*peer.channel, id_reply, in.number, in.reply, data, length))
		return forget(in);
	if (in.state != Incoming::State::replied)
		return; // the attempt has found out that the caller is lost
	unsigned char *copy = in.data.take(buffers_, length);
	if (length)
		std::memcpy(copy, data, length);
	peer.replies.push(in);
	peers_.list(peer);
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
	in.peer->replies.push(in);
	peers_.list(*in.peer);
}

// Sends the next message of a reply; false: there is no room now.
bool Services::send_some(Incoming &in)
{
	Channel &c = *in.peer->channel;
	const size_t left = in.reply.length - in.moved;
	if (!in.begun) {
		const size_t first = std::min(left, Peers::room_after(c, sizeof in.reply));
		if (!peers_.send(c, id_reply, in.number, in.reply, in.data.data(), first))
			return false;
		in.begun = true;
		in.moved = first;
		return true;
	}
	const size_t piece = std::min(left, c.endpoint.longest_piece());
	if (c.try_send(id_rest, in.number, in.data.data() + in.moved, piece) != Outcome::done)
		return false;
	in.moved += piece;
	return true;
}

unsigned Services::drive(Peer &peer)
{
	unsigned n = 0;
	pt2p_status_t status = PT2P_OK;
	// What this rank lacks to reach the caller may be there in the next turn.
	if (peer.replies.empty() || !peers_.connect(peer, status))
		return 0;
	while (!peer.replies.empty()) {
		Incoming &in = *peer.replies.front();
		if (!send_some(in))
			break;
		++n;
		if (in.moved < in.reply.length)
			continue;
		peer.replies.pop();
		forget(in);
	}
	return n;
}

// ---- the end --------------------------------------------------------------------------------------------------------

// Nothing has to be sent for it any more. What the handler reads stays until it returns.
void Services::forget(Incoming &in)
{
	Peer *peer = in.peer;
	if (peer && in.notice)
		take_notice(*peer);
	else if (peer)
		peer->served[slot_of(in.number)] = nullptr;
	in.peer = nullptr;
	in.state = Incoming::State::ended;
	if (!in.handling)
		release(in);
}

void Services::release(Incoming &in)
{
	if (in.started)
		--in.service->running;
	in.started = in.begun = false;
	in.state = Incoming::State::free;
	in.input.give(buffers_);
	in.data.give(buffers_);
	pool_.give(&in);
	--pending_;
}

// The caller learns of it before it has no notice left.
void Services::take_notice(Peer &peer)
{
	++peer.notices_seen;
	pt2p_status_t status = PT2P_OK;
	if (peer.notices_seen - peer.notices_reported <= peer.notices_window / 4u || !peers_.connect(peer, status))
		return;
	peer.notices_reported = peer.notices_seen;
	engine_.channels().control(*peer.channel, id_taken, peer.notices_seen, nullptr, 0);
}

void Services::end(Peer &peer)
{
	peer.replies.clear();
	for_each_call([&](Incoming &in) {
		if (in.peer != &peer)
			return;
		in.peer = nullptr;
		in.cancelled = true;
		if (in.state == Incoming::State::running)
			return;
		unqueue(in);
		forget(in);
	});
	peer.served.clear();
}

} // namespace pt2p::rpc
