// What is known of a channel through a device, in the three dimensions of the TPL paper (section 3): transmission
// efficiency, parallelism, load balance.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "transports/verbs/tuning/channel.hpp"
#include "transports/verbs/tuning/period.hpp"
#include "transports/verbs/tuning/striping.hpp"

namespace pt2p {

// Of one kind of payload.
struct KindFacts {
	uint64_t messages = 0; // bulk: work requests of one-sided operations and large messages
	uint64_t bytes = 0;    // of these
	// From the tuner; 0: not seen yet.
	double normal_ns = 0, ratio = 0; // N; recent L/N
	double scale = 1;                // the band of L/N is the law's times this
	uint32_t period = 0;
	uint64_t raises = 0, cuts = 0;
	struct Change {
		double ms; // since the start
		uint32_t period;
		double ratio;
	};
	std::vector<Change> changes{}; // the latest changes of the period, oldest first
};

// The PCIe link of a device. Bytes a second; estimates, see verbs/device/pcie.hpp.
struct PcieFacts {
	double link = 0;                       // each way; 0: not known
	double to_device = 0, from_device = 0; // by this rank
	int sharers = 1;                       // ranks of this node that have the device

	// Part of the link that is in use if all do as this rank.
	double use() const { return link > 0 ? std::max(to_device, from_device) * sharers / link : 0; }
};

struct ChannelFacts {
	std::array<KindFacts, tune::size_classes> kinds;
	// Transmission efficiency.
	uint64_t device_memory_full = 0; // messages that went to host memory for that reason
	size_t device_memory_max = 0;    // longest message that device memory is used for, bytes; 0: none
	uint64_t bulk_read_bytes = 0;    // bytes of bulk that the device reads from host memory
	double entry_bytes = 0;          // average length of a WQE; 0: unknown
	double bundled = 1;              // messages in a work request
	double fetched = 0;              // part of the WQEs that the device reads by DMA
	// Messages that device memory is for, by length class, where the tuner chooses between it and a buffer.
	struct StagingFacts {
		size_t max;                                         // longest message of the class, bytes
		uint64_t by_device = 0, from_host = 0, changes = 0; // messages by staging; changes of the choice
		double device_ns = 0, host_ns = 0;                  // latency of the last samples; 0: none
		tune::Staging chosen = tune::Staging::device_memory;
	};
	std::vector<StagingFacts> stagings{};
	PcieFacts pcie;
	// Parallelism. If `shared`, the queue pairs are those of all peers.
	uint32_t in_flight = 0;     // work requests to this peer
	uint32_t max_in_flight = 0; // in one queue pair, ever
	uint32_t depth = 0;
	uint32_t queue_pairs = 0;
	bool shared = false;
	bool acknowledged = true; // by the peer; else a work request ends as soon as the device has sent it
	// Null until data was striped.
	const tune::Striping *striping = nullptr;
	double striping_rate = 0; // bytes/s, in the tuner's last window; 0: unknown
	uint64_t work_requests = 0, doorbells = 0;
	uint32_t batch = 1;       // work requests per doorbell, at present
	bool batch_tuned = false; // for all peers together; the fields below are then the tuner's
	double batch_rate = 0;    // work requests per second; 0: not seen yet
	uint64_t batch_trials = 0, batch_changes = 0;
	uint64_t switches = 0; // times that a queue pair changed to another target
	size_t waiting = 0;    // messages that wait for room
	// Load balance.
	tune::Mode mode = tune::Mode::off;
	tune::Band band;
	uint32_t fixed_period = 0; // if nothing is tuned

	KindFacts &kind(tune::SizeClass c) { return kinds[static_cast<size_t>(c)]; }
	const KindFacts &kind(tune::SizeClass c) const { return kinds[static_cast<size_t>(c)]; }
	uint64_t messages() const; // without bulk
	// Whether anything was ever sent.
	bool busy() const { return messages() || kind(tune::SizeClass::bulk).messages; }
};

} // namespace pt2p
