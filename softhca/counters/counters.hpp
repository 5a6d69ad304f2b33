// Counters of events, and the rules that make PCIe transactions of them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace softhca {

enum class Counter : unsigned {
#define COUNTER(name, description) name,
#include "softhca/counters/counters.def"
#undef COUNTER
};
constexpr size_t counter_count = 0
#define COUNTER(name, description) +1
#include "softhca/counters/counters.def"
#undef COUNTER
    ;

// Written by one thread at a time (under the NIC's lock), read by anybody at any time.
struct Counters {
	uint64_t value[counter_count];

	void add(Counter counter, uint64_t n)
	{
		uint64_t &v = value[static_cast<size_t>(counter)];
		__atomic_store_n(&v, v + n, __ATOMIC_RELAXED);
	}
	uint64_t get(Counter counter) const
	{
		return __atomic_load_n(&value[static_cast<size_t>(counter)], __ATOMIC_RELAXED);
	}
};

// The largest PCIe request and write. No packet crosses a multiple of its largest size: this is how devices keep the
// rule that none may cross a 4 KiB boundary.
constexpr uint64_t pcie_read_request = 512;  // "Max_Read_Request_Size", the usual setting
constexpr uint64_t pcie_write_payload = 256; // "Max_Payload_Size" of server platforms

constexpr uint64_t pieces_at_boundaries(uint64_t address, uint64_t bytes, uint64_t boundary)
{
	return bytes ? (address + bytes - 1) / boundary - address / boundary + 1 : 0;
}
// Transactions for `bytes` at `address`.
constexpr uint64_t pcie_reads(uint64_t address, uint64_t bytes)
{
	return pieces_at_boundaries(address, bytes, pcie_read_request);
}
constexpr uint64_t pcie_writes(uint64_t address, uint64_t bytes)
{
	return pieces_at_boundaries(address, bytes, pcie_write_payload);
}

} // namespace softhca
