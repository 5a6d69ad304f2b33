// Messages, tagged and untagged.
#include <algorithm>
#include <cstring>

#include <rdma/fi_tagged.h>

#include "ofi/endpoint.hpp"
#include "ofi/multi_receive.hpp"

namespace pt2p_ofi {

namespace {

// ---- what libpt2p calls ---------------------------------------------------------------------------------------------

void sent(pt2p_context_t *, const pt2p_result_t *result, void *argument)
{
	Op *op = static_cast<Op *>(argument);
	Endpoint &e = *op->endpoint;
	if (__builtin_expect(result->status == PT2P_OK, 1))
		e.succeed(op);
	else
		e.fail(op, *result, e.tx_cq);
}

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

// ---- sending --------------------------------------------------------------------------------------------------------

Op *take_send(Endpoint &e, void *context, uint64_t flags, const void *buffer, bool reports)
{
	Op *op = e.take();
	op->context = context;
	op->flags = flags;
	op->buffer = const_cast<void *>(buffer);
	op->counter = e.send_counter;
	op->receives = false;
	op->reports = reports;
	return op;
}

// The rank at an address, or a negative error.
int rank_at(Endpoint &e, fi_addr_t to)
{
	const Locked locked(e.lock);
	return e.rank_of(to);
}

ssize_t started(Endpoint &e, Op *op, pt2p_status_t status)
{
	if (__builtin_expect(status == PT2P_OK, 1))
		return 0;
	e.give(op);
	return failed(status, e.ctx, FI_LOG_EP_DATA);
}

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

// Segments as libpt2p wants them.
struct Segments {
	pt2p_iovec_t list[max_segments];
	Segments(const iovec *segments, size_t count)
	{
		for (size_t i = 0; i < count; ++i)
			list[i] = {segments[i].iov_base, segments[i].iov_len};
	}
};

size_t length_of(const iovec *segments, size_t count)
{
	size_t length = 0;
	for (size_t i = 0; i < count; ++i)
		length += segments[i].iov_len;
	return length;
}

// All that a send can ask for.
ssize_t send_fully(Endpoint &e, const Outgoing &o)
{
	if (o.count > max_segments)
		return -FI_EINVAL;
	const Segments segments(o.segments, o.count);
	if (o.flags & FI_INJECT && length_of(o.segments, o.count) > inject_size)
		return -FI_EMSGSIZE;
	Op *op;
	int rank;
	{
		const Locked locked(e.lock);
		rank = e.rank_of(o.to);
		if (rank < 0)
			return rank;
		op = take_send(e, o.context, o.kind | FI_SEND, nullptr, o.reports);
	}
	pt2p_send_options_t options = PT2P_SEND_OPTIONS_INIT;
	options.synchronous = (o.flags & (FI_DELIVERY_COMPLETE | FI_MATCH_COMPLETE)) != 0;
	options.buffered = (o.flags & FI_INJECT) != 0;
	options.has_data = o.data != nullptr;
	options.data = o.data ? *o.data : 0;
	options.done = sent;
	options.argument = op;
	return started(e, op, pt2p_isend_with(e.ctx, segments.list, o.count, rank, o.tag, &options, nullptr));
}

// A contiguous buffer, and flags as they are set for the endpoint.
ssize_t send_one(Endpoint &e, const void *buffer, size_t length, fi_addr_t to, uint64_t tag, uint64_t kind,
                 void *context)
{
	if (__builtin_expect(!e.tx_plain, 0)) {
		const iovec segment{const_cast<void *>(buffer), length};
		return send_fully(e, {&segment, 1, to, tag, kind, context, e.tx_flags, nullptr, e.tx_reports});
	}
	const int rank = rank_at(e, to);
	if (__builtin_expect(rank < 0, 0))
		return rank;
	int sent_at_once = 0;
	if (__builtin_expect(pt2p_try_send(e.ctx, buffer, length, rank, tag, &sent_at_once) == PT2P_OK && sent_at_once,
	                     1)) {
		if (e.tx_reports)
			e.tx_cq->push({context, kind | FI_SEND, 0, nullptr, 0, 0}, FI_ADDR_NOTAVAIL);
		if (e.send_counter)
			e.send_counter->add(1);
		return 0;
	}
	Op *op;
	{
		const Locked locked(e.lock);
		op = take_send(e, context, kind | FI_SEND, buffer, e.tx_reports);
	}
	return started(e, op, pt2p_isend_callback(e.ctx, buffer, length, rank, tag, sent, op));
}

ssize_t inject_one(Endpoint &e, const void *buffer, size_t length, fi_addr_t to, uint64_t tag, const uint64_t *data)
{
	const int rank = rank_at(e, to);
	if (__builtin_expect(rank < 0, 0))
		return rank;
	if (__builtin_expect(length > inject_size, 0))
		return -FI_EMSGSIZE;
	int sent_at_once = 0;
	if (!data)
		pt2p_try_send(e.ctx, buffer, length, rank, tag, &sent_at_once);
	if (!sent_at_once) {
		const pt2p_iovec_t segment{const_cast<void *>(buffer), length};
		pt2p_send_options_t options = PT2P_SEND_OPTIONS_INIT;
		options.buffered = 1;
		options.has_data = data != nullptr;
		options.data = data ? *data : 0;
		const pt2p_status_t status = pt2p_isend_with(e.ctx, &segment, 1, rank, tag, &options, nullptr);
		if (__builtin_expect(status != PT2P_OK, 0))
			return failed(status, e.ctx, FI_LOG_EP_DATA);
	}
	if (e.send_counter)
		e.send_counter->add(1);
	return 0;
}

ssize_t send_data(Endpoint &e, const void *buffer, size_t length, uint64_t data, fi_addr_t to, uint64_t tag,
                  uint64_t kind, void *context, uint64_t flags, bool reports)
{
	const iovec segment{const_cast<void *>(buffer), length};
	return send_fully(e, {&segment, 1, to, tag, kind, context, flags, &data, reports});
}

// Of a call with flags: whether its success is reported.
bool reports(const Cq *cq, bool selective, uint64_t flags) { return cq && (!selective || flags & FI_COMPLETION); }

Endpoint &of(fid_ep *f) { return *object_of<Endpoint>(f); }

// ---- receiving ------------------------------------------------------------------------------------------------------

// What a receive asks libpt2p for.
struct Incoming {
	int source;
	uint64_t tag, mask;
};

// The rank that a receive is for; negative: an error. Without FI_DIRECTED_RECV, from any.
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
	Op *op = e.take();
	op->context = context;
	op->flags = kind | FI_RECV;
	op->buffer = buffer;
	op->length = length;
	op->counter = e.recv_counter;
	op->receives = true;
	op->reports = reports;
	return op;
}

ssize_t receive_segments(Endpoint &e, Op *op, const iovec *list, size_t count, const Incoming &in)
{
	const Segments segments(list, count);
	pt2p_request_t *req;
	pt2p_status_t status = pt2p_irecvv(e.ctx, segments.list, count, in.source, in.tag, in.mask, &req);
	if (status == PT2P_OK)
		status = pt2p_request_callback(e.ctx, req, received, op);
	return started(e, op, status);
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
	return started(
	    e, op, pt2p_irecv_callback(e.ctx, buffer, length, source, tag & tag_bits, ~(ignore & tag_bits), received, op));
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
	size_t length = 0;
	for (size_t i = 0; i < count; ++i)
		length += segments[i].iov_len;
	{
		const Locked locked(e.lock);
		if (!source_of(e, from, source))
			return source;
		op = take_receive(e, context, FI_TAGGED, nullptr, length, reports);
	}
	return receive_segments(e, op, segments, count, {source, tag & tag_bits, ~(ignore & tag_bits)});
}

// ---- many messages into one buffer ----------------------------------------------------------------------------------

void post_waiting(Endpoint &e);
void received_one_of_many(pt2p_context_t *, const pt2p_result_t *result, void *argument);

// Posts the rest of the buffer.
pt2p_status_t post_rest(Endpoint &e, Op *op)
{
	int source;
	{
		const Locked locked(e.lock);
		if (!source_of(e, e.multi->of.from, source))
			return PT2P_ERR_RANK;
	}
	op->buffer = e.multi->at;
	op->length = e.multi->left;
	return pt2p_irecv_callback(e.ctx, e.multi->at, e.multi->left, source, untagged, untagged, received_one_of_many, op);
}

// The buffer is the program's again. Receives behind it are posted.
void end_multi(Endpoint &e)
{
	e.multi->posted = nullptr;
	post_waiting(e);
}

void received_one_of_many(pt2p_context_t *, const pt2p_result_t *result, void *argument)
{
	Op *op = static_cast<Op *>(argument);
	Endpoint &e = *op->endpoint;
	MultiReceive &m = *e.multi;
	if (result->status != PT2P_OK) {
		op->flags |= FI_MULTI_RECV;
		e.fail(op, *result, e.rx_cq);
		return end_multi(e);
	}
	m.at += result->length;
	m.left -= result->length;
	const bool full = m.left < e.min_multi_recv || !m.left;
	report_receive(e, op, op->flags | (full ? FI_MULTI_RECV : 0), op->buffer, *result);
	if (!full) {
		const pt2p_status_t status = post_rest(e, op);
		if (status == PT2P_OK)
			return;
		op->flags |= FI_MULTI_RECV;
		e.fail(op, {status, -1, untagged, 0, 0, 0}, e.rx_cq);
		return end_multi(e);
	}
	e.give(op);
	end_multi(e);
}

ssize_t post_untagged(Endpoint &e, const UntaggedReceive &r)
{
	Op *op;
	int source;
	const bool many = !r.segments.empty();
	size_t length = r.length;
	for (const iovec &segment : r.segments)
		length += segment.iov_len;
	{
		const Locked locked(e.lock);
		if (!source_of(e, r.from, source))
			return source;
		op = take_receive(e, r.context, FI_MSG, r.buffer, length, r.reports);
	}
	if (many)
		return receive_segments(e, op, r.segments.data(), r.segments.size(), {source, untagged, untagged});
	if (!r.multi)
		return started(e, op, pt2p_irecv_callback(e.ctx, r.buffer, r.length, source, untagged, untagged, received, op));
	MultiReceive &m = *e.multi;
	m.posted = op;
	m.at = static_cast<unsigned char *>(r.buffer);
	m.left = r.length;
	m.of = r;
	const pt2p_status_t status = post_rest(e, op);
	if (status != PT2P_OK)
		m.posted = nullptr;
	return started(e, op, status);
}

void post_waiting(Endpoint &e)
{
	for (;;) {
		UntaggedReceive next;
		{
			const Locked locked(e.lock);
			MultiReceive &m = *e.multi;
			if (m.posted || m.waiting.empty())
				return;
			next = std::move(m.waiting.front());
			m.waiting.pop_front();
		}
		if (const ssize_t error = post_untagged(e, next); error && e.rx_cq) {
			fi_cq_err_entry entry{};
			entry.op_context = next.context;
			entry.flags = FI_MSG | FI_RECV;
			entry.err = static_cast<int>(-error);
			e.rx_cq->push_error(entry, FI_ADDR_NOTAVAIL, pt2p_last_error(e.ctx));
		}
	}
}

ssize_t receive_message(Endpoint &e, void *buffer, size_t length, fi_addr_t from, void *context, uint64_t flags,
                        bool reports)
{
	return receive_untagged(e, {buffer, length, from, context, reports, (flags & FI_MULTI_RECV) != 0, {}});
}

// ---- probing --------------------------------------------------------------------------------------------------------

// FI_PEEK, with FI_CLAIM and FI_DISCARD: the outcome is a completion, or an error FI_ENOMSG.
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
		fi_cq_err_entry entry{};
		entry.op_context = msg.context;
		entry.flags = kind;
		entry.tag = msg.tag;
		entry.err = FI_ENOMSG;
		e.rx_cq->push_error(entry, FI_ADDR_NOTAVAIL, "");
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

void discarded(pt2p_context_t *, const pt2p_result_t *result, void *argument)
{
	Op *op = static_cast<Op *>(argument);
	pt2p_result_t cut = *result;
	if (cut.status == PT2P_ERR_TRUNCATED)
		cut.status = PT2P_OK;
	received(nullptr, &cut, op);
}

// Receives a message that FI_PEEK with FI_CLAIM has found.
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
		op = take_receive(e, msg.context, FI_TAGGED, buffer, length, reports(e.rx_cq, e.rx_selective, flags));
	}
	pt2p_request_t *req;
	pt2p_status_t status = pt2p_imrecv(e.ctx, buffer, length, message, &req);
	if (status == PT2P_OK)
		status = pt2p_request_callback(e.ctx, req, discards ? discarded : received, op);
	return started(e, op, status);
}

// ---- the tables -----------------------------------------------------------------------------------------------------

const uint64_t *data_in(uint64_t flags, const uint64_t &data) { return flags & FI_REMOTE_CQ_DATA ? &data : nullptr; }

ssize_t msg_recv(fid_ep *f, void *buffer, size_t length, void *, fi_addr_t from, void *context)
{
	Endpoint &e = of(f);
	return receive_message(e, buffer, length, from, context, e.rx_flags, e.rx_reports);
}

ssize_t msg_recvv(fid_ep *f, const iovec *segments, void **, size_t count, fi_addr_t from, void *context)
{
	Endpoint &e = of(f);
	if (count > max_segments)
		return -FI_EINVAL;
	return guarded([&] {
		return static_cast<int>(receive_untagged(
		    e, {nullptr, 0, from, context, e.rx_reports, false, std::vector<iovec>(segments, segments + count)}));
	});
}

ssize_t msg_recvmsg(fid_ep *f, const fi_msg *msg, uint64_t flags)
{
	Endpoint &e = of(f);
	const bool told = reports(e.rx_cq, e.rx_selective, flags);
	if (msg->iov_count <= 1)
		return receive_message(e, msg->iov_count ? msg->msg_iov->iov_base : nullptr,
		                       msg->iov_count ? msg->msg_iov->iov_len : 0, msg->addr, msg->context, flags, told);
	if (msg->iov_count > max_segments || flags & FI_MULTI_RECV)
		return -FI_EINVAL;
	return guarded([&] {
		return static_cast<int>(receive_untagged(e, {nullptr, 0, msg->addr, msg->context, told, false,
		                                             std::vector<iovec>(msg->msg_iov, msg->msg_iov + msg->iov_count)}));
	});
}

ssize_t msg_send(fid_ep *f, const void *buffer, size_t length, void *, fi_addr_t to, void *context)
{
	return send_one(of(f), buffer, length, to, untagged, FI_MSG, context);
}

ssize_t msg_sendv(fid_ep *f, const iovec *segments, void **, size_t count, fi_addr_t to, void *context)
{
	Endpoint &e = of(f);
	return send_fully(e, {segments, count, to, untagged, FI_MSG, context, e.tx_flags, nullptr, e.tx_reports});
}

ssize_t msg_sendmsg(fid_ep *f, const fi_msg *msg, uint64_t flags)
{
	Endpoint &e = of(f);
	return send_fully(e, {msg->msg_iov, msg->iov_count, msg->addr, untagged, FI_MSG, msg->context, flags,
	                      data_in(flags, msg->data), reports(e.tx_cq, e.tx_selective, flags)});
}

ssize_t msg_inject(fid_ep *f, const void *buffer, size_t length, fi_addr_t to)
{
	return inject_one(of(f), buffer, length, to, untagged, nullptr);
}

ssize_t msg_senddata(fid_ep *f, const void *buffer, size_t length, void *, uint64_t data, fi_addr_t to, void *context)
{
	Endpoint &e = of(f);
	return send_data(e, buffer, length, data, to, untagged, FI_MSG, context, e.tx_flags, e.tx_reports);
}

ssize_t msg_injectdata(fid_ep *f, const void *buffer, size_t length, uint64_t data, fi_addr_t to)
{
	return inject_one(of(f), buffer, length, to, untagged, &data);
}

ssize_t tagged_recv(fid_ep *f, void *buffer, size_t length, void *, fi_addr_t from, uint64_t tag, uint64_t ignore,
                    void *context)
{
	Endpoint &e = of(f);
	return receive_tagged(e, buffer, length, from, tag, ignore, context, e.rx_reports);
}

ssize_t tagged_recvv(fid_ep *f, const iovec *segments, void **, size_t count, fi_addr_t from, uint64_t tag,
                     uint64_t ignore, void *context)
{
	Endpoint &e = of(f);
	return receive_tagged_segments(e, segments, count, from, tag, ignore, context, e.rx_reports);
}

ssize_t tagged_recvmsg(fid_ep *f, const fi_msg_tagged *msg, uint64_t flags)
{
	Endpoint &e = of(f);
	if (flags & FI_PEEK)
		return guarded([&] { return static_cast<int>(peek(e, *msg, flags)); });
	if (flags & FI_CLAIM)
		return receive_claimed(e, *msg, flags);
	return receive_tagged_segments(e, msg->msg_iov, msg->iov_count, msg->addr, msg->tag, msg->ignore, msg->context,
	                               reports(e.rx_cq, e.rx_selective, flags));
}

ssize_t tagged_send(fid_ep *f, const void *buffer, size_t length, void *, fi_addr_t to, uint64_t tag, void *context)
{
	return send_one(of(f), buffer, length, to, tag & tag_bits, FI_TAGGED, context);
}

ssize_t tagged_sendv(fid_ep *f, const iovec *segments, void **, size_t count, fi_addr_t to, uint64_t tag, void *context)
{
	Endpoint &e = of(f);
	return send_fully(e, {segments, count, to, tag & tag_bits, FI_TAGGED, context, e.tx_flags, nullptr, e.tx_reports});
}

ssize_t tagged_sendmsg(fid_ep *f, const fi_msg_tagged *msg, uint64_t flags)
{
	Endpoint &e = of(f);
	return send_fully(e, {msg->msg_iov, msg->iov_count, msg->addr, msg->tag & tag_bits, FI_TAGGED, msg->context, flags,
	                      data_in(flags, msg->data), reports(e.tx_cq, e.tx_selective, flags)});
}

ssize_t tagged_inject(fid_ep *f, const void *buffer, size_t length, fi_addr_t to, uint64_t tag)
{
	return inject_one(of(f), buffer, length, to, tag & tag_bits, nullptr);
}

ssize_t tagged_senddata(fid_ep *f, const void *buffer, size_t length, void *, uint64_t data, fi_addr_t to, uint64_t tag,
                        void *context)
{
	Endpoint &e = of(f);
	return send_data(e, buffer, length, data, to, tag & tag_bits, FI_TAGGED, context, e.tx_flags, e.tx_reports);
}

ssize_t tagged_injectdata(fid_ep *f, const void *buffer, size_t length, uint64_t data, fi_addr_t to, uint64_t tag)
{
	return inject_one(of(f), buffer, length, to, tag & tag_bits, &data);
}

} // namespace

ssize_t receive_untagged(Endpoint &e, const UntaggedReceive &r)
{
	{
		const Locked locked(e.lock);
		if (__builtin_expect(e.multi->posted != nullptr, 0)) {
			e.multi->waiting.push_back(r);
			return 0;
		}
	}
	return post_untagged(e, r);
}

ssize_t cancel(Endpoint &e, void *context)
{
	std::vector<Op *> found;
	{
		const Locked locked(e.lock);
		auto &waiting = e.multi->waiting;
		const auto same = [context](const UntaggedReceive &r) { return r.context == context; };
		if (const auto r = std::find_if(waiting.begin(), waiting.end(), same); r != waiting.end()) {
			fi_cq_err_entry entry{};
			entry.op_context = context;
			entry.flags = FI_MSG | FI_RECV;
			entry.err = FI_ECANCELED;
			waiting.erase(r);
			if (e.rx_cq)
				e.rx_cq->push_error(entry, FI_ADDR_NOTAVAIL, "");
			return 0;
		}
		for (const auto &block : e.op_blocks)
			for (Op *op = block.get(); op != block.get() + ops_per_block; ++op)
				if (op->active && op->receives && op->context == context)
					found.push_back(op);
	}
	for (Op *op : found)
		for (const pt2p_callback_t done : {received, received_one_of_many})
			if (pt2p_cancel_callback(e.ctx, done, op) == PT2P_OK)
				return 0;
	return -FI_ENOENT;
}

fi_ops_msg message_ops = {.size = sizeof(fi_ops_msg),
                          .recv = msg_recv,
                          .recvv = msg_recvv,
                          .recvmsg = msg_recvmsg,
                          .send = msg_send,
                          .sendv = msg_sendv,
                          .sendmsg = msg_sendmsg,
                          .inject = msg_inject,
                          .senddata = msg_senddata,
                          .injectdata = msg_injectdata};
fi_ops_tagged tagged_ops = {.size = sizeof(fi_ops_tagged),
                            .recv = tagged_recv,
                            .recvv = tagged_recvv,
                            .recvmsg = tagged_recvmsg,
                            .send = tagged_send,
                            .sendv = tagged_sendv,
                            .sendmsg = tagged_sendmsg,
                            .inject = tagged_inject,
                            .senddata = tagged_senddata,
                            .injectdata = tagged_injectdata};

} // namespace pt2p_ofi
