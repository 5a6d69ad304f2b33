// Gathers the facts of a channel for the report.
#include <algorithm>

#include "transports/channel_facts.hpp"
#include "transports/verbs/net_transport.hpp"

namespace pt2p::verbs {

namespace {

using tune::SizeClass;

// Of one lane.
void gather_payload(const NetPeer &lane, NetPeer::Wqes &wqes, ChannelFacts &f)
{
	f.kind(SizeClass::device_memory).messages += lane.by_device_memory.messages;
	f.kind(SizeClass::device_memory).bytes += lane.by_device_memory.bytes;
	f.kind(SizeClass::buffer).messages += lane.by_buffer.messages;
	f.kind(SizeClass::buffer).bytes += lane.by_buffer.bytes;
	f.kind(SizeClass::bulk).messages += lane.bulk.messages;
	f.kind(SizeClass::bulk).bytes += lane.bulk.bytes;
	f.kind(SizeClass::inlined).messages +=
	    lane.next_sequence - lane.by_device_memory.messages - lane.by_buffer.messages;
	f.kind(SizeClass::inlined).bytes += lane.inline_bytes;
	f.device_memory_full += lane.device_memory_full;
	f.bulk_read_bytes += lane.bulk_written;
	f.in_flight += lane.in_flight;
	lane.add_wqes(wqes);
}

void gather_queues(const NetPeer &peer, const std::vector<SendQueue *> &queues, bool direct, ChannelFacts &f)
{
	NetPeer::Wqes wqes;
	gather_payload(peer, wqes, f);
	peer.for_each_lane([&](const NetPeer &lane) { gather_payload(lane, wqes, f); });
	SendQueue::Totals all;
	for (SendQueue *queue : queues) {
		const SendQueue::Totals totals = queue->totals();
		all.work_requests += totals.work_requests;
		all.doorbells += totals.doorbells;
		all.fetched += totals.fetched;
		f.max_in_flight = std::max(f.max_in_flight, totals.max_in_flight);
		f.depth = queue->depth();
		f.kind(SizeClass::inlined).bytes += queue->inline_bytes_in_flight(peer);
		peer.for_each_lane(
		    [&](const NetPeer &lane) { f.kind(SizeClass::inlined).bytes += queue->inline_bytes_in_flight(lane); });
		++f.queue_pairs;
	}
	f.work_requests = all.work_requests;
	f.doorbells = all.doorbells;
	if (direct && wqes.count)
		f.entry_bytes = static_cast<double>(wqes.wqebbs * mlx5::wqebb_bytes) / static_cast<double>(wqes.count);
	if (const auto bulk = f.kind(SizeClass::bulk).messages; wqes.count > bulk)
		f.bundled = std::max(static_cast<double>(f.messages()) / static_cast<double>(wqes.count - bulk), 1.0);
	if (all.work_requests)
		f.fetched = static_cast<double>(all.fetched) / static_cast<double>(all.work_requests);
}

void gather_staging(const tune::Stagings &stagings, double ticks, ChannelFacts &f)
{
	using tune::Staging;
	for (size_t i = 0; i < tune::Stagings::classes; ++i) {
		const tune::StagingTuner &tuner = stagings.at(i);
		if (tuner.messages(Staging::device_memory) + tuner.messages(Staging::buffer))
			f.stagings.push_back({tune::Stagings::max_bytes(i), tuner.messages(Staging::device_memory),
			                      tuner.messages(Staging::buffer), tuner.changes(),
			                      static_cast<double>(tuner.latency_of(Staging::device_memory)) / ticks,
			                      static_cast<double>(tuner.latency_of(Staging::buffer)) / ticks, tuner.chosen()});
	}
}

void gather_periods(const tune::ChannelTuner &channel, const tune::DeviceTuner &device, double ticks, ChannelFacts &f)
{
	for (size_t i = 0; i < tune::size_classes; ++i) {
		const tune::ClassHistory &history = channel.of(static_cast<SizeClass>(i));
		KindFacts &k = f.kinds[i];
		k.normal_ns = static_cast<double>(channel.normal(static_cast<SizeClass>(i))) / ticks;
		k.ratio = history.ratio();
		k.scale = history.scale();
		k.period = k.normal_ns > 0 ? history.period() : 0;
		k.raises = history.raises();
		k.cuts = history.cuts();
		history.for_each_change([&](const tune::ClassHistory::Change &change) {
			k.changes.push_back({static_cast<double>(change.when - device.ticks_at_start()) / ticks * 1e-6,
			                     change.period, change.ratio});
		});
	}
}

} // namespace

bool NetTransport::facts(int rank, ChannelFacts &f)
{
	const NetPeer *peer = peers_[static_cast<size_t>(rank)].get();
	if (peer)
		net_->gather(*peer, queues_for(*peer), f);
	return peer;
}

void Net::gather(const NetPeer &peer, const std::vector<SendQueue *> &queues, ChannelFacts &f) const
{
	const double ticks = tuner.ticks_in_a_ns();
	f.device_memory_max = memory.device_memory.max_bytes();
	f.pcie = pcie();
	gather_queues(peer, queues, shared.direct, f);

	f.batch = doorbells.batch();
	if (const tune::BatchTuner *batch = tuner.batch_tuner()) {
		f.batch_tuned = true;
		f.batch_rate = batch->rate() * ticks * 1e9;
		f.batch_trials = batch->trials();
		f.batch_changes = batch->changes();
	}
	f.striping = peer.striping.get();
	if (f.striping)
		f.striping_rate = f.striping->climber().rate() * ticks * 1e9;

	f.mode = tuner.mode();
	f.band = tuner.band();
	f.fixed_period = std::min(shared.period, f.depth);
	if (!peer.tuner)
		return;
	gather_staging(peer.tuner->stagings, ticks, f);
	gather_periods(*peer.tuner, tuner, ticks, f);
}

} // namespace pt2p::verbs
