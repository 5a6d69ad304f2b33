#include "ofi/provider.hpp"

#include <cstdio>

namespace pt2p_ofi {

int errno_of(pt2p_status_t status)
{
	switch (status) {
	case PT2P_OK: return 0;
	case PT2P_ERR_TRUNCATED: return FI_ETRUNC;
	case PT2P_ERR_CANCELLED: return FI_ECANCELED;
	case PT2P_ERR_UNFINISHED: return FI_ECANCELED;
	case PT2P_ERR_PEER_LOST: return FI_ECONNRESET;
	case PT2P_ERR_PEER_FINALIZED: return FI_ESHUTDOWN;
	case PT2P_ERR_UNREACHABLE: return FI_EHOSTUNREACH;
	case PT2P_ERR_RANK: return FI_EADDRNOTAVAIL;
	case PT2P_ERR_LENGTH: return FI_EMSGSIZE;
	case PT2P_ERR_ARGUMENT: return FI_EINVAL;
	case PT2P_ERR_NO_MEMORY:
	case PT2P_ERR_SHARED_MEMORY: return FI_ENOMEM;
	case PT2P_ERR_UNSUPPORTED: return FI_EOPNOTSUPP;
	case PT2P_ERR_MEMORY:
	case PT2P_ERR_BOUNDS: return FI_EKEYREJECTED;
	case PT2P_ERR_DEADLINE: return FI_ETIMEDOUT;
	default: return FI_EIO;
	}
}

int failed(pt2p_status_t status, const pt2p_context_t *ctx, fi_log_subsys subsystem)
{
	PT2P_OFI_WARN(subsystem, "%s\n", pt2p_last_error(ctx));
	return -errno_of(status);
}

const char *copy_text(const char *text, char *buffer, size_t length)
{
	if (buffer && length)
		std::snprintf(buffer, length, "%s", text);
	return text;
}

fi_provider provider = {.version = provider_version,
                        .fi_version = FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION),
                        .context = {},
                        .name = "pt2p",
                        .getinfo = getinfo,
                        .fabric = open_fabric,
                        .cleanup = [] {}};

} // namespace pt2p_ofi

extern "C" __attribute__((visibility("default"))) fi_provider *fi_prov_ini(void)
{
	fi_param_define(&pt2p_ofi::provider, "open", FI_PARAM_BOOL,
	                "Endpoints of launched processes, too, have Internet addresses: jobs reach each other, and not all "
	                "processes need to open them (default: no)");
	return &pt2p_ofi::provider;
}
