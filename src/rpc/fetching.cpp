// Calls whose results are fetched: the caller's side of results.hpp.
#include <cstring>
#include <utility>

#include "base/clock.hpp"
#include "rpc/calls.hpp"

namespace pt2p::rpc {

namespace {

void *as_operation(const Fetch &f) { return reinterpret_cast<void *>(f.handle | calls_range.operation_bit); }

} // namespace

// ---- where results are ----------------------------------------------------------------------------------------------

const char *Calls::on_results(Peer &peer, uint64_t slots, const void *data, size_t length)
{
	constexpr uint32_t max_slot_bytes = laws::FetchBytes::line * laws::FetchBytes::max_lines;
	ResultsOffer offer;
	if (length != sizeof offer)
		return wrong_message;
	std::memcpy(&offer, data, sizeof offer);
	const auto count = static_cast<uint32_t>(slots), bytes = static_cast<uint32_t>(slots >> 32);
	if (!count || count > max_slots || bytes < result_line || bytes > max_slot_bytes || bytes % result_line)
		return wrong_message;
	Endpoint *endpoint = peer.channel && !peer.channel->down() ? &peer.channel->endpoint : nullptr;
	if (!endpoint || !engine_.channels().router().device_of(*peer.channel) || !(endpoint->capabilities & cap_get) ||
	    std::strncmp(offer.memory.key.transport, endpoint->table->name, sizeof offer.memory.key.transport))
		return nullptr; // this rank reaches it in another way
	if (!peer.source()) {
		peer.make_extras().source = std::make_unique<FetchSource>();
		peer.source()->address = offer.memory.address;
		peer.source()->key = offer.memory.key.key;
		peer.source()->slots = count;
		peer.source()->slot_bytes = bytes;
		peer.source()->fixed_bytes = fetch_bytes_;
	}
	FetchSource &source = *peer.source();
	if (offer.what == ToFetch::all)
		source.asked = true;
	else if (offer.what == ToFetch::of_service && !source.has(offer.service) && source.services.size() < max_services)
		source.services.push_back(offer.service);
	return nullptr;
}

// A reply to a call that is not there. It says how later results are to get here, or has the number that the call had
// as a datagram, or is from a server that leaves, or nonsense.
const char *Calls::unknown(Peer &peer, uint8_t id, uint64_t number, const void *data, size_t length)
{
	FetchSource *source = peer.source();
	const uint64_t asks = number & (fetch_bit | datagram_bit);
	const Outgoing *o = slot_of(number) < peer.slots.size() ? peer.slots[slot_of(number)] : nullptr;
	const bool was_datagram = o && o->lossy && datagram_number(o->number) == number;
	if (id == id_pushed || !(asks || was_datagram))
		return source && number >> 16 && number >> 16 <= peer.calls ? nullptr : wrong_message;
	if (asks & fetch_bit && source)
		source->asked = true;
	if (asks & datagram_bit)
		on_asked(peer, true);
	number = was_datagram ? o->number : number & ~asks;
	return id == id_reply         ? on_reply(peer, number, data, length)
	       : id == id_short_reply ? on_short_reply(peer, number, data, length)
	                              : on_rest(peer, number, data, length);
}

// ---- looking --------------------------------------------------------------------------------------------------------

// Before the call leaves. Without its Fetch it has the reply pushed.
void Calls::prepare_fetch(Outgoing &o)
{
	FetchSource &source = *o.peer->source();
	if (o.rare || !o.request || slot_of(o.number) >= source.slots)
		return; // nobody would look for what nobody waits for
	if (!source.escape.fetches())
		return;
	Fetch &f = *fetches_.take();
	++in_fetch_;
	f.call = &o;
	f.peer = o.peer;
	f.slot = static_cast<uint16_t>(slot_of(o.number));
	f.reading = f.pushed = f.last_look = false;
	f.looks = 0;
	f.have = 0;
	f.landing = static_cast<unsigned char *>(buffers_.take(source.slot_bytes));
	o.fetch = &f;
}

// The call has left.
void Calls::begin_fetch(Outgoing &o)
{
	Fetch &f = *o.fetch;
	f.left = now_ns();
	look_later(f, f.left + f.peer->source()->looks.first());
}

void Calls::look_later(Fetch &f, int64_t due)
{
	f.due = due;
	agenda_.add(f);
	engine_.wake_extensions();
}

unsigned Calls::drive_fetches()
{
	unsigned n = 0;
	const int64_t now = now_ns();
	while (const uint64_t handle = agenda_.next(now)) {
		Fetch *f = fetches_.find(handle);
		if (!f || !f->call || f->reading || (f->pushed && !std::exchange(f->last_look, false)))
			continue;
		f->read_at = now;
		read(*f);
		++n;
	}
	return n;
}

// The beginning, or the rest of a result whose beginning is there.
void Calls::read(Fetch &f)
{
	FetchSource &source = *f.peer->source();
	if (f.have == 0)
		f.wanted = source.first_bytes();
	Endpoint &endpoint = f.peer->channel->endpoint;
	const uint64_t handle = f.handle;
	f.reading = true; // its end may come within the call
	++source.reads;
	reporter_.add(Counter::results_read);
	const Outcome outcome = endpoint.table->get(
	    endpoint, f.landing + f.have, {source.address + uint64_t{f.slot} * source.slot_bytes + f.have, source.key},
	    f.wanted - f.have, as_operation(f));
	switch (outcome) {
	case Outcome::in_progress: return;
	case Outcome::done: return on_read(handle, PT2P_OK);
	case Outcome::refused: return on_read(handle, PT2P_ERR_SYSTEM);
	case Outcome::no_resource:
		f.reading = false;
		f.last_look = f.pushed;
		return look_later(f, f.read_at + 1000);
	}
}

// A READ has ended.
void Calls::on_read(uint64_t handle, pt2p_status_t status)
{
	Fetch *f = fetches_.find(handle);
	if (!f)
		return;
	f->reading = false;
	if (!f->call) {
		Peer &peer = *f->peer;
		const uint16_t slot = f->slot;
		give(*f);
		free_slot(peer, slot);
		return;
	}
	if (status != PT2P_OK) {
		f->peer->source()->usable = false;
		push_it(*f->call, false);
		return;
	}
	f->have = f->wanted;
	if (!(f->call->received | f->call->reply_length)) // else the server is sending a reply
		examine(*f);
}

void Calls::examine(Fetch &f)
{
	FetchSource &source = *f.peer->source();
	ResultHead head;
	switch (look_at(f.landing, f.have, source.slot_bytes, f.call->number, head)) {
	case Look::there: return take_result(f, head);
	case Look::partial:
		f.wanted = sizeof head + head.length;
		f.last_look = f.pushed;
		return look_later(f, f.due); // in this turn: transports are not called from within
	case Look::absent: return miss(f);
	case Look::wrong: source.usable = false; return push_it(*f.call, false);
	}
}

void Calls::miss(Fetch &f)
{
	f.have = 0;
	if (f.pushed)
		return;
	const int64_t wait = f.peer->source()->looks.next(++f.looks);
	if (wait < 0)
		return push_it(*f.call, true);
	look_later(f, now_ns() + wait);
}

// The result is here.
void Calls::take_result(Fetch &f, const ResultHead &head)
{
	Outgoing &o = *f.call;
	FetchSource &source = *f.peer->source();
	++source.fetched;
	if (head.stop)
		source.asked = false;
	reporter_.add(Counter::results_fetched);
	source.bytes.add(sizeof head + head.length);
	source.looks.served(head.took);
	const int64_t now = now_ns();
	source.looks.read_took(now - f.read_at);
	if (source.looks.judges(f.left))
		source.escape.ended(f.pushed);
	if (f.looks)
		source.looks.late(f.left, now);
	else if (f.pushed)
		source.looks.early(now - f.left);
	else
		source.looks.hit();
	engine_.channels().router().on_consumed(*f.peer->channel, head.consumed);
	if (o.moved < o.length)
		o.via->streams.remove(o);
	o.word = head.word;
	o.reply_length = head.length;
	if (const size_t length = std::min<size_t>(head.length, o.capacity))
		std::memcpy(o.reply, f.landing + sizeof head, length);
	complete(o, o.reply_length > o.capacity ? PT2P_ERR_TRUNCATED : PT2P_OK);
	if (f.pushed) { // the slot is free once it has been pushed as well
		o.moved = o.length;
		o.reply_length = o.capacity = 0;
		o.over = true;
		--pending_;
		return;
	}
	free_slot(o);
	forget(o);
}

// ---- the end --------------------------------------------------------------------------------------------------------

// The server pushes the result, and does so also if there is another look, which finds what was there before.
void Calls::push_it(Outgoing &o, bool look)
{
	if (!o.fetch || std::exchange(o.fetch->pushed, true) || o.peer->channel->down())
		return;
	reporter_.add(Counter::results_pushed);
	engine_.channels().control(*o.via->channel, id_push_it, o.number, nullptr, 0);
	if (!look || o.fetch->reading)
		return;
	o.fetch->have = 0;
	o.fetch->last_look = true;
	look_later(*o.fetch, 0);
}

void Calls::before_sleep()
{
	if (!in_fetch_)
		return;
	fetches_.for_each([this](Fetch &f) {
		if (f.call && f.call->state == Outgoing::State::sent)
			push_it(*f.call, true);
	});
	drive_fetches();
}

// The call has ended. False: its READ has not, and frees the slot.
bool Calls::end_looks(Outgoing &o)
{
	Fetch &f = *std::exchange(o.fetch, nullptr);
	f.call = nullptr;
	if (f.pushed && !o.over) {
		FetchSource &source = *f.peer->source();
		if (source.looks.judges(f.left))
			source.escape.ended(true);
		if (f.looks)
			source.looks.late(f.left, now_ns());
		else
			source.looks.early(now_ns() - f.left);
	}
	if (f.reading)
		return false;
	give(f);
	return true;
}

void Calls::give(Fetch &f)
{
	buffers_.give(std::exchange(f.landing, nullptr), f.peer->source()->slot_bytes);
	f.call = nullptr;
	fetches_.give(&f);
	--in_fetch_;
}

} // namespace pt2p::rpc
