// Commands for shared receive queues.
#include <bit>
#include <cerrno>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5-abi.h>

#include "softhca/kernel/commands/attributes.hpp"
#include "softhca/kernel/commands/commands.hpp"
#include "softhca/kernel/context.hpp"

namespace softhca::commands {

namespace {

// Bits of the mask of what to modify.
enum SrqAttribute : uint32_t { srq_max_wr = 1, srq_limit = 2 };

} // namespace

int create_srq(Context &context, Attributes &attributes)
{
	ib_uverbs_create_srq request;
	if (const int error = attributes.in(UVERBS_ATTR_CORE_IN, request))
		return error;
	mlx5_ib_create_srq driver;
	if (const int error = attributes.in(UVERBS_ATTR_UHW_IN, driver))
		return error;
	const auto pd = context.objects.pds.find(request.pd_handle);
	if (!pd || request.max_wr >= max_queue_entries || request.max_sge > max_sge || request.srq_limit > request.max_wr)
		return EINVAL;
	if (driver.flags)
		return EOPNOTSUPP; // signatures
	if (context.objects.srqs.full())
		return ENOMEM;
	auto srq = std::make_shared<Srq>();
	constexpr uint32_t segment = 16, smallest = 32;
	srq->context = &context;
	srq->pd = pd;
	srq->entries = std::bit_ceil(request.max_wr + 1);
	srq->stride = std::max(smallest, std::bit_ceil(segment * (1 + request.max_sge)));
	srq->buffer = reinterpret_cast<uint8_t *>(static_cast<uintptr_t>(driver.buf_addr));
	srq->doorbell = reinterpret_cast<uint32_t *>(static_cast<uintptr_t>(driver.db_addr));
	srq->user_handle = request.user_handle;
	srq->max_wr = srq->entries - 1;
	srq->max_sge = request.max_sge;
	srq->limit = request.srq_limit;
	if (driver.db_addr % 4 || !accessible(driver.db_addr, 4, true) ||
	    !accessible(driver.buf_addr, static_cast<uint64_t>(srq->entries) * srq->stride, true))
		return EFAULT;
	const uint32_t handle = context.objects.srqs.add(srq);
	srq->number = handle;
	++pd->users;
	ib_uverbs_create_srq_resp response{};
	response.srq_handle = handle;
	response.max_wr = srq->max_wr;
	response.max_sge = srq->max_sge;
	response.srqn = srq->number;
	const int error = attributes.out(UVERBS_ATTR_CORE_OUT, response);
	return error ? error : attributes.out(UVERBS_ATTR_UHW_OUT, mlx5_ib_create_srq_resp{srq->number, 0});
}

int modify_srq(Context &context, Attributes &attributes)
{
	ib_uverbs_modify_srq request;
	if (const int error = attributes.in(UVERBS_ATTR_CORE_IN, request))
		return error;
	const auto srq = context.objects.srqs.find(request.srq_handle);
	// Its size cannot be changed, as on hardware.
	if (!srq || request.attr_mask & ~static_cast<uint32_t>(srq_limit))
		return EINVAL;
	if (request.attr_mask & srq_limit) {
		if (request.srq_limit > srq->max_wr)
			return EINVAL;
		srq->limit = request.srq_limit;
		srq->check_limit();
	}
	return 0;
}

int query_srq(Context &context, Attributes &attributes)
{
	ib_uverbs_query_srq request;
	if (const int error = attributes.in(UVERBS_ATTR_CORE_IN, request))
		return error;
	const auto srq = context.objects.srqs.find(request.srq_handle);
	if (!srq)
		return EINVAL;
	return attributes.out(UVERBS_ATTR_CORE_OUT, ib_uverbs_query_srq_resp{srq->max_wr, srq->max_sge, srq->limit, 0});
}

int destroy_srq(Context &context, Attributes &attributes)
{
	ib_uverbs_destroy_srq request;
	if (const int error = attributes.in(UVERBS_ATTR_CORE_IN, request))
		return error;
	const auto srq = context.objects.srqs.find(request.srq_handle);
	if (!srq)
		return EINVAL;
	if (srq->users)
		return EBUSY;
	--srq->pd->users;
	context.objects.srqs.remove(request.srq_handle);
	return attributes.out(UVERBS_ATTR_CORE_OUT,
	                      ib_uverbs_destroy_srq_resp{read_events(context, srq->user_handle, srq->async_events)});
}

} // namespace softhca::commands
