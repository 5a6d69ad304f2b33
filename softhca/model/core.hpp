// What all parts of the model share: the devices, what it keeps of each queue pair, and the turn of the part that
// works.
#pragma once

#include <climits>
#include <cstdint>
#include <deque>
#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

#include "softhca/counters/counters.hpp"
#include "softhca/model/mechanisms.hpp"
#include "softhca/model/profile.hpp"
#include "softhca/nic/packet.hpp"
#include "softhca/nic/wqe.hpp"
#include "softhca/time/virtual_time.h"

namespace softhca {
class Nic;
class Responder;
struct Qp;
} // namespace softhca

namespace softhca::model {

// What a processing unit does next.
struct Work {
	enum class Kind : uint8_t { run, respond, serve } kind;
	uint32_t number = 0; // of a queue pair, or of a packet
	Responder *responder = nullptr;
};

struct Unit {
	std::deque<Work> work;
	bool scheduled = false;
	Picoseconds free = 0; // from then on
};

struct Device {
	Device(const Profile &p, unsigned number);

	std::vector<Unit> units;
	std::vector<unsigned> bound; // queue pairs, and connections to DC targets: how many each unit has
	unsigned last_bound = UINT_MAX;
	Link inward, outward; // PCIe: what the program stores and what reads return; what the device writes and asks for
	Link out, in;         // the wire
	size_t programs = 0;  // that have it open: ranks of one node
	FifoCache wqes;
	RandomCache requesters, responders;    // contexts
	std::map<uint64_t, Picoseconds> locks; // of atomic operations, by the low bits of addresses
};

// From a requester and back again things happen in order.
struct Direction {
	Picoseconds departed = 0, executed = 0; // the last packet
};

struct Doorbell {
	uint16_t producer;
	bool blueflame;
};

// An initiator's with a DC target. Its packets are taken in order, also when it leaves and connects again meanwhile:
// the unit is the same while any waits there.
struct Connection {
	unsigned unit;
	size_t waiting = 0; // packets before the unit
};

// What the model keeps of a queue pair.
struct QpRecord {
	std::vector<Doorbell> doorbells;                        // on their way to the device; few
	uint16_t posted = 0;                                    // WQEBBs, at the last doorbell
	bool moved = false;                                     // from one thread to another
	int thread = 0;                                         // that has rung the last doorbell
	uint16_t asked = 0;                                     // of these, what the device has asked for
	Picoseconds fetched = 0;                                // when the last WQEs will be there
	std::vector<std::pair<uint16_t, Picoseconds>> arrivals; // DC: of WQEs, up to which WQEBB
	Direction requests, answers;                            // of this requester
	bool due = false;                                       // a unit will run its requester
	bool left = false;                                      // DC: it has left a target and not connected since
	Picoseconds last = 0;                                   // DC: when the last packet to the left target departed
	int unit = -1;
	std::unordered_map<uint32_t, Connection> connections; // of a DC target, by initiator
};

inline uint64_t wqe_key(uint32_t queue_pair, uint16_t index) { return uint64_t{queue_pair} << 16 | index; }

class Core {
public:
	Core(Nic &nic, const Profile &profile, unsigned devices, unsigned queue_pairs);

	Nic &nic;
	const Profile p;
	std::vector<Device> devices;

	// The time of the turn, how long the unit that works has been busy in it, and how much later what it works on will
	// come: the unit does something else meanwhile.
	Picoseconds now = 0, busy = 0, late = 0;
	void begin_turn();
	// What is executed now is the end of a message, whose first line the program has not read.
	bool brings_message = false;

	QpRecord &record(uint32_t queue_pair) { return records_[queue_pair % records_.size()]; }
	QpRecord &record(const Qp &qp);
	Device &device_of(const Qp &qp);

	// Bytes over PCIe to a device, and from it; when the last is there. They are counted.
	Picoseconds move_in(Device &device, Picoseconds when, double bytes);
	Picoseconds move_out(Device &device, Picoseconds when, double bytes);
	// Bytes of host memory that the device reads; when the last is there.
	Picoseconds read(Device &device, Picoseconds when, double bytes);
	// What the unit works on goes on after `whole`; the unit can have `overlap` of these in flight, and is busy the
	// less.
	void wait(Picoseconds whole, double overlap);
	// The unit reads that from host memory before it can go on.
	void miss(Device &device, double bytes, double overlap);
	// A requester's context: false when it was not in the device's cache and had to be read.
	bool use_requester(Device &device, Qp &qp);

	// part.function(argument) in a turn of its own, at that time.
	template <auto function, class Part>
	void at(Picoseconds time, Part &part, uint64_t argument)
	{
		softhca_time_at(
		    time,
		    [](void *object, uint64_t a) {
			    Part &that = *static_cast<Part *>(object);
			    that.core().begin_turn();
			    (that.*function)(a);
		    },
		    &part, argument);
	}
	Core &core() { return *this; }

private:
	void link_changes(uint64_t) {} // every turn looks at the links
	void count(const Device &device, Counter counter, double bytes);

	std::vector<QpRecord> records_;
	uint64_t links_until_ = 0;
};

} // namespace softhca::model
