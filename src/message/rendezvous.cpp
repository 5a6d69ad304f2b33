// Messages that announce themselves; the protocol is drawn in engine.hpp.
#include <algorithm>
#include <cstring>

#include "base/config/config.hpp"
#include "message/engine.hpp"

namespace pt2p {

namespace {

// Transports name an operation by a pointer; a handle in its place goes stale with its request.
void *as_operation(uint64_t handle) { return reinterpret_cast<void *>(handle); }
uint64_t as_handle(void *operation) { return reinterpret_cast<uint64_t>(operation); }

// What the peer hears of an outcome: this rank's buffers are no concern of its.
uint32_t told(pt2p_status_t status) { return status == PT2P_OK ? PT2P_OK : PT2P_ERR_SYSTEM; }

bool may_use(choice::rendezvous allowed, choice::rendezvous way)
{
	return allowed == way || allowed == choice::rendezvous::automatic;
}

} // namespace

void Engine::announce(Request &r, Channel &c)
{
	reporter_.add(Counter::rendezvous_sent);
	reporter_.add(Counter::bytes_sent, r.length);
	const Announcement a = announcement(r, c, r.buffer, r.length);
	control(c, id_announce, r.message_tag, &a, sizeof a);
}

Engine::Announcement Engine::announcement(Request &r, Channel &c, const void *data, size_t length)
{
	r.awaits_answer = true;
	Announcement a{length, r.handle, {}, false};
	if (length && may_use(config_.rendezvous, choice::rendezvous::read))
		a.exposed = r.in_segments() ? expose_list(r, c, a.memory) : expose(r, c, const_cast<void *>(data), length, a.memory);
	return a;
}

// Lets the peer read or write the buffer of a request; false when that cannot be done.
bool Engine::expose(Request &r, Channel &c, void *buffer, size_t length, RemoteMemory &memory)
{
	std::string why_not;
	memory.address = reinterpret_cast<uint64_t>(buffer);
	r.exposure = router_->transport_of(c.endpoint.direct())->expose(buffer, length, memory.key, why_not);
	r.exposed = r.exposure != nullptr;
	if (!r.exposed) {
		reporter_.add(Counter::not_exposed);
		reporter_.log(LogLevel::debug, "a message of %zu bytes goes in pieces: %s", length, why_not.c_str());
	}
	return r.exposed;
}

void Engine::withdraw(Request &r)
{
	r.exposed = false;
	Transport &t = *router_->transport_of(router_->find(r.peer)->endpoint.direct());
	if (!r.in_segments())
		return t.withdraw(r.exposure);
	auto **exposures = static_cast<void **>(r.details->exposures.memory);
	for (size_t i = 0; i <= r.details->count; ++i)
		t.withdraw(exposures[i]);
	give_buffer(r.details->exposures);
}

// The peer takes no more eager messages: what still waits here for room is announced instead, in its place in the row.
void Engine::announce_queued(Channel &c)
{
	c.for_each_queued([&](PendingSend &item) {
		if (item.id != id_eager || !item.length || !item.owner)
			return;
		const Announcement a = announcement(*static_cast<Request *>(item.owner), c, item.data, item.length);
		std::memcpy(item.copy, &a, sizeof a);
		item.id = id_announce;
		item.data = item.copy;
		item.length = sizeof a;
		item.owner = nullptr;
	});
}

void Engine::on_announce(int peer, uint64_t tag, const Announcement &a)
{
	if (PostedReceive *posted = matcher_.match(peer, tag)) {
		if (can_answer(static_cast<Request &>(*posted), peer, tag, a.length))
			return fetch(static_cast<Request &>(*posted), peer, a);
		if (is_down(peer))
			return;
	}
	UnexpectedMessage &m = make_unexpected(peer, tag, a.length);
	m.memory = a.memory;
	m.exposed = a.exposed;
	m.token = a.token;
	m.announced = true;
	matcher_.add(m);
	reporter_.add(Counter::unexpected);
}

bool Engine::can_answer(Request &r, int peer, uint64_t tag, size_t length)
{
	r.state = Request::State::moving;
	r.peer = peer;
	r.message_tag = tag;
	r.length = length;
	pt2p_status_t status = PT2P_OK;
	if (channel(peer, status))
		return true;
	complete(r, status);
	return false;
}

void Engine::fetch(Request &r, int peer, const Announcement &a)
{
	r.length = a.length;
	r.sender_token = a.token;
	r.in_pieces = false;
	Channel *c = router_->find(peer);
	if (!r.expected()) {
		finish_fetch(r, PT2P_OK);
		return;
	}
	Endpoint &endpoint = c->endpoint.direct();
	if (a.exposed && (endpoint.capabilities & cap_get) && may_use(config_.rendezvous, choice::rendezvous::read)) {
		if (a.exposed > 1 || r.in_segments()) {
			if (fetch_runs(r, *c, a))
				return;
			return accept(r, *c, false);
		}
		const Outcome outcome = endpoint.table->get(endpoint, r.buffer, a.memory, r.expected(), as_operation(r.handle));
		if (outcome == Outcome::done)
			finish_fetch(r, PT2P_OK);
		if (outcome == Outcome::refused) {
			const Refusal refusal = endpoint.refusal();
			finish_fetch(r, refusal.status, refusal.reason);
		}
		if (outcome != Outcome::no_resource)
			return;
	}
	accept(r, *c, (endpoint.capabilities & cap_put) && may_use(config_.rendezvous, choice::rendezvous::write) && !r.in_segments());
}

// Asks for the payload: written into the buffer, or in pieces.
void Engine::accept(Request &r, Channel &c, bool expose_buffer)
{
	Acceptance acceptance{r.handle, r.expected(), {}, false};
	if (expose_buffer)
		acceptance.exposed = expose(r, c, r.buffer, r.expected(), acceptance.memory);
	r.in_pieces = !acceptance.exposed;
	if (r.in_pieces)
		r.received = 0;
	if (r.in_segments())
		r.details->to = SegmentCursor(r.details->segments(), r.details->count);
	control(c, id_accept, r.sender_token, &acceptance, sizeof acceptance);
}

void Engine::on_complete(void *operation, pt2p_status_t status, std::string_view reason)
{
	if (extension_ && as_handle(operation) & Extension::operation_bit)
		return extension_->on_complete(as_handle(operation), status, reason);
	Request *r = requests_.find(as_handle(operation));
	if (!r || r->state != Request::State::moving)
		return;
	if (r->is_reading_runs())
		on_run(*r, status, reason);
	else if (r->is_send)
		finish_writing(*r, status, reason);
	else
		finish_fetch(*r, status, reason);
}

// The payload is in the receiver's buffer, or will never be.
void Engine::finish_writing(Request &r, pt2p_status_t status, std::string_view reason)
{
	Channel *c = router_->find(r.peer);
	if (c && !c->down() && status != PT2P_ERR_PEER_LOST) {
		const uint32_t word = told(status);
		control(*c, id_written, r.sender_token, &word, sizeof word);
	}
	complete(r, status, reason);
}

// The payload is here, or will never be: the sender may have its buffer back.
void Engine::finish_fetch(Request &r, pt2p_status_t status, std::string_view reason)
{
	Channel *c = router_->find(r.peer);
	if (c && !c->down() && status != PT2P_ERR_PEER_LOST) {
		const uint32_t word = told(status);
		control(*c, id_finished, r.sender_token, &word, sizeof word);
	}
	if (status == PT2P_OK)
		arrived(r);
	else
		complete(r, status, reason);
}

// All that fits of an announced message is in the buffer.
void Engine::arrived(Request &r)
{
	reporter_.add(Counter::messages_received);
	reporter_.add(Counter::bytes_received, r.expected());
	const bool truncated = r.length > r.capacity();
	if (truncated)
		reporter_.add(Counter::truncated);
	complete(r, truncated ? PT2P_ERR_TRUNCATED : PT2P_OK);
}

void Engine::on_accept(int peer, uint64_t token, const Acceptance &a)
{
	Request *r = named(token, peer, true);
	Channel *c = router_->find(peer);
	if (!r || !r->awaits_answer || !c || a.length > r->length || !a.length) {
		malformed(peer, "an acceptance of a message that was not announced to it");
		return;
	}
	r->awaits_answer = false;
	Endpoint &endpoint = c->endpoint.direct();
	if (r->in_segments())
		return stream_segments(*r, *c, a.token, a.length);
	if (a.exposed && (endpoint.capabilities & cap_put)) {
		r->sender_token = a.token;
		const Outcome outcome = endpoint.table->put(endpoint, r->buffer, a.memory, a.length, as_operation(r->handle));
		if (outcome == Outcome::done)
			finish_writing(*r, PT2P_OK);
		if (outcome == Outcome::refused) {
			const Refusal refusal = endpoint.refusal();
			finish_writing(*r, refusal.status, refusal.reason);
		}
		if (outcome != Outcome::no_resource)
			return;
	}
	c->stream(id_piece, a.token, r->buffer, a.length, r);
	list(*c);
}

void Engine::on_piece(int peer, uint64_t token, const void *data, size_t length)
{
	Request *r = named(token, peer, false);
	if (r && r->exposed) { // the sender could not write
		withdraw(*r);
		r->in_pieces = true;
		r->received = 0;
	}
	if (!r || !r->in_pieces || !length || length > r->expected() - r->received) {
		malformed(peer, "a piece of a message that was not accepted");
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

void Engine::on_finished(int peer, uint64_t token, uint32_t status)
{
	Request *r = named(token, peer, true);
	if (!r || !r->awaits_answer || (status != PT2P_OK && status != PT2P_ERR_SYSTEM)) {
		malformed(peer, "the end of a message that was not announced to it");
		return;
	}
	complete(*r, static_cast<pt2p_status_t>(status));
}

void Engine::on_written(int peer, uint64_t token, uint32_t status)
{
	Request *r = named(token, peer, false);
	if (!r || !r->exposed || (status != PT2P_OK && status != PT2P_ERR_SYSTEM)) {
		malformed(peer, "the end of a message that it was not asked to write");
		return;
	}
	if (status == PT2P_OK)
		arrived(*r);
	else
		complete(*r, static_cast<pt2p_status_t>(status));
}

} // namespace pt2p
