// Messages, tagged and untagged: what stands behind the functions of messages.cpp.
#pragma once

#include <rdma/fi_tagged.h>

#include "ofi/endpoint.hpp"

namespace pt2p_ofi {

// Segments as libpt2p wants them.
struct Segments {
	pt2p_iovec_t list[max_segments];
	Segments(const iovec *segments, size_t count)
	{
		for (size_t i = 0; i < count; ++i)
			list[i] = {segments[i].iov_base, segments[i].iov_len};
	}
};

// ---- sending: sends.cpp ---------------------------------------------------------------------------------------------

struct Outgoing {
	const iovec *segments;
	size_t count;
	fi_addr_t to;
	uint64_t tag;  // of libpt2p
	uint64_t kind; // FI_MSG or FI_TAGGED
	void *context;
	uint64_t flags;
	const uint64_t *data;
	bool reports;
};

// All that a send can ask for.
ssize_t send_fully(Endpoint &endpoint, const Outgoing &message);
// What send_one and inject_one do where no short path is to be had.
ssize_t send_otherwise(Endpoint &endpoint, const void *buffer, size_t length, fi_addr_t to, uint64_t tag, uint64_t kind,
                       void *context, const uint64_t *data);
ssize_t inject_otherwise(Endpoint &endpoint, const void *buffer, size_t length, fi_addr_t to, uint64_t tag,
                         const uint64_t *data);

// Whether the message has left, without a request. data: null: none.
[[gnu::always_inline]] inline bool leaves_at_once(Endpoint &e, const void *buffer, size_t length, int rank,
                                                  uint64_t tag, const uint64_t *data)
{
	int sent_at_once = 0;
	const pt2p_status_t status = data ? pt2p_try_send_data(e.ctx, buffer, length, rank, tag, *data, &sent_at_once)
	                                  : pt2p_try_send(e.ctx, buffer, length, rank, tag, &sent_at_once);
	return __builtin_expect(status == PT2P_OK && sent_at_once, 1);
}

// A contiguous buffer, and flags as they are set for the endpoint.
[[gnu::always_inline]] inline ssize_t send_one(Endpoint &e, const void *buffer, size_t length, fi_addr_t to,
                                               uint64_t tag, uint64_t kind, void *context,
                                               const uint64_t *data = nullptr)
{
	if (__builtin_expect(e.quick_sends, 1)) {
		const int rank = e.known_rank(to);
		if (__builtin_expect(rank >= 0, 1) && leaves_at_once(e, buffer, length, rank, tag, data)) {
			e.tx_cq->push({context, kind | FI_SEND, 0, nullptr, 0, 0});
			return 0;
		}
	}
	return send_otherwise(e, buffer, length, to, tag, kind, context, data);
}

[[gnu::always_inline]] inline ssize_t inject_one(Endpoint &e, const void *buffer, size_t length, fi_addr_t to,
                                                 uint64_t tag, const uint64_t *data)
{
	if (__builtin_expect(e.quick_injects && length <= inject_size, 1)) {
		const int rank = e.known_rank(to);
		if (__builtin_expect(rank >= 0, 1) && leaves_at_once(e, buffer, length, rank, tag, data))
			return 0;
	}
	return inject_otherwise(e, buffer, length, to, tag, data);
}

// ---- receiving: receives.cpp, probes.cpp, multi_receive.cpp ---------------------------------------------------------

// What a receive asks libpt2p for.
struct Incoming {
	int source;
	uint64_t tag, mask;
};

// The rank that a receive is for. False: there is none, and `source` is a negative error. Without FI_DIRECTED_RECV,
// any. With the endpoint's lock.
inline bool source_of(Endpoint &e, fi_addr_t from, int &source)
{
	source = PT2P_ANY_SOURCE;
	if (!e.directed || from == FI_ADDR_UNSPEC)
		return true;
	source = e.rank_of(from);
	return source >= 0;
}
// A new receive. With the endpoint's lock.
inline Op *take_receive(Endpoint &e, void *context, uint64_t kind, void *buffer, size_t length, bool reports)
{
	Op *op = e.take(context, kind | FI_RECV, e.recv_counter, reports);
	op->buffer = buffer;
	op->length = length;
	op->receives = true;
	return op;
}
ssize_t receive_segments(Endpoint &endpoint, Op *op, const iovec *list, size_t count, const Incoming &in);
// kind: FI_MSG or FI_TAGGED. tag, mask: of libpt2p.
ssize_t receive_otherwise(Endpoint &endpoint, void *buffer, size_t length, fi_addr_t from, uint64_t tag, uint64_t mask,
                          uint64_t kind, void *context, bool reports);
ssize_t receive_tagged_segments(Endpoint &endpoint, const iovec *segments, size_t count, fi_addr_t from, uint64_t tag,
                                uint64_t ignore, void *context, bool reports);
// The end of a receive, for libpt2p.
void received(pt2p_context_t *ctx, const pt2p_result_t *result, void *op);
// The same for a receive by the short path.
void received_quickly(pt2p_context_t *ctx, const pt2p_result_t *result, void *op);
// Into a contiguous buffer, with flags as they are set for the endpoint.
[[gnu::always_inline]] inline ssize_t receive_one(Endpoint &e, void *buffer, size_t length, fi_addr_t from,
                                                  uint64_t tag, uint64_t mask, uint64_t kind, void *context)
{
	int source = PT2P_ANY_SOURCE;
	const bool directed = e.directed && from != FI_ADDR_UNSPEC;
	if (__builtin_expect(!e.quick_receives || !e.free_ops || (directed && (source = e.known_rank(from)) < 0), 0))
		return receive_otherwise(e, buffer, length, from, tag, mask, kind, context, e.rx_reports);
	Op *op = take_receive(e, context, kind, buffer, length, true);
	return e.started(op, pt2p_irecv_callback(e.ctx, buffer, length, source, tag, mask, received_quickly, op));
}
// The completion of a message that has arrived in the buffer of `op`; flags: of the completion.
inline void push_receive(Endpoint &e, const Op &op, uint64_t flags, const pt2p_result_t &result, fi_addr_t source)
{
	if (result.has_data)
		flags |= FI_REMOTE_CQ_DATA;
	e.rx_cq->push({op.context, flags, result.length, op.buffer, result.data, result.tag & tag_bits}, source);
}
// The same if it is wanted, and the counter.
inline void report_receive(Endpoint &e, const Op &op, uint64_t flags, const pt2p_result_t &result)
{
	if (op.reports || (flags & FI_MULTI_RECV))
		push_receive(e, op, flags, result, e.address_of(result.source));
	if (op.counter)
		op.counter->add(1);
}

// FI_PEEK, with FI_CLAIM and FI_DISCARD: the outcome is a completion, or an error FI_ENOMSG.
ssize_t peek(Endpoint &endpoint, const fi_msg_tagged &msg, uint64_t flags);
// Receives a message that FI_PEEK with FI_CLAIM has found.
ssize_t receive_claimed(Endpoint &endpoint, const fi_msg_tagged &msg, uint64_t flags);

} // namespace pt2p_ofi
