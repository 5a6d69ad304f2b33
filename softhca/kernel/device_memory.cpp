// Device memory: memory of the NIC that the processor writes through a mapping and work requests name by a zero-based key.
// It lies in the command file, where mmap finds it at the offset that libmlx5 makes of a page number.
#include <bit>
#include <cerrno>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/mlx5_user_ioctl_cmds.h>
#include <rdma/mlx5_user_ioctl_verbs.h>
#include <sys/mman.h>

#include "softhca/kernel/attributes.hpp"
#include "softhca/nic/nic.hpp"
#include "softhca/kernel/real.hpp"

namespace softhca {

// The first free piece, in blocks; dm_blocks when there is none.
size_t Context::find_device_memory(size_t blocks, size_t alignment) const
{
	for (size_t at = 0; at + blocks <= dm_blocks; at += alignment) {
		size_t n = 0;
		while (n < blocks && !dm_used_[at + n])
			++n;
		if (n == blocks)
			return at;
	}
	return dm_blocks;
}

void Context::mark_device_memory(const Dm &dm, bool used)
{
	const size_t end = (dm.offset + dm.length + dm_block_bytes - 1) / dm_block_bytes;
	for (size_t block = dm.offset / dm_block_bytes; block < end; ++block)
		dm_used_[block] = used;
}

bool Context::map_device_memory()
{
	if (dm_memory_)
		return true;
	void *memory = real::mmap(nullptr, max_dm_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, static_cast<off_t>(dm_first_offset));
	if (memory == MAP_FAILED)
		return false;
	dm_memory_ = static_cast<uint8_t *>(memory);
	return true;
}

int Context::alloc_dm(Attributes &attributes)
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
	const size_t block = find_device_memory((length + dm_block_bytes - 1) / dm_block_bytes, alignment);
	if (block == dm_blocks)
		return ENOMEM;
	if (Nic::get().faults.refuses(FaultRule::Object::dm, device_) || !map_device_memory())
		return ENOMEM;
	const auto dm = std::make_shared<Dm>(Dm{block * dm_block_bytes, length});
	const uint32_t handle = dms_.add(dm);
	int error = attributes.out_value(UVERBS_ATTR_ALLOC_DM_HANDLE, handle);
	if (!error)
		error = attributes.out(MLX5_IB_ATTR_ALLOC_DM_RESP_START_OFFSET, dm->offset % page_bytes);
	if (!error)
		error = attributes.out(MLX5_IB_ATTR_ALLOC_DM_RESP_PAGE_INDEX, static_cast<uint16_t>(dm->offset / page_bytes));
	if (error)
		dms_.remove(handle);
	else
		mark_device_memory(*dm, true);
	return error;
}

int Context::free_dm(Attributes &attributes)
{
	const ib_uverbs_attr *handle = attributes.find(UVERBS_ATTR_FREE_DM_HANDLE);
	const auto dm = handle ? dms_.find(static_cast<uint32_t>(handle->data)) : nullptr;
	if (!dm)
		return ENOENT;
	if (dm->users)
		return EBUSY;
	mark_device_memory(*dm, false);
	dms_.remove(static_cast<uint32_t>(handle->data));
	return 0;
}

int Context::reg_dm_mr(Attributes &attributes)
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
	const auto pd = pd_handle ? pds_.find(static_cast<uint32_t>(pd_handle->data)) : nullptr;
	const auto dm = dm_handle ? dms_.find(static_cast<uint32_t>(dm_handle->data)) : nullptr;
	if (!pd || !dm)
		return ENOENT;
	if (const int refused = check_access(access))
		return refused;
	// The mapping is libmlx5's secret: without a zero-based key there would be no address to use.
	if (!(access & IB_UVERBS_ACCESS_ZERO_BASED) || offset > dm->length || length > dm->length - offset)
		return EINVAL;
	Mr region{};
	region.pd = pd;
	region.dm = dm;
	region.start = dm->offset + offset;
	region.length = length;
	region.access = access;
	uint32_t handle;
	const auto mr = add_mr(std::move(region), handle);
	if (!mr)
		return ENOMEM;
	error = attributes.out_value(UVERBS_ATTR_REG_DM_MR_HANDLE, handle);
	if (!error)
		error = attributes.out(UVERBS_ATTR_REG_DM_MR_RESP_LKEY, mr->key);
	if (!error)
		error = attributes.out(UVERBS_ATTR_REG_DM_MR_RESP_RKEY, mr->key);
	if (error)
		remove_mr(handle);
	return error;
}

} // namespace softhca
