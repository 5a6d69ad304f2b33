// What a rank moves over the PCIe link of its device, as far as its own queues tell: WQEs, payload, receives and
// completions, with the overhead of the transactions that they take.
//
// Transactions are those of Kalia et al., Design Guidelines for High Performance RDMA Systems, USENIX ATC 2016, section
// 2: 26 bytes for a request and 22 for a completion of a read; reads are answered in pieces of 128 bytes. Writes of a
// device have up to 256, which is assumed.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "transports/channel_facts.hpp"

namespace pt2p::verbs {

// Bytes a second each way of a link that sysfs describes in this folder of a device; 0: not known.
double pcie_rate(const std::string &folder);

// What the queues of a rank count from the beginning. What happened between two readings is judged by the lengths that
// messages have then: they may have been others before.
namespace pcie {
enum Count : unsigned {
	stored, // payload that the processor stores, in messages
	stored_bytes,
	buffered, // payload that the device reads
	buffered_bytes,
	bulk,
	bulk_bytes,
	wqes,
	wqebbs,
	carried, // WQEs that went with a doorbell
	fetched, // WQEs that the device has read
	doorbells_alone,
	completions,
	written,    // messages in write rings
	bytes_read, // by one-sided operations
	counts,
};
} // namespace pcie
using PcieCounts = std::array<double, pcie::counts>;

// Bytes from the beginning.
class PcieTraffic {
public:
	// `n` times, `bytes` each on average.
	void device_reads(double n, double bytes)
	{
		from_device_ += n * request;
		to_device_ += n * (bytes + completion * pieces(bytes, completion_piece));
	}
	void device_writes(double n, double bytes) { from_device_ += n * (bytes + request * pieces(bytes, write_piece)); }
	void processor_stores(double n, double bytes) { to_device_ += n * (bytes + request * pieces(bytes, store_piece)); }

	double to_device() const { return to_device_; }
	double from_device() const { return from_device_; }

private:
	static constexpr double request = 26, completion = 22;
	static constexpr double completion_piece = 128, write_piece = 256, store_piece = 64;
	// An average has no whole pieces.
	static double pieces(double bytes, double piece) { return bytes > piece ? bytes / piece : 1; }

	double to_device_ = 0, from_device_ = 0;
};

// Rates between two readings.
class PcieMeter {
public:
	// Of a device with that link and so many ranks; from that time, ns.
	PcieMeter(double link, int sharers, int64_t now) : when_(now) { facts_.link = link, facts_.sharers = sharers; }
	// Takes a reading at that time, ns. What was read last remains if hardly any time has passed.
	void read(int64_t now, const PcieTraffic &traffic);
	const PcieFacts &facts() const { return facts_; }

private:
	PcieFacts facts_;
	PcieTraffic last_;
	int64_t when_;
};

} // namespace pt2p::verbs
