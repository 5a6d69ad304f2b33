// Routes: how messages go to each peer, connected on first use.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "channel/channel.hpp"
#include "route/direct_transports.hpp"
#include "route/forward/relay.hpp"
#include "route/groups/groups.hpp"
#include "route/policy.hpp"

namespace pt2p {

class Router final {
public:
	// Opens the transports that the configuration allows and publishes this rank's addresses. Throws Error.
	Router(const Config &config, const Topology &topology, Reporter &reporter, Job &job, TransportEvents &events,
	       ChannelClient &client);
	~Router();

	// The channel to `rank` if there is one.
	Channel *find(int rank) const { return channels_[static_cast<size_t>(rank)].get(); }
	// The channel to `rank`, connected on first use. Throws Error: unreachable, lost, no memory.
	Channel &connect(int rank);
	// A channel for datagrams to `rank`, connected on first use; null: there is none. Throws Error.
	Channel *datagrams(int rank);
	// The same if there is one.
	Channel *find_datagrams(int rank) const
	{
		return datagrams_.empty() ? nullptr : datagrams_[static_cast<size_t>(rank)].get();
	}
	// After connect() has failed for lack of something here: lets that rank know that nothing can be sent to it.
	bool notify_connect_failure(int rank);
	// For a rank that leaves: connects to the ranks that have sent something and were never sent anything, so that they
	// get a goodbye; otherwise their own would wait for a rank that is gone. False: not all have been looked up yet.
	bool connect_senders();

	// Whether a transport reaches the rank that published this blob; if not, why not.
	bool reachable(int rank, const std::string &blob, std::string &reasons) const
	{
		return direct_.choose(rank, blob, reasons);
	}
	// Why the channel to `rank` does not use the transports before its own: "shm: on another node".
	std::string why(int rank) const;
	// How messages on that channel are delivered from now on; nothing where there is no choice.
	void set_delivery(Channel &channel, pt2p_delivery_t delivery);
	// As Channel::try_send, in that way if a device is between.
	Outcome send_by(Channel &channel, pt2p_delivery_t delivery, uint8_t id, uint64_t header, const void *data,
	                size_t length) const;

	// How many messages of that rank this rank has read from its write ring; 0: there is no ring. The caller tells the
	// rank. The device tells it again only after report_consumed().
	uint32_t consumed(const Channel &channel) const
	{
		DeviceTransport *device = device_of(channel);
		return device ? device->consumed(channel.peer) : 0;
	}
	void report_consumed(const Channel &channel) const
	{
		if (DeviceTransport *device = device_of(channel))
			device->report_consumed(channel.peer);
	}
	// That rank has told so.
	void on_consumed(const Channel &channel, uint32_t consumed) const
	{
		DeviceTransport *device = consumed ? device_of(channel) : nullptr;
		if (device)
			device->on_consumed(channel.peer, consumed);
	}

	// A peer that is down gets forgotten, as its rank will be somebody else. False: something refers to it.
	bool may_forget(int rank) const;
	void forget_peer(int rank);

	const TransportEnvironment &environment() const { return direct_.environment(); }
	const std::vector<std::unique_ptr<Transport>> &transports() const { return direct_.all(); }
	const std::vector<DeviceTransport *> &device_transports() const { return direct_.of_devices(); }
	// This memory is about to be unmapped: no device keeps a registration of it.
	void forget(void *memory, size_t length) const
	{
		for (DeviceTransport *transport : device_transports())
			transport->forget(memory, length);
	}
	// Why a transport of this build is not open: one entry each.
	const std::vector<std::string> &not_open() const { return direct_.not_open(); }
	// Forwards messages; null where none are forwarded (RoutePolicy).
	Relay *relay() const { return relay_.get(); }
	// All that make endpoints, from the top: the relay, if there is one, and the transports.
	const std::vector<Transport *> &layers() const { return layers_; }
	// Of layers(); null for an endpoint of none.
	Transport *transport_of(const Endpoint &endpoint) const;
	// The device that moves the messages of that channel; null: none does.
	DeviceTransport *device_of(const Channel &channel) const
	{
		Transport *transport = transport_of(channel.endpoint);
		return transport ? transport->as_device() : nullptr;
	}
	const RoutePolicy &policy() const { return policy_; }
	// Private memory for a peer that nothing was ever exchanged with, bytes.
	static constexpr size_t bytes_per_silent_peer = sizeof(std::unique_ptr<Channel>);

private:
	const RoutePolicy policy_;
	DirectTransports direct_;
	std::unique_ptr<Relay> relay_;
	std::vector<Transport *> layers_;
	ChannelClient &client_;
	Pool<PendingSend> pending_;
	std::vector<std::unique_ptr<Channel>> channels_;  // by rank
	std::vector<std::unique_ptr<Channel>> datagrams_; // the same; empty until one was asked for
};

} // namespace pt2p
