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
// A contiguous buffer, and flags as they are set for the endpoint. data: null: none.
ssize_t send_one(Endpoint &endpoint, const void *buffer, size_t length, fi_addr_t to, uint64_t tag, uint64_t kind,
                 void *context, const uint64_t *data = nullptr);
ssize_t inject_one(Endpoint &endpoint, const void *buffer, size_t length, fi_addr_t to, uint64_t tag,
                   const uint64_t *data);

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
ssize_t receive_one(Endpoint &endpoint, void *buffer, size_t length, fi_addr_t from, uint64_t tag, uint64_t mask,
                    uint64_t kind, void *context, bool reports);
inline ssize_t receive_tagged(Endpoint &endpoint, void *buffer, size_t length, fi_addr_t from, uint64_t tag,
                              uint64_t ignore, void *context, bool reports)
{
	return receive_one(endpoint, buffer, length, from, tag & tag_bits, ~(ignore & tag_bits), FI_TAGGED, context,
	                   reports);
}
ssize_t receive_tagged_segments(Endpoint &endpoint, const iovec *segments, size_t count, fi_addr_t from, uint64_t tag,
                                uint64_t ignore, void *context, bool reports);
// The end of a receive, for libpt2p.
void received(pt2p_context_t *ctx, const pt2p_result_t *result, void *op);
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
