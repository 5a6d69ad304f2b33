// Notices that a program stores into some regions, without trapping each store as traps.hpp does: a region is read-only
// until a store faults, and then writable until watch_again().
//
// Linux on x86-64. Stores of the kernel into a region (a read() into it) fail with EFAULT while it is read-only. For
// programs of one thread.
#pragma once

#include <cstddef>

namespace softhca {

// Watches [region, region + bytes), whole pages that are mapped for reading and writing. `seen` is called in the
// handler of the fault, the same for all regions. False with errno when not possible.
bool watch_first_stores(void *region, size_t bytes, void (*seen)());
// These pages are about to be unmapped.
void forget_first_stores(void *start, size_t bytes);
// The next store into each region is a first one again.
void watch_again();

} // namespace softhca
