// Commands for completion channels and completion queues.
#include <bit>
#include <cerrno>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5-abi.h>

#include "softhca/kernel/commands/attributes.hpp"
#include "softhca/kernel/commands/commands.hpp"
#include "softhca/kernel/context.hpp"
#include "softhca/kernel/verbs_hooks.hpp"
#include "softhca/nic/memory.hpp"
#include "softhca/nic/nic.hpp"

namespace softhca::commands {

int create_comp_channel(Context &context, Attributes &attributes)
{
	auto pipe = std::make_shared<EventPipe>();
	if (!pipe->ok())
		return EMFILE;
	const int fd = pipe->user_fd();
	context.objects.channels[fd] = std::move(pipe);
	return attributes.out(UVERBS_ATTR_CORE_OUT, ib_uverbs_create_comp_channel_resp{static_cast<uint32_t>(fd)});
}

int create_cq(Context &context, Attributes &attributes, bool extended_form)
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
	if (context.objects.cqs.full())
		return ENOMEM;
	auto cq = std::make_shared<Cq>();
	if (request.comp_channel >= 0) {
		const auto channel = context.objects.channels.find(request.comp_channel);
		if (channel == context.objects.channels.end())
			return EINVAL;
		cq->channel = channel->second;
	}
	cq->cqes = std::bit_ceil(request.cqe + 1);
	cq->cqe_bytes = driver.cqe_size;
	cq->buffer = reinterpret_cast<uint8_t *>(static_cast<uintptr_t>(driver.buf_addr));
	cq->doorbell = reinterpret_cast<uint32_t *>(static_cast<uintptr_t>(driver.db_addr));
	cq->user_handle = request.user_handle;
	cq->context = &context;
	cq->ignore_overrun = request.flags & IB_UVERBS_CQ_FLAGS_IGNORE_OVERRUN;
	if (!accessible(driver.buf_addr, static_cast<uint64_t>(cq->cqes) * cq->cqe_bytes, true) ||
	    !accessible(driver.db_addr, 8, true) || driver.db_addr % 8)
		return EFAULT;
	// No arm command looks like this: the queue has never been armed.
	cq->doorbell[1] = 0xffffffff;
	const uint32_t handle = context.objects.cqs.add(cq);
	cq->number = handle;
	if (cq->channel)
		context.nic().watch(*cq);
	hook_verbs(cq->user_handle); // the program may poll it before a queue pair uses it
	ib_uverbs_ex_create_cq_resp response{};
	response.base.cq_handle = handle;
	response.base.cqe = cq->cqes - 1;
	response.response_length = sizeof response;
	const int error = attributes.out(UVERBS_ATTR_CORE_OUT, response);
	return error ? error : attributes.out(UVERBS_ATTR_UHW_OUT, mlx5_ib_create_cq_resp{cq->number, 0});
}

uint32_t read_events(Context &context, uint64_t element, uint32_t raised)
{
	const auto &async = context.objects.async;
	return raised && async ? raised - async->remove(element, sizeof(ib_uverbs_async_event_desc)) : 0;
}

int resize_cq(Context &context, Attributes &attributes)
{
	ib_uverbs_resize_cq request;
	if (const int error = attributes.in(UVERBS_ATTR_CORE_IN, request))
		return error;
	mlx5_ib_resize_cq driver;
	if (const int error = attributes.in(UVERBS_ATTR_UHW_IN, driver))
		return error;
	const auto cq = context.objects.cqs.find(request.cq_handle);
	if (!cq || request.cqe < 1 || request.cqe > max_cqe || driver.cqe_size != cq->cqe_bytes)
		return EINVAL;
	const uint32_t entries = std::bit_ceil(request.cqe + 1);
	if (!accessible(driver.buf_addr, static_cast<uint64_t>(entries) * cq->cqe_bytes, true))
		return EFAULT;
	if (!cq->move(reinterpret_cast<uint8_t *>(static_cast<uintptr_t>(driver.buf_addr)), entries))
		return EINVAL;
	ib_uverbs_resize_cq_resp response{};
	response.cqe = entries - 1;
	return attributes.out(UVERBS_ATTR_CORE_OUT, response);
}

int destroy_cq(Context &context, Attributes &attributes)
{
	ib_uverbs_destroy_cq request;
	if (const int error = attributes.in(UVERBS_ATTR_CORE_IN, request))
		return error;
	const auto cq = context.objects.cqs.find(request.cq_handle);
	if (!cq)
		return EINVAL;
	if (cq->users)
		return EBUSY;
	context.nic().forget(*cq);
	// The program waits until it has acknowledged all events that it has read. Unread ones are removed.
	if (cq->channel && cq->completion_events)
		cq->completion_events -= cq->channel->remove(cq->user_handle, sizeof(ib_uverbs_comp_event_desc));
	cq->async_events = read_events(context, cq->user_handle, cq->async_events);
	context.objects.cqs.remove(request.cq_handle);
	return attributes.out(UVERBS_ATTR_CORE_OUT, ib_uverbs_destroy_cq_resp{cq->completion_events, cq->async_events});
}

} // namespace softhca::commands
