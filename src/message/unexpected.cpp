#include "message/unexpected.hpp"

#include <cstring>
#include <random>

#include "base/config/config.hpp"
#include "message/wire.hpp"

namespace pt2p {

UnexpectedMessages::UnexpectedMessages(const Config &config, Reporter &reporter, int rank, Channels &channels,
                                       Matcher &matcher, BufferPool &buffers)
    : config_(config), reporter_(reporter), rank_(rank), channels_(channels), matcher_(matcher), buffers_(buffers),
      messages_(std::random_device{}())
{
}

UnexpectedMessages::~UnexpectedMessages()
{
	matcher_.for_each_unexpected([this](UnexpectedMessage &m) { drop(m); });
	messages_.for_each([this](UnexpectedMessage &m) {
		if (m.taken && m.payload)
			buffers_.give(m.payload, m.length);
	});
}

UnexpectedMessage &UnexpectedMessages::make(int peer, uint64_t tag, size_t length)
{
	UnexpectedMessage &m = *messages_.take();
	m.source = peer;
	m.tag = tag;
	m.length = length;
	m.payload = nullptr;
	m.announced = m.synchronous = m.taken = m.has_data = false;
	m.data = 0;
	return m;
}

void UnexpectedMessages::keep(UnexpectedMessage &m, const void *data)
{
	if (m.length) {
		m.payload = buffers_.take(m.length);
		std::memcpy(m.payload, data, m.length);
	}
	matcher_.add(m);
	reporter_.add(Counter::unexpected);
	bytes_ += m.length;
	reporter_.peak(Counter::unexpected_bytes_peak, bytes_);
	if (__builtin_expect(bytes_ > config_.unexpected_max, 0))
		stop_eager(m.source);
}

void UnexpectedMessages::keep_announced(UnexpectedMessage &m)
{
	m.announced = true;
	matcher_.add(m);
	reporter_.add(Counter::unexpected);
}

void UnexpectedMessages::give_payload(UnexpectedMessage &m)
{
	if (m.payload)
		buffers_.give(m.payload, m.length);
	bytes_ -= m.length;
}

void UnexpectedMessages::allow_eager()
{
	if (__builtin_expect(!stopped_.empty(), 0) && bytes_ <= config_.unexpected_max / 2)
		resume_eager();
}

void UnexpectedMessages::drop(UnexpectedMessage &m)
{
	matcher_.remove(m);
	if (m.payload)
		give_payload(m);
	messages_.give(&m);
}

void UnexpectedMessages::stop_eager(int peer)
{
	pt2p_status_t status = PT2P_OK;
	Channel *c = channels_.reach(peer, status);
	if (!c || c->eager_refused || peer == rank_)
		return;
	c->eager_refused = true;
	stopped_.push_back(peer);
	reporter_.add(Counter::eager_stopped);
	// Ahead of the messages that wait here: two ranks that flood each other must both get through.
	if (c->send_urgent(wire::id_stop_eager, 0))
		channels_.list(*c);
}

void UnexpectedMessages::resume_eager()
{
	for (int peer : stopped_) {
		Channel *c = channels_.find(peer);
		c->eager_refused = false;
		if (!c->down() && c->send_urgent(wire::id_resume_eager, 0))
			channels_.list(*c);
	}
	stopped_.clear();
}

} // namespace pt2p
