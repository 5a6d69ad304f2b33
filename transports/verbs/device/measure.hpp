// Measures at start up to which length device memory pays.
#pragma once

#include "transports/verbs/device/buffers.hpp"

namespace pt2p::verbs {

// Writes messages of growing length from a queue pair to itself, up to `max_bytes`, with the payload in device memory
// and in host memory. Each time counts from the copy to the completion. Returns the longest message, in bytes, for
// which device memory was faster; 0: none. Takes about a millisecond on a card. `memory` must be usable.
size_t measure_device_memory(const Device &device, DeviceMemory &memory, size_t max_bytes);

} // namespace pt2p::verbs
