#include "rpc/laws/device_class.hpp"

#include <algorithm>

namespace pt2p::rpc::laws {

namespace {

constexpr DeviceClass classes[] = {
    {.name = "connectx3",
     .dc = false,
     .units = 1,
     .serve_units = 1,
     .request = 45,
     .datagram = 45,
     .acknowledged = 45,
     .response = 45,
     .piece = 40,
     .serve = 60,
     .respond = 29,
     .wqe_cache = 256,
     .wqe_kept = false,
     .requesters = 85,
     .responders = 1560,
     .overlap = 1,
     .latency = 84,
     .pcie = 7.877,
     .wire = 6.81,
     .dc_request = 0,
     .dc_switch = 0},
    {.name = "connectib",
     .dc = true,
     .units = 16,
     .serve_units = 0,
     .request = 95,
     .datagram = 60,
     .acknowledged = 40,
     .response = 87,
     .piece = 0,
     .serve = 128,
     .respond = 5,
     .wqe_cache = 220,
     .wqe_kept = false,
     .requesters = 280,
     .responders = 1560,
     .overlap = 4,
     .latency = 84,
     .pcie = 15.75,
     .wire = 13.63,
     .dc_request = 95,
     .dc_switch = 960},
    {.name = "connectx5",
     .dc = true,
     .units = 16,
     .serve_units = 0,
     .request = 95,
     .datagram = 95,
     .acknowledged = 40,
     .response = 60,
     .piece = 0,
     .serve = 128,
     .respond = 5,
     .wqe_cache = 512,
     .wqe_kept = true,
     .requesters = 1000,
     .responders = 1560,
     .overlap = 4,
     .latency = 120,
     .pcie = 15.75,
     .wire = 12.5,
     .dc_request = 95,
     .dc_switch = 960},
    {.name = "connectx6",
     .dc = true,
     .units = 16,
     .serve_units = 0,
     .request = 100,
     .datagram = 100,
     .acknowledged = 78,
     .response = 44,
     .piece = 0,
     .serve = 128,
     .respond = 5,
     .wqe_cache = 700,
     .wqe_kept = true,
     .requesters = 2000,
     .responders = 2000,
     .overlap = 4,
     .latency = 210,
     .pcie = 31.51,
     .wire = 25,
     .dc_request = 95,
     .dc_switch = 960},
};

// PCI device ids.
constexpr struct {
	uint32_t part;
	const char *name;
} parts[] = {
    {0x1003, "connectx3"}, {0x1004, "connectx3"},
    {0x1007, "connectx3"},                        // ConnectX-3, Pro
    {0x1011, "connectib"}, {0x1012, "connectib"}, // Connect-IB
    {0x1013, "connectx5"}, {0x1014, "connectx5"}, // ConnectX-4: no class of its own
    {0x1015, "connectx5"}, {0x1016, "connectx5"}, // ConnectX-4 Lx: the same
    {0x1017, "connectx5"}, {0x1018, "connectx5"}, // ConnectX-5
    {0x1019, "connectx5"}, {0x101a, "connectx5"},
    {0xa2d2, "connectx5"}, // ConnectX-5 Ex, BlueField
    {0x101b, "connectx6"}, {0x101c, "connectx6"},
    {0x101d, "connectx6"}, // ConnectX-6, Dx
    {0x101e, "connectx6"}, {0x101f, "connectx6"},
    {0xa2d6, "connectx6"}, // virtual functions, Lx, BlueField-2
    {0x1021, "connectx6"}, {0x1023, "connectx6"},
    {0xa2dc, "connectx6"}, // ConnectX-7, 8, BlueField-3: none of their own
};

} // namespace

std::span<const DeviceClass> device_classes() { return classes; }

const DeviceClass *device_class(std::string_view name)
{
	const auto *found =
	    std::find_if(std::begin(classes), std::end(classes), [&](const DeviceClass &c) { return c.name == name; });
	return found == std::end(classes) ? nullptr : found;
}

const DeviceClass *class_of_part(uint32_t part)
{
	const auto *found = std::find_if(std::begin(parts), std::end(parts), [&](const auto &p) { return p.part == part; });
	return found == std::end(parts) ? nullptr : device_class(found->name);
}

} // namespace pt2p::rpc::laws
