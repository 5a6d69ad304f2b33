#include "transports/rc/rc.hpp"

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/clock.hpp"
#include "base/config/config.hpp"
#include "base/job/job.hpp"
#include "base/report/report.hpp"

namespace pt2p::rc {

extern const TransportTable rc_table, lane_table;

using verbs::SendQueue;
using verbs::WireupMessage;
using verbs::WorkRequest;

namespace {

// Connections with one peer. A few are enough to gain what several queue pairs gain, and each costs queues on both
// sides. More have to be asked for.
constexpr uint32_t max_tuned = 4;

} // namespace

RcLane *Connection::lane() const
{
	const bool can = peer.lanes && number && number < verbs::MessageHeader::max_lanes;
	return can ? static_cast<RcLane *>((*peer.lanes)[number - 1u].get()) : nullptr;
}

void Connection::on_broken(SendQueue &, ibv_wc_status status) { peer.transport->on_broken(*this, status); }
bool Connection::left() const { return peer.down; }

void RcPeer::cut()
{
	transport->disconnect(*this);
	for_each_connection([](Connection &c) {
		verbs::set_state(c.queue->qp(), IBV_QPS_ERR);
		c.queue->set_broken();
		c.queue->drop_all();
	});
}

SendQueue *RcPeer::acquire()
{
	if (__builtin_expect(!ready, 0)) {
		transport->wanted(*this);
		return nullptr;
	}
	return first.queue->can_post() ? first.queue.get() : nullptr;
}

// Of the connections that may be used, the one with the fewest work requests in flight.
SendQueue *RcPeer::acquire_for_part()
{
	if (!ready) {
		transport->wanted(*this);
		return nullptr;
	}
	const uint32_t wanted = striping->queue_pairs();
	uint32_t there = 1;
	SendQueue *best = first.queue.get();
	for (auto &c : others) {
		if (there == wanted)
			break;
		if (c->state != Connection::State::connected)
			continue;
		++there;
		if (c->queue->can_post() && (!best->can_post() || c->queue->in_flight() < best->in_flight()))
			best = c->queue.get();
	}
	if (there < wanted)
		transport->connect_another(*this);
	striping->uses(there);
	if (!best->can_post())
		return nullptr;
	if (best != first.queue.get())
		net->eager.reporter().add(Counter::net_parts_beside);
	return best;
}

Endpoint *RcPeer::lane(unsigned number)
{
	if (down || number >= verbs::MessageHeader::max_lanes)
		return nullptr;
	if (number > others.size()) {
		if (ready && number < max_lanes)
			transport->connect_another(*this);
		return nullptr;
	}
	Connection &c = *others[number - 1];
	RcLane *lane = c.lane();
	if (!lane && c.state == Connection::State::connected)
		lane = &transport->make_lane(c);
	return lane && lane->ready ? lane : nullptr;
}

verbs::Lane *RcPeer::lane_from(unsigned number)
{
	if (!number || number > others.size() || down)
		return nullptr;
	Connection &c = *others[number - 1];
	RcLane *lane = c.lane();
	if (__builtin_expect(!lane, 0))
		lane = &transport->make_lane(c);
	// The peer has received the accept.
	if (__builtin_expect(c.state == Connection::State::accepting, 0))
		transport->connected(c);
	return lane;
}

RcTransport::RcTransport(const TransportEnvironment &environment, std::shared_ptr<verbs::Net> net)
    : NetTransport(environment, std::move(net))
{
	net_->connections = this;
}

RcTransport::~RcTransport() { net_->connections = nullptr; }

static_assert(offsetof(verbs::WireupAddress, port) == 0);

std::string RcTransport::queue_address()
{
	const verbs::WireupAddress address{net_->device().address, net_->wireup.number()};
	return {reinterpret_cast<const char *>(&address), sizeof address};
}

// ---- connections ----------------------------------------------------------------------------------------------------

RcPeer &RcTransport::make_peer(int rank, const verbs::WireupAddress &address, const Secret &secret)
{
	auto peer = std::make_unique<RcPeer>();
	peer->transport = this;
	peer->address = address;
	peer->secret = secret;
	if (rank != environment_.job.rank()) {
		peer->max_queue_pairs = environment_.config.net_queue_pairs ? max_connections : max_tuned;
		peer->max_lanes = static_cast<unsigned>(environment_.config.net_lanes ? environment_.config.net_lanes : 2);
	}
	make_queue_pair(peer->first);
	return static_cast<RcPeer &>(add(rank, std::move(peer)));
}

Connection &RcTransport::make_another(RcPeer &peer)
{
	auto connection = std::make_unique<Connection>(peer, static_cast<uint8_t>(peer.others.size() + 1));
	make_queue_pair(*connection);
	return *peer.others.emplace_back(std::move(connection));
}

RcLane &RcTransport::make_lane(Connection &c)
{
	RcPeer &peer = c.peer;
	auto lane = std::make_unique<RcLane>(c);
	lane->table = &lane_table;
	lane->peer = peer.peer;
	lane->capabilities = lane_table.capabilities;
	lane->max_send = peer.max_send;
	lane->net = net_.get();
	lane->from = verbs::MessageHeader::pack(environment_.job.rank_at(peer.peer), 0, c.number);
	lane->ready = c.state == Connection::State::connected;
	net_->rings.set_delivery(*lane, PT2P_DELIVERY_SEND);
	if (net_->tuner.on())
		lane->tuner = std::make_unique<tune::ChannelTuner>();
	if (!peer.lanes)
		peer.lanes = std::make_unique<verbs::NetPeer::Lanes>();
	(*peer.lanes)[c.number - 1u] = std::move(lane);
	return *c.lane();
}

void RcTransport::connect_another(RcPeer &peer)
{
	const bool busy = !peer.others.empty() && peer.others.back()->state != Connection::State::connected;
	if (busy || leaving_ || peer.others.size() + 1 >= peer.max_queue_pairs)
		return;
	try {
		tell(make_another(peer), WireupMessage::Kind::request);
	} catch (const Error &e) {
		environment_.reporter.log(LogLevel::info, "rank %d: no further queue pair: %s", peer.peer, e.what());
		peer.max_queue_pairs = static_cast<uint32_t>(peer.others.size() + 1);
	}
}

void RcTransport::make_queue_pair(Connection &connection)
{
	connection.since = now_ns();
	ibv_qp_init_attr_ex init = net_->queue_attributes(IBV_QPT_RC);
	init.srq = net_->receives.srq();
	// The goodbye comes over the first connection, behind the messages of all lanes.
	if (!connection.is_first())
		init.recv_cq = connection.peer.first.queue->qp()->recv_cq;
	verbs::QpOwner qp(ibv_create_qp_ex(net_->device().context.get(), &init));
	if (!qp)
		verbs::fail_queue(net_->device(), "ibv_create_qp_ex (RC)", errno, "PT2P_NET_SEND_DEPTH", net_->shared.depth,
		                  net_->device().limits.max_qp_wr);
	connection.queue = std::make_unique<SendQueue>(net_->shared, connection, std::move(qp), init.cap.max_inline_data,
	                                               verbs::QueueKind::connection);
}

Endpoint &RcTransport::connect(int rank, std::string_view text)
{
	if (RcPeer *known = find(rank))
		return *known; // the peer connected first
	verbs::WireupAddress address;
	std::memcpy(&address, text.data(), sizeof address);
	RcPeer &peer = make_peer(rank, address, secret_in(environment_.job.lookup(rank))); // known, as the address is
	tell(peer.first, WireupMessage::Kind::request);
	return peer;
}

// A queue pair that is connected to itself.
Endpoint *RcTransport::loopback()
{
	const int self = environment_.job.rank();
	try {
		RcPeer *known = find(self);
		RcPeer &peer =
		    known ? *known
		          : make_peer(self, {net_->device().address, net_->wireup.number()}, environment_.job.secret());
		if (!known || peer.first.state == Connection::State::refused)
			connect_to_itself(peer.first);
		return peer.down || peer.first.state == Connection::State::refused ? nullptr : &peer;
	} catch (const Error &e) {
		environment_.reporter.log(LogLevel::info, "no loopback through the device: %s", e.what());
		return nullptr;
	}
}

void RcTransport::connect_to_itself(Connection &c)
{
	if (connect_queue_pair(c, c.queue->number(), psn_of(c)))
		connected(c);
}

// Makes the queue pair ready to receive and send; false: that failed.
bool RcTransport::connect_queue_pair(Connection &c, uint32_t number, uint32_t psn)
{
	const int error = verbs::bring_up(net_->device(), c.queue->qp(),
	                                  {.role = verbs::BringUp::Role::connection,
	                                   .port = c.peer.address.port,
	                                   .number = number,
	                                   .first_here = psn_of(c),
	                                   .first_there = psn,
	                                   .timeout = environment_.config.net_timeout,
	                                   .retries = environment_.config.net_retries});
	if (error) {
		c.lacks = verbs::failure("ibv_modify_qp", error);
		// What was sent before has to arrive, so a reconnect is tried again for a while.
		if (c.attempt == 1)
			not_now(c, "this rank cannot connect its queue pair: " + c.lacks);
		else
			verbs::set_state(c.queue->qp(), IBV_QPS_RESET);
		return false;
	}
	c.remote_qp = number;
	return true;
}

// Nothing has gone through the connection yet.
void RcTransport::start_over(Connection &c)
{
	verbs::set_state(c.queue->qp(), IBV_QPS_RESET);
	c.remote_qp = 0;
	c.state = Connection::State::refused;
}

void RcTransport::not_now(Connection &c, const std::string &reason)
{
	start_over(c);
	if (c.is_first() && c.peer.peer != environment_.job.rank())
		net_->put_off(c.peer, PT2P_ERR_NO_MEMORY,
		              reason + "; the next call tries again. PT2P_RC_CONNECTIONS=0 does without such connections "
		                       "where the devices have DC");
}

void RcTransport::wanted(RcPeer &peer)
{
	if (peer.first.state != Connection::State::refused || peer.down || leaving_)
		return;
	peer.first.state = Connection::State::requesting;
	peer.first.since = now_ns();
	peer.first.asked_from = static_cast<uint32_t>(net_->wireup.next_number());
	tell(peer.first, WireupMessage::Kind::request);
}

// ---- failures -------------------------------------------------------------------------------------------------------

void RcTransport::on_broken(Connection &c, ibv_wc_status status)
{
	if (c.peer.down)
		return;
	environment_.reporter.log(LogLevel::info, "rank %d: the connection has broken: %s", c.peer.peer,
	                          status == IBV_WC_SUCCESS ? "told by the device" : ibv_wc_status_str(status));
	WorkRequest *front = c.queue->front();
	switch (status) {
	case IBV_WC_SUCCESS:
	case IBV_WC_RETRY_EXC_ERR:
	case IBV_WC_RNR_RETRY_EXC_ERR:
	case IBV_WC_WR_FLUSH_ERR:
	case IBV_WC_REM_ABORT_ERR:
	case IBV_WC_FATAL_ERR: break;
	default:
		// The work request itself is at fault.
		if (front && front->is_operation())
			c.queue->abandon(*front, PT2P_ERR_SYSTEM, verbs::cause_of(status));
		else
			return net_->take_down(c.peer, PT2P_ERR_SYSTEM,
			                       format("a message to it failed: %s", ibv_wc_status_str(status)));
	}
	give_up(c, c.attempt + 1);
}

// Gives up the connection of earlier attempts, but not the peer.
void RcTransport::give_up(Connection &c, uint32_t attempt)
{
	environment_.reporter.add(Counter::reconnects);
	verbs::set_state(c.queue->qp(), IBV_QPS_ERR);
	c.queue->set_broken();
	if (c.is_first())
		net_->not_ready(c.peer);
	else if (RcLane *lane = c.lane())
		lane->ready = false;
	c.attempt = attempt;
	c.request.attempt = 0;
	c.remote_qp = 0;
	c.since = now_ns();
	if (c.state != Connection::State::draining)
		++draining_;
	c.state = Connection::State::draining;
}

unsigned RcTransport::finish_draining()
{
	if (!net_->drained())
		return 0;
	for (auto &p : peers_)
		if (p)
			static_cast<RcPeer &>(*p).for_each_connection([this](Connection &c) { finish_draining(c); });
	return 0;
}

// Resets the queue pair of a connection that was given up, after all that has come through it is read.
void RcTransport::finish_draining(Connection &c)
{
	// The device may still be writing CQEs of what has come through the queue pair.
	constexpr int64_t settle = 1'000'000;
	if (c.state != Connection::State::draining || now_ns() - c.since < settle)
		return;
	--draining_;
	c.state = Connection::State::requesting;
	if (c.peer.down)
		return;
	if (const int error = verbs::set_state(c.queue->qp(), IBV_QPS_RESET))
		return net_->take_down(c.peer, PT2P_ERR_SYSTEM, verbs::failure("ibv_modify_qp (to RESET)", error));
	c.queue->was_reset();
	if (c.peer.peer == environment_.job.rank())
		connect_to_itself(c);
	else if (c.request.attempt == c.attempt)
		handle(c.request);
	else
		tell(c, WireupMessage::Kind::request);
}

void RcTransport::check()
{
	NetTransport::check();
	for (auto &p : peers_)
		if (p)
			static_cast<RcPeer &>(*p).for_each_connection([this](Connection &c) { look_after(c); });
}

// A connection that breaks while this rank leaves is not made again, so all that it holds has to be acknowledged first.
bool RcTransport::settle()
{
	bool settled = true;
	for (auto &p : peers_) {
		if (!p || p->down)
			continue;
		static_cast<RcPeer &>(*p).for_each_connection([&settled](Connection &c) {
			if (!c.is_first() && !c.lane())
				return;
			if (!c.queue->broken())
				c.queue->flush();
			settled &= c.queue->idle();
		});
	}
	return settled;
}

bool RcTransport::may_forget(int rank)
{
	bool may = NetTransport::may_forget(rank);
	if (RcPeer *peer = find(rank))
		peer->for_each_connection([&may](const Connection &c) { may &= c.state != Connection::State::draining; });
	return may;
}

void RcTransport::leave()
{
	leaving_ = true;
	// A connection that is not made yet carries no goodbye, and is not made any more.
	for (auto &p : peers_)
		if (p && !p->down && p->peer != environment_.job.rank())
			if (Connection &c = static_cast<RcPeer &>(*p).first; c.state != Connection::State::connected)
				tell(c, WireupMessage::Kind::bye);
	NetTransport::leave();
}

// ---- the table ------------------------------------------------------------------------------------------------------

std::string RcTransport::trouble(int rank)
{
	RcPeer *peer = find(rank);
	std::string text;
	if (!peer || peer->down)
		return text;
	peer->for_each_connection([&](const Connection &c) {
		// A further connection is no trouble: data uses the others until it is there.
		if (!text.empty() || c.state == Connection::State::connected || c.state == Connection::State::refused ||
		    (!c.is_first() && c.attempt == 1))
			return;
		const char *awaited = c.attempt > 1                             ? "its connection broke, asked for another"
		                      : c.state == Connection::State::accepting ? "has not confirmed a connection"
		                                                                : "has not answered a request for a connection";
		text =
		    format("%s for %.1f s; it answers when it calls into the library, or runs a progress thread, and when what "
		           "%s sends reaches it",
		           awaited, static_cast<double>(now_ns() - c.since) * 1e-9, net_->device().name.c_str());
	});
	return text;
}

std::vector<SendQueue *> RcTransport::queues_for(const verbs::NetPeer &p) const
{
	const auto &peer = static_cast<const RcPeer &>(p);
	std::vector<SendQueue *> queues{peer.first.queue.get()};
	for (const auto &c : peer.others)
		queues.push_back(c->queue.get());
	return queues;
}

Inspection::Memory RcTransport::memory_per_peer()
{
	return {sizeof(std::unique_ptr<RcPeer>) + verbs::Net::bytes_per_silent_peer,
	        sizeof(RcPeer) + net_->bytes_per_queue()};
}

const TransportTable &RcTransport::table() const { return rc_table; }

namespace {

std::unique_ptr<Transport> open_rc(const TransportEnvironment &environment, std::string &why_not)
{
	auto net = verbs::Net::open(environment, why_not);
	return net ? std::make_unique<RcTransport>(environment, std::move(net)) : nullptr;
}

} // namespace

const TransportTable rc_table = {
    "rc",          cap_send | cap_get | cap_put | cap_atomic,
    open_rc,       verbs::send<RcPeer, Counter::rc_messages>,
    verbs::get,    verbs::put,
    verbs::atomic, verbs::progress<RcTransport>,
    nullptr,       verbs::NetTransport::longest_message,
};

// Of a further lane.
const TransportTable lane_table = {
    "rc", cap_send, nullptr, verbs::send<RcLane, Counter::rc_messages>, nullptr, nullptr, nullptr, nullptr,
};

} // namespace pt2p::rc
