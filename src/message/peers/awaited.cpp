#include "message/peers/awaited.hpp"

#include <string>

#include "base/job/job.hpp"
#include "route/forward/direct_connector.hpp"
#include "route/route.hpp"

namespace pt2p {

AwaitedPeers::AwaitedPeers(const Layers &layers, Job &job, const PeerLosses &losses, TransportEvents &events)
    : layers_(layers), job_(job), losses_(losses), events_(events)
{
}

void AwaitedPeers::examine_calls()
{
	for (const int source : std::vector<int>(by_calls_))
		examine(source);
}

// Without the launcher, only silence tells that a rank is gone. A transport notices silence only of a rank that it is
// connected to.
void AwaitedPeers::examine(int source)
{
	const bool no_launcher = job_.without_launcher() > 0;
	if (source == PT2P_ANY_SOURCE) {
		for (int rank = 0; no_launcher && rank < job_.size(); ++rank)
			examine(rank);
		return;
	}
	Router &router = *layers_.router;
	if (source < 0 || source >= job_.size() || source == job_.rank() || losses_.contain(source) ||
	    router.find(source) || (!reachable_.insert(source).second && !no_launcher))
		return;
	std::string blob, reasons;
	try {
		if (!job_.try_lookup(source, blob))
			reachable_.erase(source); // not started yet: look again
		else if (!router.reachable(source, blob, reasons))
			events_.on_peer_down(source, PT2P_ERR_UNREACHABLE, reasons);
		else if (no_launcher)
			router.connect(source);
	} catch (const Error &e) {
		if (is_of_peer(e.status()))
			events_.on_peer_down(source, e.status(), e.what());
		else
			reachable_.erase(source); // what this rank lacks is no verdict
	}
}

} // namespace pt2p
