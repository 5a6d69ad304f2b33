// The tree that libibverbs and others read instead of /sys.
#pragma once

#include <string>

namespace softhca {

// Makes the tree of a host with that many devices at `path`, unless it is there; several processes may try at once.
// Throws std::runtime_error when it cannot be made.
void make_sysfs(const std::string &path, unsigned host, unsigned devices);
// Adds what the tree tells of the PCIe links of all devices: 10^9 transfers a second and lane, and lanes. Throws as
// above.
void put_pcie_links(const std::string &path, unsigned devices, double transfers, double lanes);

} // namespace softhca
