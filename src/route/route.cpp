#include "route/route.hpp"

#include <algorithm>

#include "base/config/config.hpp"
#include "base/job/job.hpp"
#include "base/report/report.hpp"

namespace pt2p {

Router::Router(const Config &config, const Topology &topology, Reporter &reporter, Job &job, TransportEvents &events,
               ChannelClient &client)
    : policy_(config, reporter, job), direct_(config, topology, reporter, job, events, policy_), client_(client),
      channels_(static_cast<size_t>(job.size()))
{
	if (policy_.forwards()) {
		relay_ = std::make_unique<Relay>(environment(), *policy_.groups(), policy_.share(), direct_);
		layers_.push_back(relay_.get());
		direct_.open(*relay_);
		relay_->set_limit(direct_.max_message());
	} else {
		direct_.open(events);
	}
	for (auto &transport : direct_.all())
		layers_.push_back(transport.get());
	direct_.publish();
}

Router::~Router() = default;

Channel &Router::connect(int rank)
{
	auto &channel = channels_[static_cast<size_t>(rank)];
	if (channel)
		return *channel;
	const TransportEnvironment &e = environment();
	const std::string blob = e.job.lookup(rank);
	std::string reasons;
	Transport *transport = direct_.choose(rank, blob, reasons);
	if (!transport)
		throw Error(PT2P_ERR_UNREACHABLE, reasons);
	Endpoint &endpoint = relay_ && relay_->serves(rank)
	                         ? relay_->session(rank)
	                         : transport->connect(rank, address_part(blob, transport->table().name));
	channel = std::make_unique<Channel>(endpoint, e.config.eager_max, pending_, client_);
	e.reporter.add(Counter::peers_connected);
	return *channel;
}

Channel *Router::datagrams(int rank)
{
	if (Channel *known = find_datagrams(rank))
		return known;
	const TransportEnvironment &e = environment();
	const std::string blob = e.job.lookup(rank);
	Transport *transport = direct_.choose_datagrams(rank, blob);
	if (!transport)
		return nullptr;
	datagrams_.resize(channels_.size());
	Endpoint &endpoint = transport->connect(rank, address_part(blob, transport->table().name));
	auto &channel = datagrams_[static_cast<size_t>(rank)];
	channel = std::make_unique<Channel>(endpoint, e.config.eager_max, pending_, client_);
	return channel.get();
}

bool Router::notify_connect_failure(int rank)
{
	const TransportEnvironment &e = environment();
	try {
		std::string blob, reasons;
		if (!e.job.try_lookup(rank, blob))
			return false;
		Transport *transport = direct_.choose(rank, blob, reasons);
		return transport && transport->notify_connect_failure(rank, address_part(blob, transport->table().name));
	} catch (const Error &error) {
		e.reporter.log(LogLevel::info, "rank %d is not told that nothing can be sent to it: %s", rank, error.what());
		return false;
	}
}

bool Router::connect_senders()
{
	std::vector<int> ranks;
	for (DeviceTransport *transport : device_transports())
		transport->unconnected_senders(ranks);
	bool all = true;
	for (const int rank : ranks) {
		try {
			all &= direct_.try_connect(rank, false) != nullptr;
		} catch (const Error &error) {
			environment().reporter.log(LogLevel::info, "rank %d is not told that this rank leaves: %s", rank,
			                           error.what());
			for (Transport *layer : layers_)
				layer->abandon(rank, error.status(), error.what());
		}
	}
	return all;
}

bool Router::may_forget(int rank) const
{
	for (Channel *c : {find(rank), find_datagrams(rank)})
		if (c && c->is_listed())
			return false;
	return std::all_of(layers_.begin(), layers_.end(), [rank](Transport *layer) { return layer->may_forget(rank); });
}

void Router::forget_peer(int rank)
{
	channels_[static_cast<size_t>(rank)].reset();
	if (!datagrams_.empty())
		datagrams_[static_cast<size_t>(rank)].reset();
	for (Transport *layer : layers_)
		layer->forget_peer(rank);
}

std::string Router::why(int rank) const
{
	std::string blob, reasons;
	try {
		if (environment().job.try_lookup(rank, blob))
			reachable(rank, blob, reasons);
	} catch (const Error &) {
		// That rank has left, and its addresses with it.
	}
	return reasons;
}

void Router::set_delivery(Channel &channel, pt2p_delivery_t delivery)
{
	Transport *transport = transport_of(channel.endpoint.direct());
	if (DeviceTransport *device = transport ? transport->as_device() : nullptr)
		device->set_delivery(channel.peer, delivery);
}

Outcome Router::send_by(Channel &channel, pt2p_delivery_t delivery, uint8_t id, uint64_t header, const void *data,
                        size_t length) const
{
	DeviceTransport *device = device_of(channel);
	if (!device)
		return channel.try_send(id, header, data, length);
	return channel.waiting() ? Outcome::no_resource
	                         : device->send_by(channel.endpoint, delivery, id, header, data, length);
}

Transport *Router::transport_of(const Endpoint &endpoint) const
{
	for (Transport *layer : layers_)
		if (&layer->table() == endpoint.table)
			return layer;
	return nullptr;
}

} // namespace pt2p
