// The description of memory that pt2p_memory_export gives out.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/job/secret.hpp"

namespace pt2p::onesided {

// Who executes atomic operations on a memory: one agent for all ranks, or they would not be atomic with each other.
enum class Agent : uint8_t { cpu, nic };

struct Key {
	char transport[8]; // its name, ended by a zero
	uint64_t key;
};

struct MemoryBlob {
	uint64_t job = 0; // of the job's id
	int32_t rank = 0; // the owner
	Agent agent = Agent::cpu;
	bool async_progress = false; // the owner makes progress while its program computes
	uint64_t handle = 0;         // at the owner
	uint64_t address = 0, length = 0;
	// The file behind it, for ranks of the same host; file is -1 when there is none.
	uint32_t pid = 0;
	int32_t file = -1;
	uint64_t start_time = 0, device = 0, inode = 0;
	char nic[8] = {}; // Agent::nic: the transport whose device it is
	std::vector<Key> keys;
	std::string node_id;

	// `secret` is the owner's. It proves that a rank of the owner's job has made the export, and that nobody has
	// changed it.
	std::string pack(const Secret &secret) const;
	// False when the bytes are not such a blob, or of another version.
	static bool unpack(std::string_view bytes, MemoryBlob &blob);
	// Whether bytes that can be unpacked are as the owner packed them.
	static bool genuine(std::string_view bytes, const Secret &secret);
};

} // namespace pt2p::onesided
