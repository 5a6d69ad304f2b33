// The relay: lets other ranks forward the messages of this rank, and forwards theirs. A rank then has connections to
// few, and a DC initiator seldom changes its target.
//
// It decorates the transports below. To the layers above it is a transport, whose endpoints only send: gets, puts and
// atomics go through Endpoint::direct(). To the transports below it is the layer above. It exists only where
// RoutePolicy says that messages may be forwarded.
//
//   Sessions    (sessions.hpp)     end to end: once and in order, whatever path messages take
//   Forwarding  (forwarding.hpp)   hop by hop: links, credits, messages of others
//   RouteChoice (route_choice.hpp) direct or forwarded; the trial of PT2P_ROUTE=auto
#pragma once

#include <string>

#include "base/memory/pool.hpp"
#include "route/forward/direct_connector.hpp"
#include "route/forward/forwarding.hpp"
#include "route/forward/sessions.hpp"
#include "transports/transport.hpp"

namespace pt2p {

class Groups;

// All calls are under the lock of the context.
class Relay final : public Transport, public TransportEvents {
public:
	// `environment.events` is the layer above; `connector` reaches ranks by the transports below.
	// `share`: as RoutePolicy has it.
	Relay(const TransportEnvironment &environment, const Groups &groups, int64_t share, DirectConnector &connector);
	// Longest message that all transports below carry, bytes; known once they are open.
	void set_limit(size_t bytes);
	// Whether nobody makes progress when the program makes no calls; before anything is sent.
	void set_only_in_calls(bool only) { sessions_.only_in_calls = only; }

	// Whether messages to that rank may be forwarded.
	bool serves(int rank) const { return sessions_.serves(rank); }
	Session &session(int rank) { return sessions_.at(rank); }
	const tune::RouteTrial &trial() const { return sessions_.choice().trial(); }
	unsigned progress()
	{
		const unsigned sent_on = forwarding_.progress();
		return sent_on + sessions_.progress();
	}

	// For pt2p_finalize: says goodbye; then, called until it is true, whether this rank may leave.
	void say_goodbye();
	bool may_leave();

	// As the layer above the transports.
	void on_message(int from, uint8_t id, uint64_t header, const void *data, size_t length) override;
	void on_complete(void *operation, pt2p_status_t status, std::string_view reason) override
	{
		client_.on_complete(operation, status, reason);
	}
	void on_peer_down(int rank, pt2p_status_t status, std::string_view reason) override;
	void on_connect_failure(int rank, pt2p_status_t status) override { client_.on_connect_failure(rank, status); }
	void on_datagram(int from, uint8_t id, uint64_t header, const void *data, size_t length) override
	{
		client_.on_datagram(from, id, header, data, length);
	}
	void on_immediate(uint32_t word) override { client_.on_immediate(word); }
	void on_limits_changed(int rank) override { client_.on_limits_changed(rank); }
	// Forwarded messages do not need that connection. A message that needs it tries again.
	void on_refused(int rank, pt2p_status_t status, std::string_view reason) override
	{
		if (!serves(rank))
			client_.on_refused(rank, status, reason);
	}

	// As a transport.
	const TransportTable &table() const override;
	std::string address() override { return {}; }
	bool reaches(int rank, std::string_view, std::string &) override { return serves(rank); }
	Endpoint &connect(int rank, std::string_view) override { return session(rank); }
	void check() override { sessions_.check(); }
	bool arm() override { return sessions_.idle() && forwarding_.idle(); }
	void abandon(int rank, pt2p_status_t, const std::string &) override { sessions_.lose(rank); }
	std::string describe(int rank) override;
	// The rank that short messages to `rank` are sent to at present; -1: they go directly.
	int forwarder_of(int rank) const;
	// Null: there is no direct connection.
	const Endpoint *direct_endpoint(int rank) const;
	void *expose(void *memory, size_t length, uint64_t &key, std::string &why_not) override;
	std::string trouble(int rank) override;

private:
	const TransportEnvironment environment_;
	TransportEvents &client_;
	const uint32_t rank_, size_;
	BufferPool buffers_;
	Sessions sessions_;
	Forwarding forwarding_;
	bool sessions_closed_ = false;
	int64_t patient_until_ = 0; // ns; of a rank that leaves
};

} // namespace pt2p
