// Shared segments: making one's own, opening a peer's, and what a peer has to know for it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "memory/shared_file.hpp"
#include "transports/shm/layout.hpp"

namespace pt2p {
struct Config;
}

namespace pt2p::shm {

// What a rank publishes: enough to decide whether its memory can be shared, and to open it.
struct Address {
	uint32_t pid = 0;
	int32_t fd = -1;          // of the segment, in that process
	uint64_t start_time = 0;  // of that process, tells a reused pid apart
	uint64_t base = 0;        // the segment in that process: peers of the same process use it as it is
	uint64_t probe = 0;       // address of probe_value in that process
	uint64_t probe_value = 0; // random
	std::string node_id;

	std::string pack() const;
	// False when the blob is not one of this version's.
	static bool unpack(std::string_view blob, Address &address);
};

// This rank's segment. Reserves the header; rings are reserved by those who write them.
class OwnSegment {
public:
	// numa_node: where the memory goes, -1 for wherever. Throws Error(PT2P_ERR_SHARED_MEMORY) which names the bytes needed
	// and available.
	OwnSegment(const Config &config, uint32_t ranks, int numa_node);
	SegmentHeader *header() const { return static_cast<SegmentHeader *>(map_.memory()); }
	int fd() const { return fd_.get(); }
	// The shape of the rings as this rank made them: what stands in the header can be overwritten by a peer.
	uint32_t slots() const { return slots_; }
	static uint32_t data_bytes(const Config &config);
	uint32_t data_bytes() const { return data_bytes_; }
	// Ring number n, 0 ... ranks-1.
	Ring ring(uint32_t n) const;

private:
	uint32_t ranks_, slots_, data_bytes_;
	FileDescriptor fd_;
	Mapping map_;
};

// A peer's segment: its header, and this rank's ring in it once asked for.
class PeerSegment {
public:
	// Throws Error(PT2P_ERR_SHARED_MEMORY), or Error(PT2P_ERR_PEER_LOST) when that process is gone.
	explicit PeerSegment(const Address &address);
	SegmentHeader *header() const { return header_; }
	// Its shape as it was when it was checked: what stands in the header can be overwritten later.
	uint32_t ranks() const { return ranks_; }
	uint32_t slots() const { return slots_; }
	uint32_t data_bytes() const { return data_bytes_; }
	// Allocates and reserves the ring of local rank `index`; throws Error(PT2P_ERR_SHARED_MEMORY).
	Ring open_ring(uint32_t index);

private:
	uint32_t ranks_ = 0, slots_ = 0, data_bytes_ = 0;
	FileDescriptor fd_; // closed once the ring is there
	Mapping header_map_, ring_map_;
	SegmentHeader *header_ = nullptr;
	bool same_process_ = false;
	int shared_fd_ = -1; // the owner's descriptor, in the same process
};

} // namespace pt2p::shm
