// Synchronous sends: done when a receive has matched the message.
//
// A short one takes its token along and is acknowledged. Any other is announced, also a short one that there is no room for or
// that the receiver does not want unasked: its receiver tells when it has taken it in any case.
#include <cstring>

#include "base/config/config.hpp"
#include "message/engine.hpp"

namespace pt2p {

Request *Engine::issend(const void *buffer, size_t length, int dest, uint64_t tag, pt2p_status_t &status)
{
	Channel *c = channel(dest, status);
	if (!c)
		return nullptr;
	Request *r = requests_.take();
	start_send(*r, length, dest, tag, Request::State::moving);
	r->buffer = const_cast<void *>(buffer);
	r->awaits_answer = true;
	const size_t limit = c->eager_limit();
	if (limit >= sizeof r->handle && length <= limit - sizeof r->handle) {
		const size_t whole = sizeof r->handle + length;
		if (staged_.size() < whole)
			staged_.resize(whole);
		std::memcpy(staged_.data(), &r->handle, sizeof r->handle);
		if (length)
			std::memcpy(staged_.data() + sizeof r->handle, buffer, length);
		if (c->try_send(id_synchronous, tag, staged_.data(), whole) == Outcome::done) {
			count_eager(length);
			return r;
		}
	}
	announce(*r, *c);
	return r;
}

// A synchronous message has met its receive.
void Engine::acknowledge(int peer, uint64_t token)
{
	pt2p_status_t status = PT2P_OK;
	Channel *c = is_down(peer) ? nullptr : channel(peer, status);
	const uint32_t word = PT2P_OK;
	if (c)
		control(*c, id_finished, token, &word, sizeof word);
}

} // namespace pt2p
