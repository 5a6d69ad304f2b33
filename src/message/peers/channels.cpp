#include "message/peers/channels.hpp"

namespace pt2p {

Channel *Channels::connect(int rank, pt2p_status_t &status)
{
	if (const PeerLosses::Loss *loss = losses_.find(rank)) {
		status = reporter_.fail(loss->status, "rank %d: %s", rank, loss->reason.c_str());
		return nullptr;
	}
	try {
		Channel &c = router().connect(rank);
		losses_.reached(rank);
		return &c;
	} catch (const Error &e) {
		status = e.status();
		// Gone when this rank first looked for it. Anything else may be otherwise in the next call.
		if (status == PT2P_ERR_PEER_LOST || status == PT2P_ERR_PEER_FINALIZED)
			events_.on_peer_down(rank, status, e.what());
		else
			losses_.unreached(rank, e.what());
		reporter_.fail(status, "rank %d: %s", rank, e.what());
	}
	return nullptr;
}

pt2p_peer_state_t Channels::state(int rank) const
{
	if (const PeerLosses::Loss *loss = losses_.find(rank))
		return loss->status == PT2P_ERR_PEER_FINALIZED ? PT2P_PEER_FINALIZED : PT2P_PEER_LOST;
	return find(rank) ? PT2P_PEER_ALIVE : PT2P_PEER_UNKNOWN;
}

std::string Channels::why_unreached(int rank) const
{
	if (const PeerLosses::Loss *loss = losses_.find(rank))
		return loss->reason;
	const std::string *why = losses_.why_unreached(rank);
	return why ? *why : "";
}

void Channels::declare_down(int peer, pt2p_status_t status, const std::string &reason)
{
	// The transports first: what they still move for this peer ends before its buffers go back to the caller.
	for (Transport *t : router().layers())
		t->abandon(peer, status, reason);
	events_.on_peer_down(peer, status, reason);
}

void Channels::malformed(int peer, const char *what)
{
	declare_down(peer, PT2P_ERR_PROTOCOL, format("it sent %s", what));
}

} // namespace pt2p
