// What the device offers: limits, identities, the layout of its mappings. The device keeps to each number here; what
// does not work yet is zero.
#pragma once

#include <cstddef>
#include <cstdint>

namespace softhca {

constexpr unsigned max_devices = 256, max_live_devices = 8; // of a host, in virtual time and in live mode

// Identity. The PCI id decides which provider library serves the device: Mellanox, ConnectX-5.
constexpr unsigned pci_vendor = 0x15b3, pci_device = 0x1017;
constexpr unsigned ieee_vendor = 0x02c9; // what verbs call the vendor: the IEEE's number of Mellanox
constexpr unsigned cdev_major = 231, cdev_first_minor = 192;
constexpr unsigned firmware_major = 16, firmware_minor = 35, firmware_patch = 2000;
constexpr uint64_t firmware_version =
    static_cast<uint64_t>(firmware_major) << 32 | static_cast<uint64_t>(firmware_minor) << 16 | firmware_patch;
constexpr unsigned uverbs_abi = 6, mlx5_abi = 1;

// Node GUIDs: a locally administered EUI-64 with the host and the device in its last bytes.
constexpr uint64_t node_guid(unsigned host, unsigned device)
{
	return UINT64_C(0x025348ffff000000) | static_cast<uint64_t>(host) << 8 | device;
}
constexpr uint64_t gid_prefix = UINT64_C(0xfe80000000000000); // link-local
// Unicast LIDs start at 1. In virtual time, which has more devices, there is only one host.
constexpr uint16_t lid_of(unsigned host, unsigned device)
{
	constexpr unsigned beyond_hosts = 0x4000;
	return static_cast<uint16_t>(device < max_live_devices ? 1 + host * max_live_devices + device
	                                                       : beyond_hosts + device);
}

// Limits.
constexpr uint32_t max_pd = 1u << 16, max_mr = 1u << 20, max_cq = 1u << 16, max_cqe = (1u << 22) - 1;
// The lower bits of a queue pair's number are its index in its process; the lowest indices have special meanings. In
// virtual time all ranks are in one process, which has all 24 bits of numbers.
constexpr unsigned live_index_bits = 14, virtual_index_bits = 17, first_index = 16;
constexpr unsigned max_virtual_queue_pairs = 1u << virtual_index_bits;
constexpr uint32_t max_qp = (1u << live_index_bits) - first_index, max_srq = 1u << 14;
constexpr uint32_t max_queue_entries = 1u << 15; // of send, receive and shared receive queues
constexpr uint32_t max_sge = 30;
constexpr uint32_t max_send_wqe_bytes = 1008, max_receive_wqe_bytes = 512;
constexpr uint32_t max_rd_atomic = 16;
constexpr size_t max_initiators = 1u << 16; // connected to one DC target
constexpr uint64_t max_mr_size = UINT64_C(1) << 47;
constexpr uint32_t max_message = 1u << 30;
constexpr uint32_t completion_vectors = 1;
constexpr uint16_t partition_keys = 1;
constexpr uint32_t gids = 1;

// Device memory of each opener, allocated in blocks. It is at the page of the command file that libmlx5 maps for it
// (its command 8 in the second byte of the page number).
constexpr size_t page_bytes = 4096;
constexpr size_t max_dm_bytes = 256 * 1024, dm_block_bytes = 64, dm_blocks = max_dm_bytes / dm_block_bytes;
constexpr uint64_t dm_first_offset = (UINT64_C(8) << 8) * page_bytes;
static_assert(max_dm_bytes / page_bytes <= 256, "beyond 256 pages the page number is split");

// The device's clock, which stamps CQEs, ticks every nanosecond. Another page of the command file relates it to the
// time of day.
constexpr uint64_t clock_khz = 1'000'000, clock_mask = ~UINT64_C(0) >> 1;
constexpr uint64_t clock_info_offset = (UINT64_C(7) << 8) * page_bytes;

// User access regions: pages of the command file.
constexpr size_t uar_bytes = page_bytes;
constexpr uint64_t uar_first_offset = UINT64_C(1) << 32;
constexpr uint32_t max_uars = 512;
constexpr uint32_t blueflame_bytes = 512; // of one register: two buffers that are used in turn

} // namespace softhca
