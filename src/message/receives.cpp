#include "message/receives.hpp"

#include "base/assert.hpp"

namespace pt2p {

// ---- starting -------------------------------------------------------------------------------------------------------

Request *Receives::irecv(void *buffer, size_t capacity, int source, uint64_t tag, uint64_t mask, pt2p_status_t &status,
                         Details *details)
{
	UnexpectedMessage *m = matcher_.find(source, tag, mask);
	if (!m && losses_.count()) {
		status = losses_.receive_status(source);
		if (status != PT2P_OK)
			return nullptr;
	}
	Request *r = requests_.take();
	r->start_receive(buffer, capacity, source, tag, mask);
	if (details) {
		r->make_special(Request::with_details);
		r->details = details;
	}
	if (m)
		take_unexpected(*r, *m);
	else
		matcher_.post(*r);
	return r;
}

Request *Receives::irecv(const pt2p_iovec_t *segments, size_t count, size_t capacity, int source, uint64_t tag,
                         uint64_t mask, pt2p_status_t &status)
{
	if (!capacity)
		return irecv(nullptr, 0, source, tag, mask, status);
	Details *d = requests_.details().take_list(segments, count);
	if (d->count == 1) {
		unsigned char *base = d->segments()->base();
		requests_.details().give(d);
		return irecv(base, capacity, source, tag, mask, status);
	}
	Request *r = irecv(nullptr, capacity, source, tag, mask, status, d);
	if (!r)
		requests_.details().give(d);
	return r;
}

void Receives::cancel(Request &r)
{
	if (r.state != Request::State::posted)
		return;
	matcher_.withdraw(r);
	requests_.complete(r, PT2P_ERR_CANCELLED);
}

// ---- probing --------------------------------------------------------------------------------------------------------

bool Receives::find_unexpected(int source, uint64_t tag, uint64_t mask, pt2p_result_t &result)
{
	const UnexpectedMessage *m = matcher_.find(source, tag, mask);
	if (m)
		result = result_of(*m);
	return m != nullptr;
}

UnexpectedMessage *Receives::take(int source, uint64_t tag, uint64_t mask, pt2p_result_t &result)
{
	UnexpectedMessage *m = matcher_.find(source, tag, mask);
	if (!m)
		return nullptr;
	matcher_.remove(*m);
	m->taken = true;
	result = result_of(*m);
	return m;
}

bool Receives::may_forget(int peer, bool drop_messages) const
{
	bool may = true;
	unexpected_.all().for_each([&](const UnexpectedMessage &m) { may &= !(m.taken && m.source == peer); });
	if (!drop_messages)
		matcher_.for_each_unexpected([&](const UnexpectedMessage &m) { may &= m.source != peer; });
	return may;
}

void Receives::forget(int peer)
{
	matcher_.for_each_unexpected([&](UnexpectedMessage &m) {
		if (m.source == peer)
			unexpected_.drop(m);
	});
	unexpected_.forget(peer);
}

// The receive of an announced message fails when the sender is gone; an eager message is complete. When this rank lacks
// something to answer the sender, the receive fails and the message stays for another one.
Request *Receives::irecv_taken(void *buffer, size_t capacity, UnexpectedMessage &m)
{
	PT2P_ASSERT(m.taken);
	Request *r = requests_.take();
	r->start_receive(buffer, capacity, m.source, m.tag, PT2P_TAG_EXACT);
	const bool answered = !m.announced || rendezvous_.can_answer(*r, m.source, m.tag, m.length);
	m.taken = !answered && !losses_.contain(m.source);
	if (answered)
		receive(*r, m);
	else if (!m.taken)
		unexpected_.give(m);
	return r;
}

// ---- arrivals -------------------------------------------------------------------------------------------------------

// A message that is too long, goes into segments, or matches a detached receive.
void Receives::deliver_otherwise(Request &r, const void *data)
{
	if (r.is_detached() && r.length <= r.capacity() && !r.in_segments()) { // most receives with a callback
		reporter_.add(Counter::bytes_received, r.length);
		requests_.finish(r);
		return copy(r.buffer, data, r.length);
	}
	const size_t bytes = r.expected();
	reporter_.add(Counter::truncated, r.length > bytes);
	reporter_.add(Counter::bytes_received, bytes);
	if (r.in_segments())
		SegmentCursor(r.details->segments(), r.details->count).copy_from(data, bytes);
	else if (bytes)
		std::memcpy(r.buffer, data, bytes);
	requests_.complete(r, r.length > bytes ? PT2P_ERR_TRUNCATED : PT2P_OK);
}

void Receives::on_eager(int peer, uint64_t tag, const void *data, size_t length)
{
	if (PostedReceive *posted = matcher_.match(peer, tag))
		deliver(static_cast<Request &>(*posted), peer, tag, data, length);
	else
		unexpected_.keep(unexpected_.make(peer, tag, length), data);
}

// The word that stands before the payload. False: it is missing.
bool Receives::take_word(int peer, uint64_t &word, const void *&data, size_t &length)
{
	if (length < sizeof word) {
		channels_.malformed(peer, "a message that lacks the word before its payload");
		return false;
	}
	std::memcpy(&word, data, sizeof word);
	data = static_cast<const unsigned char *>(data) + sizeof word;
	length -= sizeof word;
	return true;
}

void Receives::on_with_data(int peer, uint64_t tag, const void *payload, size_t length)
{
	uint64_t word;
	if (!take_word(peer, word, payload, length))
		return;
	if (PostedReceive *posted = matcher_.match(peer, tag)) {
		Request &r = static_cast<Request &>(*posted);
		give_data(r, word);
		return deliver(r, peer, tag, payload, length);
	}
	UnexpectedMessage &m = unexpected_.make(peer, tag, length);
	m.has_data = true;
	m.data = word;
	unexpected_.keep(m, payload);
}

void Receives::on_synchronous(int peer, uint64_t tag, const void *payload, size_t length)
{
	uint64_t token;
	if (!take_word(peer, token, payload, length))
		return;
	if (PostedReceive *posted = matcher_.match(peer, tag)) {
		deliver(static_cast<Request &>(*posted), peer, tag, payload, length);
		rendezvous_.acknowledge(peer, token);
		return;
	}
	UnexpectedMessage &m = unexpected_.make(peer, tag, length);
	m.synchronous = true;
	m.token = token;
	unexpected_.keep(m, payload);
}

bool Receives::on_announce(int peer, uint64_t tag, const void *data, size_t length)
{
	wire::AnnouncementWithData with_data{};
	wire::Announcement &a = with_data.announcement;
	const bool has_data = length == sizeof with_data;
	if (!(has_data ? wire::read(with_data, data, length) : wire::read(a, data, length)) || a.length > PTRDIFF_MAX)
		return false;
	if (PostedReceive *posted = matcher_.match(peer, tag)) {
		Request &r = static_cast<Request &>(*posted);
		if (rendezvous_.can_answer(r, peer, tag, a.length)) {
			if (has_data)
				give_data(r, with_data.data);
			rendezvous_.fetch(r, peer, a);
			return true;
		}
		if (losses_.contain(peer))
			return true;
	}
	UnexpectedMessage &m = unexpected_.make(peer, tag, a.length);
	m.memory = a.memory;
	m.exposed = a.exposed;
	m.token = a.token;
	m.has_data = has_data;
	m.data = with_data.data;
	unexpected_.keep_announced(m);
	return true;
}

void Receives::take_unexpected(Request &r, UnexpectedMessage &m)
{
	const bool fails = m.announced && !rendezvous_.can_answer(r, m.source, m.tag, m.length);
	if (fails && !losses_.contain(m.source))
		return; // this rank lacks something: the message waits for another receive
	if (fails)
		return unexpected_.drop(m);
	matcher_.remove(m);
	receive(r, m);
}

// Gives a receive its message, which is out of matching, and frees the message.
void Receives::receive(Request &r, UnexpectedMessage &m)
{
	if (m.has_data)
		give_data(r, m.data);
	if (m.announced) {
		const wire::Announcement a{m.length, m.token, m.memory, m.exposed};
		const int source = m.source;
		unexpected_.give(m);
		rendezvous_.fetch(r, source, a);
		return;
	}
	deliver(r, m.source, m.tag, m.payload, m.length);
	unexpected_.give_payload(m);
	if (__builtin_expect(m.synchronous, 0))
		rendezvous_.acknowledge(m.source, m.token);
	unexpected_.give(m);
	unexpected_.allow_eager();
}

} // namespace pt2p
