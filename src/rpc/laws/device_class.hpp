// What the work of a call costs a network device, and what posting to it costs a processor, by the generation of the
// device. The advisor (advice.hpp) stands on it.
//
// Sources. K16: Kalia et al., Design Guidelines for High Performance RDMA Systems, USENIX ATC 2016. RB: raw sweeps that
// belong to it. DCTB: measurements of DC that belong to FaSST (Kalia et al., OSDI 2016). SMART: raw results that belong
// to SMART (Ren et al., ASPLOS 2024). UCX: defaults of its models of devices. Each figure is also in
// softhca/model/profile.def, which tells what is published, what was calibrated, and what is assumed.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace pt2p::rpc::laws {

// Times in ns. A processing unit of the device does one thing after the other.
struct DeviceClass {
	const char *name;
#define COST(type, name, connectx3, connectib, connectx5, connectx6, meaning) type name;
#include "rpc/laws/device_class.def"
#undef COST
};

// connectx3, connectib, connectx5, connectx6.
std::span<const DeviceClass> device_classes();
// Null: none has that name.
const DeviceClass *device_class(std::string_view name);
// The class of a device with that vendor_part_id, or of the generation nearest to it; null: it is not known.
const DeviceClass *class_of_part(uint32_t vendor_part_id);

} // namespace pt2p::rpc::laws
