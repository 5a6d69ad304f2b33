#include "route/forward/relay.hpp"

#include <utility>

#include "base/clock.hpp"
#include "base/config/config.hpp"
#include "base/job/job.hpp"
#include "base/report/report.hpp"

namespace pt2p {

extern const TransportTable relay_table;

Relay::Relay(const TransportEnvironment &environment, const Groups &groups, int64_t share, DirectConnector &connector)
    : TransportEvents(environment.events.pacing), environment_(environment), client_(environment.events),
      rank_(static_cast<uint32_t>(environment.job.rank())), size_(static_cast<uint32_t>(environment.job.size())),
      sessions_(environment_, groups, share, connector, forwarding_, buffers_),
      forwarding_(environment_, groups, connector, buffers_, sessions_)
{
}

void Relay::set_limit(size_t bytes)
{
	forwarding_.set_limit(bytes);
	sessions_.set_limit(bytes - sizeof(Envelope));
}

void Relay::on_message(int from, uint8_t id, uint64_t header, const void *data, size_t length)
{
	if (id == id_forwarded) {
		const Route route = Route::of(header);
		if (route.source >= size_ || route.destination >= size_ || route.source == rank_ || length < sizeof(Envelope))
			return sessions_.on_malformed(from);
		if (route.destination == rank_)
			return sessions_.on_envelope(from, static_cast<int>(route.source), data, length);
		return forwarding_.send_on(from, route, data, length);
	}
	if (id & id_plain)
		return sessions_.on_plain(from, id & ~id_plain, header, data, length);
	if (id == id_credit)
		return forwarding_.on_credit(from, header, length);
	if (id == id_done)
		return forwarding_.on_done(from, header, length);
	client_.on_message(from, id, header, data, length);
}

void Relay::on_peer_down(int rank, pt2p_status_t status, std::string_view reason)
{
	sessions_.lose(rank);
	client_.on_peer_down(rank, status, reason);
}

void Relay::say_goodbye()
{
	patient_until_ = now_ns() + sessions_.leaving_timeout();
	sessions_.say_goodbye();
}

// Nobody needs a rank as a forwarder once all sessions and then all links are closed. Each of the two waits for a late
// rank, but no longer than leaving_timeout(): what a forwarder that is gone has not forwarded is sent again.
bool Relay::may_leave()
{
	if (!sessions_.closed(now_ns() > patient_until_))
		return false;
	if (!std::exchange(sessions_closed_, true))
		patient_until_ = now_ns() + sessions_.leaving_timeout();
	return forwarding_.close() || now_ns() > patient_until_;
}

// ---- inspection -----------------------------------------------------------------------------------------------------

std::string Relay::describe(int rank)
{
	const Session &s = session(rank);
	std::string text = !sessions_.forwards(s) ? "directly" : format("forwarder %d", s.next_hop);
	if (s.has_forwarder && s.avoids_forwarder)
		text += format(", as rank %d %s", s.next_hop, forwarding_.is_down(s.next_hop) ? "is gone" : "did not forward");
	else if (s.has_forwarder && sessions_.choice().automatic())
		text += ", as " + (s.across ? sessions_.choice().reason() : sessions_.budget().reason());
	return text + (s.direct_endpoint ? format(", itself by %s", s.direct_endpoint->table->name) : "");
}

int Relay::forwarder_of(int rank) const
{
	const Session *s = sessions_.find(rank);
	return s && sessions_.forwards(*s) ? s->next_hop : -1;
}

const Endpoint *Relay::direct_endpoint(int rank) const
{
	const Session *s = sessions_.find(rank);
	return s ? s->direct_endpoint : nullptr;
}

void *Relay::expose(void *, size_t, uint64_t &, std::string &why_not)
{
	why_not = "it moves messages only";
	return nullptr;
}

std::string Relay::trouble(int rank)
{
	const Session *s = sessions_.find(rank);
	if (!s || s->down || (s->outbox.empty() && !s->listed))
		return {};
	return format("%s not confirmed, forwarder %d%s%s%s",
	              counted(s->outbox.next() - s->outbox.first(), "message").c_str(), s->next_hop,
	              s->avoids_forwarder ? ", which is avoided" : "",
	              s->listed ? "; there is no room for a message to it" : "",
	              s->goodbye_sent ? "; it has been told that this rank leaves" : "");
}

// ---- the table ------------------------------------------------------------------------------------------------------

const TransportTable &Relay::table() const { return relay_table; }

namespace {

Outcome send_relay(Endpoint &endpoint, uint8_t id, uint64_t header, const void *data, size_t length)
{
	auto &session = static_cast<Session &>(endpoint);
	return session.sessions.send(session, id, header, data, length);
}

unsigned progress_relay(Transport &transport) { return static_cast<Relay &>(transport).progress(); }

} // namespace

const TransportTable relay_table = {
    "relay", cap_send, nullptr, send_relay, nullptr, nullptr, nullptr, progress_relay,
};

} // namespace pt2p
