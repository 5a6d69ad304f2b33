// Which files a verbs library reads: libibverbs takes the class folders and the modalias of the PCI device; UCX and
// hwloc follow the links from the class folder to the PCI device.
#include "softhca/fabric/sysfs.hpp"

#include <cstdarg>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <unistd.h>

#include "softhca/kernel/device.hpp"

namespace softhca {

namespace {

namespace fs = std::filesystem;

std::string format(const char *pattern, ...) __attribute__((format(printf, 1, 2)));
std::string format(const char *pattern, ...)
{
	char text[256];
	va_list list;
	va_start(list, pattern);
	std::vsnprintf(text, sizeof text, pattern, list);
	va_end(list);
	return text;
}

void put(const fs::path &file, const std::string &line)
{
	fs::create_directories(file.parent_path());
	std::ofstream out(file);
	out << line << '\n';
	if (!out.flush())
		throw std::runtime_error("cannot write " + file.string());
}

void link(const fs::path &from, const std::string &to)
{
	fs::create_directories(from.parent_path());
	fs::create_directory_symlink(to, from);
}

// Four groups of 16 bits, as GUIDs are written.
std::string guid_text(uint64_t guid)
{
	return format("%04x:%04x:%04x:%04x", static_cast<unsigned>(guid >> 48), static_cast<unsigned>(guid >> 32 & 0xffff),
	              static_cast<unsigned>(guid >> 16 & 0xffff), static_cast<unsigned>(guid & 0xffff));
}

void make_port(const fs::path &port, unsigned host, unsigned device)
{
	put(port / "state", "4: ACTIVE");
	put(port / "phys_state", "5: LinkUp");
	put(port / "link_layer", "InfiniBand");
	put(port / "rate", "100 Gb/sec (4X EDR)");
	put(port / "lid", format("0x%x", lid_of(host, device)));
	put(port / "lid_mask_count", "0");
	put(port / "sm_lid", "0x1");
	put(port / "sm_sl", "0");
	put(port / "cap_mask", "0x00000000");
	put(port / "gids" / "0", guid_text(gid_prefix) + ":" + guid_text(node_guid(host, device)));
	put(port / "gid_attrs" / "types" / "0", "IB/RoCE v1");
	put(port / "pkeys" / "0", "0xffff");
}

std::string pci_address(unsigned device) { return format("0000:%02x:00.0", 3 + device); }
std::string pci_folder(unsigned device) { return "devices/pci0000:00/" + pci_address(device); }

void make_device(const fs::path &root, unsigned host, unsigned device)
{
	const std::string name = format("mlx5_%u", device), address = pci_address(device), pci = pci_folder(device);
	const fs::path there = root / pci;
	put(there / "modalias", format("pci:v%08Xd%08Xsv%08Xsd00000008bc02sc07i00", pci_vendor, pci_device, pci_vendor));
	put(there / "vendor", format("0x%04x", pci_vendor));
	put(there / "device", format("0x%04x", pci_device));
	put(there / "subsystem_vendor", format("0x%04x", pci_vendor));
	put(there / "subsystem_device", "0x0008");
	put(there / "class", "0x020700");
	put(there / "numa_node", "0");
	put(there / "uevent", "DRIVER=mlx5_core\nPCI_SLOT_NAME=" + address);

	const fs::path ib = there / "infiniband" / name;
	put(ib / "node_type", "1: CA");
	put(ib / "node_guid", guid_text(node_guid(host, device)));
	put(ib / "sys_image_guid", guid_text(node_guid(host, 0)));
	put(ib / "node_desc", "softhca " + name);
	put(ib / "fw_ver", format("%u.%u.%04u", firmware_major, firmware_minor, firmware_patch));
	put(ib / "hca_type", "MT4119");
	put(ib / "board_id", "SOFTHCA000001");
	put(ib / "hw_rev", "0");
	make_port(ib / "ports" / "1", host, device);
	link(ib / "device", "../..");
	link(root / "class/infiniband" / name, "../../" + pci + "/infiniband/" + name);

	const fs::path uverbs = root / "class/infiniband_verbs" / format("uverbs%u", device);
	put(uverbs / "abi_version", std::to_string(mlx5_abi));
	put(uverbs / "dev", format("%u:%u", cdev_major, cdev_first_minor + device));
	put(uverbs / "ibdev", name);
	link(uverbs / "device", "../../../" + pci);
}

} // namespace

void make_sysfs(const std::string &path, unsigned host, unsigned devices)
{
	if (fs::exists(path))
		return;
	// Made under another name and renamed, so that nobody sees half of it.
	const fs::path aside = path + ".new." + std::to_string(getpid());
	fs::remove_all(aside);
	put(aside / "class/infiniband_verbs/abi_version", std::to_string(uverbs_abi));
	for (unsigned device = 0; device < devices; ++device)
		make_device(aside, host, device);
	std::error_code error;
	fs::rename(aside, path, error);
	if (!error)
		return;
	fs::remove_all(aside);
	if (!fs::exists(path)) // nobody else was faster
		throw std::runtime_error("cannot make " + path + ": " + error.message());
}

void put_pcie_links(const std::string &path, unsigned devices, double transfers, double lanes)
{
	for (unsigned device = 0; device < devices; ++device) {
		put(path / fs::path(pci_folder(device)) / "current_link_speed", format("%.3f GT/s PCIe", transfers));
		put(path / fs::path(pci_folder(device)) / "current_link_width", format("%g", lanes));
	}
}

} // namespace softhca
