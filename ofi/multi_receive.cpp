// Receives of untagged messages, which wait for their turn behind a buffer that takes many.
#include <algorithm>
#include <cstring>

#include "ofi/messages.hpp"
#include "ofi/multi_receive.hpp"

namespace pt2p_ofi {

namespace {

void post_waiting(Endpoint &e);
void received_one_of_many(pt2p_context_t *, const pt2p_result_t *result, void *argument);

// Starts the receive, and cancels it if that was asked for meanwhile.
pt2p_status_t start(Endpoint &e, Op *op, int source, pt2p_callback_t done)
{
	const pt2p_status_t status =
	    pt2p_irecv_callback(e.ctx, op->buffer, op->length, source, untagged, untagged, done, op);
	bool cancelled;
	{
		const Locked locked(e.lock);
		e.multi->starting = nullptr;
		cancelled = e.multi->cancelled == op && status == PT2P_OK;
		if (cancelled)
			e.multi->cancelled = nullptr;
	}
	if (cancelled)
		pt2p_cancel_callback(e.ctx, done, op);
	return status;
}

// Posts the rest of the buffer.
pt2p_status_t post_rest(Endpoint &e, Op *op)
{
	int source;
	{
		const Locked locked(e.lock);
		MultiReceive &m = *e.multi;
		if (!source_of(e, m.of.from, source))
			return PT2P_ERR_RANK;
		if (m.cancelled == op)
			return PT2P_ERR_CANCELLED;
		op->buffer = m.at;
		op->length = m.left;
		m.starting = op;
	}
	return start(e, op, source, received_one_of_many);
}

// The buffer is the program's again. Receives behind it are posted.
void end_multi(Endpoint &e)
{
	{
		const Locked locked(e.lock);
		e.multi->posted = e.multi->cancelled = nullptr;
	}
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
	report_receive(e, *op, op->flags | (full ? FI_MULTI_RECV : 0), *result);
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

// An operation for the receive. With the lock. Null: `source` is a negative error.
Op *prepare(Endpoint &e, const UntaggedReceive &r, int &source)
{
	if (!source_of(e, r.from, source))
		return nullptr;
	const bool many = !r.segments.empty();
	Op *op = take_receive(e, r.context, FI_MSG, r.buffer,
	                      many ? length_of(r.segments.data(), r.segments.size()) : r.length, r.reports);
	MultiReceive &m = *e.multi;
	m.starting = op;
	if (r.multi) {
		m.posted = op;
		m.at = static_cast<unsigned char *>(r.buffer);
		m.left = r.length;
		m.of = r;
	}
	return op;
}

ssize_t post(Endpoint &e, const UntaggedReceive &r, Op *op, int source)
{
	if (!r.segments.empty()) {
		{
			const Locked locked(e.lock);
			e.multi->starting = nullptr;
		}
		return receive_segments(e, op, r.segments.data(), r.segments.size(), {source, untagged, untagged});
	}
	const pt2p_status_t status = start(e, op, source, r.multi ? received_one_of_many : received);
	if (status != PT2P_OK && r.multi) {
		const Locked locked(e.lock);
		e.multi->posted = nullptr;
	}
	return e.started(op, status);
}

void post_waiting(Endpoint &e)
{
	for (;;) {
		UntaggedReceive next;
		Op *op;
		int source;
		{
			const Locked locked(e.lock);
			MultiReceive &m = *e.multi;
			if (m.posted || m.waiting.empty())
				return;
			next = std::move(m.waiting.front());
			m.waiting.pop_front();
			op = prepare(e, next, source);
		}
		if (const ssize_t error = op ? post(e, next, op, source) : source; error && e.rx_cq)
			e.rx_cq->push_error(next.context, FI_MSG | FI_RECV, static_cast<int>(-error), pt2p_last_error(e.ctx));
	}
}

} // namespace

ssize_t receive_untagged(Endpoint &e, const UntaggedReceive &r)
{
	Op *op;
	int source;
	{
		const Locked locked(e.lock);
		if (e.multi->posted) {
			e.multi->waiting.push_back(r);
			return 0;
		}
		op = prepare(e, r, source);
	}
	return op ? post(e, r, op, source) : source;
}

ssize_t cancel(Endpoint &e, void *context)
{
	std::vector<Op *> found;
	{
		const Locked locked(e.lock);
		auto &waiting = e.multi->waiting;
		const auto same = [context](const UntaggedReceive &r) { return r.context == context; };
		if (const auto r = std::find_if(waiting.begin(), waiting.end(), same); r != waiting.end()) {
			const uint64_t many = r->multi ? FI_MULTI_RECV : 0;
			waiting.erase(r);
			if (e.rx_cq)
				e.rx_cq->push_error(context, FI_MSG | FI_RECV | many, FI_ECANCELED, "");
			return 0;
		}
		for (const auto &block : e.op_blocks)
			for (Op *op = block.get(); op != block.get() + ops_per_block; ++op)
				if (op->receives && op->context == context)
					found.push_back(op);
	}
	for (Op *op : found)
		for (const pt2p_callback_t done : {received, received_quickly, received_one_of_many})
			if (pt2p_cancel_callback(e.ctx, done, op) == PT2P_OK)
				return 0;
	// A receive that is just being started ends when it is, and a buffer that a message is just put into ends after it.
	const Locked locked(e.lock);
	for (Op *op : {e.multi->starting, e.multi->posted})
		if (op && op->receives && op->context == context) {
			e.multi->cancelled = op;
			return 0;
		}
	return -FI_ENOENT;
}

} // namespace pt2p_ofi
