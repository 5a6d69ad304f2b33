// Packets of the model: when a packet leaves its unit, when it has crossed the wire, and when it is executed.
#pragma once

#include <deque>
#include <vector>

#include "softhca/model/core.hpp"
#include "softhca/nic/scheduler.hpp"

namespace softhca::model {

class Units;

class Packets {
public:
	Packets(Core &core, Units &units) : core_(core), units_(units) {}

	// A packet leaves, `held` ns later than it would.
	void send(Qp &qp, const Packet &packet, const Fill &fill, Time held);
	// Whether a unit goes on with the queue pair that it has just sent a packet of; it does not any more.
	bool stays() const { return stay_.left != 0; }
	void leave();
	// A unit takes a packet that has come.
	void serve(uint32_t number);
	// The WQE is complete.
	void completed(const Qp &qp, const Wqe &wqe);

	Core &core() { return core_; }

private:
	struct Flight {
		Packet packet;
		std::vector<uint8_t> payload;
		double bytes = 0;      // on the wire
		Picoseconds early = 0; // it has started so much late, and its way is so much shorter
		Picoseconds there = 0; // when its last byte is at the other side
		unsigned device = 0;   // it comes from
	};
	// When a request leaves its unit: not before a time, and so much earlier than the unit's work would have it.
	struct Start {
		Picoseconds not_before = 0, earlier = 0;
	};
	// A unit that had to read the context of a queue pair sends several of its packets before it turns to another. The
	// last one asks for the acknowledgement of all of them.
	struct Stay {
		unsigned left = 0;       // packets
		bool reads_wqes = false; // one read brings those of all
		bool unasked = false;    // there is an earlier packet that would have asked by itself
		uint32_t flight = 0;     // the last such
	};
	void stay(Flight &flight, uint32_t number);
	uint32_t new_flight(const Packet &packet);
	void free(uint32_t number) { free_.push_back(number); }
	bool is_needed_again(PacketKind request) const;
	QpRecord &requester_of(const Packet &packet, bool request);
	Start connect(Qp &qp, QpRecord &record, Picoseconds arrived);
	Start begin_request(Qp &qp, QpRecord &record, const Packet &packet, bool idle);
	Picoseconds waited_for_memory(Qp &qp, Picoseconds arrived);
	void use_receive(Qp &qp, Device &device, const Packet &packet);
	void serve_request(Qp &qp, Device &device, const Packet &packet);
	void serve_answer(Qp &qp, Device &device, const Packet &packet);

	// Events.
	void depart(uint64_t flight);
	void arrive(uint64_t flight);
	void execute(uint64_t flight);

	Core &core_;
	Units &units_;
	std::deque<Flight> flights_;
	std::vector<uint32_t> free_;
	Stay stay_;
};

} // namespace softhca::model
