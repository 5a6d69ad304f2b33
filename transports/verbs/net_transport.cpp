#include "transports/verbs/net_transport.hpp"

#include <algorithm>
#include <cstring>

#include "base/clock.hpp"
#include "base/config/config.hpp"
#include "base/job/job.hpp"

namespace pt2p::verbs {

size_t NetTransport::longest_message(const Config &config) { return Net::max_payload(config.net_message_bytes); }

NetTransport::NetTransport(const TransportEnvironment &environment, std::shared_ptr<Net> net)
    : environment_(environment), net_(std::move(net)), peers_(static_cast<size_t>(environment.job.size()))
{
}

NetTransport::~NetTransport()
{
	for (auto &peer : peers_)
		if (peer)
			net_->drop_peer(peer->peer);
}

std::string NetTransport::address()
{
	const uint64_t bytes = environment_.config.net_message_bytes;
	return queue_address() + std::string(reinterpret_cast<const char *>(&bytes), sizeof bytes);
}

bool NetTransport::reaches(int, std::string_view text, std::string &why_not)
{
	PortAddress port;
	uint64_t bytes;
	if (text.size() != address().size()) {
		why_not = "its address is of another version of libpt2p";
		return false;
	}
	// A message has to fit into the buffers of every rank.
	std::memcpy(&bytes, text.data() + text.size() - sizeof bytes, sizeof bytes);
	if (bytes != environment_.config.net_message_bytes) {
		why_not = format("that rank has PT2P_NET_MESSAGE_BYTES=%llu and this one %llu: all ranks must have the same",
		                 static_cast<unsigned long long>(bytes),
		                 static_cast<unsigned long long>(environment_.config.net_message_bytes));
		return false;
	}
	std::memcpy(&port, text.data(), sizeof port);
	return net_->device().reaches(port, why_not);
}

void NetTransport::check()
{
	net_->check(this);
	const int64_t now = now_ns();
	for (auto &p : peers_) {
		if (!p || !p->ready)
			continue;
		if (std::exchange(p->answered, false))
			p->last_sign = now;
		if (now - p->last_sign <= environment_.config.net_probe_time)
			continue;
		p->last_sign = now;
		// Probe, unless something in flight serves as well.
		if (SendQueue *queue = p->acquire())
			p->in_flight ? queue->flush() : queue->probe(*p);
	}
}

Outcome NetTransport::send_by(Endpoint &endpoint, pt2p_delivery_t delivery, uint8_t id, uint64_t header,
                              const void *data, size_t length)
{
	const WriteRings::Override by(net_->rings, static_cast<NetPeer &>(endpoint), delivery);
	return endpoint.table->send(endpoint, id, header, data, length);
}

void NetTransport::set_delivery(int rank, pt2p_delivery_t delivery)
{
	if (NetPeer *peer = peers_[static_cast<size_t>(rank)].get())
		net_->rings.set_delivery(*peer, delivery);
}

uint32_t NetTransport::consumed(int rank)
{
	const NetPeer *peer = peers_[static_cast<size_t>(rank)].get();
	if (!peer || !peer->incoming)
		return 0;
	if (!peer->incoming->retired()) // then each count is written, too
		peer->incoming->reported();
	return peer->incoming->read();
}

void NetTransport::report_consumed(int rank)
{
	NetPeer *peer = peers_[static_cast<size_t>(rank)].get();
	if (peer && peer->incoming && !peer->down)
		net_->rings.report_read(*peer);
}

void NetTransport::on_consumed(int rank, uint32_t consumed)
{
	if (NetPeer *peer = peers_[static_cast<size_t>(rank)].get())
		peer->ring.was_read(consumed);
}

std::string NetTransport::describe(int rank)
{
	const NetPeer *peer = peers_[static_cast<size_t>(rank)].get();
	const std::string tuned = peer && peer->tuner ? peer->tuner->describe(net_->tuner.ticks_in_a_ns()) : "";
	std::string text = "zero-copy, " + net_->device().name;
	// The device's queue may be shorter than requested.
	const uint32_t depth = peer ? queues_for(*peer).front()->depth() : net_->shared.depth;
	if (depth != net_->shared.depth)
		text += format(", %u of %u work requests at a time (PT2P_NET_SEND_DEPTH)", depth, net_->shared.depth);
	return text + (tuned.empty() ? "" : ", " + tuned);
}

void NetTransport::abandon(int rank, pt2p_status_t status, const std::string &reason)
{
	if (NetPeer *peer = peers_[static_cast<size_t>(rank)].get())
		net_->take_down(*peer, status, reason);
	else
		net_->forget_unconnected(rank);
}

bool NetTransport::may_forget(int rank)
{
	NetPeer *peer = peers_[static_cast<size_t>(rank)].get();
	if (!peer)
		return true;
	// Its goodbye, if there was one, is acknowledged: it has left, or this rank would not be asked.
	if (peer->down && peer->in_flight)
		peer->cut();
	return peer->down && !peer->in_flight;
}

void NetTransport::forget_peer(int rank)
{
	std::unique_ptr<NetPeer> &peer = peers_[static_cast<size_t>(rank)];
	if (peer)
		net_->rings.forget(*peer);
	net_->forget_peer(rank);
	peer.reset();
}

NetPeer &NetTransport::add(int rank, std::unique_ptr<NetPeer> peer)
{
	peer->table = &table();
	peer->peer = rank;
	peer->capabilities = table().capabilities;
	peer->max_send = net_->max_payload();
	peer->net = net_.get();
	peer->from = MessageHeader::pack(environment_.job.rank_at(rank), 0);
	peer->last_sign = now_ns();
	net_->set_peer(*peer);
	return *(peers_[static_cast<size_t>(rank)] = std::move(peer));
}

} // namespace pt2p::verbs
