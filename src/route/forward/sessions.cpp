#include "route/forward/sessions.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "base/clock.hpp"
#include "base/config/config.hpp"
#include "base/job/job.hpp"
#include "base/report/report.hpp"
#include "route/groups/groups.hpp"

namespace pt2p {

extern const TransportTable relay_table;

namespace {

// Envelope::id beside those of the layers above.
constexpr uint8_t id_none = 0; // an envelope without a message or a number
constexpr uint8_t id_goodbye = 0xff;

// Envelope::flags.
constexpr uint8_t flag_answer = 1;   // confirm now
constexpr uint8_t flag_directly = 2; // and not through forwarders

// Longest wait for a confirmation before the source asks again, ns.
constexpr int64_t max_patience = 2'000'000'000;
// A forwarder is avoided for so many times PT2P_FORWARD_TIMEOUT.
constexpr int64_t timeouts_avoided = 10;

} // namespace

Session::Session(Sessions &s, int rank, int hop, bool far, BufferPool &buffers, uint32_t window)
    : sessions(s), outbox(buffers, window), inbox(buffers, window), next_hop(hop), across(far),
      has_forwarder(hop != rank)
{
	table = &relay_table;
	peer = rank;
	capabilities = cap_send;
}

Endpoint &Session::direct()
{
	Endpoint *endpoint = sessions.connect_directly(*this);
	return endpoint ? *endpoint : *this;
}

// What a forwarder has may have to be sent again, until it is confirmed.
bool Session::settle()
{
	if (!sessions.only_in_calls || !outbox.keeps())
		return true;
	if (std::exchange(asked, outbox.next()) != outbox.next())
		sessions.ask(*this);
	return false;
}

void Session::take_down()
{
	down = true;
	stall.since = 0;
	outbox.clear();
	inbox.clear();
	resend = outbox.next();
}

Sessions::Sessions(const TransportEnvironment &environment, const Groups &groups, int64_t share,
                   DirectConnector &connector, Forwarding &forwarding, BufferPool &buffers)
    : environment_(environment), client_(environment.events), groups_(groups), connector_(connector),
      forwarding_(forwarding), buffers_(buffers), choice_(environment.config, environment.reporter), budget_(share),
      rank_(environment.job.rank()), window_(std::bit_ceil(static_cast<uint32_t>(environment.config.forward_window))),
      max_forwarded_(environment.config.forward_max), sessions_(static_cast<size_t>(environment.job.size()))
{
}

// Looks at both directions, which may differ in uneven groups: messages are numbered in both or in none. With auto,
// neighbours in other groups are served as well: they share the DC initiators, and the trial has to see what it does to
// their messages.
bool Sessions::serves(int rank) const
{
	return (choice_.automatic() && groups_.between(rank_, rank) == Dimension::across) ||
	       groups_.next_hop(rank_, rank) != rank || groups_.next_hop(rank, rank_) != rank_;
}

Session &Sessions::at(int rank)
{
	auto &slot = sessions_[static_cast<size_t>(rank)];
	if (!slot) {
		const bool across = groups_.between(rank_, rank) == Dimension::across;
		slot = std::make_unique<Session>(*this, rank, groups_.next_hop(rank_, rank), across, buffers_, window_);
		slot->max_send = max_send_;
		slot->avoids_forwarder = slot->has_forwarder && forwarding_.is_down(slot->next_hop);
	}
	return *slot;
}

Endpoint *Sessions::connect_directly(Session &s)
{
	if (s.direct_endpoint || s.failure != PT2P_OK)
		return s.direct_endpoint;
	try {
		const bool budgeted = s.has_forwarder && !s.across, few = budgeted && !budget_.may_connect();
		s.direct_endpoint = connector_.try_connect(s.peer, few);
		if (s.direct_endpoint && budgeted && !few)
			budget_.connected();
	} catch (const Error &e) {
		// Reported in the next turn: this may be in the middle of a call for that rank.
		s.failure = e.status();
		s.reason = e.what();
		list(s);
	}
	return s.direct_endpoint;
}

// ---- sending --------------------------------------------------------------------------------------------------------

Outcome Sessions::send(Session &s, uint8_t id, uint64_t header, const void *data, size_t length)
{
	if (s.outbox.full() || s.resend != s.outbox.next())
		return Outcome::no_resource;
	const bool small = length <= max_forwarded_, chosen = forwards(s);
	const bool observed = choice_.automatic() && small && !s.avoids_forwarder;
	if (!chosen && !s.outbox.keeps() && !s.inbox.unconfirmed() && !choice_.trial().announces() && id != id_goodbye) {
		if (!send_plain(s, id, header, data, length))
			return Outcome::no_resource;
		if (observed)
			observe(s, true);
		return Outcome::done;
	}
	const bool wanted = small && chosen, forward = wanted && !s.outbox.after_plain(), keeps = s.outbox.keeps();
	// A goodbye needs an answer only when messages may have to be sent again, or may be in flight.
	const bool last = id == id_goodbye && (s.forwarded || keeps);
	const bool answer = last || (wanted && !forward && s.outbox.empty());
	s.goodbye_unanswered = last;
	const Envelope e = envelope(s, id, header, answer ? flag_answer : 0);
	s.outbox.add(e, data, length);
	s.has_confirmed();
	s.first_forwarded = forward;
	if (observed)
		observe(s, chosen ? forward : !keeps);
	// A message that cannot leave now is accepted all the same: there is a copy of it to send later.
	s.first_try = !send_first(s);
	if (s.first_try)
		list(s);
	return Outcome::done;
}

bool Sessions::send_plain(Session &s, uint8_t id, uint64_t header, const void *data, size_t length)
{
	Endpoint *endpoint = connect_directly(s);
	if (!endpoint || endpoint->table->send(*endpoint, id | id_plain, header, data, length) != Outcome::done)
		return false;
	s.outbox.count_plain();
	s.resend = s.outbox.next();
	return true;
}

// Sends the newest message for the first time; false: not now.
bool Sessions::send_first(Session &s)
{
	const Outbox::Kept &kept = s.outbox.at(s.resend);
	if (!send_envelope(s, s.first_forwarded, kept.bytes, kept.length))
		return false;
	if (s.first_forwarded) {
		s.forwarded = true;
		environment_.reporter.add(Counter::forward_sent);
	} else
		s.outbox.release(s.resend); // the transport is reliable
	++s.resend;
	return true;
}

bool Sessions::forwards(const Session &s) const
{
	return s.has_forwarder && !s.avoids_forwarder && prefers_forwarder(s) && (!(leaving_ || s.down) || in_use(s));
}

bool Sessions::prefers_forwarder(const Session &s) const
{
	if (s.across || !choice_.automatic())
		return choice_.forwards();
	return !budget_.direct(s.direct_endpoint);
}

// A small message has been sent, with PT2P_ROUTE=auto.
void Sessions::observe(Session &s, bool settled)
{
	if (s.across)
		choice_.sent(s.peer, settled);
	else if (s.has_forwarder)
		budget_.sent(s.mark);
}

// A rank that leaves begins nothing new: a neighbour that does not know of it may be gone.
bool Sessions::in_use(const Session &s) const { return s.forwarded && forwarding_.is_open(s.next_hop); }

Envelope Sessions::envelope(const Session &s, uint8_t id, uint64_t header, uint8_t flags) const
{
	return {header, 0, s.inbox.expected(), id, flags, choice_.trial().report(), choice_.trial().epoch()};
}

bool Sessions::send_envelope(Session &s, bool forward, const void *bytes, size_t length)
{
	const Route route{static_cast<uint32_t>(rank_), static_cast<uint32_t>(s.peer)};
	if (forward)
		return forwarding_.send(s.next_hop, route, bytes, length);
	Endpoint *endpoint = connect_directly(s);
	return endpoint && endpoint->table->send(*endpoint, id_forwarded, route.header(), bytes, length) == Outcome::done;
}

bool Sessions::send_around(const Route &route, const void *bytes, size_t length)
{
	const auto to = static_cast<int>(route.destination);
	if (!serves(to))
		return true;
	Session &s = at(to);
	if (s.down)
		return true;
	Endpoint *endpoint = connect_directly(s);
	return s.failure != PT2P_OK ||
	       (endpoint && endpoint->table->send(*endpoint, id_forwarded, route.header(), bytes, length) == Outcome::done);
}

// ---- what is due beside new messages --------------------------------------------------------------------------------

void Sessions::list(Session &s)
{
	if (!std::exchange(s.listed, true))
		busy_.push_back(&s);
}

unsigned Sessions::progress()
{
	unsigned events = 0;
	for (size_t i = 0; i < busy_.size();) {
		Session &s = *busy_[i];
		if (!drive(s, events)) {
			++i;
			continue;
		}
		s.listed = false;
		busy_[i] = busy_.back();
		busy_.pop_back();
	}
	return events;
}

// Sends what is due to that rank; false: something has not left.
bool Sessions::drive(Session &s, unsigned &events)
{
	if (s.failure != PT2P_OK) {
		report_failure(s);
		return true;
	}
	if (s.waits()) {
		if (!send_first(s)) {
			if (leaving_ && s.first_forwarded && !in_use(s)) {
				s.avoids_forwarder = true;
				s.first_forwarded = false;
			}
			return s.down;
		}
		++events;
	}
	if (!resend(s, events))
		return s.down;
	if (leaving_ && !s.goodbye_sent && !s.down && (s.outbox.next() || s.inbox.expected())) {
		if (send(s, id_goodbye, 0, nullptr, 0) != Outcome::done)
			return false;
		s.goodbye_sent = true;
		++events;
		if (s.waits())
			return s.down;
	}
	return confirm(s, events);
}

void Sessions::report_failure(Session &s)
{
	// Where nothing has been exchanged, lack of something here fails what waits, and the next send tries again.
	if (!s.down && !is_of_peer(s.failure) && !s.outbox.next() && !s.inbox.expected()) {
		client_.on_refused(s.peer, std::exchange(s.failure, PT2P_OK), s.reason);
		return;
	}
	s.goodbye_unanswered = false;
	if (s.down)
		return;
	s.take_down();
	client_.on_peer_down(s.peer, s.failure, s.reason);
}

// Sends directly what a forwarder may have lost; false: not all of it.
bool Sessions::resend(Session &s, unsigned &events)
{
	for (; s.resend != s.outbox.next(); ++s.resend) {
		const Outbox::Kept &kept = s.outbox.at(s.resend);
		if (!kept.bytes)
			continue;
		if (!send_envelope(s, false, kept.bytes, kept.length))
			return false;
		s.outbox.release(s.resend);
		environment_.reporter.add(Counter::forward_rerouted);
		++events;
	}
	return true;
}

// Sends an envelope without a message where a confirmation is due or wanted; false: not now.
bool Sessions::confirm(Session &s, unsigned &events)
{
	if (!s.confirm_due && !s.ask)
		return true;
	const auto flags = static_cast<uint8_t>(!s.ask ? 0 : flag_answer | (s.avoids_forwarder ? flag_directly : 0));
	const Envelope e = envelope(s, id_none, 0, flags);
	if (!send_envelope(s, forwards(s) && !s.confirm_directly, &e, sizeof e))
		return false;
	s.has_confirmed();
	s.ask = false;
	++events;
	return true;
}

// Messages that the forwarder may have lost, and those that follow, go directly.
void Sessions::avoid_forwarder(Session &s)
{
	s.avoids_forwarder = true;
	s.first_try = false;
	s.resend = s.outbox.first();
	list(s);
}

void Sessions::ask(Session &s)
{
	s.ask = true;
	list(s);
}

void Sessions::check()
{
	const int64_t now = now_ns(), timeout = leaving_ ? leaving_timeout() : environment_.config.forward_timeout;
	for (auto &session : sessions_) {
		if (!session)
			continue;
		Session &s = *session;
		if (s.down) {
			// The last confirmation has not left. If that rank is gone, there may be no path to it.
			if (!s.listed || !s.stall.since)
				s.stall.since = now;
			else if (now - s.stall.since > timeout)
				s.confirm_due = s.ask = false;
			continue;
		}
		if (s.inbox.unconfirmed()) { // no message goes back that would confirm it
			s.confirm(false);
			list(s);
		}
		check_stall(s, now, timeout);
		if (s.avoids_forwarder && now > s.stall.avoided_until && !forwarding_.is_down(s.next_hop))
			s.avoids_forwarder = false;
	}
}

void Sessions::check_stall(Session &s, int64_t now, int64_t timeout)
{
	Session::Stall &stall = s.stall;
	if (s.outbox.empty()) {
		stall.since = 0;
		stall.times = s.avoids_forwarder ? stall.times : 0;
	} else if (!stall.since || s.outbox.first() != stall.first) {
		if (!s.avoids_forwarder)
			stall.times = 0;
		stall.since = now;
		stall.first = s.outbox.first();
		stall.patience = timeout;
	} else if (now - stall.since > std::min(stall.patience, leaving_ ? timeout : max_patience)) {
		stall.since = now;
		stall.patience = std::min(2 * stall.patience, max_patience);
		// Longer each time: a rank may compute for long.
		stall.avoided_until = now + (timeouts_avoided * timeout << std::min(stall.times++, 6u));
		s.ask = true;
		avoid_forwarder(s);
	}
}

// ---- arrivals -------------------------------------------------------------------------------------------------------

void Sessions::on_malformed(int rank)
{
	client_.on_message(rank, id_credit, 0, nullptr, 0); // no message of the layer above
}

void Sessions::on_plain(int source, uint8_t id, uint64_t header, const void *data, size_t length)
{
	if (!find(source) && !serves(source))
		return on_malformed(source);
	Session &s = at(source);
	if (s.down)
		return;
	if (id >= id_forwarded || !s.inbox.count_plain())
		return on_malformed(source);
	client_.on_message(source, id, header, data, length);
}

void Sessions::on_envelope(int from, int source, const void *data, size_t length)
{
	if (!serves(source))
		return on_malformed(source);
	Session &s = at(source);
	Envelope e;
	std::memcpy(&e, data, sizeof e);
	if (from != source) {
		s.forwarded = true;
		forwarding_.mark_used(from);
	}
	if (e.confirmed == s.outbox.next())
		s.goodbye_unanswered = false;
	if (s.down) { // its goodbye may want another answer: a forwarder may have lost the first
		if (e.flags & flag_answer) {
			s.confirm(true);
			list(s);
		}
		return;
	}
	if (s.outbox.confirm(e.confirmed))
		s.skip_confirmed();
	if (choice_.heard(e.epoch, e.report))
		s.confirm(true);
	if (e.flags & flag_answer)
		s.confirm(e.flags & flag_directly);
	if (e.id != id_none) {
		if (!take(s, e, static_cast<const unsigned char *>(data) + sizeof e, length - sizeof e))
			return on_malformed(source);
		if (s.inbox.unconfirmed() >= window_ / 4)
			s.confirm(false);
	}
	// At once for a rank that leaves: it waits for that.
	unsigned events = 0;
	if (s.confirm_due && !(s.down && drive(s, events)))
		list(s);
}

// Delivers a message, and those that have waited for it; false: no rank would send it.
bool Sessions::take(Session &s, const Envelope &e, const void *payload, size_t length)
{
	switch (s.inbox.take(e, payload, length)) {
	case Inbox::Verdict::impossible: return false;
	case Inbox::Verdict::held: environment_.reporter.add(Counter::forward_early); break;
	case Inbox::Verdict::duplicate:
		environment_.reporter.add(Counter::forward_duplicates);
		s.confirm(true);
		break;
	case Inbox::Verdict::deliver:
		deliver(s, e, payload, length);
		for (Inbox::Held held; !s.down && s.inbox.next(held); s.inbox.give_back(held))
			deliver(s, held.envelope, held.payload, held.length);
	}
	return true;
}

void Sessions::deliver(Session &s, const Envelope &e, const void *payload, size_t length)
{
	if (e.id != id_goodbye)
		return client_.on_message(s.peer, e.id, e.header, payload, length);
	s.goodbye_unanswered &= !s.waits(); // a goodbye that has not left never will
	s.take_down();
	client_.on_peer_down(s.peer, PT2P_ERR_PEER_FINALIZED, "it has called pt2p_finalize");
}

// ---- leaving, and loss ----------------------------------------------------------------------------------------------

// Short: other ranks leave at the same time, and with them goes what they were to forward. To send it again is cheaper
// than to wait.
int64_t Sessions::leaving_timeout() const { return std::min<int64_t>(environment_.config.forward_timeout, 20'000'000); }

void Sessions::say_goodbye()
{
	leaving_ = true;
	for (auto &s : sessions_)
		if (s && !s->down)
			list(*s);
}

bool Sessions::closed(bool late) const
{
	return std::all_of(sessions_.begin(), sessions_.end(), [&](const auto &s) {
		// A goodbye waits until it is confirmed, but that rank may have learned of it in another way.
		return !s || (!s->goodbye_unanswered && !s->listed) ||
		       (late && (s->down || (!s->listed && !s->outbox.keeps())));
	});
}

void Sessions::on_link_down(int neighbour)
{
	for (auto &s : sessions_)
		if (s && !s->down && s->next_hop == neighbour)
			avoid_forwarder(*s);
}

void Sessions::lose(int rank)
{
	forwarding_.lose(rank); // also where there is no link: there will not be one
	if (auto &s = sessions_[static_cast<size_t>(rank)]) {
		s->take_down();
		s->goodbye_unanswered = s->confirm_due = s->ask = false;
	}
}

} // namespace pt2p
