// Notices, which nobody replies to: how many the server may have not taken yet, and those that wait for that.
#include "rpc/calls.hpp"

namespace pt2p::rpc {

// False: too many have not been taken, or there is no room now.
bool Calls::start_notice(Outgoing &o)
{
	Peer &peer = *o.peer;
	if (!peer.may_notify())
		return false;
	++peer.notices_sent;
	if (!peers_.send(*peer.channel, id_notice, 0, head_of(o), o.input, o.length)) {
		--peer.notices_sent;
		if (!peer.channel->down())
			return false;
	}
	forget(o);
	return true;
}

// It waits in a queue of its own, so that calls do not wait behind it.
void Calls::queue_notice(Outgoing &o)
{
	Peer &peer = *o.peer;
	reporter_.add(Counter::calls_waited);
	notices_[peer.rank].push(o);
	peer.notices_wait = true;
	if (peer.has_work())
		peers_.list(peer);
}

void Calls::unqueue_notice(Outgoing &o)
{
	Fifo<Outgoing> &queue = notices_[o.peer->rank];
	queue.remove(o);
	o.peer->notices_wait = !queue.empty();
}

unsigned Calls::drive_notices(Peer &peer)
{
	unsigned n = 0;
	Fifo<Outgoing> &queue = notices_[peer.rank];
	while (!queue.empty()) {
		Outgoing &o = queue.pop(); // before it is started: that may find out that the peer is lost
		if (!start_notice(o)) {
			queue.push_front(o);
			break;
		}
		++n;
	}
	peer.notices_wait = !queue.empty();
	return n;
}

void Calls::end_notices(Peer &peer)
{
	if (!peer.notices_wait)
		return;
	Fifo<Outgoing> &queue = notices_[peer.rank];
	while (!queue.empty())
		forget(queue.pop());
	peer.notices_wait = false;
}

size_t Calls::waiting(Peer &peer) const
{
	const auto notices = notices_.find(peer.rank);
	size_t calls = 0;
	peer.for_each_lane([&calls](const EndpointLane &lane) { calls += lane.waiting.size(); });
	return calls + (notices == notices_.end() ? 0 : notices->second.size());
}

const char *Calls::on_taken(Peer &peer, uint64_t count)
{
	const auto taken = static_cast<uint32_t>(count);
	if (taken - peer.notices_taken > peer.notices_sent - peer.notices_taken)
		return wrong_message;
	peer.notices_taken = taken;
	if (peer.has_work())
		peers_.list(peer);
	return nullptr;
}

} // namespace pt2p::rpc
