#pragma once

#include <cstdint>

namespace pt2p {

// Asks the kernel for time slices of this length, in nanoseconds, for the calling thread and those that it starts from
// now on; once for each thread. A request that the kernel refuses, or does not know, changes nothing. Keeps errno.
void ask_for_time_slice(int64_t length);

} // namespace pt2p
