#include "route/relay.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "base/config/config.hpp"
#include "base/job/job.hpp"
#include "base/clock.hpp"
#include "base/report/report.hpp"
#include "route/choice.hpp"
#include "route/groups.hpp"
#include "route/route.hpp"

namespace pt2p {

extern const TransportTable relay_table;

namespace {

// Envelope::id beside those of the layer above.
constexpr uint8_t id_bare = 0; // nothing but the envelope: no message, no number
constexpr uint8_t id_bye = 0xff;

// Envelope::flags.
constexpr uint8_t flag_answer = 1;   // confirm now
constexpr uint8_t flag_directly = 2; // and by the direct way

// Longest that is waited for a confirmation before asking again, ns.
constexpr int64_t most_patience = 2'000'000'000;
// Times PT2P_FORWARD_TIMEOUT before a neighbour is tried again that did not pass messages on.
constexpr int64_t detours_off = 10;

} // namespace

RelayPeer::RelayPeer(Relay &r, int rank, int neighbour, BufferPool &buffers, uint32_t window)
    : relay(r), outbox(buffers, window), inbox(buffers, window), next(neighbour), beyond(neighbour != rank)
{
	table = &relay_table;
	peer = rank;
	capabilities = cap_send;
}

Endpoint &RelayPeer::direct()
{
	Endpoint *endpoint = relay.way_to(*this);
	return endpoint ? *endpoint : *this;
}

// What is by a neighbour may have to be sent again.
bool RelayPeer::settled() const { return !relay.only_in_calls || !outbox.keeps(); }

Relay::Relay(const TransportEnvironment &environment, Router &router, const Groups &groups)
    : TransportEvents(environment.events.pacing), environment_(environment), client_(environment.events), router_(router),
      groups_(groups), rank_(environment.job.rank()), size_(environment.job.size()),
      window_(std::bit_ceil(static_cast<uint32_t>(environment.config.forward_window))),
      credits_(static_cast<uint32_t>(environment.config.forward_credits)), longest_detour_(environment.config.forward_max),
      automatic_(environment.config.route == choice::route::automatic),
      changes_(static_cast<size_t>(environment.config.dct_initiators)), peers_(static_cast<size_t>(size_)),
      links_(static_cast<size_t>(size_))
{
}

Relay::~Relay()
{
	for (const int neighbour : neighbours_)
		for (Waiting *w = links_[static_cast<size_t>(neighbour)]->first; w; w = w->next)
			buffers_.give(w->bytes, w->length);
}

// Of both directions, which may differ in uneven groups: messages are numbered in both or in none. Neighbours in other groups
// share the DC initiators: what the choice of a way does to messages for them has to be seen, too.
bool Relay::serves(int rank) const
{
	return (automatic_ && groups_.between(rank_, rank) == Dimension::across) || groups_.next_hop(rank_, rank) != rank ||
	       groups_.next_hop(rank, rank_) != rank_;
}

RelayPeer &Relay::peer(int rank)
{
	auto &place = peers_[static_cast<size_t>(rank)];
	if (!place) {
		place = std::make_unique<RelayPeer>(*this, rank, groups_.next_hop(rank_, rank), buffers_, window_);
		place->max_send = max_send_;
		place->avoided = place->beyond && link(place->next).down;
	}
	return *place;
}

Relay::Link &Relay::link(int rank)
{
	auto &place = links_[static_cast<size_t>(rank)];
	if (!place) {
		place = std::make_unique<Link>();
		place->credits = credits_;
		neighbours_.push_back(rank);
	}
	return *place;
}

// Connects the link if need be; false: not now, or never.
bool Relay::open(int rank, Link &l)
{
	if (l.endpoint || l.down)
		return !l.down;
	try {
		l.endpoint = router_.direct_endpoint(rank);
	} catch (const Error &e) {
		environment_.reporter.log(LogLevel::info, "rank %d does not forward: %s", rank, e.what());
		lose_link(rank);
	}
	return l.endpoint;
}

// By which this rank reaches that one itself; null: not now, or never.
Endpoint *Relay::way_to(RelayPeer &p)
{
	if (p.way || p.failure != PT2P_OK)
		return p.way;
	try {
		p.way = router_.direct_endpoint(p.peer);
	} catch (const Error &e) {
		// Told in the next turn: this may be in the middle of a call for that rank.
		p.failure = e.status();
		p.reason = e.what();
		list(p);
	}
	return p.way;
}

// What goes to a neighbour as such; the link is open.
bool Relay::send_over(Link &l, uint8_t id, uint64_t header, const void *data, size_t length)
{
	if (l.endpoint->table->send(*l.endpoint, id, header, data, length) != Outcome::done)
		return false;
	l.used = true;
	return true;
}

void Relay::malformed(int rank)
{
	client_.on_message(rank, id_credit, 0, nullptr, 0); // no message of the layer above
}

// ---- messages of this rank --------------------------------------------------------------------------------------------

Outcome Relay::send(RelayPeer &p, uint8_t id, uint64_t header, const void *data, size_t length)
{
	if (p.outbox.full() || p.resend != p.outbox.next())
		return Outcome::no_resource;
	const bool small = length <= longest_detour_, detours = by_neighbour(p);
	const bool tuned = automatic_ && small && !p.avoided;
	if (!detours && !p.outbox.keeps() && !p.inbox.untold() && !tuner_.tells() && id != id_bye) {
		if (!send_bare(p, id, header, data, length))
			return Outcome::no_resource;
		if (tuned)
			tune(p, true);
		return Outcome::done;
	}
	const bool wanted = small && detours, detour = wanted && !p.outbox.after_bare(), keeps = p.outbox.keeps();
	// Who says goodbye waits for an answer only when something may have to be sent again, or may be on its way.
	const bool last = id == id_bye && (p.relayed || keeps), answer = last || (wanted && !detour && p.outbox.empty());
	p.bye_unanswered = last;
	const Envelope e = envelope(p, id, header, answer ? flag_answer : 0);
	p.outbox.add(e, data, length);
	p.told();
	p.detour = detour;
	if (tuned)
		tune(p, detours ? detour : !keeps);
	// What does not leave now does so later: there is a copy of it, and no other has to be made for each attempt.
	p.waits = !send_first(p);
	if (p.waits)
		list(p);
	return Outcome::done;
}

// A message leaves without an envelope; false: not now.
bool Relay::send_bare(RelayPeer &p, uint8_t id, uint64_t header, const void *data, size_t length)
{
	Endpoint *way = way_to(p);
	if (!way || way->table->send(*way, id | id_bare_message, header, data, length) != Outcome::done)
		return false;
	p.outbox.bare();
	p.resend = p.outbox.next();
	return true;
}

// The last message for that rank leaves for the first time; false: not now.
bool Relay::send_first(RelayPeer &p)
{
	const Outbox::Kept &kept = p.outbox.at(p.resend);
	if (!send_envelope(p, p.detour, kept.bytes, kept.length))
		return false;
	if (p.detour) {
		p.relayed = true;
		environment_.reporter.add(Counter::forward_sent);
	} else
		p.outbox.release(p.resend); // the transport sees to it
	++p.resend;
	return true;
}

// Whether the next small message goes by way of the neighbour.
bool Relay::by_neighbour(const RelayPeer &p) const
{
	return p.beyond && !p.avoided && (!automatic_ || tuner_.way() == tune::Way::by_neighbour) && (!(leaving_ || p.down) || in_use(p));
}

// Who leaves begins nothing: a neighbour that does not know of this rank, and a rank that expects nothing from there, may be gone.
bool Relay::in_use(const RelayPeer &p) const
{
	const auto &l = links_[static_cast<size_t>(p.next)];
	return p.relayed && l && l->used && !l->told;
}

// A message has been sent of which the tuner says which way it goes; `settled` as there.
void Relay::tune(const RelayPeer &p, bool settled)
{
	changes_.sent_to(p.peer);
	if (tuner_.sent(changes_.rate(), settled, now_ns))
		environment_.reporter.add(Counter::forward_changes);
}

// Something has been.
void Relay::confirmed(RelayPeer &p)
{
	if (static_cast<int32_t>(p.resend - p.outbox.first()) < 0)
		p.resend = p.outbox.first();
}

Envelope Relay::envelope(RelayPeer &p, uint8_t id, uint64_t header, uint8_t flags) const
{
	return {header, 0, p.inbox.expected(), id, flags, tuner_.told(), tuner_.moment()};
}

bool Relay::send_envelope(RelayPeer &p, bool by_neighbour, const void *bytes, size_t length)
{
	const uint64_t route = static_cast<uint64_t>(rank_) << 32 | static_cast<uint32_t>(p.peer);
	if (!by_neighbour) {
		Endpoint *way = way_to(p);
		return way && way->table->send(*way, id_relayed, route, bytes, length) == Outcome::done;
	}
	Link &l = link(p.next);
	if (!open(p.next, l) || !l.credits)
		return false;
	if (l.first && l.own_in_row >= bunch) {
		l.own_waiting = true;
		return false;
	}
	if (!send_over(l, id_relayed, route, bytes, length))
		return false;
	--l.credits;
	++l.own_in_row;
	return true;
}

void Relay::list(RelayPeer &p)
{
	if (!std::exchange(p.listed, true))
		busy_.push_back(&p);
}

// Sends what has to be sent to that rank beside messages; false: not all of it has left.
bool Relay::serve(RelayPeer &p, unsigned &events)
{
	if (p.failure != PT2P_OK) {
		p.bye_unanswered = false;
		if (!p.down) {
			lose_peer(p);
			client_.on_peer_down(p.peer, p.failure, p.reason);
		}
		return true;
	}
	if (p.waiting()) {
		if (!send_first(p)) {
			if (leaving_ && p.detour && !in_use(p)) {
				p.avoided = true;
				p.detour = false;
			}
			return p.down;
		}
		++events;
	}
	for (; p.resend != p.outbox.next(); ++p.resend) {
		const Outbox::Kept &kept = p.outbox.at(p.resend);
		if (!kept.bytes)
			continue;
		if (!send_envelope(p, false, kept.bytes, kept.length))
			return p.down;
		p.outbox.release(p.resend);
		environment_.reporter.add(Counter::forward_rerouted);
		++events;
	}
	if (leaving_ && !p.told_bye && !p.down && (p.outbox.next() || p.inbox.expected())) {
		if (send(p, id_bye, 0, nullptr, 0) != Outcome::done)
			return false;
		p.told_bye = true;
		++events;
		if (p.waiting())
			return p.down;
	}
	if (p.confirm_due || p.ask) {
		const auto flags = static_cast<uint8_t>(p.ask ? flag_answer | flag_directly : 0);
		const Envelope bare = envelope(p, id_bare, 0, flags);
		if (!send_envelope(p, by_neighbour(p) && !p.confirm_directly && !p.ask, &bare, sizeof bare))
			return false;
		p.told();
		p.ask = false;
		++events;
	}
	return true;
}

// What its neighbour may have lost goes to it directly, and so does what follows.
void Relay::avoid(RelayPeer &p)
{
	p.avoided = true;
	p.waits = false;
	p.resend = p.outbox.first();
	list(p);
}

// ---- what comes in ----------------------------------------------------------------------------------------------------

void Relay::on_message(int from, uint8_t id, uint64_t header, const void *data, size_t length)
{
	if (id == id_relayed) {
		const auto source = static_cast<uint32_t>(header >> 32), destination = static_cast<uint32_t>(header);
		const auto size = static_cast<uint32_t>(size_);
		if (source >= size || destination >= size || static_cast<int>(source) == rank_ || length < sizeof(Envelope))
			return malformed(from);
		if (static_cast<int>(destination) == rank_)
			return arrived(from, static_cast<int>(source), data, length);
		return pass_on(from, static_cast<int>(destination), header, data, length);
	}
	if (id & id_bare_message)
		return bare_message(from, id & ~id_bare_message, header, data, length);
	if (id != id_credit && id != id_done)
		return client_.on_message(from, id, header, data, length);
	Link &l = link(from);
	l.used = true;
	if (id == id_done) {
		if (header > 1 || length)
			return malformed(from);
		l.heard = true;
		l.heard_answer = header;
		return;
	}
	if (header > credits_ - l.credits || length)
		return malformed(from);
	l.credits += static_cast<uint32_t>(header);
}

void Relay::bare_message(int source, uint8_t id, uint64_t header, const void *data, size_t length)
{
	if (!peers_[static_cast<size_t>(source)] && !serves(source))
		return malformed(source);
	RelayPeer &p = peer(source);
	if (p.down)
		return;
	if (id >= id_relayed || !p.inbox.bare())
		return malformed(source);
	client_.on_message(source, id, header, data, length);
}

void Relay::arrived(int from, int source, const void *data, size_t length)
{
	if (!serves(source))
		return malformed(source);
	RelayPeer &p = peer(source);
	Envelope e;
	std::memcpy(&e, data, sizeof e);
	if (from != source) {
		p.relayed = true;
		link(from).used = true;
	}
	if (e.confirmed == p.outbox.next())
		p.bye_unanswered = false;
	if (p.down) { // it may ask for the answer to its goodbye, which a neighbour has taken along
		if (e.flags & flag_answer) {
			p.confirm(true);
			list(p);
		}
		return;
	}
	const auto *payload = static_cast<const unsigned char *>(data) + sizeof e;
	length -= sizeof e;
	if (p.outbox.confirm(e.confirmed))
		confirmed(p);
	if (automatic_) {
		if (tuner_.heard(e.moment, e.told, now_ns))
			environment_.reporter.add(Counter::forward_changes);
		// It does not know that the trial is over, and bare messages do not say so.
		if (e.moment != tuner_.moment() && !tuner_.in_trial())
			p.confirm(true);
	}
	if (e.flags & flag_answer)
		p.confirm(e.flags & flag_directly);
	if (e.id != id_bare) {
		switch (p.inbox.take(e, payload, length)) {
		case Inbox::Verdict::impossible: return malformed(source);
		case Inbox::Verdict::held: environment_.reporter.add(Counter::forward_early); break;
		case Inbox::Verdict::duplicate:
			environment_.reporter.add(Counter::forward_duplicates);
			p.confirm(true);
			break;
		case Inbox::Verdict::deliver:
			deliver(p, e, payload, length);
			for (Inbox::Held held; !p.down && p.inbox.next(held); p.inbox.give_back(held))
				deliver(p, held.envelope, held.payload, held.length);
		}
		if (p.inbox.untold() >= window_ / 4)
			p.confirm(false);
	}
	// Who leaves waits for that.
	unsigned events = 0;
	if (p.confirm_due && !(p.down && serve(p, events)))
		list(p);
}

void Relay::deliver(RelayPeer &p, const Envelope &e, const void *payload, size_t length)
{
	if (e.id != id_bye)
		return client_.on_message(p.peer, e.id, e.header, payload, length);
	p.bye_unanswered &= !p.waiting(); // it does not leave any more
	lose_peer(p);
	client_.on_peer_down(p.peer, PT2P_ERR_PEER_FINALIZED, "it has called pt2p_finalize");
}

// ---- turns ------------------------------------------------------------------------------------------------------------

unsigned Relay::progress()
{
	unsigned events = 0;
	if (links_busy_) {
		links_busy_ = false;
		for (size_t i = 0; i < neighbours_.size(); ++i) {
			const int rank = neighbours_[i];
			Link &l = link(rank);
			events += flush(rank, l);
			if (l.owed >= credits_ / 4)
				give_credit(rank, l);
			links_busy_ |= l.first != nullptr;
		}
	}
	for (size_t i = 0; i < busy_.size();) {
		RelayPeer &p = *busy_[i];
		if (!serve(p, events)) {
			++i;
			continue;
		}
		p.listed = false;
		busy_[i] = busy_.back();
		busy_.pop_back();
	}
	return events;
}

void Relay::check()
{
	const int64_t now = now_ns(), timeout = leaving_ ? leaving_timeout() : environment_.config.forward_timeout;
	for (auto &place : peers_) {
		if (!place)
			continue;
		RelayPeer &p = *place;
		if (p.down) {
			// It waits for the last confirmation, unless it is gone: then there may be no way to it.
			if (!p.listed || !p.stuck_since)
				p.stuck_since = now;
			else if (now - p.stuck_since > timeout)
				p.confirm_due = p.ask = false;
			continue;
		}
		// Nothing goes back that could take it along.
		if (p.inbox.untold()) {
			p.confirm(false);
			list(p);
		}
		if (p.outbox.empty()) {
			p.stuck_since = 0;
			p.times_avoided = p.avoided ? p.times_avoided : 0;
		} else if (!p.stuck_since || p.outbox.first() != p.seen_first) {
			if (!p.avoided)
				p.times_avoided = 0;
			p.stuck_since = now;
			p.seen_first = p.outbox.first();
			p.patience = timeout;
		} else if (now - p.stuck_since > std::min(p.patience, leaving_ ? timeout : most_patience)) {
			p.stuck_since = now;
			p.patience = std::min(2 * p.patience, most_patience);
			p.avoided_until = now + (detours_off * timeout << std::min(p.times_avoided++, 6u)); // a rank may compute for long
			p.ask = true;
			avoid(p);
		}
		if (p.avoided && now > p.avoided_until && !link(p.next).down)
			p.avoided = false;
	}
}

// Others leave at the same time, and with them goes what they were to pass on: sending it again is cheaper than waiting.
int64_t Relay::leaving_timeout() const { return std::min<int64_t>(environment_.config.forward_timeout, 20'000'000); }

void Relay::say_goodbye()
{
	leaving_ = true;
	patient_until_ = now_ns() + leaving_timeout();
	for (auto &p : peers_)
		if (p && !p->down)
			list(*p);
}

// Whether there is nothing more to say to any peer, and nothing more comes from any.
bool Relay::all_closed() const
{
	const bool late = now_ns() > patient_until_;
	return std::all_of(peers_.begin(), peers_.end(), [&](const auto &p) {
		// Who has said goodbye waits until it is confirmed, but may have been told in another way.
		return !p || (!p->bye_unanswered && !p->listed) || (late && (p->down || (!p->listed && !p->outbox.keeps())));
	});
}

// Tells neighbours that nothing more goes to them as soon as that is so: what comes from another group may have to be passed on
// inside of this one, and what comes from there on this node. Whether all have told the same.
bool Relay::close_links()
{
	Dimension comes = Dimension::none;
	for (const int rank : neighbours_)
		if (const Link &l = *links_[static_cast<size_t>(rank)]; l.used && !l.down && !l.heard)
			comes = std::max(comes, groups_.between(rank_, rank));
	bool over = true;
	for (size_t i = 0; i < neighbours_.size(); ++i) {
		const int rank = neighbours_[i];
		Link &l = link(rank);
		if (!l.over() && !l.first && groups_.between(rank_, rank) >= comes && (!l.told || l.heard > l.told_answer) && open(rank, l) &&
		    send_over(l, id_done, l.heard, nullptr, 0)) {
			l.told = true;
			l.told_answer = l.heard;
		}
		over &= l.over() && !l.first;
	}
	return over;
}

bool Relay::part()
{
	if (!all_closed())
		return false;
	if (!std::exchange(closed_, true))
		patient_until_ = now_ns() + leaving_timeout();
	return close_links() || now_ns() > patient_until_;
}

// ---- what is lost -----------------------------------------------------------------------------------------------------

void Relay::lose_link(int rank)
{
	Link &l = link(rank);
	if (std::exchange(l.down, true))
		return;
	links_busy_ |= l.first != nullptr;
	for (auto &p : peers_)
		if (p && !p->down && p->next == rank)
			avoid(*p);
}

void Relay::lose_peer(RelayPeer &p)
{
	p.down = true;
	p.stuck_since = 0;
	p.outbox.clear();
	p.inbox.clear();
	p.resend = p.outbox.next();
}

void Relay::lose(int rank)
{
	lose_link(rank); // also when there was none: there will not be
	if (auto &p = peers_[static_cast<size_t>(rank)]) {
		lose_peer(*p);
		p->bye_unanswered = p->confirm_due = p->ask = false;
	}
}

void Relay::on_peer_down(int rank, pt2p_status_t status, std::string_view reason)
{
	lose(rank);
	client_.on_peer_down(rank, status, reason);
}

void Relay::abandon(int rank, pt2p_status_t, const std::string &) { lose(rank); }

// ---- the rest ---------------------------------------------------------------------------------------------------------

// Of PT2P_ROUTE=auto.
std::string Relay::reason_for_way() const
{
	std::string text =
	    format("targets would change with %.0f %% of all messages if they went directly, ", 100 * changes_.rate());
	if (!tuner_.trials())
		return text + "and no trial was held";
	text += format("and in %s, the last of which found the way by others %.2f times as quick, the choice changed %s",
	               counted(tuner_.trials(), "trial").c_str(), tuner_.gain(),
	               counted(environment_.reporter.read(Counter::forward_changes), "time").c_str());
	return text + (tuner_.in_trial()
	                   ? "; one is being held"
	                   : "; the next after " + counted(tuner_.rest(), "message"));
}

std::string Relay::describe(int rank)
{
	const RelayPeer &p = peer(rank);
	std::string text = !by_neighbour(p) ? "directly" : format("forwarder %d", p.next);
	if (p.beyond && p.avoided)
		text += format(", as rank %d %s", p.next, link(p.next).down ? "is gone" : "did not pass messages on");
	else if (p.beyond && automatic_)
		text += ", as " + reason_for_way();
	return text + (p.way ? format(", itself by %s", p.way->table->name) : "");
}

void *Relay::expose(void *, size_t, uint64_t &, std::string &why_not)
{
	why_not = "it moves messages only";
	return nullptr;
}

std::string Relay::trouble(int rank)
{
	const RelayPeer *p = peers_[static_cast<size_t>(rank)].get();
	if (!p || p->down || (p->outbox.empty() && !p->listed))
		return {};
	return format("%s not confirmed, forwarder %d%s%s%s",
	              counted(p->outbox.next() - p->outbox.first(), "message").c_str(), p->next,
	              p->avoided ? ", which is avoided" : "", p->listed ? "; there is no room for a message to it" : "",
	              p->told_bye ? "; it has been told that this rank leaves" : "");
}

const TransportTable &Relay::table() const { return relay_table; }

namespace {

Outcome send_relay(Endpoint &endpoint, uint8_t id, uint64_t header, const void *data, size_t length)
{
	auto &peer = static_cast<RelayPeer &>(endpoint);
	return peer.relay.send(peer, id, header, data, length);
}

unsigned progress_relay(Transport &transport) { return static_cast<Relay &>(transport).progress(); }

} // namespace

const TransportTable relay_table = {
    "relay", cap_send, nullptr, send_relay, nullptr, nullptr, nullptr, progress_relay,
};

} // namespace pt2p
