// Exact mode: the program's stores to user access regions and to device memory are trapped, so that every doorbell and
// every byte is counted, and a ring moves the NIC at once. Asked for with SOFTHCA_EXACT; costs microseconds for each store.
#pragma once

#include <cstddef>
#include <cstdint>

namespace softhca {
class Context;
}

namespace softhca::exact {

bool wanted();

// The program has mapped something of that command file, from that offset on; is about to unmap something.
void mapped(Context &context, void *memory, size_t bytes, uint64_t offset);
void unmapped(void *address, size_t bytes);

// The following are called with the NIC's lock held.

// Traps what the program has mapped of that command file since the last time.
void find_pages(Context &context);
// The file is closed.
void forget_pages(Context &context);

} // namespace softhca::exact
