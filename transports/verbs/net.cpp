#include "transports/verbs/net.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <utility>

#include "base/clock.hpp"
#include "base/config/config.hpp"
#include "base/job/job.hpp"
#include "base/job/topology.hpp"
#include "base/report/report.hpp"
#include "transports/verbs/device/measure.hpp"
#include "transports/verbs/device/memlock.hpp"

namespace pt2p::verbs {

namespace {

constexpr size_t max_measured = 4096; // longest payload that is tried in device memory, bytes

// Bytes of device memory for a payload of this length. Half of it has to be in units, too, for messages that are half
// as long.
size_t cell_for(size_t payload)
{
	constexpr size_t units = 2 * Cells::unit;
	return (payload + sizeof(MessageHeader) + units - 1) / units * units;
}

size_t bytes_of_device_memory(const Config &config)
{
	return config.net_staging == choice::net_staging::host ? 0 : config.net_device_memory;
}

uint32_t first_period(const Config &config)
{
	if (config.net_signal_period)
		return static_cast<uint32_t>(config.net_signal_period);
	if (config.tune != choice::tune::off)
		return 1; // the tuner takes over
	return static_cast<uint32_t>(std::max<int64_t>(1, config.net_send_depth / 4));
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

// What is registered at start. The device's queues and the memory of connections come on top.
uint64_t registered_at_start(const Config &config)
{
	return (static_cast<uint64_t>(config.net_receives) + 1 + buffer_count(config)) * config.net_message_bytes +
	       (SendMemory::results + WriteRings::max_outgoing) * sizeof(uint64_t);
}

bool is_direct(const Config &config, const Device &device)
{
	return config.net_direct && mlx5::supported && mlx5dv_is_supported(device.context->device);
}

// As in libmlx5.
bool blueflame_allowed()
{
	const char *shut_up = pt2p::environment("MLX5_SHUT_UP_BF");
	return !shut_up || !std::strcmp(shut_up, "0");
}

uint32_t first_batch(const Config &config)
{
	return static_cast<uint32_t>(std::max<int64_t>(config.net_doorbell_batch, 1));
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
	if (static_cast<uint32_t>(environment.job.size()) > MessageHeader::max_ranks) {
		why_not = "too many ranks";
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
		// An error only if the program asked for the device.
		if (config.transports != "all" || !config.net_device.empty())
			throw;
		why_not = e.what();
		return nullptr;
	}
}

Net::Net(const TransportEnvironment &environment, std::unique_ptr<Device> device)
    : environment_(environment), device_(std::move(device)),
      memory(
          *device_, buffer_count(environment.config), environment.config.net_message_bytes,
          bytes_of_device_memory(environment.config),
          cell_for(environment.config.net_device_memory_max ? environment.config.net_device_memory_max : max_measured),
          environment.topology.numa_node),
      completions(*device_, is_direct(environment.config, *device_),
                  static_cast<uint32_t>(environment.config.net_receives),
                  static_cast<uint32_t>(environment.config.net_send_depth)),
      queues(completions), doorbells(first_batch(environment.config), environment.config.net_batching),
      tuner(environment, doorbells, Doorbells::max_batch),
      operations(environment, *device_, memory), shared{.memory = memory,
                                                        .doorbells = doorbells,
                                                        .queues = queues,
                                                        .parts = operations,
                                                        .tuner = tuner,
                                                        .depth =
                                                            static_cast<uint32_t>(environment.config.net_send_depth),
                                                        .period = first_period(environment.config),
                                                        .max_inline =
                                                            static_cast<uint32_t>(environment.config.net_inline),
                                                        .direct = is_direct(environment.config, *device_),
                                                        .blueflame = blueflame_allowed()},
      receives(*device_, environment.config, shared.direct, environment.topology.numa_node),
      eager(memory, tuner, environment.reporter),
      rings(*device_, environment.config, eager, environment.reporter, environment.topology.numa_node),
      wireup(*device_, completions.channel(), environment.topology.numa_node),
      pcie_(pcie_rate(std::string(device_->context->device->ibdev_path) + "/device"), device_->sharers, now_ns()),
      sequencer_(environment.job.size()), ranks_(static_cast<size_t>(environment.job.size())), peers_(ranks_),
      receives_(static_cast<uint32_t>(environment.config.net_receives)),
      idle_turn_(oversubscribed(environment.topology, environment.job.host_size()) ? wireup_interval
                                                                                   : wireup_interval / 4)
{
	Reporter &reporter = environment.reporter;
	if (!memory.device_memory.usable() && bytes_of_device_memory(environment.config))
		reporter.log(LogLevel::debug, "no messages through device memory: %s", memory.why_no_device_memory.c_str());
	ibv_context *context = device_->context.get();
	if (fcntl(context->async_fd, F_SETFL, fcntl(context->async_fd, F_GETFL) | O_NONBLOCK) != 0)
		fail("fcntl", errno);
	if (memory.device_memory.usable() && !environment.config.net_device_memory_max) {
		const size_t best = measure_device_memory(*device_, memory.device_memory, max_measured);
		memory.device_memory.cut(best ? cell_for(best) : 0);
		reporter.log(LogLevel::info, "%s: device memory is faster for payloads up to %zu bytes", device_->name.c_str(),
		             best);
	}
}

Net::~Net() = default;

ibv_qp_init_attr_ex Net::queue_attributes(ibv_qp_type type)
{
	ibv_qp_init_attr_ex init{};
	init.qp_type = type;
	init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	init.send_ops_flags = type == IBV_QPT_UD
	                          ? IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM
	                          : IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_READ |
	                                IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
	init.pd = device_->domain;
	init.send_cq = init.recv_cq = completions.with_room();
	init.cap.max_send_wr = shared.depth;
	init.cap.max_send_sge = 1;
	init.cap.max_inline_data = static_cast<uint32_t>(environment_.config.net_inline);
	return init;
}

// ---- peers ----------------------------------------------------------------------------------------------------------

void Net::set_peer(NetPeer &peer)
{
	peers_[static_cast<size_t>(peer.peer)] = &peer;
	rings.set_delivery(peer, delivery_of(environment_.config.net_delivery));
	if (tuner.on())
		peer.tuner = std::make_unique<tune::ChannelTuner>();
}

void Net::drop_peer(int rank)
{
	peers_[static_cast<size_t>(rank)] = nullptr;
	sequencer_.from(rank).unusual = true;
}

void Net::not_ready(NetPeer &peer)
{
	peer.ready = false;
	sequencer_.from(peer.peer).unusual = true;
}

void Net::take_down(NetPeer &peer, pt2p_status_t status, const std::string &reason)
{
	if (peer.down)
		return;
	peer.down = true;
	not_ready(peer);
	rings.drop(peer);
	sequencer_.drop(peer.peer);
	peer.ring.max_payload = -1;
	peer.for_each_lane([](NetPeer &lane) {
		lane.down = true;
		lane.ready = false;
	});
	// A peer that has said goodbye waits for the acknowledgement, so its queue pair stays.
	if (status != PT2P_ERR_PEER_FINALIZED)
		peer.cut();
	operations.end_waiting(peer, status);
	environment_.events.on_peer_down(peer.peer, status, reason);
}

void Net::put_off(NetPeer &peer, pt2p_status_t status, const std::string &reason)
{
	environment_.events.on_refused(peer.peer, status, reason);
	operations.end_waiting(peer, status); // those that the layer above has forgotten, or that were forwarded
}

void Net::lose(int rank, pt2p_status_t status, const std::string &reason)
{
	if (NetPeer *p = peer(rank))
		return take_down(*p, status, reason);
	forget_unconnected(rank);
	environment_.events.on_peer_down(rank, status, reason);
}

void Net::unconnected_senders(const void *caller, std::vector<int> &ranks) const
{
	for (int rank = 0; driver_ == caller && rank < environment_.job.size(); ++rank) {
		const Sequencer::Expected &e = sequencer_.from(rank);
		if (e.sequence && !e.gone && !peer(rank))
			ranks.push_back(rank);
	}
}

// ---- the device -----------------------------------------------------------------------------------------------------

void Net::read_events()
{
	ibv_async_event event;
	while (ibv_get_async_event(device_->context.get(), &event) == 0) {
		const bool of_queue = event.event_type == IBV_EVENT_QP_FATAL || event.event_type == IBV_EVENT_QP_REQ_ERR ||
		                      event.event_type == IBV_EVENT_QP_ACCESS_ERR;
		SendQueue *queue = of_queue ? static_cast<SendQueue *>(event.element.qp->qp_context) : nullptr;
		ibv_ack_async_event(&event);
		environment_.reporter.log(LogLevel::info, "%s: %s", device_->name.c_str(),
		                          ibv_event_type_str(event.event_type));
		if (queue)
			queues.report_broken(*queue, IBV_WC_SUCCESS);
		if (event.event_type == IBV_EVENT_DEVICE_FATAL && !std::exchange(failed_, true)) {
			environment_.reporter.log(LogLevel::error,
			                          "%s has failed for good; what needs it fails, too. The system's log says more",
			                          device_->name.c_str());
			for (int rank = 0; rank < environment_.job.size(); ++rank)
				if (NetPeer *p = peer(rank))
					take_down(*p, PT2P_ERR_SYSTEM, "this rank's device " + device_->name + " has failed");
		}
	}
	queues.handle_broken();
}

void Net::check(const void *caller)
{
	if (driver_ != caller)
		return;
	read_events();
	look_after_queues();
	rings.look_after();
}

void Net::look_after_queues()
{
	queues.for_each_working([](SendQueue &queue) { queue.owner.look_after(queue); });
	queues.handle_broken();
}

size_t Net::bytes_per_queue() const
{
	return sizeof(SendQueue) + shared.depth * (sizeof(WorkRequest) + 2 * (mlx5::wqebb_bytes + sizeof(uint32_t)));
}

// ---- leaving --------------------------------------------------------------------------------------------------------

void Net::leave(const void *caller)
{
	if (operations.left())
		return;
	operations.leave();
	driver_ = caller;
	constexpr int64_t longest = 2'000'000'000, best_effort = 20'000'000; // ns
	const int64_t end = now_ns() + longest;
	doorbells.cork(false);
	// Read first what has arrived: a peer that has said goodbye needs none, and could not answer.
	while (progress() && now_ns() < end)
		;
	flush_all();
	say_goodbye(false, end);
	// A peer whose memory this rank only accessed one-sidedly through DC does not know of this rank, and may have left
	// already. It may do the same here, so it gets a goodbye as a best effort.
	say_goodbye(true, std::min(end, now_ns() + best_effort));
	constexpr int64_t crossing = 100'000; // ns
	await_goodbyes(std::min(end, now_ns() + crossing));
}

void Net::flush_all()
{
	doorbells.ring_all();
	queues.for_each_working([](SendQueue &queue) { queue.flush(); });
}

bool Net::knows_this_rank(const NetPeer &p) const
{
	return !p.remote || p.next_sequence || sequencer_.from(p.peer).sequence;
}

template <class Done>
void Net::drive_until(int64_t end, const Done &done)
{
	while (!done() && now_ns() < end) {
		progress();
		look_after_queues();
	}
}

// Says goodbye to all peers, or to those that know of this rank, and waits until they have it. The goodbye is the last
// message to a peer: whoever has read it may leave at once. So it is signalled. A DC initiator works for one target at
// a time, and gets one goodbye at a time, so that it does not wait behind one for a target that is gone.
void Net::say_goodbye(bool all, int64_t end)
{
	std::vector<NetPeer *> peers;
	std::copy_if(peers_.begin(), peers_.end(), std::back_inserter(peers),
	             [&](const NetPeer *p) { return p && (all || knows_this_rank(*p)); });
	const auto told = [this](NetPeer *p) {
		SendQueue *queue = p->ready ? p->acquire_alone() : nullptr;
		if (queue)
			queue->signal_each(1);
		if (queue && eager.send(*queue, *p, id_bye, 0, nullptr, 0))
			not_ready(*p);
		return !p->ready;
	};
	drive_until(end, [&] { return std::erase_if(peers, told), peers.empty(); });
	// What was posted has to arrive before leave() returns and the queue pairs are destroyed.
	flush_all();
	drive_until(end, [this] { return !queues.busy() && wireup.idle(); });
}

// A goodbye of a peer may cross this rank's own. If it finds no queue pair here any more, the peer waits in vain. A
// peer that has read this rank's goodbye sends none, hence the limit.
void Net::await_goodbyes(int64_t end)
{
	std::vector<NetPeer *> peers;
	std::copy_if(peers_.begin(), peers_.end(), std::back_inserter(peers),
	             [this](const NetPeer *p) { return p && p->peer != environment_.job.rank() && knows_this_rank(*p); });
	drive_until(end, [&] { return std::all_of(peers.begin(), peers.end(), [](const NetPeer *p) { return p->down; }); });
}

// ---- sleeping -------------------------------------------------------------------------------------------------------

bool Net::arm(const void *caller)
{
	if (driver_ != caller)
		return true;
	completions.take_events(); // those that came while this rank was awake
	doorbells.ring_all();
	if (!completions.armed() && (!completions.arm() || !wireup.arm()))
		return false;
	if (!asleep_)
		asleep_ = rings.report_asleep();
	// What came before the request raises no event.
	look_at_wireup_ = 0;
	return progress() == 0 && drained_ && !doorbells.any_waits();
}

void Net::disarm(const void *caller)
{
	if (driver_ != caller)
		return;
	completions.take_events();
	if (std::exchange(asleep_, false))
		rings.report_awake();
}

} // namespace pt2p::verbs
