// Commands that describe the device and its port; asynchronous events; user access regions.
#include <cerrno>
#include <ctime>
#include <endian.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5-abi.h>
#include <rdma/mlx5_user_ioctl_cmds.h>
#include <rdma/mlx5_user_ioctl_verbs.h>
#include <unistd.h>

#include "softhca/kernel/commands/attributes.hpp"
#include "softhca/kernel/commands/commands.hpp"
#include "softhca/kernel/context.hpp"
#include "softhca/nic/nic.hpp"

namespace softhca::commands {

namespace {

// Relates the device's clock to the time of day. The kernel updates this page, as NICs have clocks of their own; this
// device's is the system's.
int write_clock_info(const Context &context)
{
	timespec day;
	clock_gettime(CLOCK_REALTIME, &day);
	mlx5_ib_clock_info info{};
	info.cycles = read_clock();
	info.nsec = static_cast<uint64_t>(day.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(day.tv_nsec);
	info.mult = 1;
	info.mask = clock_mask;
	info.overflow_period = clock_mask / 2;
	return pwrite(context.fd(), &info, sizeof info, static_cast<off_t>(clock_info_offset)) == sizeof info ? 0 : ENOMEM;
}

} // namespace

int get_context(Context &context, Attributes &attributes)
{
	mlx5_ib_alloc_ucontext_req_v2 request;
	if (const int error = attributes.in(UVERBS_ATTR_UHW_IN, request))
		return error;
	if (request.flags & MLX5_IB_ALLOC_UCTX_DEVX)
		return EOPNOTSUPP; // libmlx5 then asks again without
	mlx5_ib_alloc_ucontext_resp response{};
	response.response_length = sizeof response;
	response.bf_reg_size = blueflame_bytes;
	response.tot_bfregs = 0; // each is allocated by itself
	response.cache_line_size = 64;
	response.max_sq_desc_sz = max_send_wqe_bytes;
	response.max_rq_desc_sz = max_receive_wqe_bytes;
	response.max_send_wqebb = max_queue_entries;
	response.max_recv_wr = max_queue_entries;
	response.max_srq_recv_wr = max_queue_entries;
	response.num_ports = 1;
	response.cqe_version = 1;
	response.cmds_supp_uhw = MLX5_USER_CMDS_SUPP_UHW_QUERY_DEVICE | MLX5_USER_CMDS_SUPP_UHW_CREATE_AH;
	response.clock_info_versions = 1 << MLX5_IB_CLOCK_INFO_V1;
	response.eth_min_inline = MLX5_USER_INLINE_MODE_NONE;
	response.log_uar_size = 12;
	response.num_uars_per_page = 1;
	response.num_dyn_bfregs = max_uars;
	int error = write_clock_info(context);
	if (!error)
		error = attributes.out(UVERBS_ATTR_UHW_OUT, response);
	if (!error)
		error = attributes.out(UVERBS_ATTR_GET_CONTEXT_NUM_COMP_VECTORS, completion_vectors);
	if (!error)
		error = attributes.out(UVERBS_ATTR_GET_CONTEXT_CORE_SUPPORT,
		                       static_cast<uint64_t>(IB_UVERBS_CORE_SUPPORT_OPTIONAL_MR_ACCESS));
	return error;
}

int query_port(Context &context, Attributes &attributes)
{
	uint8_t port;
	if (const int error = attributes.in(UVERBS_ATTR_QUERY_PORT_PORT_NUM, port))
		return error;
	if (port != 1)
		return EINVAL;
	// Codes of the InfiniBand specification, volume 1, 14.2.5.6 (PortInfo).
	constexpr uint8_t down = 1, active = 4, disabled = 3, link_up = 5;
	constexpr uint8_t mtu_4096 = 5, four_lanes = 2, edr = 32, infiniband = 1;
	ib_uverbs_query_port_resp_ex response{};
	ib_uverbs_query_port_resp &r = response.legacy_resp;
	r.max_msg_sz = max_message;
	r.gid_tbl_len = gids;
	r.pkey_tbl_len = partition_keys;
	r.lid = context.lid();
	r.sm_lid = 1;
	const bool link_down = context.nic().devices.link_down(context.device());
	r.state = link_down ? down : active;
	r.phys_state = link_down ? disabled : link_up;
	r.max_mtu = r.active_mtu = mtu_4096;
	r.max_vl_num = 1;
	r.active_width = four_lanes;
	r.active_speed = edr;
	r.link_layer = infiniband;
	return attributes.out(UVERBS_ATTR_QUERY_PORT_RESP, response);
}

int alloc_async_fd(Context &context, Attributes &attributes)
{
	if (context.objects.async)
		return EBUSY;
	auto pipe = std::make_shared<EventPipe>();
	if (!pipe->ok())
		return EMFILE;
	const auto fd = static_cast<uint64_t>(pipe->user_fd());
	if (const int error = attributes.out_value(UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE, fd))
		return error;
	context.objects.async = std::move(pipe);
	return 0;
}

int alloc_uar(Context &context, Attributes &attributes)
{
	uint8_t type;
	if (const int error = attributes.in(MLX5_IB_ATTR_UAR_OBJ_ALLOC_TYPE, type))
		return error;
	if (type != MLX5_IB_UAPI_UAR_ALLOC_TYPE_BF && type != MLX5_IB_UAPI_UAR_ALLOC_TYPE_NC)
		return EOPNOTSUPP;
	uint32_t index = 0;
	while (index < max_uars && context.objects.uars[index])
		++index;
	if (index == max_uars)
		return ENOMEM;
	const uint64_t offset = uar_first_offset + index * uar_bytes;
	int error = attributes.out_value(MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE, index + 1);
	if (!error)
		error = attributes.out(MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET, offset);
	if (!error)
		error = attributes.out(MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH, static_cast<uint32_t>(uar_bytes));
	if (!error)
		error = attributes.out(MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID, index);
	if (!error)
		context.objects.uars[index] = true;
	return error;
}

int destroy_uar(Context &context, Attributes &attributes)
{
	const ib_uverbs_attr *handle = attributes.find(MLX5_IB_ATTR_UAR_OBJ_DESTROY_HANDLE);
	if (!handle || handle->data < 1 || handle->data > max_uars || !context.objects.uars[handle->data - 1])
		return ENOENT;
	context.objects.uars[handle->data - 1] = false;
	return 0;
}

int query_device(Context &context, Attributes &attributes)
{
	ib_uverbs_ex_query_device_resp response{};
	ib_uverbs_query_device_resp &r = response.base;
	response.response_length = sizeof response;
	r.fw_ver = firmware_version;
	r.node_guid = htobe64(context.guid());
	r.sys_image_guid = htobe64(context.system_guid());
	r.vendor_id = ieee_vendor;
	r.vendor_part_id = pci_device;
	r.max_mr_size = max_mr_size;
	r.page_size_cap = 0xfffff000;
	r.max_cq = max_cq;
	r.max_cqe = max_cqe;
	r.max_mr = max_mr;
	r.max_pd = max_pd;
	r.max_qp = max_qp;
	r.max_qp_wr = max_queue_entries;
	r.max_sge = r.max_sge_rd = max_sge;
	r.max_qp_rd_atom = r.max_qp_init_rd_atom = max_rd_atomic;
	r.max_res_rd_atom = max_rd_atomic * max_qp;
	r.max_srq = max_srq;
	r.max_srq_wr = max_queue_entries - 1;
	r.max_srq_sge = max_sge;
	constexpr uint32_t atomic_within_device = 1;
	r.atomic_cap = atomic_within_device;
	r.max_ah = 1u << 30; // the device keeps nothing for one
	constexpr uint32_t system_image_guid = 1u << 11, rnr_nak = 1u << 12;
	r.device_cap_flags = system_image_guid | rnr_nak;
	response.max_dm_size = max_dm_bytes;
	response.timestamp_mask = clock_mask;
	response.hca_core_clock = clock_khz;
	r.max_pkeys = partition_keys;
	r.phys_port_cnt = 1;
	const int error = attributes.out(UVERBS_ATTR_CORE_OUT, response);
	mlx5_ib_query_device_resp driver{};
	driver.response_length = sizeof driver;
	driver.flags = MLX5_IB_QUERY_DEV_RESP_FLAGS_SCAT2CQE_DCT;
	return error ? error : attributes.out(UVERBS_ATTR_UHW_OUT, driver);
}

} // namespace softhca::commands
