// The older commands of the kernel's verbs interface (ib_user_verbs.h). They arrive as one ioctl method, with the
// command's number, its input and output, and the driver's part of both. The inputs of the oldest begin with a pointer
// that is not used here.
#include <cerrno>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/ib_user_verbs.h>

#include "softhca/kernel/commands/attributes.hpp"
#include "softhca/kernel/commands/commands.hpp"
#include "softhca/kernel/context.hpp"
#include "softhca/nic/nic.hpp"

namespace softhca::commands {

namespace {

constexpr uint64_t extended(uint32_t command) { return command | IB_USER_VERBS_CMD_FLAG_EXTENDED; }

// Whether a command only destroys something: that works on a failed device, too.
bool only_removes(uint64_t command)
{
	switch (command) {
	case IB_USER_VERBS_CMD_DEALLOC_PD:
	case IB_USER_VERBS_CMD_DEREG_MR:
	case IB_USER_VERBS_CMD_DESTROY_CQ:
	case IB_USER_VERBS_CMD_DESTROY_SRQ:
	case IB_USER_VERBS_CMD_DESTROY_QP: return true;
	}
	return false;
}

} // namespace

int invoke_write(Context &context, Attributes &attributes)
{
	uint64_t command;
	if (const int error = attributes.in(UVERBS_ATTR_WRITE_CMD, command))
		return error;
	if (context.nic().devices.failed(context.device()) && !only_removes(command))
		return EIO;
	switch (command) {
	case IB_USER_VERBS_CMD_QUERY_DEVICE:
		// Without input, libibverbs asks whether commands may come this way: ENOSPC means yes.
		if (!attributes.find(UVERBS_ATTR_CORE_IN))
			return ENOSPC;
		return query_device(context, attributes);
	case extended(IB_USER_VERBS_EX_CMD_QUERY_DEVICE): return query_device(context, attributes);
	case IB_USER_VERBS_CMD_ALLOC_PD: return alloc_pd(context, attributes);
	case IB_USER_VERBS_CMD_DEALLOC_PD: return dealloc_pd(context, attributes);
	case IB_USER_VERBS_CMD_REG_MR: return reg_mr(context, attributes);
	case IB_USER_VERBS_CMD_REREG_MR: return rereg_mr(context, attributes);
	case IB_USER_VERBS_CMD_DEREG_MR: return dereg_mr(context, attributes);
	case IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL: return create_comp_channel(context, attributes);
	case IB_USER_VERBS_CMD_CREATE_CQ: return create_cq(context, attributes, false);
	case extended(IB_USER_VERBS_EX_CMD_CREATE_CQ): return create_cq(context, attributes, true);
	case IB_USER_VERBS_CMD_RESIZE_CQ: return resize_cq(context, attributes);
	case IB_USER_VERBS_CMD_DESTROY_CQ: return destroy_cq(context, attributes);
	case IB_USER_VERBS_CMD_CREATE_SRQ: return create_srq(context, attributes);
	case IB_USER_VERBS_CMD_MODIFY_SRQ: return modify_srq(context, attributes);
	case IB_USER_VERBS_CMD_QUERY_SRQ: return query_srq(context, attributes);
	case IB_USER_VERBS_CMD_DESTROY_SRQ: return destroy_srq(context, attributes);
	case IB_USER_VERBS_CMD_CREATE_QP: return create_qp(context, attributes, false);
	case extended(IB_USER_VERBS_EX_CMD_CREATE_QP): return create_qp(context, attributes, true);
	case IB_USER_VERBS_CMD_MODIFY_QP: return modify_qp(context, attributes, false);
	case extended(IB_USER_VERBS_EX_CMD_MODIFY_QP): return modify_qp(context, attributes, true);
	case IB_USER_VERBS_CMD_QUERY_QP: return query_qp(context, attributes);
	case IB_USER_VERBS_CMD_DESTROY_QP: return destroy_qp(context, attributes);
	}
	return EOPNOTSUPP;
}

} // namespace softhca::commands
