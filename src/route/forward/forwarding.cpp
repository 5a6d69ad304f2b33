#include "route/forward/forwarding.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/assert.hpp"
#include "base/clock.hpp"
#include "base/config/config.hpp"
#include "base/job/job.hpp"
#include "base/report/report.hpp"
#include "route/forward/end_to_end.hpp"
#include "route/groups/groups.hpp"

namespace pt2p {

Forwarding::Forwarding(const TransportEnvironment &environment, const Groups &groups, DirectConnector &connector,
                       BufferPool &buffers, ForwardingClient &client)
    : environment_(environment), groups_(groups), connector_(connector), buffers_(buffers), client_(client),
      rank_(environment.job.rank()), credits_(static_cast<uint32_t>(environment.config.forward_credits)),
      links_(static_cast<size_t>(environment.job.size()))
{
}

Forwarding::~Forwarding()
{
	for (const int neighbour : neighbours_)
		link(neighbour).waiting.for_each([&](HeldMessage &m) { buffers_.give(m.bytes, m.length); });
}

Forwarding::Link &Forwarding::link(int neighbour)
{
	auto &slot = links_[static_cast<size_t>(neighbour)];
	if (!slot) {
		slot = std::make_unique<Link>();
		slot->credits = credits_;
		neighbours_.push_back(neighbour);
	}
	return *slot;
}

bool Forwarding::is_open(int neighbour) const
{
	const auto &l = links_[static_cast<size_t>(neighbour)];
	return l && l->used && !l->done_sent;
}

// Connects the link if need be; false: not now, or never.
bool Forwarding::connect(int neighbour, Link &l)
{
	if (l.endpoint || l.down)
		return !l.down;
	if (l.retry_at && now_ns() < l.retry_at)
		return false;
	try {
		l.endpoint = connector_.try_connect(neighbour, false);
	} catch (const Error &e) {
		const bool lasts = is_of_peer(e.status());
		if (lasts || !l.retry_at)
			environment_.reporter.log(LogLevel::info, "rank %d does not forward%s: %s", neighbour,
			                          lasts ? "" : " for now", e.what());
		l.retry_at = now_ns() + retry_pause;
		if (lasts)
			lose(neighbour);
	}
	return l.endpoint;
}

// Sends over a link that is connected.
bool Forwarding::post(Link &l, uint8_t id, uint64_t header, const void *data, size_t length)
{
	PT2P_ASSERT(l.endpoint);
	if (l.endpoint->table->send(*l.endpoint, id, header, data, length) != Outcome::done)
		return false;
	l.used = true;
	return true;
}

bool Forwarding::send(int next_hop, const Route &route, const void *bytes, size_t length)
{
	Link &l = link(next_hop);
	if (!connect(next_hop, l) || !l.credits)
		return false;
	if (!l.waiting.empty() && l.own_in_row >= bunch) {
		l.own_waiting = true;
		return false;
	}
	if (!post(l, id_forwarded, route.header(), bytes, length))
		return false;
	--l.credits;
	++l.own_in_row;
	return true;
}

// ---- messages of other ranks ----------------------------------------------------------------------------------------

void Forwarding::send_on(int from, const Route &route, const void *data, size_t length)
{
	const auto to = static_cast<int>(route.destination);
	const int next_hop = groups_.next_hop(rank_, to);
	Link &brought = link(from), &l = link(next_hop);
	brought.used = true;
	// A route goes on in a lower dimension than it came; see "No deadlock".
	if (length > max_length_ || brought.held + brought.owed >= credits_ ||
	    groups_.between(rank_, next_hop) >= groups_.between(from, rank_))
		return client_.on_malformed(from);
	if (l.waiting.empty() && send_held(next_hop, l, route, data, length))
		return count_sent_on(from, length);
	HeldMessage &m = *held_messages_.take();
	m = {nullptr, route, static_cast<unsigned char *>(buffers_.take(length)), length, from, now_ns()};
	std::memcpy(m.bytes, data, length);
	l.waiting.push(m);
	++brought.held;
	environment_.reporter.add(Counter::forward_queued);
	busy_ = true;
}

bool Forwarding::send_held(int next_hop, Link &l, const Route &route, const void *data, size_t length)
{
	const bool last_hop = next_hop == static_cast<int>(route.destination);
	if (!connect(next_hop, l) || (!last_hop && !l.credits) || !post(l, id_forwarded, route.header(), data, length))
		return false;
	l.credits -= !last_hop;
	return true;
}

void Forwarding::count_sent_on(int from, size_t length)
{
	environment_.reporter.add(Counter::forwarded);
	environment_.reporter.add(Counter::forwarded_bytes, length - sizeof(Envelope));
	Link &l = link(from);
	if (++l.owed >= credits_ / 4)
		return_credits(from, l);
}

void Forwarding::return_credits(int neighbour, Link &l)
{
	if (l.done_heard || (connect(neighbour, l) && post(l, id_credit, l.owed, nullptr, 0)))
		l.owed = 0;
	else
		busy_ |= !l.down;
}

// Sends what waits for a link. A message whose destination is the neighbour itself needs no credits, but keeps its
// turn.
unsigned Forwarding::flush(int neighbour, Link &l)
{
	unsigned sent = 0;
	while (HeldMessage *m = l.waiting.front()) {
		if (l.own_waiting && sent == bunch)
			break;
		const bool destination_gone = l.down && static_cast<int>(m->route.destination) == neighbour;
		if (l.down ? !destination_gone && !client_.send_around(m->route, m->bytes, m->length)
		           : !send_held(neighbour, l, m->route, m->bytes, m->length))
			break;
		++sent;
		environment_.reporter.add(Counter::forward_queue_ns, static_cast<uint64_t>(now_ns() - m->since));
		--link(m->from).held;
		count_sent_on(m->from, m->length);
		l.waiting.pop();
		buffers_.give(m->bytes, m->length);
		held_messages_.give(m);
	}
	if (sent || l.waiting.empty()) {
		l.own_in_row = 0;
		l.own_waiting = false;
	}
	return sent;
}

unsigned Forwarding::progress()
{
	if (!busy_)
		return 0;
	busy_ = false;
	unsigned sent = 0;
	for (size_t i = 0; i < neighbours_.size(); ++i) { // links may be added meanwhile
		const int neighbour = neighbours_[i];
		Link &l = link(neighbour);
		sent += flush(neighbour, l);
		if (l.owed >= credits_ / 4)
			return_credits(neighbour, l);
		busy_ |= !l.waiting.empty();
	}
	return sent;
}

// ---- credits, and the end of links ----------------------------------------------------------------------------------

void Forwarding::on_credit(int from, uint64_t count, size_t length)
{
	Link &l = link(from);
	l.used = true;
	if (count > credits_ - l.credits || length)
		return client_.on_malformed(from);
	l.credits += static_cast<uint32_t>(count);
}

void Forwarding::on_done(int from, uint64_t heard, size_t length)
{
	Link &l = link(from);
	l.used = true;
	if (heard > 1 || length)
		return client_.on_malformed(from);
	l.done_heard = true;
	l.answer_heard = heard;
}

// A message from another group may have to be sent on inside this group, and one from inside this group on this node: a
// link closes once no link of an earlier kind can bring a message for it.
bool Forwarding::close()
{
	Dimension comes = Dimension::none;
	for (const int neighbour : neighbours_)
		if (const Link &l = *links_[static_cast<size_t>(neighbour)]; l.used && !l.down && !l.done_heard)
			comes = std::max(comes, groups_.between(rank_, neighbour));
	bool closed = true;
	for (size_t i = 0; i < neighbours_.size(); ++i) {
		const int neighbour = neighbours_[i];
		Link &l = link(neighbour);
		const bool news = !l.done_sent || l.done_heard > l.answer_sent;
		const bool due = news && !l.closed() && l.waiting.empty() && groups_.between(rank_, neighbour) >= comes;
		if (due && connect(neighbour, l) && post(l, id_done, l.done_heard, nullptr, 0)) {
			l.done_sent = true;
			l.answer_sent = l.done_heard;
		}
		closed &= l.closed() && l.waiting.empty();
	}
	return closed;
}

void Forwarding::lose(int neighbour)
{
	Link &l = link(neighbour);
	if (std::exchange(l.down, true))
		return;
	busy_ |= !l.waiting.empty();
	client_.on_link_down(neighbour);
}

} // namespace pt2p
