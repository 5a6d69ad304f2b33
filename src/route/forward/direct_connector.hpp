// How the relay reaches a rank without a forwarder: by a transport below.
#pragma once

namespace pt2p {

struct Endpoint;

class DirectConnector {
public:
	// The endpoint to `rank`, connected on first use. Null: that rank has not published its addresses yet. Throws Error:
	// unreachable, gone, no resources.
	virtual Endpoint *try_connect(int rank) = 0;

protected:
	~DirectConnector() = default;
};

} // namespace pt2p
