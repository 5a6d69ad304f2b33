// Memory of peers: what libpt2p needs to reach it is fetched from its owner when a key is used first.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include <rdma/fabric.h>

#include "pt2p.h"

namespace pt2p_ofi {

struct Endpoint;
struct Op;

enum class RmaKind : uint8_t { read, write };

// A part of an operation: contiguous on both sides.
struct Part {
	unsigned char *local;
	size_t length;
	uint64_t remote; // address as the peer names it
	uint64_t key;
};

// What it takes to reach memory of a peer.
struct Reach {
	pt2p_remote_t *handle = nullptr; // null: the owner has been asked, and has not answered
	uint64_t base = 0, length = 0, access = 0;
	bool events = false; // the owner wants to know of operations (FI_RMA_EVENT)

	bool allows(RmaKind kind) const
	{
		return !access || access & (kind == RmaKind::read ? FI_REMOTE_READ : FI_REMOTE_WRITE);
	}
	bool holds(uint64_t address, uint64_t bytes) const
	{
		return address >= base && address - base <= length && bytes <= length - (address - base);
	}
	// Whether nothing stands in the way of such an operation, and nobody needs to hear of it.
	bool takes(uint64_t address, uint64_t bytes, RmaKind kind) const
	{
		return handle && !events && allows(kind) && holds(address, bytes);
	}
};

struct RemoteMemory {
	Reach reach;
	struct Waiting {
		Op *op;
		Part part;
		RmaKind kind;
	};
	std::vector<Waiting> waiting; // for the owner's answer
};

using RemoteMemories = std::map<std::pair<int, uint64_t>, RemoteMemory>; // by rank and key

} // namespace pt2p_ofi
