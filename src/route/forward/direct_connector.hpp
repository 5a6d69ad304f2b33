// How the relay reaches a rank without a forwarder: by a transport below.
#pragma once

#include "pt2p.h"

namespace pt2p {

struct Endpoint;

// Whether a failure to connect is of the other rank, and lasts, and not for lack of something here. That its address
// cannot be had lasts, too: the launcher is gone, or refuses it.
constexpr bool is_of_peer(pt2p_status_t status)
{
	return status == PT2P_ERR_PEER_LOST || status == PT2P_ERR_PEER_FINALIZED || status == PT2P_ERR_PROTOCOL ||
	       status == PT2P_ERR_UNREACHABLE || status == PT2P_ERR_EXCHANGE;
}

class DirectConnector {
public:
	// The endpoint to `rank`, connected on first use. Null: that rank has not published its addresses yet.
	// `keep_few_connections`: not by a reliable connection where dct reaches that rank as well, and it is not one that
	// forwards for this one. Throws Error: unreachable, gone, no resources.
	virtual Endpoint *try_connect(int rank, bool keep_few_connections) = 0;

protected:
	~DirectConnector() = default;
};

} // namespace pt2p
