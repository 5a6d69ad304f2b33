// Replies whose place room() finds, those whose bytes are fetched from the server, and what it has pushed to a window
// that is carried.
#include <algorithm>
#include <cstring>
#include <utility>

#include "rpc/calls.hpp"

namespace pt2p::rpc {

// Its place will be known when all of it is here.
void Calls::gather(Outgoing &o)
{
	Rare &rare = *o.rare;
	rare.gathered = true;
	rare.reply = std::exchange(o.reply, o.copy.take(buffers_, o.reply_length));
	rare.capacity = std::exchange(o.capacity, o.reply_length);
}

void Calls::place_later(Outgoing &o)
{
	deadlines_.remove(o); // it ends soon
	o.state = Outgoing::State::placing;
	placing_.push(o);
	engine_.wake_extensions();
}

unsigned Calls::drive_replies()
{
	unsigned n = 0;
	while (!placing_.empty() && place(*placing_.front()))
		++n;
	// Each once; the end of one may end others.
	for (size_t left = fetching_.size(); left && !fetching_.empty(); --left) {
		Outgoing &o = fetching_.pop();
		if (windows_.moving(*o.rare->reach)) {
			fetching_.push(o);
			continue;
		}
		end_fetch(o, o.rare->reach->failure);
		++n;
	}
	return n;
}

// Of the first one that waits. False: room() cannot be called now.
bool Calls::place(Outgoing &first)
{
	Outgoing *o = &first;
	const uint64_t handle = o->handle;
	Rare &rare = *o->rare;
	const bool wants_room = rare.room && (rare.gathered || o->reply_length > o->capacity);
	void *found = nullptr;
	if (wants_room) {
		if (!engine_.callbacks().may_call())
			return false;
		placing_.pop();
		engine_.callbacks().call(false, [&, room = rare.room, argument = rare.argument, length = o->reply_length] {
			found = room(argument, length);
		});
		o = pool_.find(handle);
		if (!o)
			return true; // the server was lost meanwhile
	} else {
		placing_.pop();
	}
	unsigned char *to = found ? static_cast<unsigned char *>(found) : rare.gathered ? rare.reply : o->reply;
	o->capacity = found ? o->reply_length : rare.gathered ? rare.capacity : o->capacity;
	const size_t length = std::min(o->capacity, o->reply_length);
	if (rare.gathered) {
		if (length)
			std::memcpy(to, o->reply, length);
		complete(*o, length < o->reply_length ? PT2P_ERR_TRUNCATED : PT2P_OK);
		forget(*o);
		return true;
	}
	o->state = Outgoing::State::fetching;
	fetching_.push(*o);
	const pt2p_status_t status = windows_.get(*rare.reach, input_window, o->peer->rank, to, 0, length, nullptr);
	if (status != PT2P_OK && pool_.find(handle))
		rare.reach->failure = status;
	return true;
}

// The bytes are here, or the transfer has failed.
void Calls::end_fetch(Outgoing &o, pt2p_status_t status)
{
	pt2p_status_t reached = PT2P_OK;
	EndpointLane &lane = o.lossy && peers_.connect(*o.peer, reached) ? *o.peer : *o.via;
	Channel &channel = *lane.channel;
	const uint64_t number = o.number;
	if (status == PT2P_OK && o.reply_length > o.capacity)
		status = PT2P_ERR_TRUNCATED;
	complete(o, status);
	free_slot(o);
	forget(o);
	if (!channel.down())
		engine_.channels().control(channel, id_fetched, number, nullptr, 0);
}

const char *Calls::on_pushed(Peer &peer, uint64_t number, const void *data, size_t length)
{
	Outgoing *o = find(peer, number);
	uint32_t offset;
	if (!o || o->state != Outgoing::State::sent || o->received || o->reply_length || length < sizeof offset)
		return wrong_message;
	std::memcpy(&offset, data, sizeof offset);
	return place_pushed(*o, offset, static_cast<const unsigned char *>(data) + sizeof offset, length - sizeof offset)
	           ? nullptr
	           : wrong_message;
}

// Bytes for a window that is carried; false: it has no such bytes. Once the call has ended they go nowhere.
bool Calls::place_pushed(Outgoing &o, size_t offset, const unsigned char *bytes, size_t length)
{
	if (!o.rare || !o.rare->carries_take || offset > o.rare->take.length || length > o.rare->take.length - offset)
		return false;
	if (o.request)
		std::memcpy(static_cast<unsigned char *>(o.rare->take.address) + offset, bytes, length);
	return true;
}

} // namespace pt2p::rpc
