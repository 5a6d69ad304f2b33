#include "transports/ud/ud.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/config/config.hpp"
#include "base/job/job.hpp"
#include "base/report/report.hpp"
#include "transports/channel_facts.hpp"

namespace pt2p::ud {

extern const TransportTable ud_table;

using verbs::SendQueue;

namespace {

constexpr size_t max_adapted = 3; // queues, as in "Design Guidelines for High Performance RDMA Systems"

// Bytes of a path MTU.
size_t bytes_of(uint8_t mtu) { return size_t{128} << mtu; }

} // namespace

SendQueue *UdPeer::acquire() { return ready ? transport->next() : nullptr; }

UdTransport::UdTransport(const TransportEnvironment &environment, std::shared_ptr<verbs::Net> net)
    : environment_(environment), net_(std::move(net)),
      q_key_(static_cast<uint32_t>(random_secret().words[0] & 0x7fffffff)), // the highest bit marks privileged keys
      fixed_(static_cast<size_t>(environment.config.ud_queues)), peers_(static_cast<size_t>(environment.job.size()))
{
	do
		make_queue();
	while (queues_.size() < fixed_);
}

UdTransport::~UdTransport() { net_->datagram_peers.clear(); }

void UdTransport::make_queue()
{
	ibv_qp_init_attr_ex init = net_->queue_attributes(IBV_QPT_UD);
	init.srq = net_->receives.srq();
	verbs::QpOwner qp(ibv_create_qp_ex(net_->device().context.get(), &init));
	if (!qp)
		verbs::fail_queue(net_->device(), "ibv_create_qp_ex (UD)", errno, "PT2P_NET_SEND_DEPTH", net_->shared.depth,
		                  net_->device().limits.max_qp_wr);
	if (const int error = start(qp.get()))
		verbs::fail("ibv_modify_qp (UD)", error);
	queues_.push_back(std::make_unique<SendQueue>(net_->shared, *this, std::move(qp), init.cap.max_inline_data,
	                                              verbs::QueueKind::datagrams));
}

int UdTransport::start(ibv_qp *qp) const
{
	return verbs::bring_up(net_->device(), qp, {.role = verbs::BringUp::Role::datagrams, .q_key = q_key_});
}

// ---- peers ----------------------------------------------------------------------------------------------------------

static_assert(offsetof(Address, port) == 0);

std::string UdTransport::address()
{
	Address address;
	std::memset(static_cast<void *>(&address), 0, sizeof address);
	address.port = net_->device().address;
	address.q_key = q_key_;
	address.queues = static_cast<uint32_t>(fixed_ ? fixed_ : 1);
	for (size_t i = 0; i < address.queues; ++i)
		address.numbers[i] = queues_[i]->number();
	return {reinterpret_cast<const char *>(&address), sizeof address};
}

bool UdTransport::reaches(int, std::string_view text, std::string &why_not)
{
	Address address;
	if (text.size() != sizeof address) {
		why_not = "its address is of another version of libpt2p";
		return false;
	}
	std::memcpy(&address, text.data(), sizeof address);
	if (!address.queues || address.queues > max_queues) {
		why_not = "its address is of another version of libpt2p";
		return false;
	}
	return net_->device().reaches(address.port, why_not);
}

Endpoint &UdTransport::connect(int rank, std::string_view text)
{
	std::unique_ptr<UdPeer> &known = peers_[static_cast<size_t>(rank)];
	if (known)
		return *known;
	Address address;
	std::memcpy(&address, text.data(), sizeof address);
	auto peer = std::make_unique<UdPeer>();
	ibv_ah_attr path = net_->device().path_to(address.port);
	peer->path.reset(ibv_create_ah(net_->device().pd.get(), &path));
	if (!peer->path)
		verbs::fail("ibv_create_ah", errno);
	peer->address.path = peer->path.get();
	peer->address.number = address.numbers[static_cast<uint32_t>(environment_.job.rank_at(rank)) % address.queues];
	peer->address.key = address.q_key;
	if (net_->shared.direct)
		peer->address.av = verbs::mlx5::datagram_address_vector(peer->path.get(), peer->address.number, address.q_key);
	peer->table = &ud_table;
	peer->peer = rank;
	peer->capabilities = ud_table.capabilities;
	const size_t mtu = bytes_of(std::min(net_->device().address.mtu, address.port.mtu));
	peer->max_send = std::min(mtu, net_->memory.buffer_bytes() - verbs::route_header) - sizeof(verbs::MessageHeader);
	peer->max_in_stream = peer->max_send;
	peer->transport = this;
	peer->net = net_.get();
	peer->from = verbs::MessageHeader::pack(environment_.job.rank_at(rank), 0);
	peer->remote = &peer->address;
	peer->ready = true;
	net_->rings.set_delivery(*peer, PT2P_DELIVERY_SEND);
	net_->datagram_peers.push_back(peer.get());
	known = std::move(peer);
	return *known;
}

// A device that has given up the peer for another reason reaches it no longer this way.
void UdTransport::abandon(int rank, pt2p_status_t, const std::string &)
{
	if (UdPeer *peer = peers_[static_cast<size_t>(rank)].get()) {
		peer->ready = false;
		peer->down = true;
	}
}

bool UdTransport::may_forget(int rank)
{
	const UdPeer *peer = peers_[static_cast<size_t>(rank)].get();
	return !peer || (!peer->ready && !peer->in_flight);
}

void UdTransport::forget_peer(int rank)
{
	std::unique_ptr<UdPeer> &peer = peers_[static_cast<size_t>(rank)];
	std::erase(net_->datagram_peers, peer.get());
	peer.reset();
}

// ---- queues ---------------------------------------------------------------------------------------------------------

SendQueue *UdTransport::next()
{
	for (size_t i = 0; i < queues_.size(); ++i, turn_ = (turn_ + 1) % queues_.size())
		if (current().can_post())
			return &current();
	full_ = true;
	return nullptr;
}

// One unit of the device works for a queue at a time. Queues take turns from batch to batch, not from datagram to
// datagram, which would cost a doorbell each. Where the processor outruns the unit, further queues are made.
void UdTransport::cork(bool corked, bool)
{
	if (corked || current().posted() == posted_)
		return;
	if (std::exchange(full_, false) && !fixed_ && queues_.size() < max_adapted) {
		try {
			make_queue();
		} catch (const Error &e) {
			environment_.reporter.log(LogLevel::debug, "no further queue for datagrams: %s", e.what());
		}
	}
	turn_ = (turn_ + 1) % queues_.size();
	posted_ = current().posted();
}

// What was in it is sent again: some of it twice, as a network may do.
void UdTransport::on_broken(SendQueue &queue, ibv_wc_status status)
{
	verbs::WorkRequest *front = queue.front();
	if (front && status != IBV_WC_SUCCESS && status != IBV_WC_WR_FLUSH_ERR && status != IBV_WC_FATAL_ERR)
		queue.abandon(*front, PT2P_ERR_SYSTEM);
	environment_.reporter.add(Counter::reconnects);
	queue.set_broken();
	int error = verbs::set_state(queue.qp(), IBV_QPS_RESET);
	if (!error) {
		queue.was_reset();
		error = start(queue.qp());
	}
	if (!error)
		return queue.post_again();
	environment_.reporter.log(LogLevel::error, "calls by datagram end here: %s",
	                          verbs::failure("ibv_modify_qp (UD)", error).c_str());
	queue.drop_all();
}

bool UdTransport::facts(int rank, ChannelFacts &f)
{
	const UdPeer *peer = peers_[static_cast<size_t>(rank)].get();
	if (!peer)
		return false;
	f.shared = true;
	f.acknowledged = false;
	std::vector<SendQueue *> queues;
	for (const auto &queue : queues_)
		queues.push_back(queue.get());
	net_->gather(*peer, queues, f);
	return true;
}

std::string UdTransport::describe(int)
{
	return format("datagrams, %s, %s", net_->device().name.c_str(), counted(queues_.size(), "send queue").c_str());
}

Inspection::Memory UdTransport::memory_per_peer()
{
	return {sizeof(std::unique_ptr<UdPeer>), sizeof(UdPeer) + sizeof(ibv_ah)};
}

// ---- the table ------------------------------------------------------------------------------------------------------

const TransportTable &UdTransport::table() const { return ud_table; }

namespace {

std::unique_ptr<Transport> open_ud(const TransportEnvironment &environment, std::string &why_not)
{
	if (!environment.device->lock()) {
		why_not = "neither rc nor dct is open, and it carries calls alone";
		return nullptr;
	}
	try {
		auto net = verbs::Net::open(environment, why_not);
		return net ? std::make_unique<UdTransport>(environment, std::move(net)) : nullptr;
	} catch (const Error &e) {
		if (environment.config.transports != "all")
			throw;
		why_not = e.what();
		return nullptr;
	}
}

Outcome send_immediate(Endpoint &endpoint, uint32_t word)
{
	auto &peer = static_cast<UdPeer &>(endpoint);
	SendQueue *queue = peer.acquire();
	if (!queue)
		return Outcome::no_resource;
	verbs::WorkRequest &request = queue->next(peer, verbs::Kind::send, 0);
	request.number = word;
	++peer.next_sequence; // for the report, as the receiver expects no order
	++peer.encoded.messages;
	queue->submit_message(verbs::Shortage::none);
	peer.net->eager.reporter().add(Counter::ud_messages);
	return Outcome::done;
}

} // namespace

const TransportTable ud_table = {
    .name = "ud",
    .capabilities = cap_send | cap_lossy,
    .open = open_ud,
    .send = verbs::send<UdPeer, Counter::ud_messages>,
    .get = nullptr,
    .put = nullptr,
    .atomic = nullptr,
    .progress = nullptr,
    .send_immediate = send_immediate,
};

} // namespace pt2p::ud
