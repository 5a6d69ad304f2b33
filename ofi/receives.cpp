// Receives of tagged messages, and what all receives have in common.
#include "ofi/messages.hpp"

namespace pt2p_ofi {

void report_receive(Endpoint &e, const Op *op, uint64_t flags, void *buffer, const pt2p_result_t &result)
{
	if (__builtin_expect(op->reports || (flags & FI_MULTI_RECV), 1))
		e.rx_cq->push({op->context, result.has_data ? flags | FI_REMOTE_CQ_DATA : flags, result.length, buffer,
		               result.data, result.tag & tag_bits},
		              e.address_of(result.source));
	if (op->counter)
		op->counter->add(1);
}

void received(pt2p_context_t *, const pt2p_result_t *result, void *argument)
{
	Op *op = static_cast<Op *>(argument);
	Endpoint &e = *op->endpoint;
	if (__builtin_expect(result->status != PT2P_OK, 0))
		return e.fail(op, *result, e.rx_cq);
	report_receive(e, op, op->flags, op->buffer, *result);
	e.give(op);
}

bool source_of(Endpoint &e, fi_addr_t from, int &source)
{
	source = PT2P_ANY_SOURCE;
	if (!e.directed || from == FI_ADDR_UNSPEC)
		return true;
	source = e.rank_of(from);
	return source >= 0;
}

Op *take_receive(Endpoint &e, void *context, uint64_t kind, void *buffer, size_t length, bool reports)
{
	Op *op = e.take(context, kind | FI_RECV, e.recv_counter, reports);
	op->buffer = buffer;
	op->length = length;
	op->receives = true;
	return op;
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

ssize_t receive_tagged(Endpoint &e, void *buffer, size_t length, fi_addr_t from, uint64_t tag, uint64_t ignore,
                       void *context, bool reports)
{
	Op *op;
	int source;
	{
		const Locked locked(e.lock);
		if (__builtin_expect(!source_of(e, from, source), 0))
			return source;
		op = take_receive(e, context, FI_TAGGED, buffer, length, reports);
	}
	return e.started(
	    op, pt2p_irecv_callback(e.ctx, buffer, length, source, tag & tag_bits, ~(ignore & tag_bits), received, op));
}

ssize_t receive_tagged_segments(Endpoint &e, const iovec *segments, size_t count, fi_addr_t from, uint64_t tag,
                                uint64_t ignore, void *context, bool reports)
{
	if (count > max_segments)
		return -FI_EINVAL;
	if (count <= 1)
		return receive_tagged(e, count ? segments->iov_base : nullptr, count ? segments->iov_len : 0, from, tag, ignore,
		                      context, reports);
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
