// Whose failure it is when a connection cannot be made.
#pragma once

#include "pt2p.h"

namespace pt2p {

// Whether it is the other rank's, and lasts. Else this rank lacks something, and the next try may succeed. An address
// that cannot be had is the other's: the launcher is gone, or refuses it, for good.
inline bool is_of_peer(pt2p_status_t status)
{
	return status == PT2P_ERR_PEER_LOST || status == PT2P_ERR_PEER_FINALIZED || status == PT2P_ERR_PROTOCOL ||
	       status == PT2P_ERR_UNREACHABLE || status == PT2P_ERR_EXCHANGE;
}

} // namespace pt2p
