// What this rank has moved over PCIe so far, for the report.
#include <algorithm>

#include "base/clock.hpp"
#include "base/report/report.hpp"
#include "transports/verbs/net.hpp"

namespace pt2p::verbs {

namespace {

double average(uint64_t all, uint64_t n) { return n ? static_cast<double>(all) / static_cast<double>(n) : 0; }

// Payload of one lane, and its WQEs.
struct Sent {
	uint64_t wqes = 0, wqebbs = 0;

	void add(const NetPeer &lane, PcieTraffic &traffic)
	{
		const auto &stored = lane.by_device_memory, &read = lane.by_buffer;
		traffic.processor_stores(static_cast<double>(stored.messages), average(stored.bytes, stored.messages));
		traffic.device_reads(static_cast<double>(read.messages), average(read.bytes, read.messages));
		traffic.device_reads(static_cast<double>(lane.bulk.messages), average(lane.bulk_written, lane.bulk.messages));
		const uint64_t short_path = lane.next_sequence - lane.encoded.messages;
		wqes += lane.encoded.wqes + short_path;
		wqebbs += lane.encoded.wqebbs + short_path * (lane.remote ? 2 : 1);
	}
};

// Messages in write rings, and the length of those that are still there.
struct Written {
	uint64_t all = 0, seen = 0, bytes = 0;
};

} // namespace

PcieTraffic Net::pcie_traffic() const
{
	PcieTraffic traffic;
	Sent sent;
	Written written;
	for (const NetPeer *peer : peers_)
		if (peer) {
			sent.add(*peer, traffic);
			peer->for_each_lane([&](const NetPeer &lane) { sent.add(lane, traffic); });
			if (!peer->incoming)
				continue;
			written.all += peer->incoming->taken();
			peer->incoming->add_last(written.seen, written.bytes);
		}
	// WQEs are stored with a doorbell or read by the device; a doorbell that carries none has 8 bytes.
	const double wqe = sent.wqes ? average(sent.wqebbs * mlx5::wqebb_bytes, sent.wqes) : mlx5::wqebb_bytes;
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
