#include "rpc/services.hpp"

#include <cstring>
#include <random>
#include <utility>

#include "base/clock.hpp"

namespace pt2p::rpc {

namespace {

constexpr unsigned handled_in_turn = 64; // calls, whose replies leave together

} // namespace

Services::Services(Engine &engine, Reporter &reporter, Peers &peers, Windows &windows, Results &results, size_t queue,
                   bool header_only, pt2p_context_t *context)
    : engine_(engine), reporter_(reporter), peers_(peers), windows_(windows), results_(results), queue_(queue),
      header_only_(header_only), context_(context), services_(std::random_device{}()), pool_(std::random_device{}())
{
}

// ---- services -------------------------------------------------------------------------------------------------------

Service *Services::find(uint64_t handle) const
{
	Service *s = services_.find(handle);
	return s && s->open ? s : nullptr;
}

Service *Services::open(uint32_t id, pt2p_handler_t handler, void *argument, const pt2p_service_options_t &options)
{
	if (by_id_.count(id))
		return nullptr;
	Service *s = services_.take();
	s->open = true;
	s->id = id;
	s->handler = handler;
	s->argument = argument;
	s->input_max = options.input_max;
	s->reply_by = static_cast<uint8_t>(options.reply_by);
	s->lanes.clear();
	s->lanes.resize(options.lanes);
	s->running = s->users = 0;
	by_id_[id] = s;
	return s;
}

void Services::refuse_all(Service &s)
{
	s.open = false;
	last_ = nullptr;
	by_id_.erase(s.id);
	engine_.wake_extensions(); // threads in pt2p_serve
	for_each_call([&](Incoming &in) {
		if (in.service == &s && (in.state == Incoming::State::coming || in.state == Incoming::State::queued))
			stop(in, PT2P_ERR_NO_SERVICE);
	});
}

void Services::refuse_all()
{
	while (!by_id_.empty())
		refuse_all(*by_id_.begin()->second);
}

void Services::close(Service &s) { services_.give(&s); }

// ---- calls that come ------------------------------------------------------------------------------------------------

const char *Services::take_short_call(Peer &peer, uint64_t number, const void *data, size_t length,
                                      pt2p_delivery_t reply_by)
{
	ShortCall head;
	if (length < sizeof head || !may_come(peer, number))
		return wrong_message;
	std::memcpy(&head, data, sizeof head);
	Incoming &in = make(peer, number);
	in.reply_by = reply_by;
	in.lanes = head.lanes;
	in.length = in.received = length - sizeof head;
	enter(in);
	take_input(in, head.service, static_cast<const unsigned char *>(data) + sizeof head);
	return nullptr;
}

const char *Services::on_short_call(Peer &peer, uint64_t number, const void *data, size_t length)
{
	return take_short_call(peer, number, data, length, PT2P_DELIVERY_AUTO);
}

void Services::on_short_datagram(Peer &peer, uint64_t number, const void *data, size_t length)
{
	take_short_call(peer, number, data, length, PT2P_DELIVERY_DATAGRAM);
}

const char *Services::on_call(Peer &peer, uint64_t number, bool notice, const void *data, size_t length, bool admitted)
{
	CallHead head;
	if (length < sizeof head)
		return wrong_message;
	std::memcpy(&head, data, sizeof head);
	if (__builtin_expect(!notice && !admitted && head.reply_by >= PT2P_DELIVERY_DATAGRAM, 0)) {
		// It may come again, as its reply may be lost.
		DatagramLane *lane = peers_.datagrams(peer);
		if (!lane)
			return "a call whose reply is to go by datagram, which this rank cannot send";
		if (!admit(peer, *lane, number))
			return nullptr;
		number = datagram_number(number);
	}
	length -= sizeof head;
	const unsigned char *bytes = static_cast<const unsigned char *>(data) + sizeof head;
	Carried carried{};
	const size_t windows = head.windows ? length_of_windows(head.windows, bytes, length, carried) : 0;
	if (length < windows || length - windows > head.length || head.remaining < 0 ||
	    head.reply_by > by_datagram_as_asked || (notice && (length != head.length || windows)) ||
	    (!notice && !may_come(peer, number)) ||
	    (head.fetches && (notice || windows || !peer.results() || slot_of(number) >= peer.results()->count())) ||
	    (head.length >= lent_from && !notice && !(head.windows & 1u << input_window)))
		return wrong_message;
	Incoming &in = make(peer, number);
	in.notice = notice;
	in.asked = head.reply_by == by_datagram_as_asked;
	in.reply_by = in.asked ? uint8_t{PT2P_DELIVERY_DATAGRAM} : head.reply_by;
	in.fetches = head.fetches;
	in.lanes = {head.lane, static_cast<uint16_t>(head.lane_back)};
	in.length = head.length;
	in.received = length - windows;
	if (head.remaining)
		in.deadline = time_after(now_ns(), head.remaining);
	if (head.fetches)
		in.arrived = now_ns();
	if (notice)
		peer.notices_window = head.window;
	else
		enter(in);
	if (windows && !(bytes = note_windows(in, head.windows, bytes, carried)))
		refuse(in, PT2P_ERR_NO_MEMORY);
	else
		take_input(in, head.service, bytes);
	return nullptr;
}

// `bytes` are those of the input that have come with the call.
void Services::take_input(Incoming &in, uint32_t service, const unsigned char *bytes)
{
	in.service = service_of(service);
	if (!in.service)
		return refuse(in, PT2P_ERR_NO_SERVICE);
	in.withheld = in.length > in.service->input_max;
	in.by_service = !in.reply_by;
	if (__builtin_expect(!in.reply_by, 1))
		in.reply_by = in.service->reply_by;
	else if (__builtin_expect(in.asked && in.service->reply_by, 0)) {
		in.asked = false;
		in.by_service = true;
		in.reply_by = in.service->reply_by;
	}
	if (__builtin_expect(in.withheld && (in.notice || in.has(give_window)), 0))
		return refuse(in, PT2P_ERR_LENGTH); // it could not be pulled
	if (__builtin_expect(in.has(input_window), 0)) {
		if (in.withheld)
			queue(in);
		else
			settle_later(in); // is fetched in drive_transfers(), as this is called by a transport
		return;
	}
	unsigned char *input;
	try {
		input = in.input.take(buffers_, in.length);
	} catch (const std::bad_alloc &) {
		return refuse(in, PT2P_ERR_NO_MEMORY);
	}
	if (in.received)
		std::memcpy(input, bytes, in.received);
	if (in.received == in.length)
		queue(in);
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

// Takes it out of the queue where it waits, if it does.
void Services::unqueue(Incoming &in)
{
	if (std::exchange(in.settling, false))
		return settling_.remove(in);
	if (in.state != Incoming::State::queued)
		return;
	if (in.service->lanes.empty())
		return ready_.remove(in);
	Service::Lane &lane = in.service->lane(in.lanes.service);
	lane.queue.remove(in);
	--lane.length;
}

// Refuses a call that was not started.
void Services::stop(Incoming &in, pt2p_status_t status)
{
	if (in.settling && windows_.moving(*in.reach)) {
		in.refusal = status; // once nothing moves into its input any more
		return;
	}
	unqueue(in);
	refuse(in, status);
}

// Ends a call whose handler has not replied, as the caller sees it. The handler's reply goes nowhere.
void Services::give_slot_back(Incoming &in)
{
	Incoming &answer = make(*in.peer, in.number);
	answer.reply_by = in.reply_by;
	in.peer->served[slot_of(in.number)] = &answer;
	in.peer = nullptr;
	reply_without_data(answer, PT2P_ERR_DEADLINE);
}

const char *Services::on_cancel(Peer &peer, uint64_t number, const void *data, size_t length)
{
	uint8_t abandoned;
	if (!wire::read(abandoned, data, length))
		return wrong_message;
	Incoming *in = served_in(peer, slot_of(number));
	if (!in || in->number != number) {
		if (DatagramLane *lane = peer.datagrams(); lane && slot_of(number) < lane->slots.size())
			repeat_reply(*lane, slot_of(number), static_cast<uint32_t>(number >> 16));
		return nullptr; // the reply is on its way
	}
	switch (in->state) {
	case Incoming::State::coming:
	case Incoming::State::queued: stop(*in, PT2P_ERR_CANCELLED); break;
	case Incoming::State::running:
		in->cancelled = true;
		if (!abandoned || in->late)
			break;
		in->late = true;
		if (in->reach && windows_.moving(*in->reach))
			settle_later(*in);
		else
			give_slot_back(*in);
		break;
	default: break;
	}
	return nullptr;
}

const char *Services::on_fetched(Peer &peer, uint64_t number)
{
	Incoming *in = served_in(peer, slot_of(number));
	if (!in || in->number != number)
		return nullptr; // the next call in the slot has said so
	if (!in->lent || !in->begun)
		return wrong_message;
	forget(*in);
	return nullptr;
}

// A call comes in an occupied slot. True: the caller has fetched the reply to the one before. The message that says so
// is on another lane.
bool Services::was_fetched(const Peer &peer, uint64_t number)
{
	Incoming &in = *served_in(peer, slot_of(number));
	const bool fetched = in.lent && in.begun && in.number != number;
	if (fetched)
		forget(in);
	return fetched;
}

// ---- handlers -------------------------------------------------------------------------------------------------------

unsigned Services::drive_handlers()
{
	unsigned n = 0;
	++batch_;
	Callbacks &callbacks = engine_.callbacks();
	while (n < handled_in_turn && !ready_.empty() && callbacks.may_call()) {
		Incoming *in = take_queued(ready_, nullptr);
		if (!in)
			break;
		run(*in, [&callbacks](const auto &function) { callbacks.call(true, function); });
		++n;
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
	if (__builtin_expect(in.reach || in.lent, 0)) {
		windows_.take_back(in.lent); // before its memory is free: the device may still repeat an answer
		windows_.let_go(in.reach);
	}
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
	results_.take_back(peer);
	if (DatagramLane *lane = peer.datagrams())
		lane->unsent.clear();
	peer.for_each_lane([](EndpointLane &lane) { lane.replies.clear(); });
	for_each_call([&](Incoming &in) {
		if (in.peer != &peer)
			return;
		in.peer = nullptr;
		if (in.notice && in.state == Incoming::State::queued)
			return; // it has come, and is handled although its sender has left
		in.cancelled = true;
		unqueue(in);
		if (in.state != Incoming::State::running)
			forget(in);
	});
	peer.served.clear();
}

} // namespace pt2p::rpc
