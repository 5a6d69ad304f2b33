// RDMA_VERBS_IOCTL: objects and methods of the kernel's verbs interface (ib_user_ioctl_cmds.h). Others are refused with
// EPROTONOSUPPORT; libibverbs then takes the older commands, which come through INVOKE_WRITE (write_commands.cpp).
#include <cerrno>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/mlx5_user_ioctl_cmds.h>

#include "softhca/exact/exact.hpp"
#include "softhca/kernel/commands/attributes.hpp"
#include "softhca/kernel/commands/commands.hpp"
#include "softhca/kernel/context.hpp"
#include "softhca/nic/nic.hpp"

namespace softhca {

namespace {

using namespace commands;

int dispatch(Context &context, Attributes &attributes, unsigned object, unsigned method)
{
	switch (object) {
	case UVERBS_OBJECT_DEVICE:
		switch (method) {
		case UVERBS_METHOD_INVOKE_WRITE: return invoke_write(context, attributes);
		case UVERBS_METHOD_GET_CONTEXT: return get_context(context, attributes);
		case UVERBS_METHOD_QUERY_PORT: return query_port(context, attributes);
		}
		break;
	case UVERBS_OBJECT_ASYNC_EVENT:
		if (method == UVERBS_METHOD_ASYNC_EVENT_ALLOC)
			return alloc_async_fd(context, attributes);
		break;
	case UVERBS_OBJECT_DM:
		switch (method) {
		case UVERBS_METHOD_DM_ALLOC: return alloc_dm(context, attributes);
		case UVERBS_METHOD_DM_FREE: return free_dm(context, attributes);
		}
		break;
	case UVERBS_OBJECT_MR:
		if (method == UVERBS_METHOD_DM_MR_REG)
			return reg_dm_mr(context, attributes);
		break;
	case MLX5_IB_OBJECT_UAR:
		switch (method) {
		case MLX5_IB_METHOD_UAR_OBJ_ALLOC: return alloc_uar(context, attributes);
		case MLX5_IB_METHOD_UAR_OBJ_DESTROY: return destroy_uar(context, attributes);
		}
		break;
	}
	return EPROTONOSUPPORT;
}

} // namespace

int Context::ioctl(ib_uverbs_ioctl_hdr &header)
{
	if (header.reserved1 || header.reserved2)
		return EPROTONOSUPPORT;
	if (header.length != sizeof header + header.num_attrs * sizeof(ib_uverbs_attr))
		return EINVAL;
	Attributes attributes(header);
	const std::lock_guard guard(nic_.mutex);
	exact::find_pages(*this); // what has been mapped since the last command
	nic_.refresh_faults(read_clock());
	return dispatch(*this, attributes, header.object_id, header.method_id);
}

} // namespace softhca
