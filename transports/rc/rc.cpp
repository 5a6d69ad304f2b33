#include "transports/rc/rc.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>

#include "config/config.hpp"
#include "job/job.hpp"
#include "job/topology.hpp"
#include "progress/clock.hpp"
#include "report/report.hpp"

namespace pt2p::rc {

extern const TransportTable rc_table;

namespace {

constexpr uint8_t id_bye = 0xff; // message ids of the layers above are smaller
constexpr int64_t ask_again_after = 20'000'000, give_up_after = 30'000'000'000;
constexpr uint32_t no_slot = ~0u;
constexpr uint64_t is_send = UINT64_C(1) << 63; // in a work request's id, above the peer's rank and its count

uint32_t send_slots(const Config &config) { return static_cast<uint32_t>(4 * config.rc_send_depth); }

verbs::CqOwner make_cq(const verbs::Device &device, const Config &config, int ranks)
{
	// Room for every receive, for every send with a buffer, and for the signals of all peers: a quarter of the depth is
	// between two of one peer, and the probe and the last word come on top.
	const int64_t wanted =
	    config.rc_receives + verbs::Wireup::room_in_cq + send_slots(config) + int64_t{8} * ranks;
	verbs::CqOwner cq(ibv_create_cq(device.context.get(), static_cast<int>(std::min<int64_t>(wanted, device.limits.max_cqe)),
	                                nullptr, nullptr, 0));
	if (!cq)
		verbs::fail("ibv_create_cq", errno);
	return cq;
}

verbs::SrqOwner make_srq(const verbs::Device &device, const Config &config)
{
	ibv_srq_init_attr init{};
	init.attr.max_wr = static_cast<uint32_t>(config.rc_receives);
	init.attr.max_sge = 1;
	verbs::SrqOwner srq(ibv_create_srq(device.pd.get(), &init));
	if (!srq)
		verbs::fail("ibv_create_srq", errno);
	return srq;
}

} // namespace

RcTransport::RcTransport(const TransportEnvironment &environment, std::unique_ptr<verbs::Device> device)
    : environment_(environment), device_(std::move(device)), job_(std::hash<std::string>()(environment.job.id())),
      message_bytes_(environment.config.rc_message_bytes), depth_(static_cast<uint32_t>(environment.config.rc_send_depth)),
      period_(std::max(1u, depth_ / 4)), cq_(make_cq(*device_, environment.config, environment.job.size())),
      srq_(make_srq(*device_, environment.config)),
      receives_(*device_, static_cast<size_t>(environment.config.rc_receives) * message_bytes_, IBV_ACCESS_LOCAL_WRITE,
                environment.topology.numa_node),
      sends_(*device_, send_slots(environment.config) * message_bytes_, 0, environment.topology.numa_node),
      wireup_(std::make_unique<verbs::Wireup>(*device_, cq_.get(), environment.topology.numa_node)),
      peers_(static_cast<size_t>(environment.job.size()))
{
	for (uint32_t slot = send_slots(environment.config); slot--;)
		free_sends_.push_back(slot);
	std::vector<uint64_t> all(static_cast<size_t>(environment.config.rc_receives));
	for (size_t i = 0; i < all.size(); ++i)
		all[i] = i;
	for (size_t at = 0; at < all.size(); at += 16)
		post_receives(&all[at], static_cast<unsigned>(std::min<size_t>(16, all.size() - at)));
}

// Queue pairs go before what they use.
RcTransport::~RcTransport()
{
	peers_.clear();
	wireup_.reset();
}

std::string RcTransport::address()
{
	const verbs::WireupAddress address{device_->address, wireup_->number()};
	return {reinterpret_cast<const char *>(&address), sizeof address};
}

bool RcTransport::reaches(int, std::string_view text, std::string &why_not)
{
	verbs::WireupAddress address;
	if (text.size() != sizeof address) {
		why_not = "its address is of another version of libpt2p";
		return false;
	}
	std::memcpy(&address, text.data(), sizeof address);
	return device_->reaches(address.port, why_not);
}

Peer &RcTransport::make_peer(int rank, const verbs::WireupAddress &address)
{
	auto peer = std::make_unique<Peer>();
	peer->table = &rc_table;
	peer->peer = rank;
	peer->capabilities = cap_send;
	peer->max_send = message_bytes_ - sizeof(Header);
	peer->transport = this;
	peer->address = address;
	peer->since = peer->last_sign = now_ns();

	ibv_qp_init_attr_ex init{};
	init.qp_type = IBV_QPT_RC;
	init.send_cq = init.recv_cq = cq_.get();
	init.srq = srq_.get();
	init.cap.max_send_wr = depth_ + 2; // the probe and the last word
	init.cap.max_send_sge = 1;
	init.cap.max_inline_data = static_cast<uint32_t>(environment_.config.rc_inline);
	init.pd = device_->pd.get();
	init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	init.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE;
	peer->qp.reset(ibv_create_qp_ex(device_->context.get(), &init));
	if (!peer->qp)
		verbs::fail("ibv_create_qp (RC)", errno);
	peer->ex = ibv_qp_to_qp_ex(peer->qp.get());
	ibv_qp_attr attr{};
	attr.qp_state = IBV_QPS_INIT;
	attr.port_num = device_->port;
	attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE; // the probe is one of no bytes
	if (const int error = ibv_modify_qp(peer->qp.get(), &attr,
	                                    IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
		verbs::fail("ibv_modify_qp (to INIT)", error);
	by_queue_pair_[peer->qp->qp_num] = peer.get();
	return *(peers_[static_cast<size_t>(rank)] = std::move(peer));
}

Endpoint &RcTransport::connect(int rank, std::string_view text)
{
	if (Peer *known = peers_[static_cast<size_t>(rank)].get())
		return *known; // it was faster
	verbs::WireupAddress address;
	std::memcpy(&address, text.data(), sizeof address);
	Peer &peer = make_peer(rank, address);
	tell(peer, verbs::WireupMessage::Kind::request);
	return peer;
}

void RcTransport::connect_queue_pair(Peer &peer, uint32_t number, uint32_t psn)
{
	const Config &config = environment_.config;
	ibv_qp_attr attr{};
	attr.qp_state = IBV_QPS_RTR;
	attr.path_mtu = static_cast<ibv_mtu>(std::min(device_->address.mtu, peer.address.port.mtu));
	attr.dest_qp_num = number;
	attr.rq_psn = psn;
	attr.max_dest_rd_atomic = 1;
	attr.min_rnr_timer = 12; // 0.64 ms
	attr.ah_attr = device_->path_to(peer.address.port);
	int error = ibv_modify_qp(peer.qp.get(), &attr,
	                          IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
	                              IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	attr = {};
	attr.qp_state = IBV_QPS_RTS;
	attr.sq_psn = psn_of(peer);
	attr.timeout = static_cast<uint8_t>(config.rc_timeout);
	attr.retry_cnt = static_cast<uint8_t>(config.rc_retries);
	attr.rnr_retry = 7; // for ever: who does not receive for a while is not lost
	attr.max_rd_atomic = 1;
	if (!error)
		error = ibv_modify_qp(peer.qp.get(), &attr,
		                      IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
		                          IBV_QP_MAX_QP_RD_ATOMIC);
	if (error) {
		take_down(peer, PT2P_ERR_SYSTEM, format("ibv_modify_qp failed: %s", errno_text(error).c_str()));
		return;
	}
	peer.remote_qp = number;
}

void RcTransport::tell(Peer &peer, verbs::WireupMessage::Kind kind)
{
	verbs::WireupMessage message{};
	message.job = job_;
	message.from = {device_->address, wireup_->number()};
	message.rank = environment_.job.rank();
	message.qp = peer.qp->qp_num;
	message.psn = psn_of(peer);
	message.kind = kind;
	peer.asked = now_ns();
	wireup_->send(peer.address, message);
}

void RcTransport::on_wireup(const verbs::WireupMessage &m)
{
	if (m.job != job_ || m.rank < 0 || m.rank >= environment_.job.size() || m.rank == environment_.job.rank() || leaving_)
		return;
	Peer *peer = peers_[static_cast<size_t>(m.rank)].get();
	if (!peer) {
		if (m.kind != verbs::WireupMessage::Kind::request)
			return;
		try {
			peer = &make_peer(m.rank, m.from);
		} catch (const Error &) {
			return; // it will ask again, and give up in the end
		}
		peer->state = Peer::State::accepting;
	}
	if (peer->state == Peer::State::down || (peer->remote_qp && peer->remote_qp != m.qp))
		return;
	if (!peer->remote_qp)
		connect_queue_pair(*peer, m.qp, m.psn);
	if (peer->state == Peer::State::down)
		return;
	if (m.kind == verbs::WireupMessage::Kind::request) {
		tell(*peer, verbs::WireupMessage::Kind::accept);
		return;
	}
	peer->state = Peer::State::ready;
	if (m.kind == verbs::WireupMessage::Kind::accept)
		tell(*peer, verbs::WireupMessage::Kind::confirm);
}

bool RcTransport::post(Peer &peer, bool signal, const Header *header, const void *data, size_t length, uint32_t slot)
{
	ibv_qp_ex *ex = peer.ex;
	ibv_wr_start(ex);
	ex->wr_id = is_send | static_cast<uint64_t>(peer.peer) << 32 | (peer.posted + 1);
	ex->wr_flags = signal ? IBV_SEND_SIGNALED : 0;
	if (!header) {
		ibv_wr_rdma_write(ex, 0, 0); // of no bytes
		ibv_wr_set_sge_list(ex, 0, nullptr);
	} else if (slot == no_slot) {
		ex->wr_flags |= IBV_SEND_INLINE;
		ibv_wr_send(ex);
		// In one piece: the provider of rdma_rxe in rdma-core 44 sends nothing of an inline list.
		unsigned char whole[256]; // rc_inline's maximum
		std::memcpy(whole, header, sizeof *header);
		if (length)
			std::memcpy(whole + sizeof *header, data, length);
		ibv_wr_set_inline_data(ex, whole, sizeof *header + length);
	} else {
		unsigned char *buffer = sends_.at(slot * message_bytes_);
		std::memcpy(buffer, header, sizeof *header);
		std::memcpy(buffer + sizeof *header, data, length);
		ibv_wr_send(ex);
		ibv_wr_set_sge(ex, sends_.key(), reinterpret_cast<uintptr_t>(buffer), static_cast<uint32_t>(sizeof *header + length));
	}
	if (ibv_wr_complete(ex) != 0)
		return false;
	++peer.posted;
	if (signal)
		peer.signalled = peer.posted;
	if (slot != no_slot)
		peer.slots.emplace_back(peer.posted, slot);
	return true;
}

Outcome RcTransport::send(Peer &peer, uint8_t id, uint64_t header, const void *data, size_t length)
{
	if (peer.state != Peer::State::ready || peer.posted - peer.completed >= depth_)
		return Outcome::no_resource;
	const Header h{header, id, {}};
	uint32_t slot = no_slot;
	if (sizeof h + length > static_cast<size_t>(environment_.config.rc_inline)) {
		if (free_sends_.empty())
			return Outcome::no_resource;
		slot = free_sends_.back();
		free_sends_.pop_back();
	}
	// One completion frees all before it. Buffers that run short are asked for at once.
	const bool signal = peer.posted + 1 - peer.signalled >= period_ ||
	                    (slot != no_slot && free_sends_.size() < send_slots(environment_.config) / 2);
	if (!post(peer, signal, &h, data, length, slot)) {
		if (slot != no_slot)
			free_sends_.push_back(slot);
		return Outcome::no_resource;
	}
	environment_.reporter.add(Counter::rc_messages);
	return Outcome::done;
}

void RcTransport::on_sent(Peer &peer, uint32_t upto)
{
	peer.completed = upto;
	while (!peer.slots.empty() && static_cast<int32_t>(peer.slots.front().first - upto) <= 0) {
		free_sends_.push_back(peer.slots.front().second);
		peer.slots.pop_front();
	}
}

void RcTransport::post_receives(const uint64_t *buffers, unsigned count)
{
	ibv_recv_wr requests[16];
	ibv_sge pieces[16];
	for (unsigned i = 0; i < count; ++i) {
		pieces[i] = {reinterpret_cast<uintptr_t>(receives_.at(buffers[i] * message_bytes_)),
		             static_cast<uint32_t>(message_bytes_), receives_.key()};
		requests[i] = {buffers[i], i + 1 < count ? &requests[i + 1] : nullptr, &pieces[i], 1};
	}
	ibv_recv_wr *bad;
	if (count)
		ibv_post_srq_recv(srq_.get(), requests, &bad);
}

void RcTransport::on_receive(const ibv_wc &wc)
{
	const auto found = by_queue_pair_.find(wc.qp_num);
	if (found == by_queue_pair_.end())
		return;
	Peer &peer = *found->second;
	if (peer.state == Peer::State::down)
		return;
	const unsigned char *buffer = receives_.at(wc.wr_id * message_bytes_);
	Header header;
	if (wc.byte_len < sizeof header) {
		take_down(peer, PT2P_ERR_PROTOCOL, format("a message of %u bytes without a header", wc.byte_len));
		return;
	}
	std::memcpy(&header, buffer, sizeof header);
	peer.state = Peer::State::ready; // who sends has heard of us
	if (header.id == id_bye)
		take_down(peer, PT2P_ERR_PEER_FINALIZED, "it has called pt2p_finalize");
	else
		environment_.events.on_message(peer.peer, header.id, header.header, buffer + sizeof header, wc.byte_len - sizeof header);
}

unsigned RcTransport::progress()
{
	constexpr int most = 16;
	ibv_wc completions[most];
	const int n = ibv_poll_cq(cq_.get(), most, completions);
	uint64_t used[most];
	unsigned used_count = 0, events = 0;
	for (int i = 0; i < n; ++i) {
		const ibv_wc &wc = completions[i];
		verbs::WireupMessage message;
		bool has_message;
		if (wireup_->handle(wc, message, has_message)) {
			if (has_message)
				on_wireup(message);
			continue;
		}
		if (wc.wr_id & is_send) {
			Peer *peer = peers_[wc.wr_id >> 32 & 0x7fffffff].get();
			if (wc.status == IBV_WC_SUCCESS) {
				peer->last_sign = now_ns();
				on_sent(*peer, static_cast<uint32_t>(wc.wr_id));
			} else if (wc.status != IBV_WC_WR_FLUSH_ERR) {
				take_down(*peer, PT2P_ERR_PEER_LOST,
				          format("its queue pair does not answer: %s", ibv_wc_status_str(wc.status)));
			}
			continue;
		}
		if (wc.status == IBV_WC_SUCCESS) {
			++events;
			on_receive(wc);
		}
		used[used_count++] = wc.wr_id;
	}
	post_receives(used, used_count);
	return events;
}

// A WRITE of no bytes: its end, or the lack of one, tells whether the other side is there.
void RcTransport::probe(Peer &peer)
{
	if (peer.posted == peer.completed || peer.signalled != peer.posted)
		post(peer, true, nullptr, nullptr, 0, no_slot);
}

void RcTransport::check()
{
	const int64_t now = now_ns();
	for (auto &p : peers_) {
		if (!p || p->state == Peer::State::down)
			continue;
		if (p->state != Peer::State::ready) {
			if (now - p->since > give_up_after)
				take_down(*p, PT2P_ERR_PEER_LOST, "it does not answer to a request for a connection");
			else if (now - p->asked > ask_again_after)
				tell(*p, p->state == Peer::State::requesting ? verbs::WireupMessage::Kind::request
				                                             : verbs::WireupMessage::Kind::accept);
		} else if (now - p->last_sign > environment_.config.rc_probe_time) {
			p->last_sign = now;
			probe(*p);
		}
	}
}

void RcTransport::take_down(Peer &peer, pt2p_status_t status, const std::string &reason)
{
	if (peer.state == Peer::State::down)
		return;
	peer.state = Peer::State::down;
	// One that has said goodbye waits for the acknowledgement of that: its queue pair stays as it is.
	if (status != PT2P_ERR_PEER_FINALIZED) {
		ibv_qp_attr attr{};
		attr.qp_state = IBV_QPS_ERR;
		ibv_modify_qp(peer.qp.get(), &attr, IBV_QP_STATE);
		on_sent(peer, peer.posted);
	}
	environment_.events.on_peer_down(peer.peer, status, reason);
}

void RcTransport::abandon(int rank, pt2p_status_t status, const std::string &reason)
{
	if (Peer *peer = peers_[static_cast<size_t>(rank)].get())
		take_down(*peer, status, reason);
}

void RcTransport::leave()
{
	leaving_ = true;
	const Header bye{0, id_bye, {}};
	for (auto &p : peers_)
		if (p && p->state == Peer::State::ready)
			post(*p, true, &bye, nullptr, 0, no_slot);
	// What has been handed to the device has to arrive: its queue pairs end with this call.
	constexpr int64_t longest = 2'000'000'000;
	const int64_t end = now_ns() + longest;
	const auto busy = [](const std::unique_ptr<Peer> &p) {
		return p && p->state == Peer::State::ready && p->signalled != p->completed;
	};
	while (std::any_of(peers_.begin(), peers_.end(), busy) && now_ns() < end)
		progress();
}

std::string RcTransport::describe(int) { return "reliable connection, " + device_->name; }

Transport::Memory RcTransport::memory_per_peer()
{
	return {sizeof(std::unique_ptr<Peer>), sizeof(Peer) + (depth_ + 2) * 64};
}

const TransportTable &RcTransport::table() const { return rc_table; }

namespace {

std::unique_ptr<Transport> open_rc(const TransportEnvironment &environment, std::string &why_not)
{
	if (environment.job.size() < 2) {
		why_not = "no other rank";
		return nullptr;
	}
	const Config &config = environment.config;
	try {
		auto device = verbs::Device::open(environment, why_not);
		return device ? std::make_unique<RcTransport>(environment, std::move(device)) : nullptr;
	} catch (const Error &e) {
		// Who has asked for it hears of it; who has not may do without.
		if (config.transports != "all" || !config.net_device.empty())
			throw;
		why_not = e.what();
		return nullptr;
	}
}

Outcome send_rc(Endpoint &endpoint, uint8_t id, uint64_t header, const void *data, size_t length)
{
	auto &peer = static_cast<Peer &>(endpoint);
	return peer.transport->send(peer, id, header, data, length);
}

unsigned progress_rc(Transport &transport) { return static_cast<RcTransport &>(transport).progress(); }

} // namespace

const TransportTable rc_table = {"rc", cap_send, open_rc, send_rc, nullptr, nullptr, nullptr, progress_rc};

} // namespace pt2p::rc
