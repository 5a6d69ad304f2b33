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
constexpr uint32_t corked_batch = 16;                 // work requests, then the device may as well begin

// A cell of device memory for a payload of this length.
size_t cell_for(size_t payload) { return (payload + sizeof(MessageHeader) + 63) / 64 * 64; }

uint32_t buffer_count(const Config &config) { return static_cast<uint32_t>(4 * config.net_send_depth); }

// What is registered at start; the device's queues and what connections take come on top.
uint64_t registered_at_start(const Config &config)
{
	return (static_cast<uint64_t>(config.net_receives) + 1 + buffer_count(config)) * config.net_message_bytes +
	       (results + rings_out) * sizeof(uint64_t);
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
      buffer_count_(buffer_count(environment.config)),
      direct_(environment.config.net_direct && mlx5::supported && mlx5dv_is_supported(device_->context->device)),
      completions_(*device_, direct_, static_cast<uint32_t>(environment.config.net_receives), depth_),
      srq_(make_srq(*device_, environment.config)),
      // One more than there are receives: mlx5::ReceiveRing.
      receives_(*device_, static_cast<size_t>(environment.config.net_receives + 1) * message_bytes_, IBV_ACCESS_LOCAL_WRITE,
                environment.topology.numa_node),
      sends_(*device_, buffer_count_ * message_bytes_, 0, environment.topology.numa_node),
      results_(*device_, results * sizeof(uint64_t), IBV_ACCESS_LOCAL_WRITE, environment.topology.numa_node),
      registrations_(*device_, environment.reporter,
                     environment.config.registration_cache ? environment.config.registration_cache_bytes : 0),
      wireup_(std::make_unique<Wireup>(*device_, completions_.channel(), environment.topology.numa_node)),
      peers_(static_cast<size_t>(size_)), expected_(static_cast<size_t>(size_)),
      told_(*device_, rings_out * sizeof(uint64_t), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE,
            environment.topology.numa_node)
{
	free_told_.fill(rings_out);
	set_batch(static_cast<uint32_t>(config().net_doorbell_batch));

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
	if (direct_) {
		receive_ring_ = std::make_unique<mlx5::ReceiveRing>(srq(), static_cast<uint32_t>(count), receives_.at(0),
		                                                    static_cast<uint32_t>(message_bytes_), receives_.key());
		return;
	}
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
	completions_.add(queue.qp()->send_cq);
	const auto free = std::find(queues_.begin(), queues_.end(), nullptr);
	queue.index = static_cast<uint32_t>(free - queues_.begin());
	if (free == queues_.end())
		queues_.push_back(&queue);
	else
		*free = &queue;
	index_queues();
}

void Net::remove(SendQueue &queue, const ibv_cq *cq, uint32_t number)
{
	rung(queue);
	completions_.forget(cq, number);
	completions_.remove(cq);
	queues_[queue.index] = nullptr;
	index_queues();
	std::erase_if(broken_, [&](const Broken &b) { return b.queue == &queue; });
}

void Net::index_queues()
{
	size_t size = 8;
	while (size < 2 * queues_.size())
		size *= 2;
	by_number_.assign(size, nullptr);
	for (SendQueue *queue : queues_) {
		size_t at = queue ? queue->qp()->qp_num : 0;
		while (queue && by_number_[at & (size - 1)])
			++at;
		if (queue)
			by_number_[at & (size - 1)] = queue;
	}
}

// Null: it is not there any more.
inline SendQueue *Net::queue_of(uint32_t number) const
{
	for (size_t at = number;; ++at) {
		SendQueue *queue = by_number_[at & (by_number_.size() - 1)];
		if (!queue || queue->number() == number)
			return queue;
	}
}

void Net::set_peer(Peer &peer)
{
	peers_[static_cast<size_t>(peer.peer)] = &peer;
	set_delivery(peer, static_cast<pt2p_delivery_t>(config().net_delivery));
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

void Net::set_batch(uint32_t batch)
{
	batch_ = batch;
	// What is posted is rung for at once, and alone.
	const auto fits = static_cast<int64_t>(config().net_inline) - static_cast<int64_t>(sizeof(MessageHeader));
	most_at_once_ = direct_ && batch == 1 ? std::min<int64_t>(fits, SendQueue::most_at_once) : -1;
}

void Net::cork(bool corked)
{
	const auto usual = static_cast<uint32_t>(config().net_doorbell_batch);
	set_batch(corked ? std::max(corked_batch, usual) : usual);
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

inline void Net::on_send_completion(SendQueue *queue, uint32_t number, ibv_wc_status status)
{
	if (__builtin_expect(!queue || queue->broken(), 0))
		return;
	if (__builtin_expect(status == IBV_WC_SUCCESS, 1)) {
		queue->complete(number);
		return;
	}
	queue->complete(number - 1);
	report_broken(*queue, status);
}

// True when a message has been delivered.
[[gnu::always_inline]] inline bool Net::on_receive(const unsigned char *message, uint32_t bytes)
{
	MessageHeader h;
	std::memcpy(&h, message, sizeof h);
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
		hold(h, message + sizeof h, bytes - sizeof h);
		return false;
	}
	++expected;
	if (__builtin_expect(h.id() < id_ring_request, 1))
		environment_.events.on_message(rank, h.id(), h.header, message + sizeof h, bytes - sizeof h);
	else
		deliver(h, message + sizeof h, bytes - sizeof h);
	if (__builtin_expect(!held_.empty(), 0))
		deliver_held(rank);
	return true;
}

// One completion, read by verbs.
void Net::handle(uint64_t id, ibv_wc_status status, uint32_t bytes, Turn &turn)
{
	if (id & is_send)
		return on_send_completion(queues_[id >> 32 & 0x7fffffff], static_cast<uint32_t>(id), status);
	if (status == IBV_WC_SUCCESS)
		turn.events += on_receive(receives_.at(id * message_bytes_), bytes);
	turn.used[turn.used_count++] = id;
}

// Handles all completions that are there, up to a number. False when there is none.
inline bool Net::read(CompletionQueue &queue, Turn &turn)
{
	if (__builtin_expect(queue.ring != nullptr, 1))
		return read_directly(*queue.ring, turn);
	if (device_->extended_poll) {
		ibv_cq_ex *cq = queue.verbs.get();
		ibv_poll_cq_attr attributes{};
		if (ibv_start_poll(cq, &attributes) != 0)
			return false;
		unsigned n = 0;
		do
			handle(cq->wr_id, cq->status, cq->status == IBV_WC_SUCCESS ? ibv_wc_read_byte_len(cq) : 0, turn);
		while (++n < Turn::most && ibv_next_poll(cq) == 0);
		ibv_end_poll(cq);
	} else {
		ibv_wc completions[Turn::most];
		const int n = ibv_poll_cq(queue.cq(), Turn::most, completions);
		if (n <= 0)
			return false;
		for (int i = 0; i < n; ++i)
			handle(completions[i].wr_id, completions[i].status, completions[i].byte_len, turn);
	}
	post_receives(turn.used, turn.used_count);
	turn.used_count = 0;
	return true;
}

inline bool Net::read_directly(mlx5::CompletionRing &ring, Turn &turn)
{
	const mlx5_cqe64 *c = ring.next();
	if (!c)
		return false;
	unsigned n = 0;
	do {
		switch (mlx5::opcode(*c)) {
		case MLX5_CQE_RESP_SEND: {
			const uint32_t number = be16toh(c->wqe_counter);
			const unsigned char *message = mlx5::scattered(*c);
			turn.events += on_receive(message ? message : receives_.at(number * message_bytes_), be32toh(c->byte_cnt));
			receive_ring_->give(number);
			break;
		}
		case MLX5_CQE_REQ:
		case MLX5_CQE_REQ_ERR:
			if (SendQueue *queue = queue_of(mlx5::queue_pair(*c)))
				on_send_completion(queue, queue->number_of(be16toh(c->wqe_counter)),
				                   mlx5::opcode(*c) == MLX5_CQE_REQ ? IBV_WC_SUCCESS : mlx5::status_of(*c));
			break;
		case MLX5_CQE_RESP_ERR:
			receive_ring_->give(be16toh(c->wqe_counter));
			break;
		default: // passed over
			break;
		}
		ring.pop();
	} while (++n < Turn::most && (c = ring.next()) != nullptr);
	ring.publish();
	receive_ring_->publish();
	return true;
}

// Connections are asked for rarely. The look goes through libibverbs, which is a chance for what stands in front of it.
bool Net::take_wireup()
{
	constexpr int idle_turn = 16, turns = 64; // a look after so many turns, or four in which nothing was found
	look_at_wireup_ -= drained_ ? idle_turn : 1;
	if (__builtin_expect(look_at_wireup_ > 0, 1))
		return false;
	look_at_wireup_ = turns;
	WireupMessage message;
	bool any = false;
	while (wireup_->take(message)) {
		any = true;
		if (connector)
			connector->on_wireup(message);
	}
	return any;
}

unsigned Net::progress()
{
	if (__builtin_expect(!unrung_.empty() && !corked_, 0))
		ring_all();
	Turn turn;
	if (__builtin_expect(!ringing_.empty(), 0))
		turn.events = read_rings();
	drained_ = true;
	for (CompletionQueue &queue : completions_)
		drained_ &= !read(queue, turn);
	const bool asked = take_wireup();
	if (drained_ && !asked && __builtin_expect(broken_.empty(), 1))
		return turn.events;
	if (__builtin_expect(first_waiting_ != nullptr, 0))
		drive_waiting();
	if (__builtin_expect(!broken_.empty(), 0))
		handle_broken();
	if (__builtin_expect(!unrung_.empty() && !corked_, 0))
		ring_all(); // answers to what has come
	return turn.events;
}

// A message that has overtaken another, which went by another queue pair, waits for it.
void Net::hold(const MessageHeader &h, const unsigned char *data, size_t length)
{
	constexpr size_t most = 4096;
	if (held_.size() < most)
		held_[{h.rank(), h.sequence}] = {h, std::vector<unsigned char>(data, data + length)};
	else
		lose(h.rank(), PT2P_ERR_PROTOCOL, "messages from it are missing");
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
		deliver(held.header, held.payload.data(), held.payload.size());
	}
}

// A message that is for us, and not for the layer above.
void Net::take(const MessageHeader &h, const unsigned char *data, size_t length)
{
	const uint8_t id = h.id();
	Peer *peer = peers_[static_cast<size_t>(h.rank())];
	RingRequest request;
	RingOffer offer;
	if (id == id_bye) {
		lose(h.rank(), PT2P_ERR_PEER_FINALIZED, "it has called pt2p_finalize");
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

void Net::lose(int rank, pt2p_status_t status, const std::string &reason)
{
	if (Peer *p = peer(rank))
		take_down(*p, status, reason);
	else
		environment_.events.on_peer_down(rank, status, reason);
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

// ---- sleeping ---------------------------------------------------------------------------------------------------------

int Net::wake_fd() const { return completions_.fd(); }

bool Net::arm(const void *caller)
{
	if (driver_ != caller)
		return true;
	completions_.take_events(); // of what came while we were awake
	ring_all();
	if (!completions_.armed() && (!completions_.arm() || !wireup_->arm()))
		return false;
	if (!asleep_)
		for (Peer *peer : ringing_)
			asleep_ |= tell_read(*peer, ring_asleep);
	// What came before the request raises no event.
	look_at_wireup_ = 0;
	return progress() == 0 && drained_ && unrung_.empty();
}

void Net::disarm(const void *caller)
{
	if (driver_ != caller)
		return;
	completions_.take_events();
	if (std::exchange(asleep_, false))
		for (Peer *peer : ringing_)
			tell_read(*peer);
}

// As libmlx5 understands its variable.
bool Net::entries_with_doorbells() const
{
	const char *shut_up = pt2p::environment("MLX5_SHUT_UP_BF");
	return !shut_up || !std::strcmp(shut_up, "0");
}

size_t Net::bytes_per_queue() const { return sizeof(SendQueue) + depth_ * (sizeof(WorkRequest) + 2 * 64); }

} // namespace pt2p::verbs
