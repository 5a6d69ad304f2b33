// What a relay does for others: passing their messages on, within credits. The rules are in relay.hpp.
#include <cstring>

#include "base/clock.hpp"
#include "base/report/report.hpp"
#include "route/groups.hpp"
#include "route/relay.hpp"

namespace pt2p {

void Relay::pass_on(int from, int to, uint64_t route, const void *data, size_t length)
{
	const int next = groups_.next_hop(rank_, to);
	Link &brought = link(from), &l = link(next);
	brought.used = true;
	// Routes go on in a lower dimension than they came; see "No deadlock".
	if (length > max_send_ + sizeof(Envelope) || brought.held + brought.owed >= credits_ || groups_.between(rank_, next) >= groups_.between(from, rank_))
		return malformed(from);
	if (!l.first && send_on(next, l, to, route, data, length))
		return passed_on(from, length);
	auto *w = waiting_.take();
	*w = {nullptr, route, static_cast<unsigned char *>(buffers_.take(length)), length, from, now_ns()};
	std::memcpy(w->bytes, data, length);
	(l.first ? l.last->next : l.first) = w;
	l.last = w;
	++brought.held;
	environment_.reporter.add(Counter::forward_queued);
	links_busy_ = true;
}

bool Relay::send_on(int next, Link &l, int to, uint64_t route, const void *data, size_t length)
{
	const bool last_hop = next == to;
	if (!open(next, l) || (!last_hop && !l.credits) ||
	    !send_over(l, id_relayed, route, data, length))
		return false;
	l.credits -= !last_hop;
	return true;
}

void Relay::passed_on(int from, size_t length)
{
	environment_.reporter.add(Counter::forwarded);
	environment_.reporter.add(Counter::forwarded_bytes, length - sizeof(Envelope));
	Link &l = link(from);
	if (++l.owed >= credits_ / 4)
		give_credit(from, l);
}

void Relay::give_credit(int rank, Link &l)
{
	if (l.heard || (open(rank, l) && send_over(l, id_credit, l.owed, nullptr, 0)))
		l.owed = 0;
	else
		links_busy_ |= !l.down;
}

// Sends what waits for a link; the first in the queue may have to wait longer.
unsigned Relay::flush(int rank, Link &l)
{
	unsigned sent = 0;
	while (Waiting *w = l.first) {
		if (l.own_waiting && sent == bunch)
			break;
		const auto to = static_cast<int>(static_cast<uint32_t>(w->route));
		if (l.down ? !send_around(rank, to, *w) : !send_on(rank, l, to, w->route, w->bytes, w->length))
			break;
		++sent;
		environment_.reporter.add(Counter::forward_queue_ns, static_cast<uint64_t>(now_ns() - w->since));
		--link(w->from).held;
		passed_on(w->from, w->length);
		l.first = w->next;
		buffers_.give(w->bytes, w->length);
		waiting_.give(w);
	}
	if (sent || !l.first) {
		l.own_in_row = 0;
		l.own_waiting = false;
	}
	return sent;
}

// The next rank is gone: the destination itself takes it. What cannot reach that, either, goes nowhere.
bool Relay::send_around(int gone, int to, const Waiting &w)
{
	if (to == gone || !serves(to))
		return true;
	RelayPeer &p = peer(to);
	if (p.down)
		return true;
	Endpoint *way = way_to(p);
	return p.failure != PT2P_OK || (way && way->table->send(*way, id_relayed, w.route, w.bytes, w.length) == Outcome::done);
}

} // namespace pt2p
