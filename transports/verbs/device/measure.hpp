// Finds out at start from which length on device memory is worth it, on the device itself.
#pragma once

#include "transports/verbs/device/buffers.hpp"

namespace pt2p::verbs {

// Writes messages of growing length from a queue pair to itself, with the payload once in device memory and once in
// host memory, each time from the copy to the completion. Returns the longest message, bytes, up to which device memory
// was faster; 0: never. Takes about a millisecond on a card. `memory` must be usable; `most` is the longest to try.
size_t measure_device_memory(const Device &device, DeviceMemory &memory, size_t max_bytes);

} // namespace pt2p::verbs
