// fi_getinfo: what the provider offers, and whether it is what a program asks for.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include "ofi/address.hpp"
#include "ofi/endpoint.hpp"

namespace pt2p_ofi {

namespace {

constexpr uint64_t primary = FI_MSG | FI_RMA | FI_TAGGED | FI_ATOMIC;
constexpr uint64_t transmit_kinds = FI_SEND | FI_READ | FI_WRITE;
constexpr uint64_t receive_kinds = FI_RECV | FI_REMOTE_READ | FI_REMOTE_WRITE;
// Those that cost nothing are offered whether they are asked for or not.
constexpr uint64_t secondary = FI_MULTI_RECV | FI_LOCAL_COMM | FI_REMOTE_COMM | FI_SOURCE | FI_AV_USER_ID | FI_FENCE;
constexpr uint64_t optional = FI_DIRECTED_RECV | FI_RMA_EVENT;
constexpr uint64_t all_caps = primary | transmit_kinds | receive_kinds | secondary | optional;

constexpr uint64_t tx_caps = primary | transmit_kinds | FI_FENCE;
constexpr uint64_t rx_caps = primary | receive_kinds | FI_MULTI_RECV | FI_SOURCE | optional;
constexpr uint64_t of_domain = FI_LOCAL_COMM | FI_REMOTE_COMM; // programs name them in other places, too
constexpr uint64_t tx_op_flags =
    FI_COMPLETION | FI_INJECT | FI_INJECT_COMPLETE | FI_TRANSMIT_COMPLETE | FI_DELIVERY_COMPLETE;
constexpr uint64_t rx_op_flags = FI_COMPLETION | FI_MULTI_RECV;
constexpr uint64_t message_order = FI_ORDER_SAS;
constexpr size_t queue_size = 1024, max_message = PTRDIFF_MAX, cq_data_size = 8, key_size = 8;
constexpr uint64_t tag_format = UINT64_C(0x5555555555555555); // one field of 63 bits

// Collects why a program's hints cannot be met.
class Check {
public:
	explicit Check(bool quiet) : quiet_(quiet) {}
	// The bits that are asked for and not offered must be none.
	bool bits(const char *name, uint64_t asked, uint64_t offered, fi_type type)
	{
		if (!(asked & ~offered))
			return true;
		const uint64_t rest = asked & ~offered;
		if (!quiet_)
			PT2P_OFI_INFO(FI_LOG_CORE, "not offered: %s %s\n", name, fi_tostr(&rest, type));
		return false;
	}
	bool at_most(const char *name, size_t asked, size_t offered)
	{
		if (asked <= offered)
			return true;
		if (!quiet_)
			PT2P_OFI_INFO(FI_LOG_CORE, "%s: %zu asked for, %zu offered\n", name, asked, offered);
		return false;
	}
	bool that(bool holds, const char *complaint)
	{
		if (!holds && !quiet_)
			PT2P_OFI_INFO(FI_LOG_CORE, "%s\n", complaint);
		return holds;
	}

private:
	bool quiet_;
};

bool suits(Check &check, const fi_tx_attr &a)
{
	return check.bits("tx_attr->caps", a.caps, tx_caps | of_domain, FI_TYPE_CAPS) &&
	       check.bits("tx_attr->op_flags", a.op_flags, tx_op_flags, FI_TYPE_OP_FLAGS) &&
	       check.bits("tx_attr->msg_order", a.msg_order, message_order, FI_TYPE_MSG_ORDER) &&
	       check.that(!(a.comp_order & ~FI_ORDER_NONE), "completions are not ordered (tx_attr->comp_order)") &&
	       check.at_most("tx_attr->inject_size", a.inject_size, inject_size) &&
	       check.at_most("tx_attr->iov_limit", a.iov_limit, max_segments) &&
	       check.at_most("tx_attr->rma_iov_limit", a.rma_iov_limit, max_segments);
}

bool suits(Check &check, const fi_rx_attr &a)
{
	return check.bits("rx_attr->caps", a.caps, rx_caps | of_domain, FI_TYPE_CAPS) &&
	       check.bits("rx_attr->op_flags", a.op_flags, rx_op_flags, FI_TYPE_OP_FLAGS) &&
	       check.bits("rx_attr->msg_order", a.msg_order, message_order, FI_TYPE_MSG_ORDER) &&
	       check.that(!(a.comp_order & ~FI_ORDER_NONE), "completions are not ordered (rx_attr->comp_order)") &&
	       check.at_most("rx_attr->iov_limit", a.iov_limit, max_segments);
}

bool suits(Check &check, const fi_ep_attr &a)
{
	return check.that(a.type == FI_EP_UNSPEC || a.type == FI_EP_RDM, "the endpoints are of type FI_EP_RDM") &&
	       check.that(a.protocol == FI_PROTO_UNSPEC || a.protocol == protocol,
	                  "ep_attr->protocol is another provider's") &&
	       check.at_most("ep_attr->max_msg_size", a.max_msg_size, max_message) &&
	       check.that(!a.msg_prefix_size, "no prefix is needed (ep_attr->msg_prefix_size)") &&
	       check.that(!a.max_order_raw_size && !a.max_order_war_size && !a.max_order_waw_size,
	                  "operations on remote memory are not ordered (ep_attr->max_order_...)") &&
	       check.that(!(a.mem_tag_format & ~tag_bits), "tags have 63 bits (ep_attr->mem_tag_format)") &&
	       check.at_most("ep_attr->tx_ctx_cnt", a.tx_ctx_cnt == FI_SHARED_CONTEXT ? 2 : a.tx_ctx_cnt, 1) &&
	       check.at_most("ep_attr->rx_ctx_cnt", a.rx_ctx_cnt == FI_SHARED_CONTEXT ? 2 : a.rx_ctx_cnt, 1) &&
	       check.that(!a.auth_key_size, "keys are not used (ep_attr->auth_key); see PT2P_OPEN_SECRET");
}

// Memory is registered the basic way, the scalable way, or with any mixture of the modes that this provider knows.
bool suits_modes(Check &check, uint32_t version, int mode)
{
	if (mode == FI_MR_UNSPEC || mode == FI_MR_BASIC || mode == FI_MR_SCALABLE)
		return true;
	return check.that(FI_VERSION_GE(version, FI_VERSION(1, 5)) && !(mode & (FI_MR_BASIC | FI_MR_SCALABLE)),
	                  "domain_attr->mr_mode is no mode of this version");
}

bool suits(Check &check, uint32_t version, const fi_domain_attr &a)
{
	return check.that(!a.name || !std::strcmp(a.name, "pt2p"), "the domain is called pt2p") &&
	       check.that(a.threading <= FI_THREAD_ENDPOINT, "domain_attr->threading") &&
	       suits_modes(check, version, a.mr_mode) &&
	       check.at_most("domain_attr->cq_data_size", a.cq_data_size, cq_data_size) &&
	       check.bits("domain_attr->caps", a.caps, of_domain, FI_TYPE_CAPS) &&
	       check.at_most("domain_attr->mr_key_size", a.mr_key_size, key_size) &&
	       check.at_most("domain_attr->mr_iov_limit", a.mr_iov_limit, 1) &&
	       check.at_most("domain_attr->max_ep_stx_ctx", a.max_ep_stx_ctx, 0) &&
	       check.at_most("domain_attr->max_ep_srx_ctx", a.max_ep_srx_ctx, 0) &&
	       check.at_most("domain_attr->max_ep_tx_ctx", a.max_ep_tx_ctx, 1) &&
	       check.at_most("domain_attr->max_ep_rx_ctx", a.max_ep_rx_ctx, 1) &&
	       check.that(!a.auth_key_size, "keys are not used (domain_attr->auth_key); see PT2P_OPEN_SECRET");
}

bool suits(Check &check, uint32_t version, const fi_info &hints)
{
	if (!check.bits("caps", hints.caps, all_caps, FI_TYPE_CAPS))
		return false;
	const char *fabric = hints.fabric_attr ? hints.fabric_attr->name : nullptr;
	return check.that(!fabric || !std::strcmp(fabric, "pt2p"), "the fabric is called pt2p") &&
	       (!hints.tx_attr || suits(check, *hints.tx_attr)) && (!hints.rx_attr || suits(check, *hints.rx_attr)) &&
	       (!hints.ep_attr || suits(check, *hints.ep_attr)) &&
	       (!hints.domain_attr || suits(check, version, *hints.domain_attr));
}

// The modifiers of a primary capability are all there unless some are named.
uint64_t complete_caps(uint64_t asked)
{
	uint64_t caps = asked & primary ? asked : asked | primary;
	if (caps & (FI_MSG | FI_TAGGED) && !(caps & (FI_SEND | FI_RECV)))
		caps |= FI_SEND | FI_RECV;
	if (caps & (FI_RMA | FI_ATOMIC) && !(caps & (FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE)))
		caps |= FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
	const uint64_t of_messages = caps & FI_MSG ? FI_MULTI_RECV : 0;
	return caps | (secondary & ~FI_MULTI_RECV) | of_messages | (asked ? 0 : all_caps);
}

void fill(fi_info &info, uint32_t version, const fi_info *hints)
{
	const fi_tx_attr *tx = hints ? hints->tx_attr : nullptr;
	const fi_rx_attr *rx = hints ? hints->rx_attr : nullptr;
	const fi_domain_attr *domain = hints ? hints->domain_attr : nullptr;
	const uint64_t caps = complete_caps(hints ? hints->caps : 0);
	info.caps = caps;
	info.mode = 0;

	info.ep_attr->type = FI_EP_RDM;
	info.ep_attr->protocol = protocol;
	info.ep_attr->protocol_version = 1;
	info.ep_attr->max_msg_size = max_message;
	info.ep_attr->mem_tag_format = tag_format;
	info.ep_attr->tx_ctx_cnt = info.ep_attr->rx_ctx_cnt = 1;

	info.tx_attr->caps = (tx && tx->caps ? tx->caps : caps) & tx_caps;
	info.tx_attr->op_flags = tx ? tx->op_flags : 0;
	info.tx_attr->msg_order = message_order;
	info.tx_attr->inject_size = inject_size;
	info.tx_attr->size = std::max(queue_size, tx ? tx->size : 0);
	info.tx_attr->iov_limit = info.tx_attr->rma_iov_limit = max_segments;

	info.rx_attr->caps = (rx && rx->caps ? rx->caps : caps) & rx_caps;
	info.rx_attr->op_flags = rx ? rx->op_flags : 0;
	info.rx_attr->msg_order = message_order;
	info.rx_attr->size = std::max(queue_size, rx ? rx->size : 0);
	info.rx_attr->iov_limit = max_segments;

	fi_domain_attr &d = *info.domain_attr;
	d.name = strdup("pt2p");
	d.threading = domain && domain->threading ? domain->threading : FI_THREAD_SAFE;
	d.control_progress = domain && domain->control_progress ? domain->control_progress : FI_PROGRESS_MANUAL;
	d.data_progress = domain && domain->data_progress ? domain->data_progress : FI_PROGRESS_MANUAL;
	d.resource_mgmt = FI_RM_ENABLED;
	d.av_type = domain && domain->av_type ? domain->av_type : FI_AV_UNSPEC;
	// What a program could do for the provider's sake (FI_MR_LOCAL and others) is not needed: none of these bits is
	// set.
	const bool named = domain && (domain->mr_mode == FI_MR_BASIC || domain->mr_mode == FI_MR_SCALABLE);
	d.mr_mode = named ? domain->mr_mode : FI_VERSION_GE(version, FI_VERSION(1, 5)) ? 0 : FI_MR_SCALABLE;
	d.mr_key_size = key_size;
	d.cq_data_size = cq_data_size;
	d.cq_cnt = d.ep_cnt = d.tx_ctx_cnt = d.rx_ctx_cnt = d.cntr_cnt = 1 << 10;
	d.max_ep_tx_ctx = d.max_ep_rx_ctx = 1;
	d.mr_iov_limit = 1;
	d.caps = of_domain;
	d.max_err_data = max_error_text;
	d.mr_cnt = 1 << 16;

	info.fabric_attr->name = strdup("pt2p");
	info.fabric_attr->prov_version = provider_version;
	info.fabric_attr->api_version = version;
}

// Internet addresses are what the program gives or has resolved.
bool wants_internet(const fi_info *hints, const char *node, const char *service)
{
	const uint32_t format = hints ? hints->addr_format : uint32_t{FI_FORMAT_UNSPEC};
	return node || service || (hints && (hints->src_addr || hints->dest_addr)) || format != FI_FORMAT_UNSPEC;
}

// A copy that fi_freeinfo frees.
void put_address(void *&place, size_t &length, const sockaddr_in &address)
{
	std::free(place);
	place = std::malloc(sizeof address);
	length = place ? sizeof address : 0;
	if (place)
		std::memcpy(place, &address, sizeof address);
}

// The address, without a port, from which this host reaches `to`; null: others. A datagram socket that is connected
// tells, and sends nothing.
sockaddr_in own_address(const sockaddr_in *to)
{
	sockaddr_in anywhere{}, found{};
	anywhere.sin_family = AF_INET;
	anywhere.sin_addr.s_addr = htonl(0x0a000001);
	anywhere.sin_port = htons(9);
	socklen_t length = sizeof found;
	const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	const sockaddr_in &target = to ? *to : anywhere;
	const bool known = fd >= 0 && !connect(fd, reinterpret_cast<const sockaddr *>(&target), sizeof target) &&
	                   !getsockname(fd, reinterpret_cast<sockaddr *>(&found), &length);
	if (fd >= 0)
		close(fd);
	if (!known) {
		found.sin_family = AF_INET;
		found.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	}
	found.sin_port = 0;
	return found;
}

// What the program gives as host and port, or has in its hints.
int fill_addresses(fi_info &info, const char *node, const char *service, uint64_t flags, const fi_info *hints)
{
	sockaddr_in address;
	const auto given = [&address](const void *bytes, size_t length) {
		if (!bytes || length < sizeof address)
			return false;
		std::memcpy(&address, bytes, sizeof address);
		return address.sin_family == AF_INET;
	};
	if (hints && hints->src_addr) {
		if (!given(hints->src_addr, hints->src_addrlen))
			return -FI_ENODATA;
		put_address(info.src_addr, info.src_addrlen, address);
	}
	if (hints && hints->dest_addr) {
		if (!given(hints->dest_addr, hints->dest_addrlen))
			return -FI_ENODATA;
		put_address(info.dest_addr, info.dest_addrlen, address);
	}
	if (node || service) {
		if (const int error = resolve(node, service, flags & (FI_SOURCE | FI_NUMERICHOST), address))
			return error;
		if (flags & FI_SOURCE || !node)
			put_address(info.src_addr, info.src_addrlen, address);
		else
			put_address(info.dest_addr, info.dest_addrlen, address);
	}
	if (!info.src_addr)
		put_address(info.src_addr, info.src_addrlen, own_address(static_cast<const sockaddr_in *>(info.dest_addr)));
	return 0;
}

} // namespace

int getinfo(uint32_t version, const char *node, const char *service, uint64_t flags, const fi_info *hints,
            fi_info **out)
{
	return guarded([&] {
		*out = nullptr;
		Check check(false);
		if (hints && !suits(check, version, *hints))
			return -FI_ENODATA;
		if (flags & FI_PROV_ATTR_ONLY)
			node = service = nullptr;
		const bool internet = wants_internet(hints, node, service) || !launched();
		const uint32_t format = hints ? hints->addr_format : uint32_t{FI_FORMAT_UNSPEC};
		if (!check.that(format == FI_FORMAT_UNSPEC || format == FI_SOCKADDR || format == FI_SOCKADDR_IN,
		                "addresses are FI_SOCKADDR_IN, or ranks of a launched job"))
			return -FI_ENODATA;
		std::unique_ptr<fi_info, decltype(&fi_freeinfo)> info(fi_allocinfo(), fi_freeinfo);
		if (!info)
			return -FI_ENOMEM;
		fill(*info, version, hints);
		info->addr_format = internet ? FI_SOCKADDR_IN : FI_FORMAT_UNSPEC;
		if (internet)
			if (const int error = fill_addresses(*info, node, service, flags, hints))
				return error;
		*out = info.release();
		return 0;
	});
}

} // namespace pt2p_ofi
