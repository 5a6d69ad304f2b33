#include "rpc/services.hpp"

#include <algorithm>
#include <random>

#include "base/clock.hpp"
#include "base/report/report.hpp"

namespace pt2p::rpc {

namespace {

constexpr unsigned handled_in_turn = 32; // calls

} // namespace

Services::Services(Engine &engine, Reporter &reporter, Peers &peers, Windows &windows, Results &results, size_t queue,
                   pt2p_context_t *context)
    : engine_(engine), reporter_(reporter), peers_(peers), windows_(windows), results_(results), queue_(queue),
      context_(context), services_(std::random_device{}()), pool_(std::random_device{}())
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

Incoming &Services::make(Peer &peer, uint64_t number)
{
	Incoming &in = *pool_.take();
	in.peer = &peer;
	in.caller = peer.rank;
	in.service = nullptr;
	in.state = Incoming::State::coming;
	in.notice = in.cancelled = in.handling = false;
	in.withheld = in.late = in.fetched = in.fetches = false;
	in.refusal = PT2P_OK;
	in.reply_by = PT2P_DELIVERY_AUTO;
	in.lane = 0;
	in.number = number;
	in.deadline = 0;
	in.length = in.received = in.moved = 0;
	in.reply = {};
	++pending_;
	return in;
}

// It occupies its slot.
void Services::enter(Incoming &in)
{
	Peer &peer = *in.peer;
	const uint32_t slot = slot_of(in.number);
	if (__builtin_expect(slot >= peer.served.size(), 0))
		peer.served.resize(slot + size_t{1});
	peer.served[slot] = &in;
}

const char *Services::on_short_call(Peer &peer, uint64_t number, const void *data, size_t length)
{
	ShortCall head;
	if (length < sizeof head || !may_come(peer, number))
		return wrong_message;
	std::memcpy(&head, data, sizeof head);
	Incoming &in = make(peer, number);
	in.lane = head.lane;
	in.length = in.received = length - sizeof head;
	enter(in);
	take_input(in, head.service, static_cast<const unsigned char *>(data) + sizeof head);
	return nullptr;
}

const char *Services::on_call(Peer &peer, uint64_t number, bool notice, const void *data, size_t length)
{
	CallHead head;
	if (length < sizeof head)
		return wrong_message;
	std::memcpy(&head, data, sizeof head);
	length -= sizeof head;
	const unsigned char *bytes = static_cast<const unsigned char *>(data) + sizeof head;
	Carried carried{};
	const size_t windows = head.windows ? length_of_windows(head.windows, bytes, length, carried) : 0;
	if (length < windows || length - windows > head.length || head.remaining < 0 ||
	    head.reply_by > PT2P_DELIVERY_READ || (notice && (length != head.length || windows)) ||
	    (!notice && !may_come(peer, number)) ||
	    (head.fetches && (notice || windows || !peer.results() || slot_of(number) >= peer.results()->count())) ||
	    (head.length >= lent_from && !notice && !(head.windows & 1u << input_window)))
		return wrong_message;
	Incoming &in = make(peer, number);
	in.notice = notice;
	in.reply_by = head.reply_by;
	in.fetches = head.fetches;
	in.lane = head.lane;
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
	Service::Lane &lane = in.service->lane(in.lane);
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
	if (!in || in->number != number)
		return nullptr; // the reply is on its way
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
	if (!in || in->number != number || !in->lent || !in->begun)
		return wrong_message;
	forget(*in);
	return nullptr;
}

// ---- handlers -------------------------------------------------------------------------------------------------------

unsigned Services::drive_handlers()
{
	unsigned n = 0;
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

// ---- replies --------------------------------------------------------------------------------------------------------

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
	} else if (__builtin_expect(in.reply_by == PT2P_DELIVERY_READ || in.fetches, 0) && leave_result(in, data)) {
		forget(in);
	} else if (__builtin_expect((in.reach && in.reach->has_results()) || !send_at_once(in, data), 0)) {
		send_reply(in, data);
	}
}

// In the short form. False: that cannot be done now. The attempt may find out that the caller is lost; then the call
// has ended.
bool Services::send_at_once(Incoming &in, const void *data)
{
	Peer &peer = *in.peer;
	const size_t length = in.reply.length;
	pt2p_status_t status = PT2P_OK;
	if (!peer.replies.empty() || in.reply.status != PT2P_OK || !peers_.connect(peer, status) ||
	    length > Peers::room_after(*peer.channel, sizeof in.reply.word) ||
	    !(__builtin_expect(!in.reply_by, 1)
	          ? peers_.send(*peer.channel, id_short_reply, in.number, in.reply.word, data, length)
	          : peers_.send_by(*peer.channel, static_cast<pt2p_delivery_t>(in.reply_by), id_short_reply, in.number,
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
	const bool next = peer.replies.empty();
	peer.replies.push(in);
	if (next)
		drive(peer);
	if (!peer.replies.empty())
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
	in.peer->replies.push(in);
	peers_.list(*in.peer);
}

// Sends the next message of a reply; false: there is no room now.
bool Services::send_some(Incoming &in)
{
	Channel &c = *in.peer->channel;
	const size_t left = in.reply.length - in.moved;
	if (!in.begun && in.reach && !in.reach->pushed.empty() && in.reply.status == PT2P_OK)
		return send_pushed(in);
	if (in.lent) {
		struct {
			ReplyHead head;
			LentMemory lent;
		} const offer{{in.reply.word, in.reply.length, 1, 0, PT2P_OK},
		              windows_.describe(*in.lent, input_window, c.endpoint)};
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
		if (!peers_.send(c, id_reply, in.number, in.reply, in.reply_bytes(), first))
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
		if (!in.begun || in.moved < in.reply.length)
			continue;
		peer.replies.pop();
		if (!in.lent) // else the caller fetches it
			forget(in);
	}
	return n;
}

// ---- results that are fetched ---------------------------------------------------------------------------------------

// False: the reply is pushed.
bool Services::leave_result(Incoming &in, const void *data)
{
	pt2p_status_t status = PT2P_OK;
	if (in.fetches && !leaving_ && in.reply.status == PT2P_OK && peers_.connect(*in.peer, status) &&
	    results_.store(in, data))
		return true;
	if (in.reply_by == PT2P_DELIVERY_READ && !in.reach && !leaving_ && peers_.connect(*in.peer, status))
		results_.offer(*in.peer, in.by_service ? &in.service->id : nullptr);
	in.fetches = false;
	in.reply_by = PT2P_DELIVERY_AUTO;
	return false;
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
	if (__builtin_expect(in.reach || in.lent, 0)) {
		windows_.let_go(in.reach);
		windows_.take_back(in.lent);
	}
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
	peer.replies.clear();
	for_each_call([&](Incoming &in) {
		if (in.peer != &peer)
			return;
		in.peer = nullptr;
		in.cancelled = true;
		unqueue(in);
		if (in.state != Incoming::State::running)
			forget(in);
	});
	peer.served.clear();
}

} // namespace pt2p::rpc
