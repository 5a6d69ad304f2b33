// CRC32C (Castagnoli), as iSCSI has it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pt2p::rpc {

// Of bytes that follow those whose CRC is `before`; 0: none do.
uint32_t crc32c(uint32_t before, const void *data, size_t length);
// The same without instructions for it.
uint32_t crc32c_portable(uint32_t before, const void *data, size_t length);

} // namespace pt2p::rpc
