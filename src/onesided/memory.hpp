// Memory that other ranks may operate on: this rank's own, by handle.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/memory/pool.hpp"
#include "base/memory/shared_file.hpp"
#include "onesided/blob.hpp"
#include "transports/transport.hpp"

namespace pt2p {
class Router;
}

namespace pt2p::onesided {

struct Memory {
	uint64_t handle = 0; // see HandlePool
	Memory *next_free = nullptr;
	bool active = false;
	unsigned char *address = nullptr;
	size_t length = 0;
	Agent agent = Agent::cpu;
	Endpoint *nic = nullptr; // Agent::nic: to this rank through its device
	uint64_t nic_key = 0;
	struct Exposure {
		Transport *transport;
		void *exposure;
		uint64_t key;
	};
	std::vector<Exposure> exposures;
	// Allocated memory only.
	FileDescriptor file;
	Mapping mapping;
	uint64_t device = 0, inode = 0;

	bool holds(uint64_t offset, uint64_t bytes) const { return offset <= length && bytes <= length - offset; }
	void *at(uint64_t offset) const { return address + offset; }
};

class MemoryTable {
public:
	explicit MemoryTable(const TransportEnvironment &environment, Router &router);
	~MemoryTable();

	// Throw Error.
	Memory &add(void *address, size_t length) { return add(address, length, length); }
	Memory &allocate(size_t length);
	// Only for puts and gets, and for a short time.
	Memory &lend(void *address, size_t length);
	void release(Memory &memory);
	// `async_progress`: this rank makes progress while its program computes.
	std::string blob(const Memory &memory, bool async_progress);

	// The memory of a handle; null when there is none.
	Memory *find(uint64_t handle) const
	{
		Memory *m = table_.find(handle);
		return m && m->active ? m : nullptr;
	}
	// One that shares a byte with this range; null when there is none.
	const Memory *overlapping(const void *address, size_t length) const;
	size_t count() const { return count_; }

private:
	// `room`: bytes that belong to the memory, including what is left over at its end.
	Memory &add(void *address, size_t length, size_t room, bool atomics = true);
	std::string expose(Memory &memory, size_t room);
	void choose_agent(Memory &memory, size_t room, const std::string &refusal);
	void withdraw(Memory &memory);

	TransportEnvironment environment_;
	Router &router_;
	HandlePool<Memory> table_;
	size_t count_ = 0;
	uint64_t start_time_ = 0; // of this process, once asked for
};

} // namespace pt2p::onesided
