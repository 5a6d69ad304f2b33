// The device in virtual time: when what the live device does at once would happen on hardware.
//
// Queue pairs, packets and completions are those of the live mode (queue_pair.hpp); this decides when each part of the device
// gets to do its next step, and what steps cost:
//
//   store to a doorbell --> [fetch of entries] --> unit sends: contexts, payload --> wire --> unit serves --> memory, CQE
//                              PCIe read                       PCIe read                                    PCIe write
//
// A processing unit does one thing after the other. A queue pair is bound to a unit when it is first used, a connection of a DC
// target while it lasts; no unit has more of them than others. A miss in a cache costs a PCIe read; a unit can have several of
// them under way, and waits the less for each. An entry is in the cache from when it has been fetched until it is complete, or
// thrown out. What a packet does to memory happens in one step, when it can be seen there; answers leave earlier than that, so
// that they get that much shorter a way.
#pragma once

#include <climits>
#include <deque>
#include <map>
#include <memory>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "softhca/model/mechanisms.hpp"
#include "softhca/model/profile.hpp"
#include "softhca/nic/packet.hpp"
#include "softhca/time/virtual_time.h"

namespace softhca {
class Context;
class Nic;
class Responder;
struct Qp;
struct Wqe;
} // namespace softhca

namespace softhca::model {

class Model {
public:
	Model(Nic &nic, const Profile &profile, unsigned devices, unsigned queue_pairs);

	// The program rings for this queue pair; an entry, of so many bytes so far, goes along with the last ring.
	void ring(Qp &qp);
	void along(Qp &qp, size_t bytes, bool first);
	void stored_to_device_memory(unsigned device, size_t bytes);
	// A poll of the program: before it, and when it has found nothing.
	void before_poll(Context &context);
	void after_empty_poll(Context &context);

	// The device does something: takes note of the time.
	void turn();
	// In place of what Nic does in live mode.
	void ready(Qp &qp);
	void owes(Responder &responder);
	void forget(Responder &responder) { owing_.erase(&responder); }
	void forget(Qp &qp);
	void forget(const Context &context);
	void remind(uint64_t deadline_ns);
	// A packet leaves: begin() is where its payload goes, end() sends it. `held` ns later, when a fault says so.
	uint8_t *begin(const Packet &packet);
	void end(Qp &qp, uint64_t from_memory, uint64_t from_device_memory, uint64_t held);

	// Of an entry that is complete.
	void done(const Qp &qp, const Wqe &entry);
	// An entry of a completion queue has been written, of so many bytes.
	void completed(const Context &context, size_t bytes);
	// Memory of the program has changed.
	void wrote(const Context &context);

private:
	struct Frame {
		Packet packet;
		std::vector<uint8_t> payload;
		double bytes = 0;      // on the wire
		Picoseconds early = 0; // by so much it has started late
		Picoseconds there = 0; // its last byte, at the other side
		unsigned device = 0;   // it comes from
	};
	struct Work {
		enum class Kind : uint8_t { run, respond, serve } kind;
		uint32_t number = 0; // of a queue pair, or of a frame
		Responder *responder = nullptr;
	};
	struct Unit {
		std::deque<Work> work;
		bool scheduled = false;
		Picoseconds free = 0;
	};
	struct Device {
		Device(const Profile &p, unsigned number);
		std::vector<Unit> units;
		std::vector<unsigned> bound; // queue pairs, and connections to DC targets: how many each unit has
		unsigned last_bound = UINT_MAX;
		Link inward, outward; // PCIe: what the program stores and what comes of reads; what the device writes and asks for
		Link out, in;
		size_t programs = 0;                                // that have it open: ranks of one node
		Fifo entries;
		Cache requesters, responders;
		std::map<uint64_t, Picoseconds> locks; // of atomic operations, by the low bits of addresses
	};
	// From a requester and back again things happen in order.
	struct Way {
		Picoseconds departed = 0, executed = 0; // the last packet
	};
	struct Bell {
		uint16_t producer;
		bool along;
	};
	// An initiator's with a DC target. Its packets are taken in order, also when it leaves and connects again meanwhile: the unit is
	// the same while any waits there.
	struct Connection {
		unsigned unit;
		size_t waiting = 0; // packets before the unit
	};
	// Beside a Qp.
	struct State {
		std::vector<Bell> bells;                                // on their way to the device; few
		uint16_t posted = 0;                                    // units of the ring, when it was last rung
		uint16_t asked = 0;                                     // of these, what the device has asked for
		Picoseconds fetched = 0;                                // when the last entries will be there
		std::vector<std::pair<uint16_t, Picoseconds>> arrivals; // DC: of entries, up to which unit of the ring
		Way requests, answers;                                  // of this requester
		bool due = false, left = false;
		Picoseconds last = 0; // DC: when the last packet for the target that it has left departed
		int unit = -1;
		std::unordered_map<uint32_t, Connection> connections; // of a DC target, by initiator
	};
	struct Program {
		uint64_t writes = 0, seen = 0;
		unsigned idle = 0;
	};

	template <void (Model::*function)(uint64_t)>
	void at(Picoseconds time, uint64_t argument)
	{
		softhca_time_at(
		    time, [](void *model, uint64_t a) { static_cast<Model *>(model)->call<function>(a); }, this, argument);
	}
	template <void (Model::*function)(uint64_t)>
	void call(uint64_t argument)
	{
		turn();
		(this->*function)(argument);
	}
	Program &program(const Context &context);
	State &state(const Qp &qp);
	Device &device_of(const Qp &qp);
	bool is_needed_again(PacketKind request) const;
	// When a request leaves its unit: not before a time, and so much earlier than the unit's work would have it.
	struct Start {
		Picoseconds not_before = 0, earlier = 0;
	};
	void use_requester(Device &device, Qp &qp);
	Start connect(Qp &qp, State &state, Picoseconds arrived);
	Start begin_request(Qp &qp, State &state, const Packet &packet, bool idle);
	Picoseconds waited_for_memory(Qp &qp, Picoseconds arrived);
	State &requester_of(const Packet &packet, bool request);
	unsigned bind(Device &device);
	size_t unit_of(Device &device, uint32_t queue_pair);
	Connection &connection_of(Qp &target, uint32_t initiator);
	void leave(Qp &target, uint32_t initiator);
	size_t serving_unit_of(Qp &qp, uint32_t requester);
	void submit(Device &device, size_t unit, Work work);
	template <class Function>
	void for_entries(const Qp &qp, uint16_t from, uint16_t to, const Function &function) const;
	unsigned entries_between(const Qp &qp, uint16_t from, uint16_t to) const;
	Picoseconds read(Device &device, Picoseconds when, double bytes);
	void wait(Picoseconds whole, double overlap);
	void miss(Device &device, double bytes, double overlap);
	void serve(uint32_t number);

	// Events.
	void links_change(uint64_t);
	void bell(uint64_t queue_pair);
	void fetched(uint64_t queue_pair_and_bell);
	void work(uint64_t device_and_unit);
	void depart(uint64_t frame);
	void arrive(uint64_t frame);
	void execute(uint64_t frame);
	void check_times(uint64_t);

	Nic &nic_;
	const Profile p_;
	std::vector<Device> devices_;
	std::vector<State> states_;
	std::deque<Frame> frames_;
	std::vector<uint32_t> free_frames_;
	uint32_t frame_ = 0;             // being sent
	Picoseconds now_ = 0, busy_ = 0; // of the unit that works
	Picoseconds late_ = 0;           // what it works on comes so much later, while it does something else
	uint64_t deadline_ = 0, links_until_ = 0;
	std::unordered_set<Responder *> owing_;
	std::map<const Context *, Program> programs_;
};

} // namespace softhca::model
