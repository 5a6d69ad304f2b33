// Memory of peers: what libpt2p needs to reach it is fetched from its owner when a key is used first.
#pragma once

#include <array>
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
	// Who executes libpt2p's own atomic operations there; those of the provider are executed by processors.
	enum class Agent : uint8_t { unknown, processors, device } agent = Agent::unknown;

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

// By rank and key. What has been used lately is found without a search.
class RemoteMemories {
public:
	// Null: nobody has asked for it. Valid until it is removed.
	RemoteMemory *find(int rank, uint64_t key)
	{
		const Recent &recent = recent_[slot_of(rank, key)];
		return __builtin_expect(recent.memory && recent.rank == rank && recent.key == key, 1) ? recent.memory
		                                                                                      : search(rank, key);
	}
	// The same; made if it is not there. Whether it was made.
	std::pair<RemoteMemory *, bool> find_or_make(int rank, uint64_t key)
	{
		if (RemoteMemory *memory = find(rank, key))
			return {memory, false};
		return {&all_[{rank, key}], true};
	}
	void remove(int rank, uint64_t key)
	{
		recent_[slot_of(rank, key)] = {};
		all_.erase({rank, key});
	}

private:
	struct Recent {
		uint64_t key;
		RemoteMemory *memory;
		int rank;
	};
	static size_t slot_of(int rank, uint64_t key) { return (key + static_cast<unsigned>(rank)) % recent_count; }
	[[gnu::noinline]] RemoteMemory *search(int rank, uint64_t key)
	{
		const auto found = all_.find({rank, key});
		if (found == all_.end())
			return nullptr;
		recent_[slot_of(rank, key)] = {key, &found->second, rank};
		return &found->second;
	}

	static constexpr size_t recent_count = 64;
	std::map<std::pair<int, uint64_t>, RemoteMemory> all_;
	std::array<Recent, recent_count> recent_{};
};

} // namespace pt2p_ofi
