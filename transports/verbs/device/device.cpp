#include "transports/verbs/device/device.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <infiniband/mlx5dv.h>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

#include "base/config/config.hpp"
#include "base/job/job.hpp"
#include "base/job/topology.hpp"
#include "base/report/report.hpp"
#include "transports/verbs/device/memlock.hpp"

namespace pt2p::verbs {

namespace {

// The NUMA node of a device; -1: unknown.
int numa_node_of(const ibv_device &device)
{
	std::ifstream file(std::string(device.ibdev_path) + "/device/numa_node");
	int node = -1;
	file >> node;
	return file ? node : -1;
}

// A device and port as in PT2P_NET_DEVICE: "mlx5_0" or "mlx5_0:1".
struct Wanted {
	std::string device;
	int port = 0; // 0: the first that is up
};

Wanted parse_wanted(const std::string &text)
{
	Wanted wanted;
	const size_t colon = text.find(':');
	wanted.device = text.substr(0, colon);
	if (colon != text.npos) {
		char *end;
		const long port = std::strtol(text.c_str() + colon + 1, &end, 10);
		if (*end || port < 1 || port > 255)
			throw Error(PT2P_ERR_TUNABLE,
			            format("PT2P_NET_DEVICE: \"%s\" is not of the form device or device:port", text.c_str()));
		wanted.port = static_cast<int>(port);
	}
	return wanted;
}

// How far a GID reaches: 3: an IPv4 address, 2: another address, 1: a link-local one.
int reach_of(const union ibv_gid &gid)
{
	static constexpr uint8_t ipv4[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
	if (std::memcmp(gid.raw, ipv4, sizeof ipv4) == 0)
		return 3;
	return gid.raw[0] == 0xfe && (gid.raw[1] & 0xc0) == 0x80 ? 1 : 2;
}

// The GID to send from. On Ethernet, the last of those that can be routed (RoCE v2) and reach farthest; on InfiniBand
// the first.
uint8_t choose_gid(ibv_context *context, uint8_t port, const ibv_port_attr &attributes, union ibv_gid &gid)
{
	uint8_t best = 0;
	if (attributes.link_layer == IBV_LINK_LAYER_ETHERNET) {
		ibv_gid_entry entry;
		int reach = 0;
		for (uint32_t i = 0; i < static_cast<uint32_t>(std::min(attributes.gid_tbl_len, 255)); ++i)
			if (ibv_query_gid_ex(context, port, i, &entry, 0) == 0 && entry.gid_type == IBV_GID_TYPE_ROCE_V2 &&
			    reach_of(entry.gid) >= reach) {
				best = static_cast<uint8_t>(i);
				reach = reach_of(entry.gid);
			}
	}
	if (ibv_query_gid(context, port, best, &gid) != 0)
		std::memset(&gid, 0, sizeof gid);
	return best;
}

// Opens a port that is up. Null: there is none, `why_not` says why.
std::unique_ptr<Device> try_open(ibv_device *candidate, int wanted_port, std::string &why_not)
{
	const char *name = ibv_get_device_name(candidate);
	auto device = std::make_unique<Device>();
	device->context.reset(ibv_open_device(candidate));
	if (!device->context) {
		why_not = format("%s: ibv_open_device: %s", name, errno_text(errno).c_str());
		return nullptr;
	}
	ibv_context *context = device->context.get();
	if (const int error = ibv_query_device(context, &device->limits)) {
		why_not = format("%s: ibv_query_device: %s", name, errno_text(error).c_str());
		return nullptr;
	}
	if (wanted_port > device->limits.phys_port_cnt) {
		why_not = format("%s has %d ports", name, device->limits.phys_port_cnt);
		return nullptr;
	}
	why_not = format("%s: no port is up", name);
	for (int port = std::max(wanted_port, 1); port <= (wanted_port ? wanted_port : device->limits.phys_port_cnt);
	     ++port) {
		ibv_port_attr attributes;
		if (ibv_query_port(context, static_cast<uint8_t>(port), &attributes) != 0 ||
		    attributes.state != IBV_PORT_ACTIVE)
			continue;
		device->name = format("%s:%d", name, port);
		device->port = static_cast<uint8_t>(port);
		device->address.lid = attributes.lid;
		device->address.ethernet = attributes.link_layer == IBV_LINK_LAYER_ETHERNET;
		device->address.mtu = static_cast<uint8_t>(attributes.active_mtu);
		device->gid_index = choose_gid(context, device->port, attributes, device->address.gid);
		device->pd.reset(ibv_alloc_pd(context));
		if (!device->pd)
			fail("ibv_alloc_pd", errno);
		device->complete();
		return device;
	}
	return nullptr;
}

} // namespace

std::unique_ptr<Device> Device::open(const TransportEnvironment &environment, std::string &why_not)
{
	const std::string &text = environment.config.net_device;
	if (text == "none") {
		why_not = "PT2P_NET_DEVICE is none";
		return nullptr;
	}
	const bool in_turn = text == "each";
	const Wanted wanted = parse_wanted(in_turn ? "" : text);
	int count = 0;
	const std::unique_ptr<ibv_device *, Deleter<ibv_free_device_list>> list(ibv_get_device_list(&count));
	if (!list || count == 0) {
		why_not = "no RDMA device; softhca(1) shows one in software";
		if (!wanted.device.empty())
			throw Error(PT2P_ERR_TUNABLE,
			            format("PT2P_NET_DEVICE is %s, but there is no RDMA device; softhca(1) shows one in software",
			                   text.c_str()));
		return nullptr;
	}
	std::vector<ibv_device *> candidates(list.get(), list.get() + count);
	if (!wanted.device.empty())
		std::erase_if(candidates, [&](ibv_device *d) { return wanted.device != ibv_get_device_name(d); });
	// The nearest first.
	const int here = environment.topology.numa_node;
	const auto far = std::stable_partition(candidates.begin(), candidates.end(),
	                                       [&](ibv_device *d) { return here >= 0 && numa_node_of(*d) == here; });
	const Job &job = environment.job;
	int sharers = job.device_sharers();
	if (in_turn) {
		// Ranks of a node share its nearest devices. With PT2P_RANKS_PER_NODE, each pretended node has one device.
		const int64_t pretended = environment.config.ranks_per_node;
		const int64_t turn = pretended > 0 ? job.rank() / pretended : job.local_rank();
		const auto end = far != candidates.begin() ? far : candidates.end();
		const auto devices = static_cast<int>(end - candidates.begin());
		std::rotate(candidates.begin(), candidates.begin() + turn % devices, end);
		if (pretended <= 0)
			sharers = (sharers + devices - 1) / devices;
	}
	why_not.clear();
	for (ibv_device *candidate : candidates) {
		std::string reason;
		if (auto device = try_open(candidate, wanted.port, reason)) {
			device->sharers = sharers;
			return device;
		}
		why_not += (why_not.empty() ? "" : "; ") + reason;
	}
	if (!wanted.device.empty())
		throw Error(PT2P_ERR_TUNABLE,
		            format("PT2P_NET_DEVICE is %s: %s", text.c_str(),
		                   why_not.empty() ? "there is no such device; pt2p_info --devices lists those that there are"
		                                   : why_not.c_str()));
	return nullptr;
}

void Device::complete()
{
	domain = pd.get();
	ibv_td_init_attr td{};
	thread_domain_.reset(ibv_alloc_td(context.get(), &td));
	if (thread_domain_) {
		ibv_parent_domain_init_attr parent{};
		parent.pd = pd.get();
		parent.td = thread_domain_.get();
		parent_domain_.reset(ibv_alloc_parent_domain(context.get(), &parent));
		if (parent_domain_)
			domain = parent_domain_.get();
	}
	reads_accepted = static_cast<uint8_t>(std::clamp(limits.max_qp_rd_atom, 1, 16));
	reads_started = static_cast<uint8_t>(std::clamp(limits.max_qp_init_rd_atom, 1, 16));
	// Not with rdma_rxe: its provider in rdma-core 44 counts one completion too many at the end, and the kernel copies
	// with a memcpy() that may go backwards.
	extended_poll = writes_in_order = mlx5dv_is_supported(context->device);
	ibv_device_attr_ex extended{};
	if (ibv_query_device_ex(context.get(), nullptr, &extended) == 0)
		device_memory = extended.max_dm_size;
}

ibv_ah_attr Device::path_to(const PortAddress &peer) const
{
	ibv_ah_attr path{};
	path.dlid = peer.lid;
	path.port_num = port;
	if (peer.ethernet) {
		path.is_global = 1;
		path.grh.dgid = peer.gid;
		path.grh.sgid_index = gid_index;
		path.grh.hop_limit = 64;
	}
	return path;
}

bool Device::reaches(const PortAddress &peer, std::string &why_not) const
{
	if (peer.ethernet == address.ethernet)
		return true;
	why_not = "one port is InfiniBand, the other Ethernet";
	return false;
}

RegisteredMemory::RegisteredMemory(const Device &device, size_t bytes, int access, int numa_node)
    : memory_(static_cast<unsigned char *>(
          mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))),
      bytes_(bytes)
{
	if (memory_ == MAP_FAILED)
		throw Error(PT2P_ERR_NO_MEMORY, format("%zu bytes for network buffers: %s", bytes, errno_text(errno).c_str()));
	place_on_numa_node(memory_, bytes, numa_node);
	(void)madvise(memory_, bytes, MADV_HUGEPAGE); // huge pages need fewer entries in the device's tables
	mr_.reset(ibv_reg_mr(device.pd.get(), memory_, bytes, access));
	if (mr_)
		return;
	const int error = errno;
	munmap(memory_, bytes);
	fail("ibv_reg_mr", error);
}

RegisteredMemory::~RegisteredMemory()
{
	mr_.reset();
	munmap(memory_, bytes_);
}

namespace {

int bring_up_datagrams(const Device &device, ibv_qp *qp, uint32_t q_key)
{
	ibv_qp_attr attr{};
	attr.qp_state = IBV_QPS_INIT;
	attr.port_num = device.port;
	attr.qkey = q_key;
	int error = ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);
	if (!error)
		error = set_state(qp, IBV_QPS_RTR);
	attr.qp_state = IBV_QPS_RTS;
	return error ? error : ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN);
}

} // namespace

int bring_up(const Device &device, ibv_qp *qp, const BringUp &how)
{
	if (how.role == BringUp::Role::datagrams)
		return bring_up_datagrams(device, qp, how.q_key);
	const bool connection = how.role == BringUp::Role::connection, receives = how.role != BringUp::Role::initiator;
	ibv_qp_attr attr{};
	attr.qp_state = IBV_QPS_INIT;
	attr.port_num = device.port;
	attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
	int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | (receives ? IBV_QP_ACCESS_FLAGS : 0);
	if (const int error = ibv_modify_qp(qp, &attr, mask))
		return error;
	attr.qp_state = IBV_QPS_RTR;
	attr.path_mtu = static_cast<ibv_mtu>(device.address.mtu);
	mask = IBV_QP_STATE | IBV_QP_PATH_MTU;
	if (receives) {
		attr.min_rnr_timer = 12; // 0.64 ms
		attr.ah_attr = device.path_to(how.port);
		mask |= IBV_QP_MIN_RNR_TIMER | IBV_QP_AV;
	}
	if (connection) {
		attr.path_mtu = static_cast<ibv_mtu>(std::min(device.address.mtu, how.port.mtu));
		attr.dest_qp_num = how.number;
		attr.rq_psn = how.first_there;
		attr.max_dest_rd_atomic = device.reads_accepted;
		mask |= IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC;
	}
	const int error = ibv_modify_qp(qp, &attr, mask);
	if (error || how.role == BringUp::Role::target)
		return error;
	attr.qp_state = IBV_QPS_RTS;
	attr.sq_psn = how.first_here;
	attr.timeout = static_cast<uint8_t>(how.timeout);
	attr.retry_cnt = static_cast<uint8_t>(how.retries);
	attr.rnr_retry = 7; // for ever: a peer that posts no receives for a while is not lost
	attr.max_rd_atomic = device.reads_started;
	return ibv_modify_qp(qp, &attr,
	                     IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
	                         IBV_QP_MAX_QP_RD_ATOMIC);
}

int set_state(ibv_qp *qp, ibv_qp_state state)
{
	ibv_qp_attr attr{};
	attr.qp_state = state;
	return ibv_modify_qp(qp, &attr, IBV_QP_STATE);
}

const char *cause_of(ibv_wc_status status)
{
	switch (status) {
	case IBV_WC_LOC_PROT_ERR:
		return "this rank's device may not access the local buffer: the whole of it has to be mapped, and writable for "
		       "a get";
	case IBV_WC_REM_ACCESS_ERR:
		return "the device of the memory's owner refuses access: the owner has released the memory, or it may only be "
		       "read";
	default: return ibv_wc_status_str(status);
	}
}

std::string failure(const char *call, int error)
{
	std::string text = format("%s failed: %s", call, errno_text(error).c_str());
	if (error == ENOMEM || error == EPERM || error == EAGAIN)
		if (const std::string shortage = lock_shortage(lock_limit(), unknown_need); !shortage.empty())
			text += "; " + shortage;
	return text;
}

void fail(const char *call, int error)
{
	throw Error(error == ENOMEM ? PT2P_ERR_NO_MEMORY : PT2P_ERR_SYSTEM, failure(call, error));
}

void fail_queue(const Device &device, const char *call, int error, const char *tunable, int64_t value, int limit)
{
	// Other errors do not depend on the length.
	if (error != EINVAL && (error != ENOMEM || value <= limit))
		fail(call, error);
	throw Error(PT2P_ERR_TUNABLE,
	            format("%s=%lld: %s refuses a queue of that length: %s. Its limit is %d, and less where work requests "
	                   "are wide; %s=%lld "
	                   "is more likely to do",
	                   tunable, static_cast<long long>(value), device.name.c_str(), failure(call, error).c_str(), limit,
	                   tunable, static_cast<long long>(std::min<int64_t>(value, limit) / 2)));
}

void check_lock_limit(const Device &device, uint64_t bytes)
{
	const LockLimit before = lock_limit();
	const std::string shortage = lock_shortage(before, bytes);
	if (shortage.empty())
		return;
	// Not every device needs its memory locked. Registering one page shows whether this one does.
	const RegisteredMemory page(device, static_cast<size_t>(sysconf(_SC_PAGESIZE)), IBV_ACCESS_LOCAL_WRITE, -1);
	if (lock_limit().locked > before.locked)
		throw Error(PT2P_ERR_NO_MEMORY, device.name + ": " + shortage);
}

} // namespace pt2p::verbs
