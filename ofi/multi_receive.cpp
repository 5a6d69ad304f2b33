// Receives of untagged messages, which wait for their turn behind a buffer that takes many.
#include <algorithm>
#include <cstring>

#include "ofi/messages.hpp"
#include "ofi/multi_receive.hpp"

namespace pt2p_ofi {

namespace {

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

ssize_t post_untagged(Endpoint &e, const UntaggedReceive &r)
{
	Op *op;
	int source;
	const bool many = !r.segments.empty();
	const size_t length = many ? length_of(r.segments.data(), r.segments.size()) : r.length;
	{
		const Locked locked(e.lock);
		if (!source_of(e, r.from, source))
			return source;
		op = take_receive(e, r.context, FI_MSG, r.buffer, length, r.reports);
	}
	if (many)
		return receive_segments(e, op, r.segments.data(), r.segments.size(), {source, untagged, untagged});
	if (!r.multi)
		return e.started(op, pt2p_irecv_callback(e.ctx, r.buffer, r.length, source, untagged, untagged, received, op));
	MultiReceive &m = *e.multi;
	m.posted = op;
	m.at = static_cast<unsigned char *>(r.buffer);
	m.left = r.length;
	m.of = r;
	const pt2p_status_t status = post_rest(e, op);
	if (status != PT2P_OK)
		m.posted = nullptr;
	return e.started(op, status);
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
		if (const ssize_t error = post_untagged(e, next); error && e.rx_cq)
			e.rx_cq->push_error(next.context, FI_MSG | FI_RECV, static_cast<int>(-error), pt2p_last_error(e.ctx));
	}
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
			waiting.erase(r);
			if (e.rx_cq)
				e.rx_cq->push_error(context, FI_MSG | FI_RECV, FI_ECANCELED, "");
			return 0;
		}
		for (const auto &block : e.op_blocks)
			for (Op *op = block.get(); op != block.get() + ops_per_block; ++op)
				if (op->receives && op->context == context)
					found.push_back(op);
	}
	for (Op *op : found)
		for (const pt2p_callback_t done : {received, received_one_of_many})
			if (pt2p_cancel_callback(e.ctx, done, op) == PT2P_OK)
				return 0;
	return -FI_ENOENT;
}

} // namespace pt2p_ofi
