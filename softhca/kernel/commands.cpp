// The older commands of the kernel's verbs interface (ib_user_verbs.h), which arrive as one ioctl method with the command's
// number, its input and output, and the driver's part of both. The inputs of the oldest begin with a pointer that this
// way of calling does not use.
#include <bit>
#include <cerrno>
#include <endian.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5-abi.h>

#include "softhca/kernel/attributes.hpp"
#include "softhca/kernel/context.hpp"
#include "softhca/nic/memory.hpp"
#include "softhca/nic/nic.hpp"
#include "softhca/live/service.hpp"

namespace softhca {

namespace {

// Access flags with which somebody writes.
constexpr uint32_t changing =
    IB_UVERBS_ACCESS_LOCAL_WRITE | IB_UVERBS_ACCESS_REMOTE_WRITE | IB_UVERBS_ACCESS_REMOTE_ATOMIC;

bool possible_range(uint64_t start, uint64_t length, uint64_t iova)
{
	const uint64_t in_page = page_bytes - 1;
	return length <= max_mr_size && start + length >= start && (start & in_page) == (iova & in_page);
}

constexpr uint64_t extended(uint32_t command) { return command | IB_USER_VERBS_CMD_FLAG_EXTENDED; }

// Whether a command only takes something away: that works on a device that has failed, too.
bool only_removes(uint64_t command)
{
	switch (command) {
	case IB_USER_VERBS_CMD_DEALLOC_PD:
	case IB_USER_VERBS_CMD_DEREG_MR:
	case IB_USER_VERBS_CMD_DESTROY_CQ:
	case IB_USER_VERBS_CMD_DESTROY_SRQ:
	case IB_USER_VERBS_CMD_DESTROY_QP:
		return true;
	}
	return false;
}

} // namespace

int Context::invoke_write(Attributes &attributes)
{
	uint64_t command;
	if (const int error = attributes.in(UVERBS_ATTR_WRITE_CMD, command))
		return error;
	if (Nic::get().failed(device_) && !only_removes(command))
		return EIO;
	switch (command) {
	case IB_USER_VERBS_CMD_QUERY_DEVICE:
		// Without input it is libibverbs asking whether commands may come this way: ENOSPC says yes.
		if (!attributes.find(UVERBS_ATTR_CORE_IN))
			return ENOSPC;
		return query_device(attributes);
	case extended(IB_USER_VERBS_EX_CMD_QUERY_DEVICE):
		return query_device(attributes);
	case IB_USER_VERBS_CMD_ALLOC_PD:
		return alloc_pd(attributes);
	case IB_USER_VERBS_CMD_DEALLOC_PD:
		return dealloc_pd(attributes);
	case IB_USER_VERBS_CMD_REG_MR:
		return reg_mr(attributes);
	case IB_USER_VERBS_CMD_REREG_MR:
		return rereg_mr(attributes);
	case IB_USER_VERBS_CMD_DEREG_MR:
		return dereg_mr(attributes);
	case IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL:
		return create_comp_channel(attributes);
	case IB_USER_VERBS_CMD_CREATE_CQ:
		return create_cq(attributes, false);
	case extended(IB_USER_VERBS_EX_CMD_CREATE_CQ):
		return create_cq(attributes, true);
	case IB_USER_VERBS_CMD_RESIZE_CQ:
		return resize_cq(attributes);
	case IB_USER_VERBS_CMD_DESTROY_CQ:
		return destroy_cq(attributes);
	case IB_USER_VERBS_CMD_CREATE_SRQ:
		return create_srq(attributes);
	case IB_USER_VERBS_CMD_MODIFY_SRQ:
		return modify_srq(attributes);
	case IB_USER_VERBS_CMD_QUERY_SRQ:
		return query_srq(attributes);
	case IB_USER_VERBS_CMD_DESTROY_SRQ:
		return destroy_srq(attributes);
	case IB_USER_VERBS_CMD_CREATE_QP:
		return create_qp(attributes, false);
	case extended(IB_USER_VERBS_EX_CMD_CREATE_QP):
		return create_qp(attributes, true);
	case IB_USER_VERBS_CMD_MODIFY_QP:
		return modify_qp(attributes, false);
	case extended(IB_USER_VERBS_EX_CMD_MODIFY_QP):
		return modify_qp(attributes, true);
	case IB_USER_VERBS_CMD_QUERY_QP:
		return query_qp(attributes);
	case IB_USER_VERBS_CMD_DESTROY_QP:
		return destroy_qp(attributes);
	}
	return EOPNOTSUPP;
}

int Context::query_device(Attributes &attributes) const
{
	ib_uverbs_ex_query_device_resp response{};
	ib_uverbs_query_device_resp &r = response.base;
	response.response_length = sizeof response;
	r.fw_ver = firmware_version;
	r.node_guid = htobe64(node_guid(fabric_.host(), device_));
	r.sys_image_guid = htobe64(node_guid(fabric_.host(), 0));
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

int Context::alloc_pd(Attributes &attributes)
{
	if (pds_.full())
		return ENOMEM;
	auto pd = std::make_shared<Pd>();
	const uint32_t handle = pds_.add(pd);
	pd->number = handle;
	ib_uverbs_alloc_pd_resp response{};
	response.pd_handle = handle;
	const int error = attributes.out(UVERBS_ATTR_CORE_OUT, response);
	return error ? error : attributes.out(UVERBS_ATTR_UHW_OUT, mlx5_ib_alloc_pd_resp{pd->number});
}

int Context::dealloc_pd(Attributes &attributes)
{
	ib_uverbs_dealloc_pd request;
	if (const int error = attributes.in(UVERBS_ATTR_CORE_IN, request))
		return error;
	const auto pd = pds_.find(request.pd_handle);
	if (!pd)
		return EINVAL;
	if (pd->users)
		return EBUSY;
	pds_.remove(request.pd_handle);
	return 0;
}

int Context::reg_mr(Attributes &attributes)
{
	ib_uverbs_reg_mr request;
	if (const int error = attributes.in(UVERBS_ATTR_CORE_IN, request))
		return error;
	if (const int error = check_access(request.access_flags))
		return error;
	if (!possible_range(request.start, request.length, request.hca_va))
		return EINVAL;
	const auto pd = pds_.find(request.pd_handle);
	if (!pd)
		return EINVAL;
	if (!accessible(request.start, request.length, request.access_flags & changing))
		return EFAULT;
	uint32_t handle;
	const uint64_t base = request.access_flags & IB_UVERBS_ACCESS_ZERO_BASED ? 0 : request.hca_va;
	const auto mr = add_mr({pd, nullptr, request.start, request.length, base, request.access_flags, 0}, handle);
	return mr ? attributes.out(UVERBS_ATTR_CORE_OUT, ib_uverbs_reg_mr_resp{handle, mr->key, mr->key}) : ENOMEM;
}

// Keys stay as they are, but for memory that needs more room in the device's tables: that is registered anew.
int Context::rereg_mr(Attributes &attributes)
{
	ib_uverbs_rereg_mr request;
	if (const int error = attributes.in(UVERBS_ATTR_CORE_IN, request))
		return error;
	constexpr uint32_t translation = 1, domain = 2, access = 4;
	const auto mr = mrs_.find(request.mr_handle);
	if (!mr || mr->dm || !request.flags || request.flags & ~(translation | domain | access))
		return EINVAL;
	Mr wanted = *mr;
	if (request.flags & access) {
		if (const int error = check_access(request.access_flags))
			return error;
		wanted.access = request.access_flags;
	}
	if (request.flags & domain) {
		wanted.pd = pds_.find(request.pd_handle);
		if (!wanted.pd)
			return EINVAL;
	}
	if (request.flags & translation) {
		if (!request.length || !possible_range(request.start, request.length, request.hca_va))
			return EINVAL;
		wanted.start = request.start;
		wanted.length = request.length;
		wanted.iova = wanted.access & IB_UVERBS_ACCESS_ZERO_BASED ? 0 : request.hca_va;
		if (request.length > mr->length)
			wanted.key = new_key(request.mr_handle);
	}
	if (!accessible(wanted.start, wanted.length, wanted.access & changing))
		return EFAULT;
	--mr->pd->users;
	++wanted.pd->users;
	*mr = std::move(wanted);
	return attributes.out(UVERBS_ATTR_CORE_OUT, ib_uverbs_rereg_mr_resp{mr->key, mr->key});
}

int Context::dereg_mr(Attributes &attributes)
{
	ib_uverbs_dereg_mr request;
	if (const int error = attributes.in(UVERBS_ATTR_CORE_IN, request))
		return error;
	return remove_mr(request.mr_handle);
}

int Context::check_access(uint32_t flags)
{
	constexpr uint32_t known = changing | IB_UVERBS_ACCESS_REMOTE_READ | IB_UVERBS_ACCESS_ZERO_BASED |
	                           IB_UVERBS_ACCESS_OPTIONAL_RANGE;
	if (flags & ~known)
		return flags & (IB_UVERBS_ACCESS_ON_DEMAND | IB_UVERBS_ACCESS_MW_BIND) ? EOPNOTSUPP : EINVAL;
	// Who lets others change memory must be able to change it (InfiniBand specification, volume 1, 10.6.3).
	const bool local = flags & IB_UVERBS_ACCESS_LOCAL_WRITE;
	return (flags & changing) && !local ? EINVAL : 0;
}

// The low byte changes with every registration, as on hardware: a key of a deregistered region is found out.
uint32_t Context::new_key(uint32_t handle) { return handle << 8 | (++last_key_ & 0xff); }

std::shared_ptr<Mr> Context::add_mr(Mr &&region, uint32_t &handle)
{
	if (mrs_.full() || Nic::get().faults.refuses(FaultRule::Object::mr, device_))
		return nullptr;
	const auto mr = std::make_shared<Mr>(std::move(region));
	handle = mrs_.add(mr);
	mr->key = new_key(handle);
	++mr->pd->users;
	if (mr->dm)
		++mr->dm->users;
	return mr;
}

int Context::remove_mr(uint32_t handle)
{
	const auto mr = mrs_.find(handle);
	if (!mr)
		return EINVAL;
	--mr->pd->users;
	if (mr->dm)
		--mr->dm->users;
	mrs_.remove(handle);
	return 0;
}

int Context::create_comp_channel(Attributes &attributes)
{
	auto pipe = std::make_shared<EventPipe>();
	if (!pipe->ok())
		return EMFILE;
	const int fd = pipe->user_fd();
	channels_[fd] = std::move(pipe);
	return attributes.out(UVERBS_ATTR_CORE_OUT, ib_uverbs_create_comp_channel_resp{static_cast<uint32_t>(fd)});
}

int Context::create_cq(Attributes &attributes, bool extended_form)
{
	ib_uverbs_ex_create_cq request;
	if (extended_form) {
		if (const int error = attributes.in(UVERBS_ATTR_CORE_IN, request))
			return error;
	} else {
		ib_uverbs_create_cq old;
		if (const int error = attributes.in(UVERBS_ATTR_CORE_IN, old))
			return error;
		request = {old.user_handle, old.cqe, old.comp_vector, old.comp_channel, 0, 0, 0};
	}
	mlx5_ib_create_cq driver;
	if (const int error = attributes.in(UVERBS_ATTR_UHW_IN, driver))
		return error;
	if (request.comp_mask || request.flags & ~static_cast<uint32_t>(IB_UVERBS_CQ_FLAGS_IGNORE_OVERRUN))
		return EOPNOTSUPP;
	if (request.cqe < 1 || request.cqe > max_cqe || request.comp_vector >= completion_vectors)
		return EINVAL;
	if ((driver.cqe_size != 64 && driver.cqe_size != 128) || driver.cqe_comp_en)
		return EINVAL;
	if (cqs_.full())
		return ENOMEM;
	auto cq = std::make_shared<Cq>();
	if (request.comp_channel >= 0) {
		const auto channel = channels_.find(request.comp_channel);
		if (channel == channels_.end())
			return EINVAL;
		cq->channel = channel->second;
	}
	cq->entries = std::bit_ceil(request.cqe + 1);
	cq->entry_bytes = driver.cqe_size;
	cq->buffer = reinterpret_cast<uint8_t *>(static_cast<uintptr_t>(driver.buf_addr));
	cq->doorbell = reinterpret_cast<uint32_t *>(static_cast<uintptr_t>(driver.db_addr));
	cq->user_handle = request.user_handle;
	cq->context = this;
	cq->ignore_overrun = request.flags & IB_UVERBS_CQ_FLAGS_IGNORE_OVERRUN;
	if (!accessible(driver.buf_addr, static_cast<uint64_t>(cq->entries) * cq->entry_bytes, true) ||
	    !accessible(driver.db_addr, 8, true) || driver.db_addr % 8)
		return EFAULT;
	// No arm command looks like this: an armed queue can be told from one that never was.
	cq->doorbell[1] = 0xffffffff;
	const uint32_t handle = cqs_.add(cq);
	cq->number = handle;
	if (cq->channel)
		Nic::get().watch(*cq);
	service::assist(cq->user_handle); // it may be polled although no queue pair ever uses it
	ib_uverbs_ex_create_cq_resp response{};
	response.base.cq_handle = handle;
	response.base.cqe = cq->entries - 1;
	response.response_length = sizeof response;
	const int error = attributes.out(UVERBS_ATTR_CORE_OUT, response);
	return error ? error : attributes.out(UVERBS_ATTR_UHW_OUT, mlx5_ib_create_cq_resp{cq->number, 0});
}

// How many of the asynchronous events of an object the program has read; the others are taken back.
uint32_t Context::read_events(uint64_t element, uint32_t raised)
{
	return raised && async_ ? raised - async_->remove(element, sizeof(ib_uverbs_async_event_desc)) : 0;
}

int Context::resize_cq(Attributes &attributes)
{
	ib_uverbs_resize_cq request;
	if (const int error = attributes.in(UVERBS_ATTR_CORE_IN, request))
		return error;
	mlx5_ib_resize_cq driver;
	if (const int error = attributes.in(UVERBS_ATTR_UHW_IN, driver))
		return error;
	const auto cq = cqs_.find(request.cq_handle);
	if (!cq || request.cqe < 1 || request.cqe > max_cqe || driver.cqe_size != cq->entry_bytes)
		return EINVAL;
	const uint32_t entries = std::bit_ceil(request.cqe + 1);
	if (!accessible(driver.buf_addr, static_cast<uint64_t>(entries) * cq->entry_bytes, true))
		return EFAULT;
	if (!cq->move(reinterpret_cast<uint8_t *>(static_cast<uintptr_t>(driver.buf_addr)), entries))
		return EINVAL;
	ib_uverbs_resize_cq_resp response{};
	response.cqe = entries - 1;
	return attributes.out(UVERBS_ATTR_CORE_OUT, response);
}

int Context::destroy_cq(Attributes &attributes)
{
	ib_uverbs_destroy_cq request;
	if (const int error = attributes.in(UVERBS_ATTR_CORE_IN, request))
		return error;
	const auto cq = cqs_.find(request.cq_handle);
	if (!cq)
		return EINVAL;
	if (cq->users)
		return EBUSY;
	Nic::get().forget(*cq);
	// The program waits until it has acknowledged all events that it has read: those that it has not are taken back.
	if (cq->channel && cq->completion_events)
		cq->completion_events -= cq->channel->remove(cq->user_handle, sizeof(ib_uverbs_comp_event_desc));
	cq->async_events = read_events(cq->user_handle, cq->async_events);
	cqs_.remove(request.cq_handle);
	return attributes.out(UVERBS_ATTR_CORE_OUT, ib_uverbs_destroy_cq_resp{cq->completion_events, cq->async_events});
}

} // namespace softhca
