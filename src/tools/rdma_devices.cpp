// SPDX-License-Identifier: BSD-3-Clause
#ifdef HAVE_CONFIG_H
#include <config.h> // HAVE_VERBS
#endif

#include "tools/rdma_devices.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <dirent.h>
#include <fstream>
#include <memory>

#ifdef HAVE_VERBS
#include <arpa/inet.h>
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#endif

#include "base/config/config.hpp"
#include "base/report/report.hpp"

namespace pt2p {

namespace {

#ifdef HAVE_VERBS

template <class T, auto function>
struct Free {
	void operator()(T *thing) const { function(thing); }
};
using List = std::unique_ptr<ibv_device *, Free<ibv_device *, ibv_free_device_list>>;
using Context = std::unique_ptr<ibv_context, Free<ibv_context, ibv_close_device>>;
using Pd = std::unique_ptr<ibv_pd, Free<ibv_pd, ibv_dealloc_pd>>;
using Cq = std::unique_ptr<ibv_cq, Free<ibv_cq, ibv_destroy_cq>>;
using Qp = std::unique_ptr<ibv_qp, Free<ibv_qp, ibv_destroy_qp>>;

std::string node_of(const ibv_device &device)
{
	std::ifstream file(std::string(device.ibdev_path) + "/device/numa_node");
	int node = -1;
	file >> node;
	return file && node >= 0 ? std::to_string(node) : "unknown";
}

std::string mtu_text(ibv_mtu mtu) { return std::to_string(128u << mtu); }

std::string link_layer(const ibv_port_attr &port)
{
	switch (port.link_layer) {
	case IBV_LINK_LAYER_INFINIBAND: return "InfiniBand";
	case IBV_LINK_LAYER_ETHERNET: return "Ethernet (RoCE)";
	}
	return "unspecified";
}

std::string state_text(ibv_port_state state)
{
	switch (state) {
	case IBV_PORT_DOWN: return "down";
	case IBV_PORT_INIT: return "initializing: no subnet manager has configured it yet";
	case IBV_PORT_ARMED: return "armed";
	case IBV_PORT_ACTIVE: return "active";
	default: return format("state %d", state);
	}
}

std::string gid_text(const ibv_gid_entry &entry)
{
	char text[INET6_ADDRSTRLEN] = "";
	inet_ntop(AF_INET6, entry.gid.raw, text, sizeof text);
	const char *type = entry.gid_type == IBV_GID_TYPE_ROCE_V2   ? ", RoCE v2"
	                   : entry.gid_type == IBV_GID_TYPE_ROCE_V1 ? ", RoCE v1"
	                                                            : "";
	return format("%u: %s%s", entry.gid_index, text, type);
}

// What queue pairs the device makes can only be seen by making them.
class Tries {
public:
	explicit Tries(ibv_context *context)
	    : pd_(ibv_alloc_pd(context)), cq_(ibv_create_cq(context, 16, nullptr, nullptr, 0)),
	      error_(pd_ && cq_ ? 0 : errno)
	{
	}

	// The longest inline data of an RC queue pair with one piece, as the rc transport would ask for it.
	std::string inline_text()
	{
		if (error_)
			return "unknown: " + errno_text(error_);
		uint32_t good = 0, bad = 1u << 14;
		if (!with_inline(0))
			return "unknown: " + errno_text(errno);
		while (bad - good > 1) {
			const uint32_t middle = good + (bad - good) / 2;
			(with_inline(middle) ? good : bad) = middle;
		}
		return format("%u bytes", good);
	}

	std::string dc_text(ibv_device *device)
	{
		if (!mlx5dv_is_supported(device))
			return "no: not a device of libmlx5";
		if (error_)
			return "unknown: " + errno_text(error_);
		ibv_qp_init_attr_ex attributes = request(0);
		attributes.qp_type = IBV_QPT_DRIVER;
		attributes.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
		attributes.send_ops_flags = IBV_QP_EX_WITH_SEND;
		mlx5dv_qp_init_attr dc{};
		dc.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC;
		dc.dc_init_attr.dc_type = MLX5DV_DCTYPE_DCI;
		const Qp initiator(mlx5dv_create_qp(cq_->context, &attributes, &dc));
		return initiator ? "yes" : "no: an initiator cannot be made: " + errno_text(errno);
	}

private:
	ibv_qp_init_attr_ex request(uint32_t inline_bytes) const
	{
		ibv_qp_init_attr_ex attributes{};
		attributes.qp_type = IBV_QPT_RC;
		attributes.send_cq = attributes.recv_cq = cq_.get();
		attributes.cap.max_send_wr = attributes.cap.max_send_sge = 1;
		attributes.cap.max_inline_data = inline_bytes;
		attributes.comp_mask = IBV_QP_INIT_ATTR_PD;
		attributes.pd = pd_.get();
		return attributes;
	}
	bool with_inline(uint32_t bytes) const
	{
		ibv_qp_init_attr_ex attributes = request(bytes);
		return Qp(ibv_create_qp_ex(cq_->context, &attributes)) != nullptr;
	}

	const Pd pd_;
	const Cq cq_;
	const int error_;
};

const char *atomics_text(ibv_atomic_cap cap)
{
	switch (cap) {
	case IBV_ATOMIC_HCA: return "atomic among operations of this device";
	case IBV_ATOMIC_GLOB: return "atomic among all, processors included";
	default: return "none";
	}
}

RdmaPort read_port(ibv_context *context, int number)
{
	RdmaPort port{number, {}};
	ibv_port_attr attributes{};
	if (const int error = ibv_query_port(context, static_cast<uint8_t>(number), &attributes)) {
		port.facts = {{"state", "state", "unknown: " + errno_text(error)}};
		return port;
	}
	port.facts = {{"state", "state", state_text(attributes.state)},
	              {"link_layer", "link layer", link_layer(attributes)},
	              {"mtu", "MTU", mtu_text(attributes.active_mtu) + " bytes, at most " + mtu_text(attributes.max_mtu)},
	              {"max_message", "longest message", bytes_text(attributes.max_msg_sz)}};
	if (attributes.link_layer == IBV_LINK_LAYER_INFINIBAND)
		port.facts.push_back({"lid", "LID", std::to_string(attributes.lid)});
	std::vector<ibv_gid_entry> table(static_cast<size_t>(std::clamp(attributes.gid_tbl_len, 0, 256)));
	std::string gids;
	for (uint32_t i = 0; i < table.size(); ++i)
		if (ibv_query_gid_ex(context, static_cast<uint32_t>(number), i, &table[i], 0) == 0) // not those that are empty
			gids += (gids.empty() ? "" : "; ") + gid_text(table[i]);
	port.facts.push_back({"gids", "GIDs", gids.empty() ? "none" : gids});
	return port;
}

RdmaDevice read_device(ibv_device *device)
{
	RdmaDevice found;
	found.name = ibv_get_device_name(device);
	const Context context(ibv_open_device(device));
	if (!context) {
		found.facts = {{"open", "cannot be opened", errno_text(errno)}};
		return found;
	}
	ibv_device_attr_ex attributes{};
	if (const int error = ibv_query_device_ex(context.get(), nullptr, &attributes)) {
		found.facts = {{"open", "cannot be examined", errno_text(error)}};
		return found;
	}
	const ibv_device_attr &limits = attributes.orig_attr;
	found.part = limits.vendor_part_id;
	Tries tries(context.get());
	found.facts = {{"firmware", "firmware", std::string(limits.fw_ver, strnlen(limits.fw_ver, sizeof limits.fw_ver))},
	               {"vendor_part", "vendor's part", format("0x%04x, %u", limits.vendor_id, limits.vendor_part_id)},
	               {"numa_node", "NUMA node", node_of(*device)},
	               {"max_inline", "inline data", tries.inline_text()},
	               {"dc", "DC transport", tries.dc_text(device)},
	               {"device_memory", "device memory",
	                attributes.max_dm_size ? bytes_text(attributes.max_dm_size) : std::string("none")},
	               {"max_qp", "queue pairs", format("%d, of %d entries", limits.max_qp, limits.max_qp_wr)},
	               {"max_srq", "shared receive queues", format("%d, of %d entries", limits.max_srq, limits.max_srq_wr)},
	               {"max_cqe", "completion queue", format("%d entries", limits.max_cqe)},
	               {"max_rd_atomic", "READs and atomics at once",
	                format("%d out, %d in, for each connection", limits.max_qp_init_rd_atom, limits.max_qp_rd_atom)},
	               {"atomics", "atomic operations", atomics_text(limits.atomic_cap)}};
	for (int port = 1; port <= limits.phys_port_cnt; ++port)
		found.ports.push_back(read_port(context.get(), port));
	return found;
}

void read_devices(RdmaDevices &found)
{
	int count = 0;
	const List list(ibv_get_device_list(&count));
	// ENOSYS: the kernel has nothing of RDMA.
	const std::string why = list || errno == ENOSYS ? "" : ": " + errno_text(errno);
	if (count == 0)
		found.why_none = "no RDMA device" + why + "; softhca(1) shows one in software";
	for (int i = 0; i < count; ++i)
		found.devices.push_back(read_device(list.get()[i]));
}

#else

// Without libibverbs: what the kernel says there is.
void read_devices(RdmaDevices &found)
{
	std::vector<std::string> names;
	if (DIR *directory = opendir("/sys/class/infiniband")) {
		while (const dirent *entry = readdir(directory))
			if (entry->d_name[0] != '.')
				names.push_back(entry->d_name);
		closedir(directory);
	}
	std::sort(names.begin(), names.end());
	for (const std::string &name : names)
		found.why_none += (found.why_none.empty() ? "" : ", ") + name;
	found.why_none =
	    "built without rdma-core" + (names.empty() ? std::string() : ", but the kernel has: " + found.why_none);
}

#endif

} // namespace

RdmaDevices read_rdma_devices()
{
	RdmaDevices found;
	for (const RdmaVariable &variable : rdma_variables)
		if (const char *value = environment(variable.name))
			found.environment.emplace_back(&variable, value);
	read_devices(found);
	std::sort(found.devices.begin(), found.devices.end(),
	          [](const RdmaDevice &a, const RdmaDevice &b) { return a.name < b.name; });
	return found;
}

void print_rdma_devices(const RdmaDevices &found)
{
	if (found.devices.empty())
		printf("RDMA devices\n  %s\n", found.why_none.c_str());
	const char *gap = "";
	for (const RdmaDevice &device : found.devices) {
		printf("%s", gap);
		print_facts(("RDMA device " + device.name).c_str(), device.facts);
		for (const RdmaPort &port : device.ports)
			print_facts(format("  port %s:%d", device.name.c_str(), port.number).c_str(), port.facts);
		gap = "\n";
	}
	if (found.environment.empty())
		return;
	printf("\nset for libmlx5, below libpt2p\n");
	for (const auto &[variable, value] : found.environment) {
		printf("  %s = %s (default: %s)\n", variable->name, value.c_str(), variable->standard);
		print_text(variable->effect);
	}
}

void write_rdma_devices(Json &json, const RdmaDevices &found)
{
	json.open("rdma_devices", '[');
	for (const RdmaDevice &device : found.devices) {
		json.open(nullptr, '{');
		json.add("name", device.name);
		add_facts(json, device.facts);
		json.open("ports", '[');
		for (const RdmaPort &port : device.ports) {
			json.open(nullptr, '{');
			json.number("port", port.number);
			add_facts(json, port.facts);
			json.close('}');
		}
		json.close(']');
		json.close('}');
	}
	json.close(']');
	json.add("why_no_rdma_devices", found.why_none);
	json.open("rdma_environment", '[');
	for (const auto &[variable, value] : found.environment) {
		json.open(nullptr, '{');
		json.add("name", variable->name);
		json.add("value", value);
		json.add("default", variable->standard);
		json.add("effect", variable->effect);
		json.close('}');
	}
	json.close(']');
}

} // namespace pt2p
