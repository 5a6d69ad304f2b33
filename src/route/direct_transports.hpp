// The transports of this rank: opens them, publishes their addresses, and chooses one for each peer.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "route/forward/direct_connector.hpp"
#include "transports/device_transport.hpp"

namespace pt2p {

class RoutePolicy;

class DirectTransports final : public AddressBook, public DirectConnector {
public:
	// Throws Error when PT2P_TRANSPORTS names an unknown transport.
	DirectTransports(const Config &config, const Topology &topology, Reporter &reporter, Job &job,
	                 TransportEvents &engine, const RoutePolicy &policy);
	DirectTransports(const DirectTransports &) = delete;
	DirectTransports &operator=(const DirectTransports &) = delete;

	// Opens the transports that the configuration allows; `events` is the layer above them. Throws Error.
	void open(TransportEvents &events);
	// Publishes the addresses, once all are open.
	void publish();
	// Longest message that all of them carry on any rank, bytes; once they are open.
	size_t max_message() const { return max_message_; }

	// With the engine as the layer above.
	const TransportEnvironment &environment() const { return environment_; }
	const std::vector<std::unique_ptr<Transport>> &all() const { return transports_; }
	const std::vector<DeviceTransport *> &of_devices() const { return device_transports_; }
	// Why a transport of this build is not open: one entry each.
	const std::vector<std::string> &not_open() const { return not_open_; }

	// The transport to the rank that has published this blob. Null: none reaches it, and `reasons` says why. Otherwise
	// `reasons` says why those before it in the order of preference are not used.
	Transport *choose(int rank, const std::string &blob, std::string &reasons, bool keep_few_connections = false) const;
	// The transport for datagrams to that rank; null: there is none, or no device is between.
	Transport *choose_datagrams(int rank, const std::string &blob) const;
	Endpoint *try_connect(int rank, bool keep_few_connections) override;
	bool find_address(int rank, const char *transport, std::string &address) override;

private:
	const TransportEnvironment environment_;
	const RoutePolicy &policy_;
	std::vector<std::unique_ptr<Transport>> transports_;
	std::vector<DeviceTransport *> device_transports_; // of these
	std::vector<std::string> not_open_;
	size_t max_message_ = SIZE_MAX;
};

} // namespace pt2p
