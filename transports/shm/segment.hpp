// Shared segments: making one's own, opening a peer's, and what a peer has to know for it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/job/secret.hpp"
#include "base/memory/shared_file.hpp"
#include "transports/shm/layout.hpp"

namespace pt2p {
struct Config;
}

namespace pt2p::shm {

// Nothing in a segment is its owner's secret itself: who shows something adds a proof, a keyed hash of it, so that
// whoever reads a segment learns no proof but those that are there.
inline uint64_t owner_proof(const Secret &secret)
{
	const uint64_t who = UINT64_MAX;
	return proof_of(secret, &who, sizeof who);
}
inline uint64_t entry_of(const Secret &secret, uint32_t index, uint16_t facts)
{
	const uint64_t said = uint64_t{facts} << 32 | index;
	return Entry::pack(facts, proof_of(secret, &said, sizeof said));
}

// The size of a segment's parts: its owner's choice. Powers of two, but for the ranks.
struct Shape {
	uint32_t ranks = 0;      // of the node
	uint32_t slots = 0;      // of each ring
	uint32_t data_bytes = 0; // of each ring
	uint32_t room = 0;       // of these, what a ring has from the start: enough for any message that goes unasked
};

Shape shape_of(const Config &config, uint32_t ranks);
// That a ring of this shape carries in any case, bytes.
size_t longest_payload(const Shape &shape);

// What a rank publishes: enough to decide whether its memory can be shared, to open it, and to be let in.
struct Address {
	uint32_t pid = 0;
	int32_t fd = -1;          // of the segment, in that process
	uint64_t start_time = 0;  // of that process, tells a reused pid apart
	uint64_t base = 0;        // the segment in that process: peers of the same process use it as it is
	uint64_t probe = 0;       // address of probe_value in that process
	uint64_t probe_value = 0; // random
	Secret secret;
	Shape shape;
	std::string node_id;

	std::string pack() const;
	// False when the blob is not one of this version's.
	static bool unpack(std::string_view blob, Address &address);
};

// This rank's segment. Reserves the header; rings get their memory from those who write them.
class OwnSegment {
public:
	// numa_node: where the memory goes, -1 for wherever. Throws Error(PT2P_ERR_SHARED_MEMORY) which names the bytes
	// needed and available.
	OwnSegment(const Config &config, const Secret &secret, uint32_t ranks, int numa_node);
	SegmentHeader *header() const { return static_cast<SegmentHeader *>(map_.memory()); }
	int fd() const { return fd_.get(); }
	const Shape &shape() const { return shape_; }
	const Secret &secret() const { return secret_; }
	// The ring of local rank `index`.
	Ring ring(uint32_t index) const;
	// Makes everything that belongs to local rank `index` as it was at first. Nobody may use it.
	void clear(uint32_t index) const;

private:
	Shape shape_;
	Secret secret_;
	FileDescriptor fd_;
	Mapping map_;
};

// A peer's segment: its header, and this rank's ring in it once asked for.
class PeerSegment {
public:
	// Throws Error: PT2P_ERR_SHARED_MEMORY or PT2P_ERR_SYSTEM when it cannot be opened, PT2P_ERR_PEER_LOST when that
	// process is gone, PT2P_ERR_PROTOCOL when what it has there now is not the segment that it published.
	// `within_process`: a segment of this process is used where it is, and has to outlive this.
	explicit PeerSegment(const Address &address, bool within_process = true);
	SegmentHeader *header() const { return header_; }
	const Shape &shape() const { return shape_; }
	// The ring of local rank `index`, with memory for `room` bytes of data, which may come out larger. Throws
	// Error(PT2P_ERR_SHARED_MEMORY); then nothing has happened.
	Ring open_ring(uint32_t index, uint32_t &room);
	// Gives the ring memory for `room` bytes of data; false when there is none.
	bool grow(const Ring &ring, uint32_t room);
	// Shows the owner that local rank `index` writes into its ring; or that it could not get one, once more.
	void show(uint32_t index, bool open);

private:
	Shape shape_;
	Secret secret_;
	uint16_t facts_ = 0; // shown, see Entry
	FileDescriptor fd_;  // closed once the ring is there
	Mapping header_map_, ring_map_;
	SegmentHeader *header_ = nullptr;
	bool same_process_ = false;
	int shared_fd_ = -1; // the owner's descriptor, in the same process
};

} // namespace pt2p::shm
