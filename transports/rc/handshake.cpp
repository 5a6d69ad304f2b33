// How two ranks connect, reconnect and disconnect with the datagrams of rc.hpp.
#include <cstring>

#include "base/clock.hpp"
#include "base/config/config.hpp"
#include "base/job/job.hpp"
#include "base/report/report.hpp"
#include "transports/rc/rc.hpp"

namespace pt2p::rc {

using verbs::WireupMessage;

namespace {

constexpr int64_t ask_again_after = 20'000'000; // ns

} // namespace

// Each attempt starts at another PSN, so that packets of an earlier one match nowhere.
uint32_t RcTransport::psn_of(const Connection &c) const
{
	return (c.queue->number() + (c.attempt << 16)) * 0x9e3779b1 >> 8;
}

void RcTransport::tell(Connection &c, WireupMessage::Kind kind)
{
	WireupMessage message{};
	message.from = {net_->device().address, net_->wireup.number()};
	message.rank = environment_.job.rank_at(c.peer.peer);
	message.to = environment_.job.own_rank_of(c.peer.peer);
	message.qp = c.queue->number();
	message.psn = psn_of(c);
	message.attempt = c.attempt;
	message.kind = kind;
	message.connection = c.number;
	c.asked = now_ns();
	net_->wireup.send(c.peer.address, message, c.peer.secret);
}

// To a request that makes no connection. If the answer is lost, the peer asks again.
void RcTransport::answer(const WireupMessage &request, WireupMessage::Kind kind, const char *reason)
{
	const RcPeer *peer = find(request.rank);
	WireupMessage answer{};
	answer.rank = environment_.job.rank_at(request.rank);
	answer.to = environment_.job.own_rank_of(request.rank);
	answer.attempt = request.attempt;
	answer.psn = static_cast<uint32_t>(request.number);
	answer.kind = kind;
	answer.connection = request.connection;
	std::strncpy(answer.reason, reason, sizeof answer.reason - 1);
	net_->wireup.send(request.from, answer, peer ? peer->secret : environment_.job.secret());
}

// The peer may be alive, and would otherwise try for long to reach this rank. If this is lost, the peer asks for a
// connection and gets another.
void RcTransport::disconnect(RcPeer &peer)
{
	if (!leaving_)
		tell(peer.first, WireupMessage::Kind::part);
}

// The peer has left or counts this rank as lost, so waiting for any of its connections is useless. What it sent before
// is still read.
void RcTransport::disconnected(Connection &first, const WireupMessage &message)
{
	if (first.state == Connection::State::requesting || first.state == Connection::State::refused) {
		if (message.kind == WireupMessage::Kind::bye)
			return net_->take_down(first.peer, PT2P_ERR_PEER_FINALIZED, "it has called pt2p_finalize");
		return net_->take_down(first.peer, PT2P_ERR_PEER_LOST, "it counts this rank as lost");
	}
	if (first.state != Connection::State::draining)
		give_up(first, first.attempt + 1);
	first.request = message;
	first.request.attempt = first.attempt;
}

// The connection that a message is about. A request for the next connection makes it. Null: nothing is to be done.
Connection *RcTransport::asked_for(const WireupMessage &m)
{
	RcPeer *peer = find(m.rank);
	if (peer && peer->down) {
		if (m.kind == WireupMessage::Kind::request)
			disconnect(*peer);
		return nullptr;
	}
	if (peer && m.connection <= peer->others.size())
		return m.connection ? peer->others[m.connection - 1u].get() : &peer->first;
	// Connections are made one after the other.
	const bool next =
	    peer ? m.connection == peer->others.size() + 1 && m.connection < max_connections : m.connection == 0;
	if (!next || m.kind != WireupMessage::Kind::request || m.attempt != 1)
		return nullptr;
	try {
		Connection &connection =
		    peer ? make_another(*peer) : make_peer(m.rank, m.from, environment_.job.secret()).first;
		connection.state = Connection::State::accepting;
		return &connection;
	} catch (const std::exception &e) { // also std::bad_alloc
		answer(m, WireupMessage::Kind::refuse, e.what());
		return nullptr;
	}
}

// Whether the datagram is from that rank, for this one, and new. A rank that asks proves itself with this rank's
// secret; a rank that was asked uses its own, which this rank knows.
bool RcTransport::genuine(const WireupMessage &m) const
{
	const int self = environment_.job.rank();
	if (m.to != self || m.rank < 0 || m.rank >= environment_.job.size() || m.rank == self ||
	    environment_.job.rank_at(m.rank) < 0)
		return false;
	const RcPeer *peer = find(m.rank);
	return (m.proof == m.proof_by(environment_.job.secret()) || (peer && m.proof == m.proof_by(peer->secret))) &&
	       (!peer || m.number > peer->heard);
}

void RcTransport::on_wireup(const WireupMessage &m)
{
	if (!genuine(m))
		return environment_.reporter.add(Counter::auth_refused);
	handle(m);
	if (RcPeer *peer = find(m.rank))
		peer->heard = m.number;
}

void RcTransport::handle(const WireupMessage &m)
{
	const bool leaves = m.kind == WireupMessage::Kind::part || m.kind == WireupMessage::Kind::bye;
	if (leaving_ && !leaves) {
		// Who asks for a further connection gets the goodbye over the first, behind the messages.
		if (m.kind == WireupMessage::Kind::request && m.connection == 0)
			answer(m, WireupMessage::Kind::bye, "");
		return;
	}
	Connection *c = asked_for(m);
	if (!c)
		return;
	if (leaves)
		return disconnected(*c, m);
	if (m.attempt != c->attempt) {
		// The peer has given up a connection that this rank still has.
		if (static_cast<int32_t>(m.attempt - c->attempt) <= 0 || m.kind != WireupMessage::Kind::request)
			return;
		give_up(*c, m.attempt);
	}
	if (m.kind == WireupMessage::Kind::refuse) {
		const std::string reason(m.reason, strnlen(m.reason, sizeof m.reason));
		if (c->attempt != 1 || static_cast<int32_t>(m.psn - c->asked_from) < 0)
			return; // the refused request was given up
		if (c->state == Connection::State::requesting)
			not_now(*c, "it refuses a connection: " + reason);
		else if (c->state == Connection::State::accepting)
			start_over(*c); // a send that waits here asks for the connection itself
		return;
	}
	if (c->state == Connection::State::draining) {
		if (m.kind == WireupMessage::Kind::request)
			c->request = m;
		return;
	}
	if (c->remote_qp && c->remote_qp != m.qp)
		return;
	if (!c->remote_qp && !connect_queue_pair(*c, m.qp, m.psn)) {
		if (c->attempt == 1) // else the peer asks again
			answer(m, WireupMessage::Kind::refuse, c->lacks.c_str());
		return;
	}
	if (m.kind == WireupMessage::Kind::request) {
		if (c->state != Connection::State::connected)
			c->state = Connection::State::accepting;
		tell(*c, WireupMessage::Kind::accept);
		return;
	}
	connected(*c);
	if (m.kind == WireupMessage::Kind::accept)
		tell(*c, WireupMessage::Kind::confirm);
}

// Asks again for a connection that is being made.
void RcTransport::look_after(Connection &c)
{
	using State = Connection::State;
	if (c.peer.down || (c.state != State::requesting && c.state != State::accepting))
		return;
	const int64_t now = now_ns();
	warn_of_stall(c, now);
	// A peer that has never answered may be computing, and answers when it calls in. If it is gone, the launcher says
	// so, while there is one.
	const int64_t patience = environment_.config.net_reconnect_time;
	if (now - c.since > patience && (c.attempt > 1 || environment_.job.without_launcher() > patience))
		net_->take_down(c.peer, PT2P_ERR_PEER_LOST,
		                format("%s, and it has not answered for %.1f s (PT2P_NET_RECONNECT_TIME)%s%s",
		                       c.attempt > 1 ? "its connection broke" : "the launcher is gone",
		                       static_cast<double>(now - c.since) * 1e-9, c.lacks.empty() ? "" : "; ",
		                       c.lacks.c_str()));
	else if (now - c.asked > ask_again_after && c.peer.peer == environment_.job.rank()) {
		c.asked = now;
		connect_to_itself(c);
	} else if (now - c.asked > ask_again_after && (c.state == State::requesting || c.remote_qp))
		tell(c, c.state == State::requesting ? WireupMessage::Kind::request : WireupMessage::Kind::accept);
}

// A call that waits reports its stall itself. This is for programs that poll. Once, as many peers may be late together.
void RcTransport::warn_of_stall(const Connection &c, int64_t now)
{
	const int64_t limit = environment_.config.stall_time;
	if (stall_reported_ || !limit || now - c.since <= limit || !c.is_first() || c.attempt > 1 ||
	    c.state != Connection::State::requesting)
		return;
	stall_reported_ = true;
	environment_.reporter.log(LogLevel::warning, "rank %d %s", c.peer.peer, trouble(c.peer.peer).c_str());
}

// A rank that sends has received the accept.
void RcTransport::on_heard(int rank)
{
	RcPeer *peer = find(rank);
	if (peer && peer->first.state == Connection::State::accepting && !peer->down)
		connected(peer->first);
}

void RcTransport::connected(Connection &c)
{
	if (c.state == Connection::State::connected || leaving_)
		return;
	c.state = Connection::State::connected;
	c.lacks.clear();
	if (c.is_first()) {
		c.peer.ready = true;
		c.peer.last_sign = now_ns();
	} else if (RcLane *lane = c.lane()) {
		lane->ready = !c.peer.down;
	}
	if (c.attempt == 1)
		return;
	environment_.reporter.log(LogLevel::info, "rank %d: connected again", c.peer.peer);
	c.queue->post_again();
}

} // namespace pt2p::rc
