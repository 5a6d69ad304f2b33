// The device in virtual time: when what the live device does at once would happen on hardware.
//
// Queue pairs, packets and completions are those of live mode (nic/qp); the model decides when each part of the device
// takes its next step, and what steps cost:
//
//   store to a doorbell --> [fetch of WQEs] --> unit sends: contexts, payload --> wire --> unit serves --> memory, CQE
//                              PCIe read                    PCIe read                                    PCIe write
//
//   programs.hpp                 units.hpp, packets.hpp
//
// A miss in a cache costs a PCIe read; a unit can have several of them in flight, and waits the less for each. A WQE is
// in the cache from its fetch until it is complete or thrown out. A unit that had to read the context of a queue pair
// sends several of its WRITEs or SENDs, for one acknowledgement. Of receives, one read brings several, and each message
// with payload costs its share of that. A program pays for the first line of each message that the device has written,
// when it polls or rings next; for completions and for what it counts (softhca_count_work), too; and for the lines of a
// queue that another of its threads used last, and of locks. What a packet does to memory happens in one step, when it
// can be seen there; answers leave earlier than that, and get a way that is so much shorter.
#pragma once

#include "softhca/model/core.hpp"
#include "softhca/model/packets.hpp"
#include "softhca/model/programs.hpp"
#include "softhca/model/units.hpp"
#include "softhca/nic/scheduler.hpp"

namespace softhca::model {

class Model : public Scheduler {
public:
	Model(Nic &nic, const Profile &profile, unsigned devices, unsigned queue_pairs);

	void ready(Qp &qp) override { units_.ready(qp); }
	void owes(Responder &responder) override { units_.owes(responder); }
	bool transmit(Qp &qp, const Packet &packet, Faults::Fate fate, Time delay, const Fill &fill) override;
	void remind(Time deadline) override;
	void begin_turn() override { core_.begin_turn(); }
	void forget(Qp &qp) override { units_.forget(qp); }
	void forget(Responder &responder) override { units_.forget(responder); }
	void forget(const Context &context) override { programs_.forget(context); }

	void completed(const Qp &qp, const Wqe &wqe) override { packets_.completed(qp, wqe); }
	void completed(const Cq &cq) override { programs_.completed(cq); }
	void wrote(const Context &context) override { programs_.wrote(context); }

	void ring(Qp &qp) override { programs_.ring(qp); }
	void blueflame(Qp &qp, size_t bytes, bool first) override { programs_.blueflame(qp, bytes, first); }
	void stored_to_device_memory(unsigned device, size_t bytes) override
	{
		programs_.stored_to_device_memory(device, bytes);
	}
	void before_poll(int fd) override;
	bool after_poll(int fd, bool found) override;
	void polled(unsigned device, bool found) override;
	void count_work(softhca_work_t (*read)(void *), void *object) override { programs_.count_work(read, object); }
	void shared(void *memory, size_t bytes) override;
	void unmapped(void *memory, size_t bytes) override;

	Core &core() { return core_; }

private:
	// An event.
	void check_times(uint64_t deadline);

	Core core_;
	Units units_;
	Packets packets_;
	Programs programs_;
	uint64_t deadline_ = 0; // of the last reminder; 0: none
};

} // namespace softhca::model
