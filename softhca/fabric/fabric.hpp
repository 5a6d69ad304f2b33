// The fabric: a directory that all processes of one `softhca` run share.
//
//   $SOFTHCA_FABRIC/registry    hosts and the LIDs that follow from them, in shared memory
//   $SOFTHCA_FABRIC/slots, inbox.<N>   the wire, see wire.hpp
//   $SOFTHCA_FABRIC/host<N>/    what /sys shows of the devices on host N
//
// A host is a pair of UTS name space (host name) and network name space: processes that share both see the same
// devices.
#pragma once

#include <string>

namespace softhca {

class Fabric {
public:
	// The fabric this process belongs to; null when there is none, and then nothing of softhca is active. The first
	// call joins it. Thread-safe.
	static const Fabric *get();

	const std::string &directory() const { return directory_; }
	unsigned devices() const { return devices_; }
	unsigned host() const { return host_; }
	// The directory that stands for /sys.
	const std::string &sysfs() const { return sysfs_; }

private:
	explicit Fabric(const char *directory);

	std::string directory_;
	unsigned devices_, host_;
	std::string sysfs_;
};

} // namespace softhca
