#include "message/rendezvous/rendezvous.hpp"

#include <algorithm>
#include <cstring>

#include "base/config/config.hpp"

namespace pt2p {

namespace {

// Transports name an operation by a pointer. A handle in its place becomes invalid with its request.
void *as_operation(const Request &r) { return reinterpret_cast<void *>(r.handle); }

// What the peer is told of an outcome: no details of this rank's buffers.
uint32_t told(pt2p_status_t status) { return status == PT2P_OK ? PT2P_OK : PT2P_ERR_SYSTEM; }

bool may_use(choice::rendezvous allowed, choice::rendezvous way)
{
	return allowed == way || allowed == choice::rendezvous::automatic;
}

} // namespace

void Rendezvous::announce(Request &r, Channel &c, const uint64_t *data)
{
	reporter_.add(Counter::rendezvous_sent);
	reporter_.add(Counter::bytes_sent, r.length);
	const wire::AnnouncementWithData a{announcement(r, c, r.buffer, r.length), data ? *data : 0};
	channels_.control(c, wire::id_announce, r.message_tag, &a, data ? sizeof a : sizeof a.announcement);
}

wire::Announcement Rendezvous::announcement(Request &r, Channel &c, const void *data, size_t length)
{
	r.awaits_answer = true;
	wire::Announcement a{length, r.handle, {}, false};
	if (length && may_use(config_.rendezvous, choice::rendezvous::read))
		a.exposed = r.in_segments() ? exposures_.expose_list(r, c, a.memory)
		                            : exposures_.expose(r, c, const_cast<void *>(data), length, a.memory);
	return a;
}

void Rendezvous::announce_queued(Channel &c)
{
	c.for_each_queued([&](PendingSend &item) {
		if (item.id != wire::id_eager || !item.length || !item.owner)
			return;
		const wire::Announcement a = announcement(*static_cast<Request *>(item.owner), c, item.data, item.length);
		std::memcpy(item.copy, &a, sizeof a);
		item.id = wire::id_announce;
		item.data = item.copy;
		item.length = sizeof a;
		item.owner = nullptr;
	});
}

bool Rendezvous::can_answer(Request &r, int peer, uint64_t tag, size_t length)
{
	r.state = Request::State::moving;
	r.peer = peer;
	r.message_tag = tag;
	r.length = length;
	pt2p_status_t status = PT2P_OK;
	if (channels_.reach(peer, status))
		return true;
	if (r.state == Request::State::moving) // or the peer is lost since, and the request has ended with it
		requests_.complete(r, status);
	return false;
}

void Rendezvous::fetch(Request &r, int peer, const wire::Announcement &a)
{
	r.length = a.length;
	r.sender_token = a.token;
	r.of_message &= uint8_t{Request::with_data};
	Channel *c = channels_.find(peer);
	if (!r.expected()) {
		finish_fetch(r, PT2P_OK);
		return;
	}
	Endpoint &endpoint = c->endpoint.direct();
	if (a.exposed && (endpoint.capabilities & cap_get) && may_use(config_.rendezvous, choice::rendezvous::read)) {
		if (a.exposed > 1 || r.in_segments()) {
			if (!runs_.start(r, *c, a))
				accept(r, *c, false);
			return;
		}
		if (get(r, endpoint, a))
			return;
	}
	accept(r, *c,
	       (endpoint.capabilities & cap_put) && may_use(config_.rendezvous, choice::rendezvous::write) &&
	           !r.in_segments());
}

// False: there is no room for it, and nothing has happened.
bool Rendezvous::get(Request &r, Endpoint &endpoint, const wire::Announcement &a)
{
	const Outcome outcome = endpoint.table->get(endpoint, r.buffer, a.memory, r.expected(), as_operation(r));
	if (outcome == Outcome::done)
		finish_fetch(r, PT2P_OK);
	if (outcome == Outcome::refused) {
		const Refusal refusal = endpoint.refusal();
		finish_fetch(r, refusal.status, refusal.reason);
	}
	return outcome != Outcome::no_resource;
}

// Asks for the payload: written into the buffer, or in pieces.
void Rendezvous::accept(Request &r, Channel &c, bool expose_buffer)
{
	wire::Acceptance acceptance{r.handle, r.expected(), {}, false};
	if (expose_buffer)
		acceptance.exposed = exposures_.expose(r, c, r.buffer, r.expected(), acceptance.memory);
	if (!acceptance.exposed) {
		r.of_message |= Request::in_pieces;
		r.received = 0;
	}
	if (r.in_segments())
		r.details->to = SegmentCursor(r.details->segments(), r.details->count);
	channels_.control(c, wire::id_accept, r.sender_token, &acceptance, sizeof acceptance);
}

void Rendezvous::on_complete(uint64_t handle, pt2p_status_t status, std::string_view reason)
{
	Request *r = requests_.find_moving(handle);
	if (!r)
		return;
	if (r->is_reading_runs())
		runs_.on_complete(*r, status, reason);
	else if (r->is_send)
		finish_writing(*r, status, reason);
	else
		finish_fetch(*r, status, reason);
}

// The put into the receiver's buffer has ended, well or not.
void Rendezvous::finish_writing(Request &r, pt2p_status_t status, std::string_view reason)
{
	Channel *c = channels_.find(r.peer);
	if (c && !c->down() && status != PT2P_ERR_PEER_LOST) {
		const uint32_t word = told(status);
		channels_.control(*c, wire::id_written, r.sender_token, &word, sizeof word);
	}
	requests_.complete(r, status, reason);
}

// Reading the payload has ended, well or not: the sender gets its buffer back.
void Rendezvous::finish_fetch(Request &r, pt2p_status_t status, std::string_view reason)
{
	Channel *c = channels_.find(r.peer);
	if (c && !c->down() && status != PT2P_ERR_PEER_LOST) {
		const uint32_t word = told(status);
		channels_.control(*c, wire::id_finished, r.sender_token, &word, sizeof word);
	}
	if (status == PT2P_OK)
		arrived(r);
	else
		requests_.complete(r, status, reason);
}

// The part of an announced message that fits is in the buffer.
void Rendezvous::arrived(Request &r)
{
	reporter_.add(Counter::messages_received);
	reporter_.add(Counter::bytes_received, r.expected());
	const bool truncated = r.length > r.capacity();
	if (truncated)
		reporter_.add(Counter::truncated);
	requests_.complete(r, truncated ? PT2P_ERR_TRUNCATED : PT2P_OK);
}

bool Rendezvous::on_control(int peer, uint8_t id, uint64_t token, const void *data, size_t length)
{
	wire::Acceptance acceptance;
	uint32_t status;
	switch (id) {
	case wire::id_accept:
		if (!wire::read(acceptance, data, length))
			return false;
		on_accept(peer, token, acceptance);
		return true;
	case wire::id_piece: on_piece(peer, token, data, length); return true;
	default:
		if (!wire::read(status, data, length))
			return false;
		if (id == wire::id_finished)
			on_finished(peer, token, status);
		else
			on_written(peer, token, status);
		return true;
	}
}

void Rendezvous::on_accept(int peer, uint64_t token, const wire::Acceptance &a)
{
	Request *r = requests_.find_moving(token, peer, true);
	Channel *c = channels_.find(peer);
	if (!r || !r->awaits_answer || !c || a.length > r->length || !a.length) {
		channels_.malformed(peer, "an acceptance of a message that was not announced to it");
		return;
	}
	r->awaits_answer = false;
	Endpoint &endpoint = c->endpoint.direct();
	if (r->in_segments())
		return stream_segments(*r, *c, a.token, a.length);
	if (a.exposed && (endpoint.capabilities & cap_put)) {
		r->sender_token = a.token;
		const Outcome outcome = endpoint.table->put(endpoint, r->buffer, a.memory, a.length, as_operation(*r));
		if (outcome == Outcome::done)
			finish_writing(*r, PT2P_OK);
		if (outcome == Outcome::refused) {
			const Refusal refusal = endpoint.refusal();
			finish_writing(*r, refusal.status, refusal.reason);
		}
		if (outcome != Outcome::no_resource)
			return;
	}
	c->stream(wire::id_piece, a.token, r->buffer, a.length, r);
	channels_.list(*c);
}

void Rendezvous::on_piece(int peer, uint64_t token, const void *data, size_t length)
{
	Request *r = requests_.find_moving(token, peer, false);
	if (r && r->exposed) { // the sender could not write
		exposures_.withdraw(*r);
		r->of_message |= Request::in_pieces;
		r->received = 0;
	}
	if (!r || !r->comes_in_pieces() || !length || length > r->expected() - r->received) {
		channels_.malformed(peer, "a piece of a message that was not accepted");
		return;
	}
	if (r->in_segments())
		r->details->to.copy_from(data, length);
	else
		std::memcpy(static_cast<unsigned char *>(r->buffer) + r->received, data, length);
	r->received += length;
	reporter_.add(Counter::pipelined_bytes, length);
	if (r->received == r->expected())
		arrived(*r);
}

void Rendezvous::on_finished(int peer, uint64_t token, uint32_t status)
{
	Request *r = requests_.find_moving(token, peer, true);
	if (!r || !r->awaits_answer || (status != PT2P_OK && status != PT2P_ERR_SYSTEM)) {
		channels_.malformed(peer, "the end of a message that was not announced to it");
		return;
	}
	requests_.complete(*r, static_cast<pt2p_status_t>(status));
}

void Rendezvous::on_written(int peer, uint64_t token, uint32_t status)
{
	Request *r = requests_.find_moving(token, peer, false);
	if (!r || !r->exposed || (status != PT2P_OK && status != PT2P_ERR_SYSTEM)) {
		channels_.malformed(peer, "the end of a message that it was not asked to write");
		return;
	}
	if (status == PT2P_OK)
		arrived(*r);
	else
		requests_.complete(*r, static_cast<pt2p_status_t>(status));
}

void Rendezvous::acknowledge(int peer, uint64_t token)
{
	pt2p_status_t status = PT2P_OK;
	Channel *c = losses_.contain(peer) ? nullptr : channels_.reach(peer, status);
	const uint32_t word = PT2P_OK;
	if (c)
		channels_.control(*c, wire::id_finished, token, &word, sizeof word);
}

void Rendezvous::stream_segments(Request &r, Channel &c, uint64_t token, size_t length)
{
	Details &d = *r.details;
	requests_.details().take_buffer(d.bounce, std::min({length, c.endpoint.longest_piece(), BufferPool::largest_kept}));
	d.gather = {SegmentCursor(d.segments(), d.count), static_cast<unsigned char *>(d.bounce.memory), d.bounce.bytes};
	c.stream(wire::id_piece, token, d.gather, length, &r);
	channels_.list(c);
}

} // namespace pt2p
