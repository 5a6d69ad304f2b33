#include "rpc/laws/device_class.hpp"

#include <algorithm>

namespace pt2p::rpc::laws {

namespace {

constexpr DeviceClass classes[] = {
#define COST(type, name, connectx3, connectib, connectx5, connectx6, meaning) connectx3,
    {
        "connectx3",
#include "rpc/laws/device_class.def"
    },
#undef COST
#define COST(type, name, connectx3, connectib, connectx5, connectx6, meaning) connectib,
    {
        "connectib",
#include "rpc/laws/device_class.def"
    },
#undef COST
#define COST(type, name, connectx3, connectib, connectx5, connectx6, meaning) connectx5,
    {
        "connectx5",
#include "rpc/laws/device_class.def"
    },
#undef COST
#define COST(type, name, connectx3, connectib, connectx5, connectx6, meaning) connectx6,
    {
        "connectx6",
#include "rpc/laws/device_class.def"
    },
#undef COST
};

// PCI device ids.
constexpr struct {
	uint32_t part;
	const char *name;
} parts[] = {
    // ConnectX-3, Pro
    {0x1003, "connectx3"},
    {0x1004, "connectx3"},
    {0x1007, "connectx3"},
    // Connect-IB
    {0x1011, "connectib"},
    {0x1012, "connectib"},
    // ConnectX-4 and 4 Lx, which have no class of their own
    {0x1013, "connectx5"},
    {0x1014, "connectx5"},
    {0x1015, "connectx5"},
    {0x1016, "connectx5"},
    // ConnectX-5, 5 Ex, BlueField
    {0x1017, "connectx5"},
    {0x1018, "connectx5"},
    {0x1019, "connectx5"},
    {0x101a, "connectx5"},
    {0xa2d2, "connectx5"},
    // ConnectX-6, Dx, Lx, virtual functions, BlueField-2
    {0x101b, "connectx6"},
    {0x101c, "connectx6"},
    {0x101d, "connectx6"},
    {0x101e, "connectx6"},
    {0x101f, "connectx6"},
    {0xa2d6, "connectx6"},
    // ConnectX-7, ConnectX-8, BlueField-3, which have no class of their own
    {0x1021, "connectx6"},
    {0x1023, "connectx6"},
    {0xa2dc, "connectx6"},
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
