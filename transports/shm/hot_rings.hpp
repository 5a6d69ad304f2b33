// Which rings are polled:
//
//        first message, or            traffic                 idle for a sweep,
//        doorbell                                             or about to sleep
//   (none) ---------> [ dozing ] --------------> [ hot ] ---------------------> [ dozing ]
//
// The owner polls its hot rings only. The writer of a dozing ring finds `attention` set and rings the owner's doorbell.
//
// A ring goes from hot to dozing with an asymmetric handshake: Dekker's, in which only the rare side executes a fence.
// The owner sets `attention`, makes every writer's core fence with membarrier(2), and looks once more. The writer
// stores its message and loads `attention`, without a fence.
//
// To sleep, a rank makes all its rings dozing and sets `sleeping`, so that writers wake it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/memory/membarrier.hpp"
#include "transports/shm/endpoint.hpp"

namespace pt2p::shm {

class HotRings {
public:
	void reserve(size_t peers) { hot_.reserve(peers); }
	size_t size() const { return hot_.size(); }
	ShmEndpoint &operator[](size_t i) const { return *hot_[i]; }
	// Whether writers need no fence of their own.
	bool membarrier() const { return membarrier_.works(); }

	// Starts to poll the ring from that peer; stops.
	void add(ShmEndpoint &peer);
	void remove(ShmEndpoint &peer);
	// A turn is over: from time to time, idle rings become dozing.
	void turn()
	{
		if (++turns_ >= sweep_turns) {
			turns_ = 0;
			if (hot_.size() > enough)
				sweep();
		}
	}
	// Makes all rings dozing and sets `sleeping` in the owner's segment. False: something has arrived, and nothing has
	// changed.
	bool sleep(SegmentHeader &own);

private:
	static constexpr size_t enough = 8;           // fewer hot rings than this are not worth a sweep
	static constexpr uint32_t sweep_turns = 8192; // turns between two looks for idle rings

	void sweep();

	const Membarrier membarrier_{Membarrier::host};
	std::vector<ShmEndpoint *> hot_;
	uint32_t turns_ = 0;
};

} // namespace pt2p::shm
