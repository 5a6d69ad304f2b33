// SPDX-License-Identifier: BSD-3-Clause
// What has completed is checked against the plan.
#include "lane.hpp"

#include <sched.h>

#include "remote.hpp"

namespace soak {

Message Lane::decode(int source, uint64_t tag) const
{
	Message m{};
	m.kind = static_cast<Kind>(tag >> 60);
	m.source = static_cast<uint8_t>(source);
	m.source_thread = tag >> 56 & 15;
	m.dest = static_cast<uint8_t>(rank.me);
	m.dest_thread = tag >> 52 & 15;
	m.number = static_cast<uint32_t>(tag);
	m.episode = is_wild(m.kind) ? tag >> 48 & 15 : 0;
	return m;
}

void Lane::in_order(const Message &m)
{
	uint32_t &next =
	    next_[static_cast<uint64_t>(m.kind) << 32 | static_cast<uint64_t>(m.source) << 8 | m.source_thread];
	// Messages that the victim had announced, and that nobody can fetch any more, leave a gap.
	if (rank.has_victim() && m.source == rank.plan.victim && m.number > next)
		next = m.number;
	if (m.number != next)
		fail("out of order: from " + std::to_string(m.source) + "." + std::to_string(m.source_thread) + " to " +
		     std::to_string(m.dest) + "." + std::to_string(m.dest_thread) + ", kind " +
		     std::to_string(static_cast<int>(m.kind)) + ": number " + std::to_string(m.number) + ", not " +
		     std::to_string(next));
	++next;
}

void Lane::completed(Operation &o, pt2p_status_t status, const pt2p_result_t &result)
{
	std::erase(open, &o);
	o.request = nullptr;
	o.result = result;
	if (status != result.status)
		fail(name(o) + ": the call returns " + std::to_string(status) + ", the result has " +
		     std::to_string(result.status));
	switch (o.what) {
	case Operation::What::send:
		o.failed = !rank.ok(status, o.peer, name(o).c_str());
		o.buffer->check_guards(name(o));
		o.buffer->scribble();
		break;
	case Operation::What::ghost:
		if (status != PT2P_ERR_CANCELLED && (status != PT2P_ERR_PEER_FINALIZED || o.peer == rank.me))
			if (rank.ok(status, o.peer, name(o).c_str()))
				fail("something has been received that nobody sent");
		++rank.counts.cancelled;
		break;
	case Operation::What::receive:
		if (status == PT2P_ERR_CANCELLED) {
			++rank.counts.cancelled;
			if (o.message.kind == Kind::exact)
				return post_receive(o);
			o.failed = true;
			return;
		}
		received(o, status);
		break;
	case Operation::What::remote: {
		const bool atomic_lost = status != PT2P_OK && rank.plan.breaks && !o.buffer;
		const bool done = !atomic_lost && rank.ok(status, o.peer, o.buffer ? "put or get" : "atomic operation");
		if (atomic_lost)
			rank.atomics_failed = true;
		if (done && result.source != o.peer)
			fail("the result of a one-sided operation names rank " + std::to_string(result.source));
		o.then(done);
	}
	}
}

void Lane::received(Operation &o, pt2p_status_t status)
{
	Message &m = o.message;
	if (status != PT2P_ERR_TRUNCATED && !rank.ok(status, o.peer, name(o).c_str())) {
		o.failed = true;
		return;
	}
	const Message sent = decode(o.result.source, o.result.tag);
	if (m.kind == Kind::any || m.kind == Kind::from) {
		if (sent.kind != m.kind || sent.dest_thread != thread || (m.kind == Kind::from && sent.source != m.source) ||
		    o.result.source < 0 || o.result.source >= rank.plan.ranks)
			fail(name(o) + " got another message: from rank " + std::to_string(o.result.source) + ", tag " +
			     std::to_string(o.result.tag));
		m = sent;
		if (m.kind == Kind::any)
			++got_[m.source];
	} else if (o.result.source != m.source || o.result.tag != tag_of(m)) {
		fail(name(o) + " names source " + std::to_string(o.result.source) + " and tag " + std::to_string(o.result.tag));
	}
	const size_t length = rank.plan.length(m), capacity = o.buffer->length();
	if (o.result.length != length || (status == PT2P_ERR_TRUNCATED) != (length > capacity))
		fail(name(o) + ": length " + std::to_string(o.result.length) + ", not " + std::to_string(length) + "; status " +
		     std::to_string(status) + ", capacity " + std::to_string(capacity));
	rank.counts.truncated += length > capacity;
	check(o.buffer->data(), std::min(length, capacity), rank.plan.payload(m), name(o));
	o.buffer->check_guards(name(o));
	o.buffer->scribble();
}

void Lane::complete(std::vector<Operation *> list)
{
	std::vector<pt2p_request_t *> requests;
	std::vector<pt2p_result_t> results;
	while (!list.empty()) {
		random.shuffle(list);
		const size_t n = random.one_in(3) ? list.size() : 1 + random.below(list.size());
		requests.clear();
		for (size_t i = 0; i < n; ++i)
			requests.push_back(list[i]->request);
		results.assign(n, {});
		size_t index = PT2P_NO_INDEX;
		int done = 0;
		pt2p_status_t status = PT2P_OK;
		switch (random.below(6)) {
		case 0:
			index = 0;
			status = pt2p_wait(rank.ctx, requests[0], &results[0]);
			break;
		case 1: status = pt2p_waitany(rank.ctx, n, requests.data(), &index, &results[0]); break;
		case 2:
			status = pt2p_waitall(rank.ctx, n, requests.data(), results.data());
			done = 1;
			break;
		case 3: status = pt2p_testany(rank.ctx, n, requests.data(), &index, &results[0]); break;
		case 4: status = pt2p_testall(rank.ctx, n, requests.data(), &done, results.data()); break;
		default:
			status = pt2p_test(rank.ctx, requests[0], &done, &results[0]);
			if (done)
				index = 0;
			done = 0;
		}
		if (index != PT2P_NO_INDEX) {
			if (index >= n)
				fail("index " + std::to_string(index) + " of " + std::to_string(n) + " requests");
			completed(*list[index], status, results[0]);
		} else if (done) {
			pt2p_status_t first = PT2P_OK;
			for (size_t i = 0; i < n; ++i)
				if (first == PT2P_OK)
					first = results[i].status;
			if (status != first)
				fail("a list of requests ends with " + std::to_string(status) + ", not with the first failure, " +
				     std::to_string(first));
			for (size_t i = 0; i < n; ++i)
				completed(*list[i], results[i].status, results[i]);
		} else {
			rank.ok(status, rank.me, "wait or test of a list");
			rank.poll();
			if (random.one_in(8))
				sched_yield();
		}
		std::erase_if(list, [](Operation *o) { return !o->request; });
	}
}

} // namespace soak
