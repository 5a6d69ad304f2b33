// Commands for protection domains and memory regions.
#include <cerrno>
#include <memory>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5-abi.h>

#include "softhca/kernel/commands/attributes.hpp"
#include "softhca/kernel/commands/commands.hpp"
#include "softhca/kernel/context.hpp"
#include "softhca/nic/memory.hpp"
#include "softhca/nic/nic.hpp"

namespace softhca::commands {

namespace {

// Access flags with which somebody writes.
constexpr uint32_t changing =
    IB_UVERBS_ACCESS_LOCAL_WRITE | IB_UVERBS_ACCESS_REMOTE_WRITE | IB_UVERBS_ACCESS_REMOTE_ATOMIC;

bool possible_range(uint64_t start, uint64_t length, uint64_t iova)
{
	const uint64_t in_page = page_bytes - 1;
	return length <= max_mr_size && start + length >= start && (start & in_page) == (iova & in_page);
}

// The low byte changes with every registration, as on hardware, so the key of a deregistered region is refused.
uint32_t new_key(Context &context, uint32_t handle) { return handle << 8 | (++context.objects.last_key & 0xff); }

} // namespace

int alloc_pd(Context &context, Attributes &attributes)
{
	if (context.objects.pds.full())
		return ENOMEM;
	auto pd = std::make_shared<Pd>();
	const uint32_t handle = context.objects.pds.add(pd);
	pd->number = handle;
	ib_uverbs_alloc_pd_resp response{};
	response.pd_handle = handle;
	const int error = attributes.out(UVERBS_ATTR_CORE_OUT, response);
	return error ? error : attributes.out(UVERBS_ATTR_UHW_OUT, mlx5_ib_alloc_pd_resp{pd->number});
}

int dealloc_pd(Context &context, Attributes &attributes)
{
	ib_uverbs_dealloc_pd request;
	if (const int error = attributes.in(UVERBS_ATTR_CORE_IN, request))
		return error;
	const auto pd = context.objects.pds.find(request.pd_handle);
	if (!pd)
		return EINVAL;
	if (pd->users)
		return EBUSY;
	context.objects.pds.remove(request.pd_handle);
	return 0;
}

int reg_mr(Context &context, Attributes &attributes)
{
	ib_uverbs_reg_mr request;
	if (const int error = attributes.in(UVERBS_ATTR_CORE_IN, request))
		return error;
	if (const int error = check_access(request.access_flags))
		return error;
	if (!possible_range(request.start, request.length, request.hca_va))
		return EINVAL;
	const auto pd = context.objects.pds.find(request.pd_handle);
	if (!pd)
		return EINVAL;
	if (!accessible(request.start, request.length, request.access_flags & changing))
		return EFAULT;
	uint32_t handle;
	const uint64_t base = request.access_flags & IB_UVERBS_ACCESS_ZERO_BASED ? 0 : request.hca_va;
	const auto mr =
	    add_mr(context, {pd, nullptr, request.start, request.length, base, request.access_flags, 0}, handle);
	return mr ? attributes.out(UVERBS_ATTR_CORE_OUT, ib_uverbs_reg_mr_resp{handle, mr->key, mr->key}) : ENOMEM;
}

// The keys change only when the region grows: it then needs more room in the device's tables.
int rereg_mr(Context &context, Attributes &attributes)
{
	ib_uverbs_rereg_mr request;
	if (const int error = attributes.in(UVERBS_ATTR_CORE_IN, request))
		return error;
	constexpr uint32_t translation = 1, domain = 2, access = 4;
	const auto mr = context.objects.mrs.find(request.mr_handle);
	if (!mr || mr->dm || !request.flags || request.flags & ~(translation | domain | access))
		return EINVAL;
	Mr wanted = *mr;
	if (request.flags & access) {
		if (const int error = check_access(request.access_flags))
			return error;
		wanted.access = request.access_flags;
	}
	if (request.flags & domain) {
		wanted.pd = context.objects.pds.find(request.pd_handle);
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
			wanted.key = new_key(context, request.mr_handle);
	}
	if (!accessible(wanted.start, wanted.length, wanted.access & changing))
		return EFAULT;
	--mr->pd->users;
	++wanted.pd->users;
	*mr = std::move(wanted);
	return attributes.out(UVERBS_ATTR_CORE_OUT, ib_uverbs_rereg_mr_resp{mr->key, mr->key});
}

int dereg_mr(Context &context, Attributes &attributes)
{
	ib_uverbs_dereg_mr request;
	if (const int error = attributes.in(UVERBS_ATTR_CORE_IN, request))
		return error;
	return remove_mr(context, request.mr_handle);
}

int check_access(uint32_t flags)
{
	constexpr uint32_t known =
	    changing | IB_UVERBS_ACCESS_REMOTE_READ | IB_UVERBS_ACCESS_ZERO_BASED | IB_UVERBS_ACCESS_OPTIONAL_RANGE;
	if (flags & ~known)
		return flags & (IB_UVERBS_ACCESS_ON_DEMAND | IB_UVERBS_ACCESS_MW_BIND) ? EOPNOTSUPP : EINVAL;
	// Remote write access needs local write access (InfiniBand specification, volume 1, 10.6.3).
	const bool local = flags & IB_UVERBS_ACCESS_LOCAL_WRITE;
	return (flags & changing) && !local ? EINVAL : 0;
}

std::shared_ptr<Mr> add_mr(Context &context, Mr &&region, uint32_t &handle)
{
	if (context.objects.mrs.full() || context.nic().faults.refuses(FaultRule::Object::mr, context.device()))
		return nullptr;
	const auto mr = std::make_shared<Mr>(std::move(region));
	handle = context.objects.mrs.add(mr);
	mr->key = new_key(context, handle);
	++mr->pd->users;
	if (mr->dm)
		++mr->dm->users;
	return mr;
}

int remove_mr(Context &context, uint32_t handle)
{
	const auto mr = context.objects.mrs.find(handle);
	if (!mr)
		return EINVAL;
	--mr->pd->users;
	if (mr->dm)
		--mr->dm->users;
	context.objects.mrs.remove(handle);
	return 0;
}

} // namespace softhca::commands
