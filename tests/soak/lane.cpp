// SPDX-License-Identifier: BSD-3-Clause
#include "lane.hpp"

#include <ctime>
#include <sched.h>

#include "remote.hpp"

namespace soak {

namespace {

constexpr uint64_t ghost_tag = UINT64_C(9) << 60; // nobody sends it

void sleep_us(long us)
{
	const timespec t{us / 1000000, us % 1000000 * 1000};
	nanosleep(&t, nullptr);
}

} // namespace

Lane::Lane(Rank &r, int t, const std::vector<std::vector<Message>> &messages, RemoteLoad *remote)
    : rank(r), thread(t), random{mix(r.plan.seed ^ mix(static_cast<uint64_t>(r.me * 64 + t)))}, messages_(messages),
      remote_(remote), planned_(static_cast<size_t>(r.plan.ranks)), got_(planned_.size()),
      planned_probed_(planned_.size()), got_probed_(planned_.size())
{
}

Lane::~Lane() = default;

std::string Lane::name(const Operation &o) const
{
	static const char *const names[] = {"any", "from", "exact", "same", "probed"};
	const Message &m = o.message;
	const char *what[] = {"send", "receive", "receive of nothing", "one-sided operation"};
	return std::string(what[static_cast<int>(o.what)]) + " (kind " + names[static_cast<int>(m.kind)] + ", " +
	       std::to_string(m.source) + "." + std::to_string(m.source_thread) + " to " + std::to_string(m.dest) + "." +
	       std::to_string(m.dest_thread) + ", number " + std::to_string(m.number) + ")";
}

Operation &Lane::add(Operation::What what, int peer)
{
	operations.push_back({what, nullptr, {}, peer, {}, {}, false, {}, 0, 0});
	return operations.back();
}

std::string Lane::state() const
{
	std::string text = std::to_string(rank.me) + "." + std::to_string(thread) + ": " + doing_ + " in episode " +
	                   std::to_string(episode_) + ", " + std::to_string(open.size()) + " requests; missing";
	for (size_t i = 0; i < planned_.size(); ++i)
		text += " " + std::to_string(static_cast<int64_t>(planned_[i] - got_[i])) + "/" +
		        std::to_string(static_cast<int64_t>(planned_probed_[i] - got_probed_[i]));
	return text;
}

// ---- starting
// ----------------------------------------------------------------------------------------------------------

void Lane::post(size_t episode)
{
	const Plan &plan = rank.plan;
	episode_ = episode;
	doing_ = "posting";
	operations.clear();
	std::vector<Message> sends, receives;
	for (const Message &m : messages_[episode]) {
		if (m.source == rank.me && m.source_thread == thread)
			sends.push_back(m);
		if (m.dest == rank.me && m.dest_thread == thread && m.kind != Kind::probed)
			receives.push_back(m);
		if (m.dest == rank.me && m.dest_thread == thread && m.kind == Kind::any)
			++planned_[m.source];
	}
	// Receives with unique tags are posted in any order, among the others.
	std::vector<Message> exact;
	for (const Message &m : receives)
		if (m.kind == Kind::exact)
			exact.push_back(m);
	random.shuffle(exact);
	for (Message &m : receives)
		if (m.kind == Kind::exact) {
			m = exact.back();
			exact.pop_back();
		}
	if (remote_)
		remote_->begin(episode);
	size_t s = 0, r = 0;
	const uint64_t receives_first = plan.preposted ? 8 : random.below(9);
	while (s < sends.size() || r < receives.size() || (remote_ && remote_->more())) {
		const bool before = plan.preposted && r < receives.size();
		if (r < receives.size() && (before || s == sends.size() || random.below(8) < receives_first)) {
			Operation &o = add(Operation::What::receive, receives[r].source);
			o.message = receives[r++];
			if (o.message.kind == Kind::any)
				o.peer = PT2P_ANY_SOURCE;
			post_receive(o);
		} else if (s < sends.size()) {
			send(sends[s++]);
		}
		if (remote_ && remote_->more() && (s == sends.size() || random.one_in(2)))
			remote_->start();
		if (random.one_in(4))
			something_else();
	}
}

void Lane::send(const Message &m)
{
	if (rank.gone(m.dest))
		return;
	Operation &o = add(Operation::What::send, m.dest);
	o.message = m;
	const size_t length = rank.plan.length(m);
	o.buffer = std::make_unique<Buffer>(rank.ctx, length, random);
	fill(o.buffer->data(), length, rank.plan.payload(m));
	++rank.counts.messages;
	rank.counts.bytes += length;
	// A blocking send is safe when its receive is posted by a lane that waits for nothing before. It is not safe with a
	// wildcard receive, which may get a message of a later episode from a rank that is ahead.
	const bool own_receive = m.kind == Kind::exact || m.kind == Kind::same;
	if (rank.plan.preposted && !rank.cooperative() && m.dest != rank.me && own_receive && !rank.has_victim() &&
	    random.one_in(4)) {
		rank.ok(pt2p_send(rank.ctx, o.buffer->data(), length, m.dest, tag_of(m)), m.dest, name(o).c_str());
		o.buffer->scribble();
		return;
	}
	const pt2p_status_t status = pt2p_isend(rank.ctx, length || random.one_in(2) ? o.buffer->data() : nullptr, length,
	                                        m.dest, tag_of(m), &o.request);
	if (rank.ok(status, m.dest, name(o).c_str()))
		open.push_back(&o);
	else
		o.failed = true;
}

void Lane::post_receive(Operation &o)
{
	const Message &m = o.message;
	const bool own = m.kind == Kind::exact || m.kind == Kind::same;
	if (!o.buffer)
		o.buffer = std::make_unique<Buffer>(rank.ctx, own ? rank.plan.capacity(m) : rank.plan.longest_any, random);
	const uint64_t mask = own ? PT2P_TAG_EXACT : mask_of(m.kind);
	const uint64_t noise = own ? 0 : random.next() & ~mask;
	o.failed = false;
	const pt2p_status_t status =
	    pt2p_irecv(rank.ctx, o.buffer->data(), o.buffer->length(), o.peer, tag_of(m) | noise, mask, &o.request);
	if (rank.ok(status, o.peer, name(o).c_str()))
		open.push_back(&o);
	else
		o.failed = true;
}

void Lane::something_else()
{
	switch (random.below(9)) {
	case 0: rank.ok(pt2p_progress(rank.ctx), rank.me, "pt2p_progress"); return rank.poll();
	case 1: return sched_yield(), void();
	case 2:
		if (random.one_in(20))
			sleep_us(static_cast<long>(random.below(3000)));
		return;
	case 3: { // a probe for anything
		int found = 0;
		pt2p_result_t result{};
		if (rank.ok(pt2p_iprobe(rank.ctx, PT2P_ANY_SOURCE, 0, PT2P_TAG_ANY, &found, &result), PT2P_ANY_SOURCE,
		            "pt2p_iprobe") &&
		    found && (result.source < 0 || result.source >= rank.plan.ranks))
			fail("a probe found a message of rank " + std::to_string(result.source));
		return;
	}
	case 4: { // a receive that nobody sends to
		Operation &o = add(Operation::What::ghost,
		                   random.one_in(3) ? PT2P_ANY_SOURCE
		                                    : static_cast<int>(random.below(static_cast<uint64_t>(rank.plan.ranks))));
		o.buffer = std::make_unique<Buffer>(rank.ctx, 100, random);
		o.buffer->scribble();
		const pt2p_status_t status = pt2p_irecv(rank.ctx, o.buffer->data(), 100, o.peer, ghost_tag | random.below(5),
		                                        PT2P_TAG_EXACT, &o.request);
		if (status == PT2P_ERR_PEER_FINALIZED && o.peer != rank.me)
			return;
		if (rank.ok(status, o.peer, name(o).c_str()))
			open.push_back(&o);
		return;
	}
	case 5: return cancel_one();
	case 6:
		if (rank.plan.set_delivery) {
			const int peer = static_cast<int>(random.below(static_cast<uint64_t>(rank.plan.ranks)));
			const pt2p_status_t status =
			    pt2p_set_delivery(rank.ctx, peer, static_cast<pt2p_delivery_t>(random.below(4)));
			if (status != PT2P_ERR_PEER_FINALIZED)
				rank.ok(status, peer, "pt2p_set_delivery");
		}
		return;
	default: { // tests some of the open requests
		std::vector<Operation *> some;
		std::vector<pt2p_request_t *> requests;
		for (int i = 0; i < 5 && !open.empty(); ++i) {
			Operation *o = open[random.below(open.size())];
			if (std::find(some.begin(), some.end(), o) != some.end())
				continue;
			some.push_back(o);
			requests.push_back(o->request);
		}
		size_t index = 0;
		pt2p_result_t result{};
		const pt2p_status_t status = pt2p_testany(rank.ctx, some.size(), requests.data(), &index, &result);
		if (index != PT2P_NO_INDEX)
			completed(*some.at(index), status, result);
		else
			rank.ok(status, rank.me, "pt2p_testany");
	}
	}
}

// Cancels a receive. One that the plan needs is posted again.
void Lane::cancel_one()
{
	for (int tries = 0; tries < 4 && !open.empty(); ++tries) {
		Operation &o = *open[random.below(open.size())];
		if (o.what != Operation::What::ghost && (o.what != Operation::What::receive || o.message.kind != Kind::exact))
			continue;
		rank.ok(pt2p_cancel(rank.ctx, o.request), o.peer, "pt2p_cancel");
		pt2p_result_t result{};
		const pt2p_status_t status = pt2p_wait(rank.ctx, o.request, &result);
		completed(o, status, result);
		return;
	}
}

// ---- receiving
// ---------------------------------------------------------------------------------------------------------

uint64_t Lane::missing(const std::vector<uint64_t> &planned, const std::vector<uint64_t> &got) const
{
	uint64_t n = 0;
	for (size_t i = 0; i < planned.size(); ++i)
		if (planned[i] > got[i] && !rank.gone(static_cast<int>(i)))
			n += planned[i] - got[i];
	return n;
}

// Ranks may be ahead of this one, so messages of later episodes count, too.
void Lane::drain_probed(size_t episode)
{
	for (const Message &m : messages_[episode])
		if (m.dest == rank.me && m.dest_thread == thread && m.kind == Kind::probed)
			++planned_probed_[m.source];
	Message wanted{};
	wanted.kind = Kind::probed;
	wanted.dest_thread = static_cast<uint8_t>(thread);
	while (missing(planned_probed_, got_probed_)) {
		int found = 1;
		pt2p_result_t probe{}, result{};
		const uint64_t tag = tag_of(wanted) | (random.next() & ~mask_of_kind);
		// A loss is told to one probe: another thread would wait for ever.
		const bool may_wait = !rank.has_victim() || rank.plan.threads == 1;
		const pt2p_status_t status = random.one_in(2) && may_wait
		                                 ? pt2p_probe(rank.ctx, PT2P_ANY_SOURCE, tag, mask_of_kind, &probe)
		                                 : pt2p_iprobe(rank.ctx, PT2P_ANY_SOURCE, tag, mask_of_kind, &found, &probe);
		if (!rank.ok(status, PT2P_ANY_SOURCE, "a probe"))
			continue;
		if (!found) {
			rank.poll();
			sched_yield();
			continue;
		}
		Operation o{
		    Operation::What::receive, nullptr, decode(probe.source, probe.tag), probe.source, {}, {}, false, {}, 0, 0};
		if (o.message.kind != Kind::probed || o.message.dest_thread != thread)
			fail("a probe found tag " + std::to_string(probe.tag));
		o.buffer = std::make_unique<Buffer>(rank.ctx, probe.length, random);
		const pt2p_status_t got =
		    pt2p_recv(rank.ctx, o.buffer->data(), probe.length, probe.source, probe.tag, PT2P_TAG_EXACT, &result);
		o.result = result;
		received(o, got);
		if (o.failed)
			continue;
		in_order(o.message);
		++got_probed_[o.message.source];
		++rank.counts.probed;
	}
}

// For runs in which a rank is killed: its loss ends the receives from any source, and nobody knows how many of its
// messages come.
void Lane::receive_any()
{
	const auto posted = [this] {
		std::vector<Operation *> list;
		for (Operation *o : open)
			if (o->what == Operation::What::receive && o->message.kind == Kind::any)
				list.push_back(o);
		return list;
	};
	while (const uint64_t need = missing(planned_, got_)) {
		std::vector<Operation *> list = posted();
		if (list.size() < need) {
			Operation &o = add(Operation::What::receive, PT2P_ANY_SOURCE);
			o.message.kind = Kind::any;
			o.message.episode = static_cast<uint8_t>(episode_);
			o.message.dest = static_cast<uint8_t>(rank.me);
			o.message.dest_thread = static_cast<uint8_t>(thread);
			post_receive(o);
			continue;
		}
		// The loss may have been told to one that nobody answers.
		std::copy_if(open.begin(), open.end(), std::back_inserter(list), [](const Operation *o) {
			return o->what == Operation::What::ghost && o->peer == PT2P_ANY_SOURCE;
		});
		std::vector<pt2p_request_t *> requests;
		for (Operation *o : list)
			requests.push_back(o->request);
		size_t index = PT2P_NO_INDEX;
		pt2p_result_t result{};
		const pt2p_status_t status = pt2p_waitany(rank.ctx, list.size(), requests.data(), &index, &result);
		completed(*list.at(index), status, result);
	}
	for (Operation *o : posted()) {
		rank.ok(pt2p_cancel(rank.ctx, o->request), PT2P_ANY_SOURCE, "pt2p_cancel");
		pt2p_result_t result{};
		const pt2p_status_t status = pt2p_wait(rank.ctx, o->request, &result);
		completed(*o, status, result);
	}
}

void Lane::receive(size_t episode)
{
	doing_ = "probing";
	drain_probed(episode);
	doing_ = "waiting for signals";
	if (remote_)
		remote_->await_signals(episode);
	doing_ = "receiving";
	if (rank.has_victim())
		receive_any();
	std::vector<Operation *> list;
	const bool sends = !rank.cooperative() && random.one_in(2);
	for (Operation *o : open)
		if (o->what == Operation::What::receive || (sends && o->what == Operation::What::send))
			list.push_back(o);
	complete(std::move(list));
	// Of receives that could take several messages, the one that was posted first got the message that was sent first.
	for (const Operation &o : operations)
		if (o.what == Operation::What::receive && !o.failed &&
		    (o.message.kind == Kind::any || o.message.kind == Kind::from))
			in_order(o.message);
}

void Lane::finish(size_t)
{
	doing_ = "finishing";
	for (size_t i = open.size(); i-- > 0;)
		if (open[i]->what == Operation::What::ghost)
			rank.ok(pt2p_cancel(rank.ctx, open[i]->request), open[i]->peer, "pt2p_cancel");
	complete(open);
	if (remote_)
		remote_->finish();
	operations.clear();
	doing_ = "nothing";
}

} // namespace soak
