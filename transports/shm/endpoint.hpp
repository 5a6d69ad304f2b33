// What the shm transport keeps of a peer.
#pragma once

#include <cstdint>
#include <memory>
#include <sys/types.h>

#include "base/memory/shared_file.hpp"
#include "transports/shm/pace.hpp"
#include "transports/shm/ring.hpp"
#include "transports/shm/segment.hpp"
#include "transports/transport.hpp"

namespace pt2p::shm {

class ShmTransport;

// The ring to the peer, and the ring from it. Made when either direction is first used.
struct ShmEndpoint final : Endpoint {
	ShmTransport *transport = nullptr;
	Writer out;
	Reader in;
	bool hot = false;      // `in` is polled
	bool fence = false;    // its segment, or this process, does without membarrier
	bool starved = false;  // a send found no room
	bool down = false;     // reported lost or finalized
	bool attached = false; // its segment is mapped here
	bool said_bye = false;
	bool cannot_grow = false; // there was no memory for more room in `out`
	uint64_t shown = 0;       // its directory entry in this rank's segment, as last seen and genuine
	uint32_t index = 0;       // local index of the peer
	uint32_t own_index = 0;   // of this rank, in the peer's segment
	pid_t pid = 0;
	bool same_process = false; // and uses its memory as it is
	Pace pace;
	uint32_t claims_busy = 0; // bits
	uint32_t generation = 0;  // of the last claim
	std::unique_ptr<PeerSegment> segment;
	FileDescriptor process; // pidfd
	uint64_t start_time = 0;
};

} // namespace pt2p::shm
