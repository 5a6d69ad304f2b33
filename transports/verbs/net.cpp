#include "transports/verbs/net.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <utility>

#include "base/config/config.hpp"
#include "base/job/job.hpp"
#include "base/job/topology.hpp"
#include "base/clock.hpp"
#include "base/report/report.hpp"
#include "transports/verbs/device/measure.hpp"

namespace pt2p::verbs {

namespace {

constexpr size_t most_measured = 4096;    // payload, bytes, that is tried in device memory at start
constexpr size_t most_copied = 8192;      // bytes of a one-sided operation: the copy takes less than a microsecond
constexpr uint32_t results = 1024;
constexpr uint32_t rings_out = 512;       // to peers, at most
constexpr uint32_t corked_batch = 16;     // work requests, then the device may as well begin

// A cell of device memory for a payload of this length.
size_t cell_for(size_t payload) { return (payload + sizeof(MessageHeader) + 63) / 64 * 64; }

size_t bytes_of_device_memory(const Config &config)
{
	return config.net_staging == choice::net_staging::host ? 0 : config.net_device_memory;
}

uint32_t first_period(const Config &config)
{
	if (config.tune != choice::tune::off)
		return 1; // and then as it is tuned
	const int64_t standard = std::max<int64_t>(1, config.net_send_depth / 4);
	return static_cast<uint32_t>(config.net_signal_period ? config.net_signal_period : standard);
}

pt2p_delivery_t delivery_of(choice::net_delivery delivery)
{
	switch (delivery) {
	case choice::net_delivery::send: return PT2P_DELIVERY_SEND;
	case choice::net_delivery::write: return PT2P_DELIVERY_WRITE;
	case choice::net_delivery::read: return PT2P_DELIVERY_READ;
	case choice::net_delivery::automatic: break;
	}
	return PT2P_DELIVERY_AUTO;
}

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
		fail_queue(device, "ibv_create_srq", errno, "PT2P_NET_RECEIVES", config.net_receives, device.limits.max_srq_wr);
	return srq;
}

} // namespace

std::shared_ptr<Net> Net::open(const TransportEnvironment &environment, std::string &why_not)
{
	if (const auto device = environment.device->lock())
		return std::static_pointer_cast<Net>(device);
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
		*environment.device = net;
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
      device_memory(*device_, bytes_of_device_memory(environment.config),
                    cell_for(environment.config.net_device_memory_max ? environment.config.net_device_memory_max : most_measured),
                    device_memory_reason_),
      message_bytes_(environment.config.net_message_bytes),
      most_in_entry_(std::min(static_cast<size_t>(environment.config.net_inline), SendQueue::most_inline)),
      most_copied_(std::min(message_bytes_, most_copied)), depth_(static_cast<uint32_t>(environment.config.net_send_depth)),
      period_(first_period(environment.config)),
      buffer_count_(buffer_count(environment.config)),
      idle_turn_(oversubscribed(environment.topology, environment.job.host_size()) ? look_after : look_after / 4),
      direct_(environment.config.net_direct && mlx5::supported && mlx5dv_is_supported(device_->context->device)),
      tuning_(environment.config.tune),
      tunes_staging_(tuning_ != tune::Mode::off &&
                     environment.config.net_staging == choice::net_staging::automatic),
      usual_batch_(static_cast<uint32_t>(std::max<int64_t>(environment.config.net_doorbell_batch, 1))),
      completions_(*device_, direct_, static_cast<uint32_t>(environment.config.net_receives), depth_),
      srq_(make_srq(*device_, environment.config)),
      // One more than there are receives: mlx5::ReceiveRing.
      receives_(*device_, static_cast<size_t>(environment.config.net_receives + 1) * message_bytes_, IBV_ACCESS_LOCAL_WRITE,
                environment.topology.numa_node),
      sends_(*device_, buffer_count_ * message_bytes_, IBV_ACCESS_LOCAL_WRITE, environment.topology.numa_node),
      results_(*device_, results * sizeof(uint64_t), IBV_ACCESS_LOCAL_WRITE, environment.topology.numa_node),
      registrations_(*device_, environment.reporter,
                     environment.config.registration_cache == choice::registration_cache::all ? environment.config.registration_cache_bytes : 0),
      wireup_(std::make_unique<Wireup>(*device_, completions_.channel(), environment.topology.numa_node)),
      peers_(static_cast<size_t>(size_)), expected_(static_cast<size_t>(size_)),
      told_(*device_, rings_out * sizeof(uint64_t), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE,
            environment.topology.numa_node),
      ticks_at_start_(now_ticks()), ns_at_start_(now_ns())
{
	free_told_.fill(rings_out);
	open_trace();
	use_batch(usual_batch_);
	if (tuning_ != tune::Mode::off && !config().net_doorbell_batch)
		batch_tuner_.emplace(tune::BatchLaw{.most = corked_batch, .cut_above = law(depth()).cut_above});

	if (!device_memory.usable() && bytes_of_device_memory(environment.config))
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
		receive_ring_.emplace(srq(), static_cast<uint32_t>(count), receives_.at(0), static_cast<uint32_t>(message_bytes_),
		                      receives_.key());
		return;
	}
	std::vector<uint64_t> all(count);
	for (size_t i = 0; i < count; ++i)
		all[i] = i;
	for (size_t at = 0; at < count; at += Turn::most)
		post_receives(&all[at], static_cast<unsigned>(std::min<size_t>(Turn::most, count - at)));
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
		if (!queue)
			continue;
		size_t at = queue->number();
		while (by_number_[at & (size - 1)])
			++at;
		by_number_[at & (size - 1)] = queue;
	}
}

// As libmlx5 understands its variable.
bool Net::entries_with_doorbells() const
{
	const char *shut_up = pt2p::environment("MLX5_SHUT_UP_BF");
	return !shut_up || !std::strcmp(shut_up, "0");
}

int64_t Net::most_inline_payload() const { return config().net_inline - static_cast<int64_t>(sizeof(MessageHeader)); }

double Net::ticks_in_a_ns() const
{
	return static_cast<double>(now_ticks() - ticks_at_start_) / static_cast<double>(std::max<int64_t>(now_ns() - ns_at_start_, 1));
}

void Net::set_peer(Peer &peer, uint32_t depth)
{
	peers_[static_cast<size_t>(peer.peer)] = &peer;
	set_delivery(peer, delivery_of(config().net_delivery));
	if (tuning_ != tune::Mode::off)
		peer.tuner = std::make_unique<tune::ChannelTuner>(
		    law(depth), depth, tuning_ == tune::Mode::tied,
		    tune::share_of_device(static_cast<uint64_t>(environment_.job.local_size()), depth));
}

tune::PeriodLaw Net::law(uint32_t depth) const
{
	const bool tied = tuning_ == tune::Mode::tied; // the paper's: each period is judged by itself
	const uint32_t share = tune::period_of(depth, shares_doorbells());
	return {.raise_below = static_cast<double>(config().tune_raise_below) / 100,
	        .cut_above = static_cast<double>(config().tune_cut_above) / 100,
	        .step = static_cast<uint32_t>(config().tune_step),
	        .least = tied ? 1 : share,
	        .most = tied ? depth : share,
	        .window = tied ? 1 : tune::PeriodLaw{}.window,
	        .few = tied ? 1 : tune::PeriodLaw{}.few};
}

void Net::open_trace()
{
	if (config().tune_trace.empty())
		return;
	const std::string path = config().tune_trace + (rank_ ? format(".%d", rank_) : "");
	trace_.reset(fopen(path.c_str(), "we"));
	if (trace_)
		fprintf(trace_.get(), "time_ns,peer,kind,period,N_ns,L_ns,ratio\n");
	else
		reporter().log(LogLevel::error, "PT2P_TUNE_TRACE: %s: %s", path.c_str(), errno_text(errno).c_str());
}

void Net::trace(const Peer &peer, tune::SizeClass kind, int64_t latency, bool normal)
{
	const tune::PeriodTuner &tuner = peer.tuner->period(kind);
	const double ticks = ticks_in_a_ns(), last = static_cast<double>(latency), known = static_cast<double>(tuner.normal());
	fprintf(trace_.get(), "%lld,%d,%s,%u,", static_cast<long long>(now_ns() - ns_at_start_), peer.peer,
	        tune::size_class_names[static_cast<size_t>(kind)], peer.tuner->signal_period(kind, shares_doorbells()));
	if (normal)
		fprintf(trace_.get(), "%.0f,,\n", last / ticks);
	else if (tuner.normal())
		fprintf(trace_.get(), "%.0f,%.0f,%.3f\n", known / ticks, last / ticks, last / known);
	else
		fprintf(trace_.get(), ",%.0f,\n", last / ticks);
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
	corked_ = corked;
	batch_ = corked ? std::max(corked_batch, usual_batch_) : usual_batch_;
	if (!corked)
		ring_all();
}

void Net::use_batch(uint32_t work_requests)
{
	usual_batch_ = work_requests;
	batch_ = corked_ ? std::max(corked_batch, work_requests) : work_requests;
	ring_all(); // what goes one by one must find nothing that waits
}

void Net::tune_batch()
{
	const int64_t now = now_ticks();
	const auto work = static_cast<double>(interval_.work), time = static_cast<double>(now - interval_.since);
	const double ratio = interval_.observed ? interval_.ratios / interval_.observed : 0;
	if (batch_tuner_) {
		const uint32_t batch = batch_tuner_->see({work, time, interval_.posted, interval_.doorbells, ratio});
		if (batch != usual_batch_)
			use_batch(batch);
	}
	interval_ = {};
	interval_.since = now;
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
	not_ready(peer);
	std::erase(ringing_, &peer);
	std::erase_if(held_, [&](const auto &held) { return held.first.first == peer.peer; });
	peer.ring.most = -1;
	// One that has said goodbye waits for the acknowledgement of that: its queue pair stays as it is.
	if (status != PT2P_ERR_PEER_FINALIZED)
		peer.cut();
	end_waiting(peer, status);
	environment_.events.on_peer_down(peer.peer, status, reason);
}

// Operations with that peer that wait for room; what is under way of them ends by itself.
void Net::end_waiting(const Peer &peer, pt2p_status_t status)
{
	Fifo<Operation> ended;
	waiting_.remove_if([&](Operation &operation) {
		if (operation.peer != &peer)
			return false;
		operation.status = status;
		operation.length = operation.posted;
		if (operation.done == operation.length)
			ended.push(operation);
		return true;
	});
	while (!ended.empty())
		finish(ended.pop());
}

void Net::put_off(Peer &peer, pt2p_status_t status, const std::string &reason)
{
	environment_.events.on_refused(peer.peer, status, reason);
	end_waiting(peer, status); // of which the layer above knows no more, or that go by way of others
}

void Net::lose(int rank, pt2p_status_t status, const std::string &reason)
{
	if (Peer *p = peer(rank))
		return take_down(*p, status, reason);
	forget_unconnected(rank);
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
	if (driver_ != caller)
		return;
	read_events();
	look_after_queues();
}

void Net::look_after_queues()
{
	for (SendQueue *queue : queues_)
		if (queue && !queue->broken())
			queue->owner.look_after(*queue);
	handle_broken();
}

void Net::unconnected_senders(const void *caller, std::vector<int> &ranks) const
{
	for (int rank = 0; driver_ == caller && rank < size_; ++rank) {
		const Expected &e = expected_[static_cast<size_t>(rank)];
		if (e.sequence && !e.gone && !peer(rank))
			ranks.push_back(rank);
	}
}

void Net::leave(const void *caller)
{
	if (std::exchange(left_, true))
		return;
	driver_ = caller;
	constexpr int64_t longest = 2'000'000'000, best_effort = 20'000'000; // ns
	const int64_t end = now_ns() + longest;
	cork(false);
	// Who has said goodbye need not be told, and could not answer any more.
	while (progress() && now_ns() < end)
		;
	flush_all();
	say_goodbye(false, end);
	// Who owns memory that this rank has read and written through DC, and no more, does not know of it, and may have left without
	// a word. Yet it may itself do the same here.
	say_goodbye(true, std::min(end, now_ns() + best_effort));
}

// Whether it has work for somebody who is there to take it.
bool Net::busy(const SendQueue *queue) { return queue && !queue->idle() && !queue->broken() && !queue->owner.left(); }

void Net::flush_all()
{
	ring_all();
	for (SendQueue *queue : queues_)
		if (queue && !queue->broken())
			queue->flush();
}

// To all, or to those that know of this rank; waits until they have it. The goodbye is the last that they get: who has read it may
// leave at once, and nobody answers any more. So it is what is signalled; and a DC initiator, which works for its targets in turn, has
// one at a time, or it would wait behind one for a target that is gone.
void Net::say_goodbye(bool all, int64_t end)
{
	const auto knows_us = [this](const Peer &p) {
		return !p.dct || p.next_sequence || expected_[static_cast<size_t>(p.peer)].sequence;
	};
	std::vector<Peer *> peers;
	std::copy_if(peers_.begin(), peers_.end(), std::back_inserter(peers), [&](const Peer *p) { return p && (all || knows_us(*p)); });
	const auto told = [this](Peer *p) {
		SendQueue *queue = p->ready ? p->acquire_alone() : nullptr;
		if (queue)
			queue->signal_each(1);
		if (queue && queue->send(*p, id_bye, 0, nullptr, 0))
			not_ready(*p);
		return !p->ready;
	};
	while (std::erase_if(peers, told), !peers.empty() && now_ns() < end) {
		progress();
		look_after_queues();
	}
	// What has been handed to the device has to arrive: its queue pairs end with the call of leave().
	flush_all();
	while (std::any_of(queues_.begin(), queues_.end(), busy) && now_ns() < end) {
		progress();
		look_after_queues();
	}
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

size_t Net::bytes_per_queue() const
{
	return sizeof(SendQueue) + depth_ * (sizeof(WorkRequest) + 2 * (mlx5::block_bytes + sizeof(uint32_t)));
}

} // namespace pt2p::verbs
