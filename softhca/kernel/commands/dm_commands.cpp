// Commands for device memory. The processor writes it through a mapping; work requests name it by a zero-based key. It
// is in the command file, at the offset that libmlx5 makes of a page number.
#include <bit>
#include <cerrno>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/mlx5_user_ioctl_cmds.h>
#include <rdma/mlx5_user_ioctl_verbs.h>
#include <sys/mman.h>

#include "softhca/kernel/commands/attributes.hpp"
#include "softhca/kernel/commands/commands.hpp"
#include "softhca/kernel/context.hpp"
#include "softhca/kernel/real.hpp"
#include "softhca/nic/nic.hpp"

namespace softhca::commands {

int alloc_dm(Context &context, Attributes &attributes)
{
	uint64_t length;
	uint32_t log_alignment;
	uint32_t type = MLX5_IB_UAPI_DM_TYPE_MEMIC;
	if (const int error = attributes.in(UVERBS_ATTR_ALLOC_DM_LENGTH, length))
		return error;
	if (const int error = attributes.in(UVERBS_ATTR_ALLOC_DM_ALIGNMENT, log_alignment))
		return error;
	if (attributes.find(MLX5_IB_ATTR_ALLOC_DM_REQ_TYPE))
		if (const int error = attributes.in(MLX5_IB_ATTR_ALLOC_DM_REQ_TYPE, type))
			return error;
	if (type != MLX5_IB_UAPI_DM_TYPE_MEMIC)
		return EOPNOTSUPP;
	if (length == 0 || length > max_dm_bytes || log_alignment > std::bit_width(max_dm_bytes) - 1)
		return EINVAL;
	const size_t alignment = std::max<size_t>(1, (size_t{1} << log_alignment) / dm_block_bytes);
	const size_t block = context.objects.device_memory.find((length + dm_block_bytes - 1) / dm_block_bytes, alignment);
	if (block == dm_blocks)
		return ENOMEM;
	if (context.nic().faults.refuses(FaultRule::Object::dm, context.device()) ||
	    !context.objects.device_memory.map(context.fd()))
		return ENOMEM;
	const auto dm = std::make_shared<Dm>(Dm{block * dm_block_bytes, length});
	const uint32_t handle = context.objects.dms.add(dm);
	int error = attributes.out_value(UVERBS_ATTR_ALLOC_DM_HANDLE, handle);
	if (!error)
		error = attributes.out(MLX5_IB_ATTR_ALLOC_DM_RESP_START_OFFSET, dm->offset % page_bytes);
	if (!error)
		error = attributes.out(MLX5_IB_ATTR_ALLOC_DM_RESP_PAGE_INDEX, static_cast<uint16_t>(dm->offset / page_bytes));
	if (error)
		context.objects.dms.remove(handle);
	else
		context.objects.device_memory.mark(*dm, true);
	return error;
}

int free_dm(Context &context, Attributes &attributes)
{
	const ib_uverbs_attr *handle = attributes.find(UVERBS_ATTR_FREE_DM_HANDLE);
	const auto dm = handle ? context.objects.dms.find(static_cast<uint32_t>(handle->data)) : nullptr;
	if (!dm)
		return ENOENT;
	if (dm->users)
		return EBUSY;
	context.objects.device_memory.mark(*dm, false);
	context.objects.dms.remove(static_cast<uint32_t>(handle->data));
	return 0;
}

int reg_dm_mr(Context &context, Attributes &attributes)
{
	uint64_t offset, length;
	uint32_t access;
	int error = attributes.in(UVERBS_ATTR_REG_DM_MR_OFFSET, offset);
	if (!error)
		error = attributes.in(UVERBS_ATTR_REG_DM_MR_LENGTH, length);
	if (!error)
		error = attributes.in(UVERBS_ATTR_REG_DM_MR_ACCESS_FLAGS, access);
	if (error)
		return error;
	const ib_uverbs_attr *pd_handle = attributes.find(UVERBS_ATTR_REG_DM_MR_PD_HANDLE);
	const ib_uverbs_attr *dm_handle = attributes.find(UVERBS_ATTR_REG_DM_MR_DM_HANDLE);
	const auto pd = pd_handle ? context.objects.pds.find(static_cast<uint32_t>(pd_handle->data)) : nullptr;
	const auto dm = dm_handle ? context.objects.dms.find(static_cast<uint32_t>(dm_handle->data)) : nullptr;
	if (!pd || !dm)
		return ENOENT;
	if (const int refused = check_access(access))
		return refused;
	// Only libmlx5 knows the mapping: without a zero-based key a work request has no address to use.
	if (!(access & IB_UVERBS_ACCESS_ZERO_BASED) || offset > dm->length || length > dm->length - offset)
		return EINVAL;
	Mr region{};
	region.pd = pd;
	region.dm = dm;
	region.start = dm->offset + offset;
	region.length = length;
	region.access = access;
	uint32_t handle;
	const auto mr = add_mr(context, std::move(region), handle);
	if (!mr)
		return ENOMEM;
	error = attributes.out_value(UVERBS_ATTR_REG_DM_MR_HANDLE, handle);
	if (!error)
		error = attributes.out(UVERBS_ATTR_REG_DM_MR_RESP_LKEY, mr->key);
	if (!error)
		error = attributes.out(UVERBS_ATTR_REG_DM_MR_RESP_RKEY, mr->key);
	if (error)
		remove_mr(context, handle);
	return error;
}

} // namespace softhca::commands
