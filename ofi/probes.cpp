// Probes of tagged messages: FI_PEEK, FI_CLAIM and FI_DISCARD.
#include <utility>

#include "ofi/messages.hpp"

namespace pt2p_ofi {

ssize_t peek(Endpoint &e, const fi_msg_tagged &msg, uint64_t flags)
{
	int source;
	{
		const Locked locked(e.lock);
		if (!source_of(e, msg.addr, source))
			return source;
	}
	const uint64_t tag = msg.tag & tag_bits, mask = ~(msg.ignore & tag_bits);
	pt2p_message_t *message = nullptr;
	pt2p_result_t result{};
	int found = 0;
	const bool takes = flags & (FI_CLAIM | FI_DISCARD);
	const pt2p_status_t status = takes ? pt2p_improbe(e.ctx, source, tag, mask, &message, &result)
	                                   : pt2p_iprobe(e.ctx, source, tag, mask, &found, &result);
	if (status != PT2P_OK)
		return failed(status, e.ctx, FI_LOG_EP_DATA);
	const uint64_t kind = FI_TAGGED | FI_RECV;
	if (!message && !found) {
		e.rx_cq->push_error(msg.context, kind, FI_ENOMSG, "", msg.tag);
		return 0;
	}
	if (flags & FI_DISCARD) {
		pt2p_request_t *req;
		if (pt2p_imrecv(e.ctx, nullptr, 0, message, &req) == PT2P_OK)
			pt2p_request_free(e.ctx, req);
	} else if (flags & FI_CLAIM) {
		static_cast<fi_context *>(msg.context)->internal[0] = message;
	}
	e.rx_cq->push({msg.context, result.has_data ? kind | FI_REMOTE_CQ_DATA : kind, result.length, nullptr, result.data,
	               result.tag & tag_bits},
	              e.address_of(result.source));
	return 0;
}

namespace {

void discarded(pt2p_context_t *, const pt2p_result_t *result, void *argument)
{
	Op *op = static_cast<Op *>(argument);
	pt2p_result_t cut = *result;
	if (cut.status == PT2P_ERR_TRUNCATED)
		cut.status = PT2P_OK;
	received(nullptr, &cut, op);
}

} // namespace

ssize_t receive_claimed(Endpoint &e, const fi_msg_tagged &msg, uint64_t flags)
{
	auto *place = static_cast<fi_context *>(msg.context);
	auto *message = static_cast<pt2p_message_t *>(std::exchange(place->internal[0], nullptr));
	const bool discards = flags & FI_DISCARD;
	if (!message || msg.iov_count > 1)
		return -FI_EINVAL;
	void *buffer = discards || !msg.iov_count ? nullptr : msg.msg_iov->iov_base;
	const size_t length = discards || !msg.iov_count ? 0 : msg.msg_iov->iov_len;
	Op *op;
	{
		const Locked locked(e.lock);
		op = take_receive(e, msg.context, FI_TAGGED, buffer, length, e.reports_receive(flags));
	}
	pt2p_request_t *req;
	pt2p_status_t status = pt2p_imrecv(e.ctx, buffer, length, message, &req);
	if (status == PT2P_OK)
		status = pt2p_request_callback(e.ctx, req, discards ? discarded : received, op);
	return e.started(op, status);
}

} // namespace pt2p_ofi
