// Both sides of datagrams.hpp.
#include "rpc/datagrams.hpp"

#include <algorithm>
#include <cstring>

#include "base/report/report.hpp"
#include "rpc/calls.hpp"
#include "rpc/services.hpp"

namespace pt2p::rpc {

namespace {

// A call is sent again after 2 to 3 ticks without a reply, and after twice as long each further time.
constexpr uint8_t first_patience = 3, longest_patience = 96;
constexpr uint8_t long_silence = 24; // then the caller finds out whether the server still exists

} // namespace

// ---- calls ----------------------------------------------------------------------------------------------------------

// Whether calls to that rank can go by datagram now.
bool Calls::usable(const DatagramLane &lane, int rank) const { return !lane.gone && !engine_.losses().contain(rank); }

// Which of the two halves go by datagram, of a call that asks for it.
CallDelivery Calls::datagram_way(Peer &peer, const CallWork &work)
{
	CallDelivery by = work.by;
	DatagramLane *lane = peers_.datagrams(peer);
	const bool can = lane && usable(*lane, peer.rank) &&
	                 !(work.rare && (work.rare->give.length || work.rare->take.length)) &&
	                 work.length <= lane->room_after(sizeof(CallHead)) && by.reply != PT2P_DELIVERY_READ;
	if (can && by.input == PT2P_DELIVERY_DATAGRAM && !by.reply)
		by.reply = PT2P_DELIVERY_DATAGRAM;
	if (can)
		return by;
	by.leave_datagrams();
	return by;
}

// That rank asks that replies go by datagram where this one leaves it to the library, or that they do no more.
void Calls::on_asked(Peer &peer, bool by_datagram)
{
	DatagramLane *lane = peers_.datagrams(peer);
	if (!lane || lane->asked == by_datagram)
		return;
	lane->asked = by_datagram;
	peer.thread = by_datagram ? Callers::all_examined : peers_.any_thread();
}

// Whether the reply to a call that is about to start over the connection is to go by datagram, as its server has asked.
bool Calls::goes_as_asked(Outgoing &o)
{
	const DatagramLane *lane = o.peer->datagrams();
	if (!lane || !lane->asked || !usable(*lane, o.peer->rank) || o.by.reply || o.rare ||
	    o.length > Peers::room_after(*o.peer->channel, sizeof(CallHead)))
		return false;
	o.lossy = true;
	o.by.reply = by_datagram_as_asked;
	return true;
}

// The whole call in one message, for the first time or again. False: there is no room now.
bool Calls::send_lossy(Outgoing &o)
{
	Peer &peer = *o.peer;
	DatagramLane &lane = *peer.datagrams();
	if (lane.words.size() <= slot_of(o.number))
		lane.words.resize(slot_of(o.number) + size_t{1});
	if (!o.counted && o.by.replies_by_datagram()) {
		if (!tokens_)
			tokens_ = std::make_unique<Tokens>();
		o.token = tokens_->take(o);
	}
	const uint64_t header = datagram_number(o.number) | uint64_t{o.token} << datagram_number_bits;
	bool sent;
	if (o.via == &lane && o.by.reply == PT2P_DELIVERY_DATAGRAM && !o.at) {
		sent = peers_.send(*lane.channel, id_short_call, header, ShortCall{o.service, {o.lane, 0}}, o.input, o.length);
	} else {
		CallHead head = head_of(o);
		head.lane_back = 0;
		const auto way = o.via == &lane ? PT2P_DELIVERY_AUTO : static_cast<pt2p_delivery_t>(o.by.input);
		sent = peers_.send_by(*o.via->channel, way, id_call, header, &head, sizeof head, o.input, o.length);
	}
	if (!sent || o.counted || o.state != Outgoing::State::sent)
		return sent;
	o.counted = true;
	o.age = 0;
	o.patience = first_patience;
	++lane.outstanding;
	if (!lane.listed) {
		lane.listed = true;
		repeating_.push_back(&peer);
	}
	engine_.ticks = true;
	if (++lossy_calls_ % calls_unchecked == 0) // a program may never wait for long
		tick(now_ns());
	return true;
}

// The call occupies its slot no longer.
void Calls::end_lossy(Outgoing &o)
{
	if (o.token != Tokens::none)
		tokens_->give(std::exchange(o.token, Tokens::none));
	if (std::exchange(o.counted, false))
		--o.peer->datagrams()->outstanding;
}

void Calls::tick(int64_t now)
{
	const int64_t ticks = (now - last_tick_) / tick_period;
	if (ticks <= 0)
		return;
	last_tick_ = now;
	// Not more, as calls may have been sent since the last time.
	const auto older = static_cast<uint8_t>(std::min<int64_t>(ticks, 4));
	std::erase_if(repeating_, [this, older](Peer *peer) {
		DatagramLane &lane = *peer->datagrams();
		for (size_t slot = 0; lane.outstanding && slot < peer->slots.size(); ++slot)
			if (Outgoing *o = peer->slots[slot];
			    o && o->counted && (o->age = static_cast<uint8_t>(o->age + older)) >= o->patience)
				repeat(*o);
		return !(lane.listed = lane.outstanding != 0);
	});
	engine_.ticks = !repeating_.empty();
}

void Calls::repeat(Outgoing &o)
{
	if (o.state != Outgoing::State::sent || o.received)
		return;                           // the reply is here, or coming
	const uint8_t abandoned = !o.request; // then its input is the program's again
	if (!abandoned && !send_lossy(o)) {
		o.age = o.patience; // in the next tick: others had room before it
		return;
	}
	o.age = 0;
	o.patience = static_cast<uint8_t>(std::min<unsigned>(2u * o.patience, longest_patience));
	reporter_.add(Counter::calls_repeated);
	if (abandoned || o.cancelled)
		engine_.channels().control(*o.via->channel, id_cancel, o.number, &abandoned, sizeof abandoned);
	if (o.patience > long_silence)
		silent_.push_back(o.peer->rank);
}

// Ranks that have been silent for long may be gone.
void Calls::examine_silent()
{
	std::vector<int> ranks;
	ranks.swap(silent_);
	std::sort(ranks.begin(), ranks.end());
	ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
	for (const int rank : ranks)
		engine_.awaited().examine(rank);
}

void Calls::on_datagram(Peer &peer, uint8_t id, uint64_t header, const void *data, size_t length)
{
	const uint64_t number = header & ~stop_bit;
	const uint32_t slot = slot_of(number);
	Outgoing *o = slot < peer.slots.size() ? peer.slots[slot] : nullptr;
	if (!o || datagram_number(o->number) != number || !o->counted || o->state != Outgoing::State::sent || o->received ||
	    o->reply_length) {
		reporter_.add(Counter::datagrams_dropped);
		return;
	}
	if (header & stop_bit)
		on_asked(peer, false);
	if (id == id_short_reply && length >= sizeof o->word)
		std::memcpy(&peer.datagrams()->words[slot], data, sizeof o->word);
	// What is wrong ends nothing: somebody else may have sent it.
	const char *wrong =
	    id == id_short_reply ? on_short_reply(peer, o->number, data, length) : on_reply(peer, o->number, data, length);
	if (wrong)
		reporter_.add(Counter::datagrams_dropped);
}

void Calls::on_immediate(uint32_t word)
{
	Outgoing *o = tokens_ ? tokens_->find(Immediate::token(word)) : nullptr;
	if (!o || o->state != Outgoing::State::sent || o->received || o->reply_length) {
		reporter_.add(Counter::datagrams_dropped);
		return;
	}
	uint64_t &before = o->peer->datagrams()->words[slot_of(o->number)];
	before += static_cast<uint64_t>(Immediate::difference(word));
	on_short_reply(*o->peer, o->number, &before, sizeof before);
}

void Calls::on_gone(Peer &peer)
{
	DatagramLane *lane = peer.datagrams();
	if (!lane)
		return;
	lane->gone = true;
	for (Outgoing *o : std::vector<Outgoing *>(peer.slots)) {
		if (!o || !o->counted || o->state != Outgoing::State::sent)
			continue;
		complete(*o, PT2P_ERR_PEER_FINALIZED, "it has called pt2p_finalize");
		free_slot(*o);
		forget(*o);
	}
}

// ---- services -------------------------------------------------------------------------------------------------------

// Whether a call is to be served, which may have come before.
bool Services::admit(Peer &peer, DatagramLane &lane, uint64_t header)
{
	const uint64_t number = datagram_number(header);
	const uint32_t slot = slot_of(number), call = static_cast<uint32_t>(number >> 16);
	if (slot >= max_slots)
		return false;
	if (slot >= lane.slots.size())
		lane.slots.resize(slot + size_t{1});
	DatagramSlot &s = lane.slots[slot];
	if (s.was_before(call) || s.waits || !may_come(peer, number)) {
		reporter_.add(Counter::datagrams_dropped);
		repeat_reply(lane, slot, call);
		return false;
	}
	s.number = call;
	s.token = static_cast<uint16_t>(header >> datagram_number_bits);
	s.reply_id = 0;
	return true;
}

void Services::repeat_reply(DatagramLane &lane, uint32_t slot, uint32_t call)
{
	const DatagramSlot &s = lane.slots[slot];
	if (s.number != call || !s.reply_id || s.waits)
		return;
	reporter_.add(Counter::replies_repeated);
	lane.channel->try_send(s.reply_id, uint64_t{call} << 16 | slot, s.reply.data(), s.reply.size()); // or next time
}

void Services::on_datagram(Peer &peer, uint8_t id, uint64_t header, const void *data, size_t length)
{
	DatagramLane *lane = peers_.datagrams(peer);
	if (!lane)
		return;
	const uint64_t number = datagram_number(header);
	if (id == id_cancel) {
		uint8_t abandoned;
		if (!wire::read(abandoned, data, length))
			return;
		if (admit(peer, *lane, number)) { // it has overtaken the call, or that was lost
			Incoming &answer = make(peer, number);
			enter(answer);
			answer.reply_by = PT2P_DELIVERY_DATAGRAM;
			refuse(answer, abandoned ? PT2P_ERR_DEADLINE : PT2P_ERR_CANCELLED);
		} else if (served_in(peer, slot_of(number))) {
			on_cancel(peer, number, data, length);
		}
		return;
	}
	if (length < (id == id_short_call ? sizeof(ShortCall) : sizeof(CallHead)) || !admit(peer, *lane, header))
		return;
	if (id == id_short_call)
		on_short_datagram(peer, number, data, length);
	else
		on_call(peer, number, false, data, length, true);
}

// Whether the reply to a call that has come over a connection may go by datagram.
bool Services::fits_datagrams(const Incoming &in)
{
	if (in.reach || in.reply.status != PT2P_OK)
		return false;
	DatagramLane *lane = peers_.datagrams(*in.peer);
	return lane && in.reply.length <= lane->room_after(sizeof(ReplyHead)) &&
	       in.length <= Peers::room_after(*in.peer->channel, sizeof(CallHead));
}

// Stores the reply, and sends it. False: it is none for a datagram.
bool Services::reply_by_datagram(Incoming &in, const void *data)
{
	DatagramLane *lane = in.peer->datagrams();
	const bool good = in.reply.status == PT2P_OK;
	if (!lane || slot_of(in.number) >= lane->slots.size() || in.reach ||
	    in.reply.length > lane->room_after(sizeof(ReplyHead)))
		return false;
	DatagramSlot &s = lane->slots[slot_of(in.number)];
	const void *head = good ? static_cast<const void *>(&in.reply.word) : &in.reply;
	const size_t head_bytes = good ? sizeof in.reply.word : sizeof in.reply, length = good ? in.reply.length : 0;
	if (!good)
		in.reply.length = 0;
	s.reply.resize(head_bytes + length);
	std::memcpy(s.reply.data(), head, head_bytes);
	if (length)
		std::memcpy(s.reply.data() + head_bytes, data, length);
	s.reply_id = good ? id_short_reply : id_reply;
	// Several replies to one caller had better share a message.
	if (lane->batch != batch_) {
		lane->several = lane->replies_in_batch > 1;
		lane->batch = batch_;
		lane->replies_in_batch = 0;
	}
	++lane->replies_in_batch;
	const bool as_word = good && !length && header_only_ && !lane->several;
	const int64_t difference = static_cast<int64_t>(in.reply.word - s.word);
	const bool stop = in.asked && way_.way() != laws::Way::datagram;
	s.waits =
	    !send_stored(*lane, s, slot_of(in.number) | (stop ? stop_bit : 0), as_word && !stop ? difference : INT64_MAX);
	if (good)
		s.word = in.reply.word;
	if (s.waits) {
		lane->unsent.push_back(static_cast<uint16_t>(slot_of(in.number)));
		peers_.list(*in.peer);
	}
	return true;
}

// `slot`: its number, and what goes with that. `difference`: of its word to the one before, if it may go as a word.
bool Services::send_stored(DatagramLane &lane, const DatagramSlot &s, uint64_t slot, int64_t difference)
{
	Channel &c = *lane.channel;
	if (s.token != Tokens::none && Immediate::fits(difference))
		return c.endpoint.table->send_immediate(c.endpoint, Immediate::pack(s.token, difference)) == Outcome::done;
	return c.try_send(s.reply_id, uint64_t{s.number} << 16 | slot, s.reply.data(), s.reply.size()) == Outcome::done;
}

unsigned Services::drive_datagrams(Peer &peer)
{
	DatagramLane *lane = peer.datagrams();
	unsigned n = 0;
	while (lane && !lane->unsent.empty()) {
		const uint16_t slot = lane->unsent.back();
		DatagramSlot &s = lane->slots[slot];
		if (!send_stored(*lane, s, slot, INT64_MAX))
			break;
		s.waits = false;
		lane->unsent.pop_back();
		++n;
	}
	return n;
}

// Callers that repeat a call need not do so for ever. More than once, as this may be lost, too.
void Services::leave_datagrams()
{
	constexpr int times = 3;
	peers_.for_each([](Peer &peer) {
		DatagramLane *lane = peer.datagrams();
		for (int i = 0; lane && !lane->slots.empty() && i < times; ++i)
			lane->channel->try_send(id_gone, 0, nullptr, 0);
	});
}

} // namespace pt2p::rpc
