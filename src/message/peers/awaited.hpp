// Finds out whether ranks exist that something is awaited from: whoever waits for a rank that no transport reaches
// would wait for ever. Senders find out when they connect.
#pragma once

#include <algorithm>
#include <set>
#include <vector>

#include "message/layers.hpp"
#include "message/peers/losses.hpp"

namespace pt2p {

class Job;
class TransportEvents;

class AwaitedPeers {
public:
	// `events` is told of ranks that cannot be reached.
	AwaitedPeers(const Layers &layers, Job &job, const PeerLosses &losses, TransportEvents &events);

	// While one exists, a call waits for that rank without a receive; PT2P_ANY_SOURCE: for any rank.
	class Awaiting {
	public:
		Awaiting(AwaitedPeers &peers, int source) : peers_(peers), source_(source)
		{
			peers_.by_calls_.push_back(source);
		}
		~Awaiting() { peers_.by_calls_.erase(std::find(peers_.by_calls_.begin(), peers_.by_calls_.end(), source_)); }
		Awaiting(const Awaiting &) = delete;
		Awaiting &operator=(const Awaiting &) = delete;

	private:
		AwaitedPeers &peers_;
		const int source_;
	};

	// Somebody waits for that rank, or PT2P_ANY_SOURCE.
	void examine(int source);
	// All that calls wait for without a receive.
	void examine_calls();
	// That rank will be somebody else.
	void forget(int rank) { reachable_.erase(rank); }

private:
	const Layers &layers_;
	Job &job_;
	const PeerLosses &losses_;
	TransportEvents &events_;
	std::vector<int> by_calls_;
	std::set<int> reachable_; // nobody needs to look again
};

} // namespace pt2p
