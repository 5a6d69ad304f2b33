// Exact mode: the program's stores to user access regions and to device memory are trapped, so that every doorbell and
// every byte is counted, and a ring moves the NIC at once. Asked for with SOFTHCA_EXACT; costs microseconds for each store.
#pragma once

#include <cstdint>

namespace softhca {
class Context;
}

namespace softhca::exact {

bool wanted();

// The following are called with the NIC's lock held.

// Traps what the program has mapped of that command file since the last time.
void find_pages(Context &context);
// The user access region is given back, or, with `all_pages`, the whole file is closed.
constexpr uint32_t all_pages = ~0u;
void forget_pages(Context &context, uint32_t uar);

} // namespace softhca::exact
