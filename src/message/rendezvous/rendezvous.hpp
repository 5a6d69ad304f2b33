// Messages that are announced before their data moves; wire.hpp draws the protocol.
#pragma once

#include <cstdint>
#include <string_view>

#include "message/peers/channels.hpp"
#include "message/rendezvous/runs.hpp"
#include "message/request/requests.hpp"
#include "message/wire.hpp"

namespace pt2p {

class Rendezvous final : private RunReader::Client {
public:
	Rendezvous(const Config &config, Reporter &reporter, const PeerLosses &losses, Channels &channels,
	           Exposures &exposures, Requests &requests, ProgressClient &progress)
	    : config_(config), reporter_(reporter), losses_(losses), channels_(channels), exposures_(exposures),
	      requests_(requests), runs_(channels, requests, progress, *this)
	{
	}

	// Send.
	[[gnu::noinline]] void announce(Request &request, Channel &channel, const uint64_t *data = nullptr);
	// The peer takes no more eager messages: those that still wait here for room are announced instead, in their order.
	void announce_queued(Channel &channel);

	// Receive. Whether there is a channel to answer an announcement of `length` bytes on. If not, the receive has
	// failed, and a later one can have the message, unless its sender is gone.
	bool can_answer(Request &request, int peer, uint64_t tag, size_t length);
	// After can_answer().
	void fetch(Request &request, int peer, const wire::Announcement &announcement);
	// A synchronous message has met its receive.
	void acknowledge(int peer, uint64_t token);

	// From the peer of a message, whichever side it is on. False: it does not carry what such a message must.
	bool on_control(int peer, uint8_t id, uint64_t token, const void *data, size_t length);
	// A get or put of the request with that handle is over.
	void on_complete(uint64_t handle, pt2p_status_t status, std::string_view reason);
	bool has_work() const { return runs_.has_work(); }
	unsigned drive() { return runs_.drive(); }

private:
	wire::Announcement announcement(Request &request, Channel &channel, const void *data, size_t length);
	void on_accept(int peer, uint64_t token, const wire::Acceptance &acceptance);
	void on_piece(int peer, uint64_t token, const void *data, size_t length);
	void on_finished(int peer, uint64_t token, uint32_t status);
	void on_written(int peer, uint64_t token, uint32_t status);
	bool get(Request &request, Endpoint &endpoint, const wire::Announcement &announcement);
	void accept(Request &request, Channel &channel, bool expose_buffer);
	void finish_writing(Request &request, pt2p_status_t status, std::string_view reason = {});
	void finish_fetch(Request &request, pt2p_status_t status, std::string_view reason = {});
	void arrived(Request &request);
	void stream_segments(Request &request, Channel &channel, uint64_t token, size_t length);
	void on_runs_read(Request &request, pt2p_status_t status) override { finish_fetch(request, status); }
	void on_runs_refused(Request &request, Channel &channel) override { accept(request, channel, false); }

	const Config &config_;
	Reporter &reporter_;
	const PeerLosses &losses_;
	Channels &channels_;
	Exposures &exposures_;
	Requests &requests_;
	RunReader runs_;
};

} // namespace pt2p
