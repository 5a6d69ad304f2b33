#include "message/sends.hpp"

#include <algorithm>
#include <cstring>

namespace pt2p {

// Everything is in place before the first byte goes out: a message to this rank itself comes back within the call.
Request *Sends::start(const void *buffer, size_t length, int dest, uint64_t tag)
{
	Request *r = requests_.take();
	r->start_send(length, dest, tag, Request::State::moving);
	r->buffer = const_cast<void *>(buffer);
	return r;
}

Request *Sends::isend(const void *buffer, size_t length, int dest, uint64_t tag, pt2p_status_t &status)
{
	Channel *c = channels_.reach(dest, status);
	if (!c)
		return nullptr;
	Request *r = start(buffer, length, dest, tag);
	if (length > c->eager_limit()) {
		rendezvous_.announce(*r, *c);
		return r;
	}
	count_eager(length);
	if (c->try_send(wire::id_eager, tag, buffer, length) == Outcome::done)
		r->state = Request::State::done;
	else
		queue_or_announce(*r);
	return r;
}

void Sends::queue_or_announce(Request &r)
{
	Channel &c = *channels_.find(r.peer);
	r.state = Request::State::moving;
	if (r.length > c.queued_eager_limit())
		return rendezvous_.announce(r, c);
	reporter_.add(Counter::queued_sends);
	c.queue(wire::id_eager, r.message_tag, r.buffer, r.length, &r);
	channels_.list(c);
}

// A short message takes its token along, and the receiver acknowledges it. Any other message is announced, also a short
// one that there is no room for or that the receiver does not take unasked: the receiver of an announced message always
// answers.
Request *Sends::issend(const void *buffer, size_t length, int dest, uint64_t tag, pt2p_status_t &status)
{
	Channel *c = channels_.reach(dest, status);
	if (!c)
		return nullptr;
	Request *r = start(buffer, length, dest, tag);
	r->awaits_answer = true;
	const pt2p_iovec_t whole{r->buffer, length};
	if (!send_behind(r->handle, wire::id_synchronous, *r, *c, &whole, 1))
		rendezvous_.announce(*r, *c);
	return r;
}

// Sends a short message with `word` before its payload. False: it is too long, or there is no room.
bool Sends::send_behind(uint64_t word, wire::Id id, const Request &r, Channel &c, const pt2p_iovec_t *segments,
                        size_t count)
{
	const size_t limit = c.eager_limit(), length = r.length, whole = sizeof word + length;
	if (limit < sizeof word || length > limit - sizeof word)
		return false;
	if (staged_.size() < whole)
		staged_.resize(whole);
	unsigned char *to = staged_.data();
	std::memcpy(to, &word, sizeof word);
	to += sizeof word;
	for (size_t i = 0; i < count; to += segments[i++].length)
		if (segments[i].length)
			std::memcpy(to, segments[i].base, segments[i].length);
	if (c.try_send(id, r.message_tag, staged_.data(), whole) != Outcome::done)
		return false;
	count_eager(length);
	return true;
}

// Beside the payload of an eager message there is one word. So a message that is synchronous and has data is announced.
Request *Sends::isend_with(const pt2p_iovec_t *segments, size_t count, size_t length, int dest, uint64_t tag,
                           const Options &options, pt2p_status_t &status)
{
	const auto &[synchronous, buffered, data] = options;
	if (!synchronous && !data && !buffered)
		return isend(segments, count, length, dest, tag, status);
	Channel *c = channels_.reach(dest, status);
	if (!c)
		return nullptr;
	Request *r = start(count == 1 ? segments->base : nullptr, length, dest, tag);
	r->awaits_answer = synchronous;
	const bool plain = !synchronous && !data;
	if (!plain && !(synchronous && data) &&
	    send_behind(data ? *data : r->handle, data ? wire::id_with_data : wire::id_synchronous, *r, *c, segments,
	                count)) {
		if (!synchronous)
			r->state = Request::State::done;
		return r;
	}
	if (buffered)
		pack(*r, segments, count);
	else if (count > 1)
		attach(*r, requests_.details().take_list(segments, count));
	if (!plain || length > c->eager_limit()) {
		rendezvous_.announce(*r, *c, data);
		return r;
	}
	count_eager(length);
	if (c->try_send(wire::id_eager, tag, r->buffer, length) == Outcome::done)
		requests_.complete(*r, PT2P_OK);
	else
		queue_or_announce(*r);
	return r;
}

// The request has a copy of the data, which is freed with it.
void Sends::pack(Request &r, const pt2p_iovec_t *segments, size_t count)
{
	if (!r.length)
		return;
	auto *packed = static_cast<unsigned char *>(requests_.details().buffers().take(r.length));
	for (size_t i = 0, at = 0; i < count; at += segments[i++].length)
		if (segments[i].length)
			std::memcpy(packed + at, segments[i].base, segments[i].length);
	r.buffer = packed;
	requests_.details_of(r).packed = {packed, r.length};
}

// A short message is packed into one buffer and sent as any other. A long one is announced: the receiver reads the list
// of segments and then the data, or asks for pieces.
Request *Sends::isend(const pt2p_iovec_t *segments, size_t count, size_t length, int dest, uint64_t tag,
                      pt2p_status_t &status)
{
	Channel *c = channels_.reach(dest, status);
	if (!c)
		return nullptr;
	if (!length)
		return isend(nullptr, 0, dest, tag, status);
	if (length <= std::min(c->eager_limit(), BufferPool::largest_kept))
		return isend_packed(segments, count, length, dest, tag, status);
	Details *d = requests_.details().take_list(segments, count);
	if (d->count == 1) {
		unsigned char *base = d->segments()->base();
		requests_.details().give(d);
		return isend(base, length, dest, tag, status);
	}
	Request *r = start(nullptr, length, dest, tag);
	attach(*r, d);
	rendezvous_.announce(*r, *c);
	return r;
}

// Segments that touch may have become one, which needs no list.
void Sends::attach(Request &r, Details *d)
{
	if (d->count == 1) {
		r.buffer = d->segments()->base();
		return requests_.details().give(d);
	}
	r.details = d;
	r.make_special(Request::with_details);
}

Request *Sends::isend_packed(const pt2p_iovec_t *segments, size_t count, size_t length, int dest, uint64_t tag,
                             pt2p_status_t &status)
{
	BufferPool &buffers = requests_.details().buffers();
	auto *packed = static_cast<unsigned char *>(buffers.take(length));
	for (size_t i = 0, at = 0; i < count; at += segments[i++].length)
		if (segments[i].length)
			std::memcpy(packed + at, segments[i].base, segments[i].length);
	Request *r = isend(packed, length, dest, tag, status);
	if (r && !r->done())
		requests_.details_of(*r).packed = {packed, length};
	else
		buffers.give(packed, length);
	return r;
}

} // namespace pt2p
