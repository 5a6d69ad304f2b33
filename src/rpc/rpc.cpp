#include "rpc/rpc.hpp"

#include "base/config/config.hpp"

namespace pt2p::rpc {

namespace {

constexpr size_t max_lines = 16; // of a report

const char *state_text(const Incoming &in)
{
	switch (in.state) {
	case Incoming::State::coming: return "its input is coming";
	case Incoming::State::queued: return in.service->lanes.empty() ? "waits for a turn" : "waits for pt2p_serve";
	case Incoming::State::running:
		return in.cancelled ? "has no reply yet, the caller waits no more" : "has no reply yet";
	case Incoming::State::ended: return "has a reply, but its handler has not returned";
	default: return "its reply is being sent";
	}
}

} // namespace

CallDefaults Rpc::standard(const Config &config)
{
	const auto input = config.call_input_by == choice::call_input_by::datagram ? PT2P_DELIVERY_DATAGRAM
	                                                                           : static_cast<int>(config.call_input_by);
	return {config.call_deadline, {static_cast<uint8_t>(input), static_cast<uint8_t>(config.call_reply_by)}};
}

Rpc::Rpc(const Config &config, Reporter &reporter, Engine &engine, onesided::OneSided &onesided, int size,
         pt2p_context_t *context)
    : Extension(calls_range), peers_(engine, size, static_cast<uint32_t>(config.call_window), standard(config),
                                     static_cast<unsigned>(config.net_lanes)),
      windows_(onesided, engine), results_(config, reporter, engine, onesided, static_cast<size_t>(size)),
      calls_(engine, reporter, peers_, windows_, static_cast<size_t>(config.call_fetch_bytes)),
      services_(engine, reporter, peers_, windows_, results_, static_cast<size_t>(config.call_queue),
                config.call_header_only, context)
{
	engine.extend(*this);
}

const char *Rpc::on_message(int rank, uint8_t id, uint64_t header, const void *data, size_t length)
{
	Peer &peer = peers_.at(rank);
	if (__builtin_expect(id == id_short_call, 1))
		return services_.on_short_call(peer, header, data, length);
	if (__builtin_expect(id == id_short_reply, 1))
		return calls_.on_short_reply(peer, header, data, length);
	switch (id) {
	case id_call: return services_.on_call(peer, header, false, data, length);
	case id_notice: return services_.on_call(peer, header, true, data, length);
	case id_more: return services_.on_more(peer, header, data, length);
	case id_cancel: return services_.on_cancel(peer, header, data, length);
	case id_reply: return calls_.on_reply(peer, header, data, length);
	case id_rest: return calls_.on_rest(peer, header, data, length);
	case id_pushed: return calls_.on_pushed(peer, header, data, length);
	case id_taken: return length ? wrong_message : calls_.on_taken(peer, header);
	case id_results: return calls_.on_results(peer, header, data, length);
	case id_push_it: return length ? wrong_message : services_.on_push_it(peer, header);
	case id_fetched: return length ? wrong_message : services_.on_fetched(peer, header);
	default: return wrong_message;
	}
}

void Rpc::on_datagram(int rank, uint8_t id, uint64_t header, const void *data, size_t length)
{
	Peer &peer = peers_.at(rank);
	switch (id) {
	case id_short_call:
	case id_call:
	case id_cancel: return services_.on_datagram(peer, id, header, data, length);
	case id_short_reply:
	case id_reply: return calls_.on_datagram(peer, id, header, data, length);
	case id_gone: return calls_.on_gone(peer);
	default: return;
	}
}

void Rpc::describe(int rank, pt2p_calls_info_t &info) const
{
	info.window = peers_.window();
	info.in_flight = info.waiting = info.notices = info.serving = info.fetch_bytes = 0;
	info.fetched = info.reads = 0;
	Peer *peer = peers_.find(rank);
	if (!peer)
		return;
	info.in_flight = peer->in_flight;
	info.waiting = static_cast<uint32_t>(calls_.waiting(*peer));
	if (const FetchSource *source = peer->source()) {
		info.fetch_bytes = static_cast<uint32_t>(source->first_bytes());
		info.fetched = source->fetched;
		info.reads = source->reads;
	}
	info.notices = peer->notices_sent - peer->notices_taken;
	for (const Incoming *in : peer->served)
		info.serving += in && in->state < Incoming::State::replied;
}

void Rpc::on_peer_down(int rank, pt2p_status_t status)
{
	if (Peer *peer = peers_.find(rank)) {
		calls_.end(*peer, status, {}, false);
		services_.end(*peer);
	}
}

void Rpc::on_refused(int rank, pt2p_status_t status, std::string_view reason)
{
	if (Peer *peer = peers_.find(rank)) {
		calls_.end(*peer, status, reason, true);
		services_.end(*peer);
	}
}

unsigned Rpc::drive()
{
	unsigned n = 0;
	if (calls_.awaits_deadlines())
		n += calls_.drive_deadlines();
	if (calls_.has_replies())
		n += calls_.drive_replies();
	if (calls_.fetches())
		n += calls_.drive_fetches();
	if (services_.has_transfers())
		n += services_.drive_transfers();
	if (peers_.busy())
		n += peers_.drive([this](Peer &peer) { return calls_.drive(peer) + services_.drive(peer); });
	if (services_.has_calls())
		n += services_.drive_handlers();
	return n;
}

std::string Rpc::pending_text() const
{
	std::string text;
	size_t lines = 0;
	services_.for_each_call([&](const Incoming &in) {
		if (in.service && lines++ < max_lines)
			text += format("  call of service %u by rank %d: %s\n", in.service->id, in.caller, state_text(in));
	});
	if (lines > max_lines)
		text += format("  and %zu more calls\n", lines - max_lines);
	if (calls_.unawaited())
		text += format("  %zu calls that nobody waits for have not ended\n", calls_.unawaited());
	return text;
}

} // namespace pt2p::rpc
