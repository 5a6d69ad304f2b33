// What this rank has moved over PCIe so far, for the report.
#include <algorithm>

#include "base/clock.hpp"
#include "base/report/report.hpp"
#include "transports/verbs/net.hpp"

namespace pt2p::verbs {

namespace {

double average(uint64_t all, uint64_t n) { return n ? static_cast<double>(all) / static_cast<double>(n) : 0; }

// Payload of one lane that is not inlined.
void add_payload(const NetPeer &lane, PcieTraffic &traffic)
{
	const auto &stored = lane.by_device_memory, &read = lane.by_buffer;
	traffic.processor_stores(static_cast<double>(stored.messages), average(stored.bytes, stored.messages));
	traffic.device_reads(static_cast<double>(read.messages), average(read.bytes, read.messages));
	traffic.device_reads(static_cast<double>(lane.bulk.messages), average(lane.bulk_written, lane.bulk.messages));
}

// Messages in write rings, and the length of those that are still there.
struct Written {
	uint64_t all = 0, seen = 0, bytes = 0;
};

} // namespace

PcieTraffic Net::pcie_traffic() const
{
	PcieTraffic traffic;
	NetPeer::Wqes wqes;
	Written written;
	const auto add_sent = [&](const NetPeer &lane) {
		add_payload(lane, traffic);
		lane.add_wqes(wqes);
	};
	for (const NetPeer *peer : datagram_peers)
		add_sent(*peer);
	for (const NetPeer *peer : peers_)
		if (peer) {
			add_sent(*peer);
			peer->for_each_lane(add_sent);
			if (!peer->incoming)
				continue;
			written.all += peer->incoming->taken();
			peer->incoming->add_last(written.seen, written.bytes);
		}
	// WQEs are stored with a doorbell or read by the device; a doorbell that carries none has 8 bytes.
	const double wqe = average(wqes.wqebbs * mlx5::wqebb_bytes, wqes.count);
	queues.for_each([&](SendQueue &queue) {
		const SendQueue::Totals totals = queue.totals();
		const auto fetched = static_cast<double>(totals.fetched);
		const double carried = static_cast<double>(totals.work_requests) - fetched;
		traffic.processor_stores(carried, wqe);
		traffic.processor_stores(std::max(static_cast<double>(totals.doorbells) - carried, 0.0), sizeof(uint64_t));
		traffic.device_reads(fetched, wqe);
	});
	// Completions of sends, too.
	mlx5::CqBuffer::Taken taken;
	for (const CompletionQueue &queue : completions)
		if (queue.direct)
			queue.direct->add_taken(taken);
	traffic.device_writes(static_cast<double>(taken.all), sizeof(mlx5_cqe64));
	const double received = static_cast<double>(taken.all) * average(taken.receives, taken.seen);
	constexpr double receive_wqe = 32; // link and one segment
	constexpr double read_at_once = 6; // receive WQEs: UD RECV of 16 bytes 82 M/s on Connect-IB, K16
	traffic.device_reads(received / read_at_once, read_at_once * receive_wqe);
	traffic.device_writes(received, average(taken.bytes, taken.receives));
	traffic.device_writes(static_cast<double>(written.all), average(written.bytes, written.seen));
	traffic.device_writes(1, static_cast<double>(environment_.reporter.read(Counter::net_read_bytes)));
	return traffic;
}

void Net::read_pcie(const void *caller)
{
	if (driver_ == caller)
		pcie_.read(now_ns(), pcie_traffic());
}

} // namespace pt2p::verbs
