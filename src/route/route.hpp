// Routes: which transport carries messages to a peer, connected when it is first needed.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "channel/channel.hpp"
#include "route/groups.hpp"
#include "route/relay.hpp"
#include "transports/device_transport.hpp"

namespace pt2p {

class Router final : public AddressBook {
public:
	// Opens the transports that the configuration allows and publishes this rank's addresses. Throws Error.
	Router(const Config &config, const Topology &topology, Reporter &reporter, Job &job, TransportEvents &events,
	       ChannelClient &client);
	~Router();

	// The channel to `rank` if there is one.
	Channel *find(int rank) const { return channels_[static_cast<size_t>(rank)].get(); }
	// The channel to `rank`, connected now if need be. Throws Error: unreachable, lost, no memory.
	Channel &connect(int rank);

	// After connect() has failed for lack of something here: lets that rank know that nothing can be sent to it.
	bool notify_connect_failure(int rank);

	// Whether a transport reaches the rank that published this blob; if not, why not.
	bool reachable(int rank, const std::string &blob, std::string &reasons) const { return choose(rank, blob, reasons); }

	const TransportEnvironment &environment() const { return environment_; }
	const std::vector<std::unique_ptr<Transport>> &transports() const { return transports_; }
	const std::vector<DeviceTransport *> &device_transports() const { return device_transports_; }
	bool find_address(int rank, const char *transport, std::string &address) override;
	Transport *transport_of(const Endpoint &endpoint) const;
	// How messages on that channel are delivered from now on; nothing where there is no choice.
	void set_delivery(Channel &channel, pt2p_delivery_t delivery);
	// By which this rank itself reaches that one; null when that one has not published its address yet. Throws Error:
	// unreachable, gone.
	Endpoint *direct_endpoint(int rank);
	// Connects to the ranks that have sent something to this one and were never sent anything, so that they hear that it leaves:
	// otherwise what they send, if only a goodbye, would wait for a rank that is gone. False: not all have been looked up yet.
	bool connect_senders();
	// Of messages by way of other ranks; null when PT2P_ROUTE does not ask for them.
	Relay *relay() const { return relay_; }
	// Why a transport of this build is not open: one entry each.
	const std::vector<std::string> &not_open() const { return not_open_; }
	// Why the channel to `rank` does not use the transports before its own: "shm: on another node".
	std::string why(int rank) const;
	// The groups of nodes; null when neither PT2P_GROUPS nor PT2P_ROUTE asks for them.
	const Groups *groups() const { return groups_.get(); }
	// Private memory for a peer that nothing was ever exchanged with, bytes.
	static constexpr size_t bytes_per_silent_peer = sizeof(std::unique_ptr<Channel>);

private:
	Transport *choose(int rank, const std::string &blob, std::string &reasons) const;
	// What all ranks must have the same of for their choices to match.
	std::string rule() const;
	// Why there is to be no reliable connection to `rank` where dct reaches it as well; empty: there is to be one.
	std::string why_not_rc(int rank) const;

	TransportEnvironment environment_;
	ChannelClient &client_;
	std::vector<std::unique_ptr<Transport>> transports_;
	std::vector<DeviceTransport *> device_transports_; // of these
	std::vector<std::string> not_open_;
	std::unique_ptr<Groups> groups_;
	uint32_t groups_sum_ = 0;
	Relay *relay_ = nullptr; // the first of the transports
	Pool<PendingSend> pending_;
	std::vector<std::unique_ptr<Channel>> channels_; // by rank
};

} // namespace pt2p
