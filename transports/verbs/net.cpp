#include "transports/verbs/net.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <functional>
#include <utility>

#include "config/config.hpp"
#include "job/job.hpp"
#include "job/topology.hpp"
#include "progress/clock.hpp"
#include "report/report.hpp"
#include "transports/verbs/measure.hpp"

namespace pt2p::verbs {

namespace {

constexpr size_t most_measured = 4096;                // payload, bytes, that is tried in device memory at start
constexpr uint32_t results = 1024;
constexpr uint32_t rings_out = 512;                    // to peers, at most
constexpr uint32_t worth_a_ring = 256, ask_again = 16; // messages; powers of two
constexpr uint32_t corked_batch = 16;                 // work requests, then the device may as well begin
constexpr uint32_t first_queues = 4;                  // that the completion queue has room for at first

// Values of PT2P_NET_DELIVERY.
enum { automatic, by_send, by_write, by_read };

// A cell of device memory for a payload of this length.
size_t cell_for(size_t payload) { return (payload + sizeof(MessageHeader) + 63) / 64 * 64; }

uint32_t buffer_count(const Config &config) { return static_cast<uint32_t>(4 * config.net_send_depth); }

uint32_t cq_base(const Config &config)
{
	return static_cast<uint32_t>(config.net_receives) + static_cast<uint32_t>(Wireup::room_in_cq);
}

// What is registered at start; the device's queues and what connections take come on top.
uint64_t registered_at_start(const Config &config)
{
	return (static_cast<uint64_t>(config.net_receives) + buffer_count(config)) * config.net_message_bytes +
	       (results + rings_out) * sizeof(uint64_t);
}

CqExOwner make_cq(const Device &device, uint32_t entries, ibv_comp_channel *channel)
{
	ibv_cq_init_attr_ex init{};
	init.cqe = std::min(entries, static_cast<uint32_t>(device.limits.max_cqe));
	init.channel = channel;
	init.wc_flags = IBV_WC_EX_WITH_BYTE_LEN;
	if (device.domain != device.pd.get()) {
		init.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD;
		init.flags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED;
		init.parent_domain = device.domain;
		if (ibv_cq_ex *cq = ibv_create_cq_ex(device.context.get(), &init))
			return CqExOwner(cq);
		init.comp_mask = init.flags = 0;
	}
	CqExOwner cq(ibv_create_cq_ex(device.context.get(), &init));
	if (!cq)
		fail("ibv_create_cq_ex", errno);
	return cq;
}

SrqOwner make_srq(const Device &device, const Config &config)
{
	ibv_srq_init_attr init{};
	init.attr.max_wr = static_cast<uint32_t>(config.net_receives);
	init.attr.max_sge = 1;
	SrqOwner srq(ibv_create_srq(device.pd.get(), &init));
	if (!srq)
		fail("ibv_create_srq", errno);
	return srq;
}

ChannelOwner make_channel(const Device &device)
{
	ChannelOwner channel(ibv_create_comp_channel(device.context.get()));
	if (channel && fcntl(channel->fd, F_SETFL, fcntl(channel->fd, F_GETFL) | O_NONBLOCK) != 0)
		channel.reset();
	return channel;
}

} // namespace

std::shared_ptr<Net> Net::open(const TransportEnvironment &environment, std::string &why_not)
{
	if (auto net = environment.shared->net.lock())
		return net;
	if (environment.job.size() < 2) {
		why_not = "no other rank";
		return nullptr;
	}
	const Config &config = environment.config;
	try {
		auto device = Device::open(environment, why_not);
		if (!device)
			return nullptr;
		check_lock_limit(*device, registered_at_start(config));
		auto net = std::make_shared<Net>(environment, std::move(device));
		environment.shared->net = net;
		return net;
	} catch (const Error &e) {
		// Who has asked for it hears of it; who has not may do without.
		if (config.transports != "all" || !config.net_device.empty())
			throw;
		why_not = e.what();
		return nullptr;
	}
}

Net::Net(const TransportEnvironment &environment, std::unique_ptr<Device> device)
    : environment_(environment), rank_(environment.job.rank()), size_(environment.job.size()), device_(std::move(device)),
      device_memory(*device_, environment.config.net_device_memory,
                    cell_for(environment.config.net_device_memory_max ? environment.config.net_device_memory_max : most_measured),
                    device_memory_reason_),
      job_(std::hash<std::string>()(environment.job.id())), message_bytes_(environment.config.net_message_bytes),
      depth_(static_cast<uint32_t>(environment.config.net_send_depth)),
      period_(environment.config.net_signal_period ? static_cast<uint32_t>(environment.config.net_signal_period)
                                                   : std::max(1u, depth_ / 4)),
      buffer_count_(buffer_count(environment.config)), batch_(static_cast<uint32_t>(environment.config.net_doorbell_batch)),
      channel_(make_channel(*device_)), cq_entries_(cq_base(environment.config) + first_queues * depth_),
      cq_(make_cq(*device_, cq_entries_, channel_.get())), srq_(make_srq(*device_, environment.config)),
      receives_(*device_, static_cast<size_t>(environment.config.net_receives) * message_bytes_, IBV_ACCESS_LOCAL_WRITE,
                environment.topology.numa_node),
      sends_(*device_, buffer_count_ * message_bytes_, 0, environment.topology.numa_node),
      results_(*device_, results * sizeof(uint64_t), IBV_ACCESS_LOCAL_WRITE, environment.topology.numa_node),
      registrations_(*device_, environment.reporter,
                     environment.config.registration_cache ? environment.config.registration_cache_bytes : 0),
      wireup_(std::make_unique<Wireup>(*device_, cq(), is_wireup, environment.topology.numa_node)),
      peers_(static_cast<size_t>(size_)), expected_(static_cast<size_t>(size_)),
      told_(*device_, rings_out * sizeof(uint64_t), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE,
            environment.topology.numa_node)
{
	if (config().net_delivery == by_write || config().net_delivery == automatic) {
		ring_most_ = static_cast<int64_t>(config().net_ring_slot_bytes - sizeof(RingTrailer));
		// At the first message, or when there have been many; and again later.
		const bool always = config().net_delivery == by_write;
		ring_mask_ = (always ? ask_again : worth_a_ring) - 1;
		ring_phase_ = always ? 1 : 0;
	}
	free_told_.fill(rings_out);

	if (!device_memory.usable() && environment.config.net_device_memory)
		reporter().log(LogLevel::debug, "no messages through device memory: %s", device_memory_reason_.c_str());
	ibv_context *context = device_->context.get();
	if (fcntl(context->async_fd, F_SETFL, fcntl(context->async_fd, F_GETFL) | O_NONBLOCK) != 0)
		fail("fcntl", errno);
	if (device_memory.usable() && !environment.config.net_device_memory_max) {
		const size_t best = measure_device_memory(*device_, device_memory, most_measured);
		device_memory.cut(best ? cell_for(best) : 0);
		reporter().log(LogLevel::info, "%s: device memory is faster for payloads up to %zu bytes", device_->name.c_str(), best);
	}
	free_buffers_.fill(buffer_count_);
	free_results_.fill(results);
	const auto count = static_cast<size_t>(config().net_receives);
	std::vector<uint64_t> all(count);
	for (size_t i = 0; i < count; ++i)
		all[i] = i;
	for (size_t at = 0; at < count; at += 16)
		post_receives(&all[at], static_cast<unsigned>(std::min<size_t>(16, count - at)));
}

Net::~Net() = default;

// ---- queues -----------------------------------------------------------------------------------------------------------

void Net::add(SendQueue &queue)
{
	// Room for whatever a queue can complete with, also when everything in it is flushed: an overrun would break all.
	const uint32_t wanted = cq_base(config()) + (queue_count_ + 1) * depth_;
	if (wanted > cq_entries_) {
		const uint32_t entries = std::min(2 * wanted, static_cast<uint32_t>(device_->limits.max_cqe));
		if (wanted > entries)
			throw Error(PT2P_ERR_SYSTEM, format("%u connections with PT2P_NET_SEND_DEPTH=%u need more completions than the "
			                                    "device's %d; make it smaller, or PT2P_RC_PEERS",
			                                    queue_count_ + 1, depth_, device_->limits.max_cqe));
		if (const int error = ibv_resize_cq(cq(), static_cast<int>(entries)))
			fail("ibv_resize_cq", error);
		cq_entries_ = entries;
	}
	++queue_count_;
	const auto free = std::find(queues_.begin(), queues_.end(), nullptr);
	queue.index = static_cast<uint32_t>(free - queues_.begin());
	if (free == queues_.end())
		queues_.push_back(&queue);
	else
		*free = &queue;
}

void Net::remove(SendQueue &queue)
{
	rung(queue);
	--queue_count_;
	queues_[queue.index] = nullptr;
	std::erase_if(broken_, [&](const Broken &b) { return b.queue == &queue; });
}

void Net::list(SendQueue &queue)
{
	queue.listed = true;
	unrung_.push_back(&queue);
}

void Net::unlist(SendQueue &queue)
{
	queue.listed = false;
	std::erase(unrung_, &queue);
}

void Net::ring_all()
{
	while (!unrung_.empty())
		unrung_.back()->ring(); // takes itself off the list
}

void Net::cork(bool corked)
{
	const auto usual = static_cast<uint32_t>(config().net_doorbell_batch);
	batch_ = corked ? std::max(corked_batch, usual) : usual;
	if (!corked)
		ring_all();
}

// ---- completions ------------------------------------------------------------------------------------------------------

unsigned Net::progress(const void *caller)
{
	if (!driver_)
		driver_ = caller;
	return driver_ == caller ? progress() : 0;
}

// One completion; `bytes` gives its length.
template <class Bytes>
inline void Net::handle(uint64_t id, ibv_wc_status status, const Bytes &bytes, Turn &turn)
{
	if (id & is_send) {
		on_send_completion(id, status);
		return;
	}
	const uint32_t length = __builtin_expect(status == IBV_WC_SUCCESS, 1) ? bytes() : 0;
	if (__builtin_expect((id & is_wireup) != 0, 0)) {
		WireupMessage message;
		if (wireup_->handle(id, status, length, message) && connector)
			connector->on_wireup(message);
		return;
	}
	if (__builtin_expect(status == IBV_WC_SUCCESS, 1))
		turn.events += on_receive(static_cast<uint32_t>(id), length);
	turn.used[turn.used_count++] = id;
}

// Hands all completions that are there, up to a number, to handle(). False when there is none.
inline bool Net::poll(Turn &turn)
{
	if (__builtin_expect(device_->extended_poll, 1)) {
		ibv_cq_ex *cq = cq_.get();
		ibv_poll_cq_attr attributes{};
		if (ibv_start_poll(cq, &attributes) != 0)
			return false;
		unsigned n = 0;
		do
			handle(cq->wr_id, cq->status, [cq] { return ibv_wc_read_byte_len(cq); }, turn);
		while (++n < turn.most && ibv_next_poll(cq) == 0);
		ibv_end_poll(cq);
		return true;
	}
	ibv_wc completions[Turn::most];
	const int n = ibv_poll_cq(cq(), Turn::most, completions);
	for (int i = 0; i < n; ++i)
		handle(completions[i].wr_id, completions[i].status, [&] { return completions[i].byte_len; }, turn);
	return n > 0;
}

unsigned Net::progress()
{
	if (__builtin_expect(!unrung_.empty() && !corked_, 0))
		ring_all();
	Turn turn;
	if (__builtin_expect(!ringing_.empty(), 0))
		turn.events = read_rings();
	drained_ = !poll(turn);
	if (drained_ && __builtin_expect(broken_.empty(), 1))
		return turn.events;
	post_receives(turn.used, turn.used_count);
	if (__builtin_expect(first_waiting_ != nullptr, 0))
		drive_waiting();
	if (__builtin_expect(!broken_.empty(), 0))
		handle_broken();
	if (__builtin_expect(!unrung_.empty() && !corked_, 0))
		ring_all(); // answers to what has come
	return turn.events;
}

inline void Net::on_send_completion(uint64_t id, ibv_wc_status status)
{
	SendQueue *queue = queues_[id >> 32 & 0x3fffffff];
	if (__builtin_expect(!queue || queue->broken(), 0))
		return;
	if (__builtin_expect(status == IBV_WC_SUCCESS, 1)) {
		queue->complete(static_cast<uint32_t>(id));
		return;
	}
	queue->complete(static_cast<uint32_t>(id) - 1);
	report_broken(*queue, status);
}

// True when a message has been delivered.
inline bool Net::on_receive(uint32_t place, uint32_t bytes)
{
	const unsigned char *buffer = receives_.at(place * message_bytes_);
	MessageHeader h;
	std::memcpy(&h, buffer, sizeof h);
	const int rank = h.rank();
	// Not from one of us: there is nobody to blame.
	if (__builtin_expect(bytes < sizeof h || rank >= size_ || rank == rank_, 0))
		return false;
	Peer *peer = peers_[static_cast<size_t>(rank)];
	if (__builtin_expect(!peer || !peer->ready, 0)) {
		if (peer && peer->down)
			return false;
		if (connector)
			connector->on_heard(rank);
	}
	uint32_t &expected = expected_[static_cast<size_t>(rank)];
	// What was written before this was sent is there by now.
	if (__builtin_expect(h.sequence != expected, 0) && peer && peer->incoming)
		read_ring(*peer, UINT32_MAX);
	if (__builtin_expect(h.sequence != expected, 0)) {
		if (static_cast<int32_t>(h.sequence - expected) < 0) {
			reporter().add(Counter::net_duplicates);
			return false;
		}
		hold(h, buffer + sizeof h, bytes - sizeof h);
		return false;
	}
	++expected;
	deliver(rank, h.id(), h.header, buffer + sizeof h, bytes - sizeof h);
	if (__builtin_expect(!held_.empty(), 0))
		deliver_held(rank);
	return true;
}

// A message that has overtaken another, which went by another queue pair, waits for it.
void Net::hold(const MessageHeader &h, const unsigned char *data, size_t length)
{
	constexpr size_t most = 4096;
	if (held_.size() < most) {
		held_[{h.rank(), h.sequence}] = {h, std::vector<unsigned char>(data, data + length)};
		return;
	}
	const char *what = "messages from it are missing";
	if (Peer *p = peer(h.rank()))
		take_down(*p, PT2P_ERR_PROTOCOL, what);
	else
		environment_.events.on_peer_down(h.rank(), PT2P_ERR_PROTOCOL, what);
}

void Net::deliver_held(int rank)
{
	uint32_t &expected = expected_[static_cast<size_t>(rank)];
	for (;;) {
		const auto found = held_.find({rank, expected});
		if (found == held_.end())
			return;
		const Held held = std::move(found->second);
		held_.erase(found);
		++expected;
		deliver(rank, held.header.id(), held.header.header, held.payload.data(), held.payload.size());
	}
}

// A message in its turn.
void Net::deliver(int rank, uint8_t id, uint64_t header, const unsigned char *data, size_t length)
{
	if (__builtin_expect(id < id_ring_request, 1))
		return environment_.events.on_message(rank, id, header, data, length);
	Peer *peer = peers_[static_cast<size_t>(rank)];
	RingRequest request;
	RingOffer offer;
	if (id == id_bye) {
		const char *what = "it has called pt2p_finalize";
		if (peer)
			take_down(*peer, PT2P_ERR_PEER_FINALIZED, what);
		else
			environment_.events.on_peer_down(rank, PT2P_ERR_PEER_FINALIZED, what);
	} else if (id == id_ring_request && length == sizeof request) {
		std::memcpy(&request, data, sizeof request);
		if (peer)
			on_ring_request(*peer, request);
	} else if (id == id_ring_offer && length == sizeof offer) {
		std::memcpy(&offer, data, sizeof offer);
		if (peer)
			on_ring_offer(*peer, offer);
	}
}

void Net::post_receives(const uint64_t *buffers, unsigned count)
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

// ---- what breaks ------------------------------------------------------------------------------------------------------

void Net::report_broken(SendQueue &queue, ibv_wc_status status)
{
	if (queue.broken())
		return;
	queue.set_broken();
	broken_.push_back({&queue, status});
}

void Net::handle_broken()
{
	const std::vector<Broken> now = std::move(broken_);
	broken_.clear();
	for (const Broken &b : now)
		b.queue->owner.on_broken(*b.queue, b.status);
}

void Net::take_down(Peer &peer, pt2p_status_t status, const std::string &reason)
{
	if (peer.down)
		return;
	peer.down = true;
	peer.ready = false;
	std::erase(ringing_, &peer);
	std::erase_if(held_, [&](const auto &held) { return held.first.first == peer.peer; });
	peer.ring.most = -1;
	// One that has said goodbye waits for the acknowledgement of that: its queue pair stays as it is.
	if (status != PT2P_ERR_PEER_FINALIZED)
		peer.cut();
	for (Operation **place = &first_waiting_; *place;) {
		Operation *operation = *place;
		if (operation->peer != &peer) {
			place = &operation->next;
			continue;
		}
		*place = operation->next;
		operation->status = status;
		operation->length = operation->posted;
		if (operation->done == operation->length)
			finish(*operation);
	}
	last_waiting_ = first_waiting_;
	while (last_waiting_ && last_waiting_->next)
		last_waiting_ = last_waiting_->next;
	environment_.events.on_peer_down(peer.peer, status, reason);
}

void Net::read_events()
{
	ibv_async_event event;
	while (ibv_get_async_event(device_->context.get(), &event) == 0) {
		const bool of_queue = event.event_type == IBV_EVENT_QP_FATAL || event.event_type == IBV_EVENT_QP_REQ_ERR ||
		                      event.event_type == IBV_EVENT_QP_ACCESS_ERR;
		SendQueue *queue = of_queue ? static_cast<SendQueue *>(event.element.qp->qp_context) : nullptr;
		ibv_ack_async_event(&event);
		reporter().log(LogLevel::info, "%s: %s", device_->name.c_str(), ibv_event_type_str(event.event_type));
		if (queue)
			report_broken(*queue, IBV_WC_SUCCESS);
		if (event.event_type == IBV_EVENT_DEVICE_FATAL && !failed_) {
			failed_ = true;
			reporter().log(LogLevel::error, "%s has failed for good; what needs it fails, too. The system's log says more",
			               device_->name.c_str());
			for (int rank = 0; rank < size_; ++rank)
				if (Peer *p = peer(rank))
					take_down(*p, PT2P_ERR_SYSTEM, "this rank's device " + device_->name + " has failed");
		}
	}
	handle_broken();
}

void Net::check(const void *caller)
{
	if (driver_ == caller)
		read_events();
}

void Net::leave(const void *caller)
{
	if (std::exchange(left_, true))
		return;
	driver_ = caller;
	constexpr int64_t longest = 2'000'000'000;
	const int64_t end = now_ns() + longest;
	cork(false);
	for (Peer *p : peers_)
		while (p && p->ready && now_ns() < end) {
			SendQueue *queue = p->acquire();
			if (queue && queue->send(*p, id_bye, 0, nullptr, 0)) {
				p->ready = false;
				break;
			}
			progress();
		}
	ring_all();
	// What has been handed to the device has to arrive: its queue pairs end with this call.
	const auto busy = [](const SendQueue *queue) { return queue && !queue->idle() && !queue->broken(); };
	for (SendQueue *queue : queues_)
		if (busy(queue) && queue->room())
			queue->flush();
	while (std::any_of(queues_.begin(), queues_.end(), busy) && now_ns() < end)
		progress();
}

size_t Net::max_unasked() const { return config().net_delivery == by_read ? 0 : SIZE_MAX; }

// ---- sleeping ---------------------------------------------------------------------------------------------------------

int Net::wake_fd() const { return channel_ ? channel_->fd : -1; }

bool Net::arm(const void *caller)
{
	if (driver_ != caller)
		return true;
	if (!channel_)
		return false;
	take_completion_events(); // of what came while we were awake
	ring_all();
	if (!armed_ && ibv_req_notify_cq(cq(), 0) != 0)
		return false;
	armed_ = true;
	if (!asleep_)
		for (Peer *peer : ringing_)
			asleep_ |= tell_read(*peer, ring_asleep);
	// What came before the request raises no event.
	return progress() == 0 && unrung_.empty();
}

void Net::disarm(const void *caller)
{
	if (driver_ != caller)
		return;
	take_completion_events();
	if (std::exchange(asleep_, false))
		for (Peer *peer : ringing_)
			tell_read(*peer);
}

void Net::take_completion_events()
{
	ibv_cq *of;
	void *context;
	while (channel_ && ibv_get_cq_event(channel_.get(), &of, &context) == 0) {
		ibv_ack_cq_events(of, 1);
		armed_ = false;
	}
}

size_t Net::bytes_per_queue() const { return sizeof(SendQueue) + depth_ * (sizeof(WorkRequest) + 2 * 64); }

} // namespace pt2p::verbs
