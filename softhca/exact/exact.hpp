// Exact mode (SOFTHCA_EXACT): the program's stores to user access regions and to device memory are trapped. So every
// doorbell and every byte is counted, and a doorbell makes the NIC work at once. Each store costs microseconds.
#pragma once

#include <cstddef>
#include <cstdint>

namespace softhca {
class Context;
}

namespace softhca::exact {

bool wanted();

// The program has mapped a part of that command file, from that offset on; it is about to unmap memory.
void mapped(Context &context, void *memory, size_t bytes, uint64_t offset);
void unmapped(void *address, size_t bytes);

// The following are called with the NIC's lock held.

// Traps what the program has mapped of that command file since the last time.
void find_pages(Context &context);
// The file is closed.
void forget_pages(Context &context);

} // namespace softhca::exact
