// The channels to all peers: connects them on first use, and drives those in which something waits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/memory/work_list.hpp"
#include "channel/channel.hpp"
#include "message/layers.hpp"
#include "message/peers/losses.hpp"
#include "progress/progress.hpp"
#include "route/route.hpp"

namespace pt2p {

class Channels {
public:
	// `events` is told of peers that are gone, `client` of work for the next turn.
	Channels(const Layers &layers, PeerLosses &losses, Reporter &reporter, TransportEvents &events,
	         ProgressClient &client)
	    : layers_(layers), losses_(losses), reporter_(reporter), events_(events), client_(client)
	{
	}

	Router &router() const { return *layers_.router; }
	// Null: there is none yet.
	Channel *find(int rank) const { return layers_.router->find(rank); }
	// Connects if need be. Null when the rank cannot be reached: `status` says why, and the explanation has been
	// recorded.
	Channel *reach(int rank, pt2p_status_t &status)
	{
		Channel *c = find(rank);
		return __builtin_expect(c && !c->down(), 1) ? c : connect(rank, status);
	}
	pt2p_peer_state_t state(int rank) const;
	// After reach() has failed.
	std::string why_unreached(int rank) const;

	void control(Channel &channel, uint8_t id, uint64_t header, const void *data, size_t length)
	{
		if (channel.send_control(id, header, data, length))
			list(channel);
	}
	// Something waits in that channel.
	void list(Channel &channel)
	{
		busy_.add(channel);
		client_.has_work = true;
	}
	bool busy() const { return !busy_.empty(); }
	// Sends what there is room for; returns how many messages went.
	unsigned drive()
	{
		return busy_.drive([](Channel &c) { return c.drive(); });
	}

	// Ends everything with a peer.
	void declare_down(int peer, pt2p_status_t status, const std::string &reason);
	// The same with a peer that has sent `what`, which it must not.
	void malformed(int peer, const char *what);

private:
	[[gnu::noinline, gnu::cold]] Channel *connect(int rank, pt2p_status_t &status);

	const Layers &layers_;
	PeerLosses &losses_;
	Reporter &reporter_;
	TransportEvents &events_;
	ProgressClient &client_;
	WorkList<Channel> busy_;
};

} // namespace pt2p
