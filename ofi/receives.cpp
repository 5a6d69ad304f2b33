// Receives of tagged messages, and what all receives have in common.
#include "ofi/messages.hpp"

namespace pt2p_ofi {

void received(pt2p_context_t *, const pt2p_result_t *result, void *argument)
{
	Op *op = static_cast<Op *>(argument);
	Endpoint &e = *op->endpoint;
	if (result->status != PT2P_OK)
		return e.fail(op, *result, e.rx_cq);
	report_receive(e, *op, op->flags, *result);
	e.give(op);
}

void received_quickly(pt2p_context_t *ctx, const pt2p_result_t *result, void *argument)
{
	Op *op = static_cast<Op *>(argument);
	Endpoint &e = *op->endpoint;
	const fi_addr_t source = e.known_address(result->source);
	if (__builtin_expect(source == FI_ADDR_NOTAVAIL || result->status != PT2P_OK, 0))
		return received(ctx, result, argument);
	e.give_locked(op);
	push_receive(e, *op, op->flags, *result, source);
}

ssize_t receive_segments(Endpoint &e, Op *op, const iovec *list, size_t count, const Incoming &in)
{
	const Segments segments(list, count);
	pt2p_request_t *req;
	pt2p_status_t status = pt2p_irecvv(e.ctx, segments.list, count, in.source, in.tag, in.mask, &req);
	if (status == PT2P_OK)
		status = pt2p_request_callback(e.ctx, req, received, op);
	return e.started(op, status);
}

ssize_t receive_otherwise(Endpoint &e, void *buffer, size_t length, fi_addr_t from, uint64_t tag, uint64_t mask,
                          uint64_t kind, void *context, bool reports)
{
	Op *op;
	int source;
	{
		const Locked locked(e.lock);
		if (!source_of(e, from, source))
			return source;
		op = take_receive(e, context, kind, buffer, length, reports);
	}
	return e.started(op, pt2p_irecv_callback(e.ctx, buffer, length, source, tag, mask, received, op));
}

ssize_t receive_tagged_segments(Endpoint &e, const iovec *segments, size_t count, fi_addr_t from, uint64_t tag,
                                uint64_t ignore, void *context, bool reports)
{
	if (count > max_segments)
		return -FI_EINVAL;
	if (count <= 1)
		return receive_otherwise(e, count ? segments->iov_base : nullptr, count ? segments->iov_len : 0, from,
		                         tag & tag_bits, ~(ignore & tag_bits), FI_TAGGED, context, reports);
	Op *op;
	int source;
	const size_t length = length_of(segments, count);
	{
		const Locked locked(e.lock);
		if (!source_of(e, from, source))
			return source;
		op = take_receive(e, context, FI_TAGGED, nullptr, length, reports);
	}
	return receive_segments(e, op, segments, count, {source, tag & tag_bits, ~(ignore & tag_bits)});
}

} // namespace pt2p_ofi
