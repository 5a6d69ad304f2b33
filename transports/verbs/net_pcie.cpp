// What this rank has moved over PCIe so far, for the report.
#include <algorithm>

#include "base/clock.hpp"
#include "base/report/report.hpp"
#include "transports/verbs/net.hpp"

namespace pt2p::verbs {

namespace {

double average(double all, double n) { return n > 0 ? all / n : 0; }

// Of the last completions and of the messages that are still in write rings. How long the earlier ones were is not
// kept.
struct Last {
	mlx5::CqBuffer::Taken completions;
	uint64_t written = 0, written_bytes = 0;
};

void add(const PcieCounts &n, const Last &last, PcieTraffic &traffic)
{
	traffic.processor_stores(n[pcie::stored], average(n[pcie::stored_bytes], n[pcie::stored]));
	traffic.device_reads(n[pcie::buffered], average(n[pcie::buffered_bytes], n[pcie::buffered]));
	traffic.device_reads(n[pcie::bulk], average(n[pcie::bulk_bytes], n[pcie::bulk]));
	// WQEs are stored with a doorbell or read by the device; a doorbell that carries none has 8 bytes.
	const double wqe = average(n[pcie::wqebbs] * mlx5::wqebb_bytes, n[pcie::wqes]);
	traffic.processor_stores(n[pcie::carried], wqe);
	traffic.processor_stores(n[pcie::doorbells_alone], sizeof(uint64_t));
	traffic.device_reads(n[pcie::fetched], wqe);
	// Completions of sends, too.
	const auto receives = static_cast<double>(last.completions.receives);
	const double received = n[pcie::completions] * average(receives, static_cast<double>(last.completions.seen));
	constexpr double receive_wqe = 32; // link and one segment
	constexpr double read_at_once = 6; // receive WQEs: UD RECV of 16 bytes 82 M/s on Connect-IB, K16
	traffic.device_writes(n[pcie::completions], sizeof(mlx5_cqe64));
	traffic.device_reads(received / read_at_once, read_at_once * receive_wqe);
	traffic.device_writes(received, average(static_cast<double>(last.completions.bytes), receives));
	traffic.device_writes(n[pcie::written],
	                      average(static_cast<double>(last.written_bytes), static_cast<double>(last.written)));
	traffic.device_writes(1, n[pcie::bytes_read]);
}

} // namespace

void Net::count_pcie()
{
	PcieCounts now{};
	NetPeer::Wqes all;
	Last last;
	const auto count = [&now](pcie::Count what, uint64_t n) { now[what] += static_cast<double>(n); };
	const auto count_sent = [&](const NetPeer &lane) {
		count(pcie::stored, lane.by_device_memory.messages);
		count(pcie::stored_bytes, lane.by_device_memory.bytes);
		count(pcie::buffered, lane.by_buffer.messages);
		count(pcie::buffered_bytes, lane.by_buffer.bytes);
		count(pcie::bulk, lane.bulk.messages);
		count(pcie::bulk_bytes, lane.bulk_written);
		lane.add_wqes(all);
	};
	for (const NetPeer *peer : datagram_peers)
		count_sent(*peer);
	for (const NetPeer *peer : peers_)
		if (peer) {
			count_sent(*peer);
			peer->for_each_lane(count_sent);
			if (!peer->incoming)
				continue;
			count(pcie::written, peer->incoming->taken());
			peer->incoming->add_last(last.written, last.written_bytes);
		}
	count(pcie::wqes, all.count);
	count(pcie::wqebbs, all.wqebbs);
	queues.for_each([&](SendQueue &queue) {
		const SendQueue::Totals totals = queue.totals();
		const uint64_t with_doorbell = totals.work_requests - totals.fetched;
		count(pcie::fetched, totals.fetched);
		count(pcie::carried, with_doorbell);
		count(pcie::doorbells_alone, totals.doorbells - std::min(with_doorbell, totals.doorbells));
	});
	for (const CompletionQueue &queue : completions)
		if (queue.direct)
			queue.direct->add_taken(last.completions);
	count(pcie::completions, last.completions.all);
	count(pcie::bytes_read, environment_.reporter.read(Counter::net_read_bytes));
	// What was counted for a peer that is gone is gone.
	PcieCounts since{};
	for (size_t i = 0; i < since.size(); ++i)
		since[i] = std::max(now[i] - pcie_counts_[i], 0.0);
	pcie_counts_ = now;
	add(since, last, pcie_traffic_);
}

void Net::read_pcie(const void *caller)
{
	if (driver_ != caller)
		return;
	count_pcie();
	pcie_.read(now_ns(), pcie_traffic_);
}

} // namespace pt2p::verbs
