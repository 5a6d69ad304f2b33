#include "transports/rc/rc.hpp"

#include <cerrno>
#include <cstring>
#include <utility>

#include "config/config.hpp"
#include "job/job.hpp"
#include "progress/clock.hpp"
#include "report/report.hpp"

namespace pt2p::rc {

extern const TransportTable rc_table;

using verbs::SendQueue;
using verbs::WireupMessage;
using verbs::WorkRequest;

namespace {

constexpr int64_t ask_again_after = 20'000'000;

} // namespace

void Peer::on_broken(SendQueue &, ibv_wc_status status) { transport->on_broken(*this, status); }

void Peer::cut()
{
	verbs::set_state(connection->qp(), IBV_QPS_ERR);
	connection->set_broken();
	connection->drop_all();
}

RcTransport::RcTransport(const TransportEnvironment &environment, std::shared_ptr<verbs::Net> net)
    : NetTransport(environment, std::move(net))
{
	net_->connector = this;
}

RcTransport::~RcTransport() { net_->connector = nullptr; }

static_assert(offsetof(verbs::WireupAddress, port) == 0);

std::string RcTransport::address()
{
	const verbs::WireupAddress address{net_->device().address, net_->wireup().number()};
	return {reinterpret_cast<const char *>(&address), sizeof address};
}

// ---- connections ------------------------------------------------------------------------------------------------------

Peer &RcTransport::make_peer(int rank, const verbs::WireupAddress &address)
{
	auto peer = std::make_unique<Peer>();
	peer->transport = this;
	peer->address = address;
	peer->since = now_ns();
	make_queue_pair(*peer);
	return static_cast<Peer &>(add(rank, std::move(peer)));
}

void RcTransport::make_queue_pair(Peer &peer)
{
	ibv_qp_init_attr_ex init = queue_attributes(IBV_QPT_RC);
	init.srq = net_->srq();
	verbs::QpOwner qp(ibv_create_qp_ex(net_->device().context.get(), &init));
	if (!qp)
		verbs::fail("ibv_create_qp_ex (RC)", errno);
	peer.connection = std::make_unique<SendQueue>(*net_, peer, std::move(qp), init.cap.max_inline_data, false);
}

Endpoint &RcTransport::connect(int rank, std::string_view text)
{
	if (Peer *known = find(rank))
		return *known; // it was faster
	verbs::WireupAddress address;
	std::memcpy(&address, text.data(), sizeof address);
	Peer &peer = make_peer(rank, address);
	tell(peer, WireupMessage::Kind::request);
	return peer;
}

// A queue pair that is its own other side.
Endpoint *RcTransport::loopback()
{
	const int self = environment_.job.rank();
	if (Peer *known = find(self))
		return known->down ? nullptr : known;
	try {
		Peer &peer = make_peer(self, {net_->device().address, net_->wireup().number()});
		if (!connect_queue_pair(peer, peer.connection->qp()->qp_num, psn_of(peer)))
			return nullptr;
		connected(peer);
		return &peer;
	} catch (const Error &e) {
		environment_.reporter.log(LogLevel::info, "no loopback through the device: %s", e.what());
		return nullptr;
	}
}

// Makes it ready to send and to receive; false: it could not be done, and the peer is down.
bool RcTransport::connect_queue_pair(Peer &peer, uint32_t number, uint32_t psn)
{
	const int error = verbs::bring_up(net_->device(), peer.connection->qp(),
	                                  {.role = verbs::BringUp::Role::connection,
	                                   .port = peer.address.port,
	                                   .number = number,
	                                   .first_here = psn_of(peer),
	                                   .first_there = psn,
	                                   .timeout = environment_.config.net_timeout,
	                                   .retries = environment_.config.net_retries});
	if (error) {
		net_->take_down(peer, PT2P_ERR_SYSTEM, verbs::failure("ibv_modify_qp", error));
		return false;
	}
	peer.remote_qp = number;
	return true;
}

// Another connection of the same queue pair begins elsewhere, so that packets of the old one fit nowhere.
uint32_t RcTransport::psn_of(const Peer &peer) const
{
	return (peer.connection->qp()->qp_num + (peer.attempt << 16)) * 0x9e3779b1 >> 8;
}

void RcTransport::tell(Peer &peer, WireupMessage::Kind kind)
{
	WireupMessage message{};
	message.job = net_->job();
	message.from = {net_->device().address, net_->wireup().number()};
	message.rank = environment_.job.rank();
	message.qp = peer.connection->qp()->qp_num;
	message.psn = psn_of(peer);
	message.attempt = peer.attempt;
	message.kind = kind;
	peer.asked = now_ns();
	net_->wireup().send(peer.address, message);
}

void RcTransport::on_wireup(const WireupMessage &m)
{
	if (m.job != net_->job() || m.rank < 0 || m.rank >= environment_.job.size() || m.rank == environment_.job.rank() ||
	    leaving_)
		return;
	Peer *peer = find(m.rank);
	if (!peer) {
		if (m.kind != WireupMessage::Kind::request || m.attempt != 1)
			return;
		try {
			peer = &make_peer(m.rank, m.from);
		} catch (const Error &e) {
			WireupMessage refusal{};
			refusal.job = m.job;
			refusal.rank = environment_.job.rank();
			refusal.attempt = m.attempt;
			refusal.kind = WireupMessage::Kind::refuse;
			std::strncpy(refusal.reason, e.what(), sizeof refusal.reason - 1);
			net_->wireup().send(m.from, refusal); // when it is lost, it will ask again
			return;
		}
		peer->state = Peer::State::accepting;
	}
	if (peer->down)
		return;
	if (m.attempt != peer->attempt) {
		// It has given a connection up that we still hold on to.
		if (static_cast<int32_t>(m.attempt - peer->attempt) <= 0 || m.kind != WireupMessage::Kind::request)
			return;
		give_up(*peer, m.attempt);
	}
	if (m.kind == WireupMessage::Kind::refuse) {
		if (peer->state == Peer::State::requesting)
			net_->take_down(*peer, PT2P_ERR_UNREACHABLE,
			                "it refuses a connection: " + std::string(m.reason, strnlen(m.reason, sizeof m.reason)));
		return;
	}
	if (peer->state == Peer::State::draining) {
		if (m.kind == WireupMessage::Kind::request)
			peer->request = m;
		return;
	}
	if (peer->remote_qp && peer->remote_qp != m.qp)
		return;
	if (!peer->remote_qp && !connect_queue_pair(*peer, m.qp, m.psn))
		return;
	if (m.kind == WireupMessage::Kind::request) {
		if (peer->state == Peer::State::requesting)
			peer->state = Peer::State::accepting;
		tell(*peer, WireupMessage::Kind::accept);
		return;
	}
	connected(*peer);
	if (m.kind == WireupMessage::Kind::accept)
		tell(*peer, WireupMessage::Kind::confirm);
}

// Who sends has heard of us.
void RcTransport::on_heard(int rank)
{
	Peer *peer = find(rank);
	if (peer && peer->state == Peer::State::accepting && !peer->down)
		connected(*peer);
}

void RcTransport::connected(Peer &peer)
{
	if (peer.state == Peer::State::connected || leaving_)
		return;
	peer.state = Peer::State::connected;
	peer.ready = true;
	peer.last_sign = now_ns();
	if (peer.attempt == 1)
		return;
	environment_.reporter.log(LogLevel::info, "rank %d: connected again", peer.peer);
	peer.connection->post_again();
}

// ---- what breaks ------------------------------------------------------------------------------------------------------

void RcTransport::on_broken(Peer &peer, ibv_wc_status status)
{
	if (peer.down)
		return;
	environment_.reporter.log(LogLevel::info, "rank %d: the connection has broken: %s", peer.peer,
	                          status == IBV_WC_SUCCESS ? "told by the device" : ibv_wc_status_str(status));
	WorkRequest *front = peer.connection->front();
	switch (status) {
	case IBV_WC_SUCCESS:
	case IBV_WC_RETRY_EXC_ERR:
	case IBV_WC_RNR_RETRY_EXC_ERR:
	case IBV_WC_WR_FLUSH_ERR:
	case IBV_WC_REM_ABORT_ERR:
	case IBV_WC_FATAL_ERR:
		break;
	default:
		// The work request itself is at fault.
		if (front && front->is_operation())
			peer.connection->abandon(*front, PT2P_ERR_SYSTEM);
		else
			return net_->take_down(peer, PT2P_ERR_SYSTEM, format("a message to it failed: %s", ibv_wc_status_str(status)));
	}
	give_up(peer, peer.attempt + 1);
}

// The connection with this number, and not yet the peer, is given up.
void RcTransport::give_up(Peer &peer, uint32_t attempt)
{
	environment_.reporter.add(Counter::reconnects);
	verbs::set_state(peer.connection->qp(), IBV_QPS_ERR);
	peer.connection->set_broken();
	net_->not_ready(peer);
	peer.attempt = attempt;
	peer.request.attempt = 0;
	peer.remote_qp = 0;
	peer.since = now_ns();
	if (peer.state != Peer::State::draining)
		++draining_;
	peer.state = Peer::State::draining;
}

// Reads what has come through queue pairs that are given up, and resets them.
unsigned RcTransport::finish_draining()
{
	// The device may still be writing completions of what has come through the queue pair.
	constexpr int64_t settle = 1'000'000;
	const int64_t now = now_ns();
	if (!net_->drained())
		return 0;
	for (auto &place : peers_) {
		auto *p = static_cast<Peer *>(place.get());
		if (!p || p->state != Peer::State::draining || now - p->since < settle)
			continue;
		--draining_;
		p->state = Peer::State::requesting;
		if (p->down)
			continue;
		if (const int error = verbs::set_state(p->connection->qp(), IBV_QPS_RESET)) {
			net_->take_down(*p, PT2P_ERR_SYSTEM, verbs::failure("ibv_modify_qp (to RESET)", error));
			continue;
		}
		p->connection->was_reset();
		if (p->request.attempt == p->attempt)
			on_wireup(p->request);
		else
			tell(*p, WireupMessage::Kind::request);
	}
	return 0;
}

void RcTransport::check()
{
	NetTransport::check();
	const int64_t now = now_ns();
	for (auto &place : peers_) {
		auto *p = static_cast<Peer *>(place.get());
		if (!p || p->down || p->state == Peer::State::draining || p->state == Peer::State::connected)
			continue;
		// Who has never answered may be computing, and answers when it calls in.
		if (p->attempt > 1 && now - p->since > environment_.config.net_reconnect_time)
			net_->take_down(*p, PT2P_ERR_PEER_LOST, "its connection broke, and it does not answer");
		else if (now - p->asked > ask_again_after && (p->state == Peer::State::requesting || p->remote_qp))
			tell(*p, p->state == Peer::State::requesting ? WireupMessage::Kind::request : WireupMessage::Kind::accept);
	}
}

void RcTransport::leave()
{
	leaving_ = true;
	NetTransport::leave();
}

// ---- the table --------------------------------------------------------------------------------------------------------

std::string RcTransport::trouble(int rank)
{
	const Peer *peer = find(rank);
	if (!peer || peer->down || peer->state == Peer::State::connected)
		return {};
	return format("%s for %.1f s; it answers when it calls into the library, or runs a progress thread",
	              peer->attempt == 1 ? "not connected, asked" : "its connection broke, asked for another",
	              static_cast<double>(now_ns() - peer->since) * 1e-9);
}

std::vector<SendQueue *> RcTransport::queues_for(const verbs::Peer &peer) const
{
	SendQueue *queue = static_cast<const Peer &>(peer).connection.get();
	return queue ? std::vector<SendQueue *>{queue} : std::vector<SendQueue *>{};
}

Transport::Memory RcTransport::memory_per_peer()
{
	return {sizeof(std::unique_ptr<Peer>) + verbs::Net::bytes_per_silent_peer, sizeof(Peer) + net_->bytes_per_queue()};
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
    "rc",       cap_send | cap_get | cap_put | cap_atomic, open_rc,       verbs::send<Peer, Counter::rc_messages>,
    verbs::get, verbs::put,                                verbs::atomic, verbs::progress<RcTransport>,
};

} // namespace pt2p::rc
