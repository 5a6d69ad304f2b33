// Sends.
#include "ofi/messages.hpp"

namespace pt2p_ofi {

ssize_t send_fully(Endpoint &e, const Outgoing &o)
{
	if (o.count > max_segments)
		return -FI_EINVAL;
	const Segments segments(o.segments, o.count);
	if (o.flags & FI_INJECT && length_of(o.segments, o.count) > inject_size)
		return -FI_EMSGSIZE;
	ssize_t error = o.flags & FI_FENCE ? e.fence(o.to) : 0;
	if (error)
		return error;
	Op *op = e.take_for(o.to, error, o.context, o.kind | FI_SEND, e.send_counter, o.reports);
	if (!op)
		return error;
	pt2p_send_options_t options = PT2P_SEND_OPTIONS_INIT;
	options.synchronous = (o.flags & (FI_DELIVERY_COMPLETE | FI_MATCH_COMPLETE)) != 0;
	options.buffered = (o.flags & FI_INJECT) != 0;
	options.has_data = o.data != nullptr;
	options.data = o.data ? *o.data : 0;
	options.done = Endpoint::ended;
	options.argument = op;
	return e.started(op, pt2p_isend_with(e.ctx, segments.list, o.count, op->rank, o.tag, &options, nullptr));
}

ssize_t send_otherwise(Endpoint &e, const void *buffer, size_t length, fi_addr_t to, uint64_t tag, uint64_t kind,
                       void *context, const uint64_t *data)
{
	const int rank = e.rank_at(to);
	if (__builtin_expect(rank < 0, 0))
		return rank;
	if (!e.tx_plain || !leaves_at_once(e, buffer, length, rank, tag, data)) {
		const iovec segment{const_cast<void *>(buffer), length};
		return send_fully(e, {&segment, 1, to, tag, kind, context, e.tx_flags, data, e.tx_reports});
	}
	if (e.send_counter)
		e.send_counter->add(1);
	if (e.tx_reports)
		e.tx_cq->push({context, kind | FI_SEND, 0, nullptr, 0, 0});
	return 0;
}

ssize_t inject_otherwise(Endpoint &e, const void *buffer, size_t length, fi_addr_t to, uint64_t tag,
                         const uint64_t *data)
{
	const int rank = e.rank_at(to);
	if (__builtin_expect(rank < 0, 0))
		return rank;
	if (__builtin_expect(length > inject_size, 0))
		return -FI_EMSGSIZE;
	if (!leaves_at_once(e, buffer, length, rank, tag, data)) {
		const pt2p_iovec_t segment{const_cast<void *>(buffer), length};
		pt2p_send_options_t options = PT2P_SEND_OPTIONS_INIT;
		options.buffered = 1;
		options.has_data = data != nullptr;
		options.data = data ? *data : 0;
		const pt2p_status_t status = pt2p_isend_with(e.ctx, &segment, 1, rank, tag, &options, nullptr);
		if (status != PT2P_OK)
			return failed(status, e.ctx, FI_LOG_EP_DATA);
	}
	if (e.send_counter)
		e.send_counter->add(1);
	return 0;
}

} // namespace pt2p_ofi
