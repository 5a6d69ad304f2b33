// RDMA_VERBS_IOCTL: objects and methods of the kernel's verbs interface (ib_user_ioctl_cmds.h). What is not here is
// refused with EPROTONOSUPPORT; libibverbs then takes the older commands, which come through INVOKE_WRITE.
#include <cerrno>
#include <ctime>
#include <endian.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/mlx5-abi.h>
#include <rdma/mlx5_user_ioctl_cmds.h>
#include <rdma/mlx5_user_ioctl_verbs.h>
#include <unistd.h>

#include "softhca/kernel/attributes.hpp"
#include "softhca/kernel/context.hpp"
#include "softhca/exact/exact.hpp"
#include "softhca/nic/nic.hpp"

namespace softhca {

int Context::ioctl(ib_uverbs_ioctl_hdr &header)
{
	if (header.reserved1 || header.reserved2)
		return EPROTONOSUPPORT;
	if (header.length != sizeof header + header.num_attrs * sizeof(ib_uverbs_attr))
		return EINVAL;
	Attributes attributes(header);
	const std::lock_guard guard(Nic::get().mutex);
	exact::find_pages(*this); // what has been mapped since the last command
	Nic::get().refresh_faults();
	return dispatch(attributes, header.object_id, header.method_id);
}

int Context::dispatch(Attributes &attributes, unsigned object, unsigned method)
{
	switch (object) {
	case UVERBS_OBJECT_DEVICE:
		switch (method) {
		case UVERBS_METHOD_INVOKE_WRITE:
			return invoke_write(attributes);
		case UVERBS_METHOD_GET_CONTEXT:
			return get_context(attributes);
		case UVERBS_METHOD_QUERY_PORT:
			return query_port(attributes);
		}
		break;
	case UVERBS_OBJECT_ASYNC_EVENT:
		if (method == UVERBS_METHOD_ASYNC_EVENT_ALLOC)
			return alloc_async_fd(attributes);
		break;
	case UVERBS_OBJECT_DM:
		switch (method) {
		case UVERBS_METHOD_DM_ALLOC:
			return alloc_dm(attributes);
		case UVERBS_METHOD_DM_FREE:
			return free_dm(attributes);
		}
		break;
	case UVERBS_OBJECT_MR:
		if (method == UVERBS_METHOD_DM_MR_REG)
			return reg_dm_mr(attributes);
		break;
	case MLX5_IB_OBJECT_UAR:
		switch (method) {
		case MLX5_IB_METHOD_UAR_OBJ_ALLOC:
			return alloc_uar(attributes);
		case MLX5_IB_METHOD_UAR_OBJ_DESTROY:
			return destroy_uar(attributes);
		}
		break;
	}
	return EPROTONOSUPPORT;
}

// Which time of day belongs to which of the clock. The kernel writes this page anew from time to time, as NICs have clocks
// of their own; ours is the system's.
int Context::write_clock_info() const
{
	timespec day;
	clock_gettime(CLOCK_REALTIME, &day);
	mlx5_ib_clock_info info{};
	info.cycles = Nic::read_clock();
	info.nsec = static_cast<uint64_t>(day.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(day.tv_nsec);
	info.mult = 1;
	info.mask = clock_mask;
	info.overflow_period = clock_mask / 2;
	return pwrite(fd_, &info, sizeof info, static_cast<off_t>(clock_info_offset)) == sizeof info ? 0 : ENOMEM;
}

int Context::get_context(Attributes &attributes)
{
	mlx5_ib_alloc_ucontext_req_v2 request;
	if (const int error = attributes.in(UVERBS_ATTR_UHW_IN, request))
		return error;
	if (request.flags & MLX5_IB_ALLOC_UCTX_DEVX)
		return EOPNOTSUPP; // libmlx5 then asks again without
	mlx5_ib_alloc_ucontext_resp response{};
	response.response_length = sizeof response;
	response.bf_reg_size = blueflame_bytes;
	response.tot_bfregs = 0; // all are allocated one by one
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
	response.num_dyn_bfregs = most_uars;
	int error = write_clock_info();
	if (!error)
		error = attributes.out(UVERBS_ATTR_UHW_OUT, response);
	if (!error)
		error = attributes.out(UVERBS_ATTR_GET_CONTEXT_NUM_COMP_VECTORS, completion_vectors);
	if (!error)
		error = attributes.out(UVERBS_ATTR_GET_CONTEXT_CORE_SUPPORT,
		                       static_cast<uint64_t>(IB_UVERBS_CORE_SUPPORT_OPTIONAL_MR_ACCESS));
	return error;
}

int Context::query_port(Attributes &attributes) const
{
	uint8_t port;
	if (const int error = attributes.in(UVERBS_ATTR_QUERY_PORT_PORT_NUM, port))
		return error;
	if (port != 1)
		return EINVAL;
	// Codes of the InfiniBand specification, volume 1, 14.2.5.6 (PortInfo).
	constexpr uint8_t down = 1, active = 4, disabled = 3, link_up = 5, mtu_4096 = 5, four_lanes = 2, edr = 32, infiniband = 1;
	ib_uverbs_query_port_resp_ex response{};
	ib_uverbs_query_port_resp &r = response.legacy_resp;
	r.max_msg_sz = max_message;
	r.gid_tbl_len = gids;
	r.pkey_tbl_len = partition_keys;
	r.lid = lid_of(fabric_.host(), device_);
	r.sm_lid = 1;
	const bool link_down = Nic::get().link_down(device_);
	r.state = link_down ? down : active;
	r.phys_state = link_down ? disabled : link_up;
	r.max_mtu = r.active_mtu = mtu_4096;
	r.max_vl_num = 1;
	r.active_width = four_lanes;
	r.active_speed = edr;
	r.link_layer = infiniband;
	return attributes.out(UVERBS_ATTR_QUERY_PORT_RESP, response);
}

int Context::alloc_async_fd(Attributes &attributes)
{
	if (async_)
		return EBUSY;
	auto pipe = std::make_shared<EventPipe>();
	if (!pipe->ok())
		return EMFILE;
	if (const int error = attributes.out_value(UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE, static_cast<uint64_t>(pipe->user_fd())))
		return error;
	async_ = std::move(pipe);
	return 0;
}

int Context::alloc_uar(Attributes &attributes)
{
	uint8_t type;
	if (const int error = attributes.in(MLX5_IB_ATTR_UAR_OBJ_ALLOC_TYPE, type))
		return error;
	if (type != MLX5_IB_UAPI_UAR_ALLOC_TYPE_BF && type != MLX5_IB_UAPI_UAR_ALLOC_TYPE_NC)
		return EOPNOTSUPP;
	uint32_t index = 0;
	while (index < most_uars && uars_[index])
		++index;
	if (index == most_uars)
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
		uars_[index] = true;
	return error;
}

int Context::destroy_uar(Attributes &attributes)
{
	const ib_uverbs_attr *handle = attributes.find(MLX5_IB_ATTR_UAR_OBJ_DESTROY_HANDLE);
	if (!handle || handle->data < 1 || handle->data > most_uars || !uars_[handle->data - 1])
		return ENOENT;
	uars_[handle->data - 1] = false;
	return 0;
}

} // namespace softhca
