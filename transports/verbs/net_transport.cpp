#include "transports/verbs/net_transport.hpp"

#include <algorithm>
#include <cstring>

#include "base/config/config.hpp"
#include "base/job/job.hpp"
#include "transports/channel_facts.hpp"
#include "base/clock.hpp"

namespace pt2p::verbs {

size_t NetTransport::longest_message(const Config &config) { return Net::max_payload(config.net_message_bytes); }

NetTransport::NetTransport(const TransportEnvironment &environment, std::shared_ptr<Net> net)
    : environment_(environment), net_(std::move(net)), peers_(static_cast<size_t>(environment.job.size()))
{
}

NetTransport::~NetTransport()
{
	for (auto &peer : peers_)
		if (peer)
			net_->drop_peer(peer->peer);
}

std::string NetTransport::address()
{
	const uint64_t bytes = environment_.config.net_message_bytes;
	return queue_address() + std::string(reinterpret_cast<const char *>(&bytes), sizeof bytes);
}

bool NetTransport::reaches(int, std::string_view text, std::string &why_not)
{
	PortAddress port;
	uint64_t bytes;
	if (text.size() != address().size()) {
		why_not = "its address is of another version of libpt2p";
		return false;
	}
	// A message has to fit into whatever buffer it meets.
	std::memcpy(&bytes, text.data() + text.size() - sizeof bytes, sizeof bytes);
	if (bytes != environment_.config.net_message_bytes) {
		why_not = format("that rank has PT2P_NET_MESSAGE_BYTES=%llu and this one %llu: all ranks must have the same",
		                 static_cast<unsigned long long>(bytes),
		                 static_cast<unsigned long long>(environment_.config.net_message_bytes));
		return false;
	}
	std::memcpy(&port, text.data(), sizeof port);
	return net_->device().reaches(port, why_not);
}

void NetTransport::check()
{
	net_->check(this);
	const int64_t now = now_ns();
	for (auto &p : peers_) {
		if (!p || !p->ready)
			continue;
		if (std::exchange(p->answered, false))
			p->last_sign = now;
		if (now - p->last_sign <= environment_.config.net_probe_time)
			continue;
		p->last_sign = now;
		// A write of no bytes, unless something is under way that tells as well.
		if (SendQueue *queue = p->acquire())
			p->in_flight ? queue->flush() : queue->probe(*p);
	}
}

void NetTransport::set_delivery(int rank, pt2p_delivery_t delivery)
{
	if (Peer *peer = peers_[static_cast<size_t>(rank)].get())
		net_->set_delivery(*peer, delivery);
}

std::string NetTransport::describe(int rank)
{
	const Peer *peer = peers_[static_cast<size_t>(rank)].get();
	const std::string tuned = peer && peer->tuner ? peer->tuner->describe(net_->ticks_in_a_ns(), net_->shares_doorbells()) : "";
	std::string text = "zero-copy, " + net_->device().name;
	// The device's queue may have room for less than was asked for.
	const uint32_t depth = peer ? queues_for(*peer).front()->depth() : net_->depth();
	if (depth != net_->depth())
		text += format(", %u of %u work requests at a time (PT2P_NET_SEND_DEPTH)", depth, net_->depth());
	return text + (tuned.empty() ? "" : ", " + tuned);
}

bool NetTransport::facts(int rank, ChannelFacts &f)
{
	using tune::SizeClass;
	const Peer *peer = peers_[static_cast<size_t>(rank)].get();
	if (!peer)
		return false;
	f.kind(SizeClass::device_memory).messages = peer->by_device_memory.messages;
	f.kind(SizeClass::device_memory).bytes = peer->by_device_memory.bytes;
	f.kind(SizeClass::buffer).messages = peer->by_buffer.messages;
	f.kind(SizeClass::buffer).bytes = peer->by_buffer.bytes;
	f.kind(SizeClass::bulk).messages = peer->bulk.messages;
	f.kind(SizeClass::bulk).bytes = peer->bulk.bytes;
	f.kind(SizeClass::inlined).messages = peer->next_sequence - peer->by_device_memory.messages - peer->by_buffer.messages;
	f.device_memory_full = peer->device_memory_full;
	f.device_memory_most = net_->device_memory.cell_bytes();
	f.bulk_read_bytes = peer->bulk_written;
	f.in_flight = peer->in_flight;
	uint64_t inline_bytes = peer->inline_bytes;

	SendQueue::Totals all;
	size_t at_once = 0;
	for (SendQueue *queue : queues_for(*peer)) {
		const SendQueue::Totals totals = queue->totals();
		all.work_requests += totals.work_requests;
		all.doorbells += totals.doorbells;
		all.fetched += totals.fetched;
		f.most_in_flight = std::max(f.most_in_flight, totals.most_in_flight);
		f.depth = queue->depth();
		inline_bytes += queue->inline_bytes_under_way(*peer);
		at_once = queue->entry_bytes_at_once();
		++f.queue_pairs;
	}
	f.work_requests = all.work_requests;
	f.doorbells = all.doorbells;
	f.kind(SizeClass::inlined).bytes = inline_bytes;
	// What was not laid down took the short way.
	const uint64_t short_way = peer->next_sequence - peer->laid_down.messages, entries = short_way + peer->laid_down.entries;
	if (net_->direct() && entries)
		f.entry_bytes = static_cast<double>(short_way * at_once + peer->laid_down.blocks * mlx5::block_bytes) /
		                static_cast<double>(entries);
	if (all.work_requests)
		f.fetched = static_cast<double>(all.fetched) / static_cast<double>(all.work_requests);

	f.batch = net_->batch();
	if (const tune::BatchTuner *tuner = net_->batch_tuner()) {
		f.batch_tuned = true;
		f.batch_rate = tuner->rate() * net_->ticks_in_a_ns() * 1e9;
		f.batch_trials = tuner->trials();
		f.batch_changes = tuner->changes();
	}
	f.spread = peer->spread.get();
	if (f.spread)
		f.spread_rate = f.spread->climber().rate() * net_->ticks_in_a_ns() * 1e9;

	f.mode = net_->tuning();
	f.law = net_->law(f.depth);
	f.fixed_period = std::min(net_->period(), f.depth);
	if (!peer->tuner)
		return true;
	f.law.raise_below = peer->tuner->raise_below();
	const double ticks = net_->ticks_in_a_ns();
	for (size_t i = 0; i < tune::Stagings::classes; ++i) {
		using tune::Staging;
		const tune::StagingTuner &tuner = peer->tuner->stagings.at(i);
		if (tuner.messages(Staging::device_memory) + tuner.messages(Staging::buffer))
			f.stagings.push_back({tune::Stagings::most(i), tuner.messages(Staging::device_memory), tuner.messages(Staging::buffer),
			                      tuner.changes(), static_cast<double>(tuner.latency_of(Staging::device_memory)) / ticks,
			                      static_cast<double>(tuner.latency_of(Staging::buffer)) / ticks, tuner.chosen()});
	}
	for (size_t i = 0; i < tune::size_classes; ++i) {
		const auto c = static_cast<SizeClass>(i);
		const tune::PeriodTuner &tuner = peer->tuner->period(c);
		KindFacts &k = f.kinds[i];
		k.normal_ns = static_cast<double>(tuner.normal()) / ticks;
		k.ratio = tuner.ratio();
		k.period = peer->tuner->signal_period(c, net_->shares_doorbells());
		k.raises = tuner.raises();
		k.cuts = tuner.cuts();
		peer->tuner->for_each_change(c, [&](const tune::ChannelTuner::Change &change) {
			k.changes.push_back({static_cast<double>(change.when - net_->ticks_at_start()) / ticks * 1e-6, change.period, change.ratio});
		});
	}
	return true;
}

void NetTransport::abandon(int rank, pt2p_status_t status, const std::string &reason)
{
	if (Peer *peer = peers_[static_cast<size_t>(rank)].get())
		net_->take_down(*peer, status, reason);
	else
		net_->forget_unconnected(rank);
}

Peer &NetTransport::add(int rank, std::unique_ptr<Peer> peer)
{
	peer->table = &table();
	peer->peer = rank;
	peer->capabilities = table().capabilities;
	peer->max_send = net_->max_payload();
	peer->net = net_.get();
	peer->last_sign = now_ns();
	net_->set_peer(*peer, queues_for(*peer).front()->depth());
	return *(peers_[static_cast<size_t>(rank)] = std::move(peer));
}

ibv_qp_init_attr_ex NetTransport::queue_attributes(ibv_qp_type type) const
{
	ibv_qp_init_attr_ex init{};
	init.qp_type = type;
	init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	init.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_READ |
	                      IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
	init.pd = net_->device().domain;
	init.send_cq = init.recv_cq = net_->cq_with_room();
	init.cap.max_send_wr = net_->depth();
	init.cap.max_send_sge = 1;
	init.cap.max_inline_data = static_cast<uint32_t>(environment_.config.net_inline);
	return init;
}

} // namespace pt2p::verbs
