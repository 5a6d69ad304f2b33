// When the device's work happens.
//
// The NIC tells its scheduler what is to be done and what has been done, and the program's side tells it what the
// program does. The scheduler calls requesters and responders when their time has come. There are two: live/live.hpp
// works in real time, as fast as it is called; model/model.hpp makes each step take its time in virtual time.
#pragma once

#include <cstddef>
#include <cstdint>

#include "softhca/nic/packet.hpp"
#include "softhca/softhca.h"
#include "softhca/time/clock.hpp"
#include "softhca/wire/faults.hpp"

namespace softhca {

class Context;
class Responder;
struct Cq;
struct Qp;
struct Wqe;

// Writes the payload of a packet to where the packet is built. Refers to a callable; valid for one call of transmit().
class Fill {
public:
	template <class F>
	explicit Fill(const F &f)
	    : object_(&f), call_([](const void *object, uint8_t *to) { (*static_cast<const F *>(object))(to); })
	{
	}
	void operator()(uint8_t *to) const { call_(object_, to); }

private:
	const void *object_;
	void (*call_)(const void *object, uint8_t *to);
};

// Functions for what the program does are called without the NIC's lock, except those for its doorbells and its stores
// to the device. All others are called with it.
class Scheduler {
public:
	virtual ~Scheduler() = default;

	// ---- Work of the NIC.

	// The process has a queue pair.
	virtual void start() {}
	// The queue pair may have something to send.
	virtual void ready(Qp &qp) = 0;
	// The responder has something to answer.
	virtual void owes(Responder &responder) = 0;
	// Sends a packet, as the fault rules want it. False when it must be tried again later. A packet to nobody counts as
	// sent.
	virtual bool transmit(Qp &qp, const Packet &packet, Faults::Fate fate, Time delay, const Fill &fill) = 0;
	// The NIC wants check_times() at this time. Called for times earlier than all before.
	virtual void remind(Time) {}
	// Moves everything forward by a bounded amount. True when something was done.
	virtual bool progress() { return false; }
	// Takes all packets that are there.
	virtual void receive_all() {}
	// The NIC is about to act outside of progress(): it needs to know the time.
	virtual void begin_turn() {}
	// These are about to be destroyed, or have nothing in flight any more.
	virtual void forget(Qp &qp) = 0;
	virtual void forget(Responder &responder) = 0;
	virtual void forget(const Context &) {}
	// The queue pair is destroyed: its packets that a fault rule holds back are sent now. Else an acknowledgement would
	// be lost with a program that ends in time.
	virtual void release_held(const Qp &) {}
	// After fork(), in the child: nothing of the parent's work is left.
	virtual void abandon() {}

	// ---- What the NIC has done.

	// The WQE is complete.
	virtual void completed(const Qp &, const Wqe &) {}
	// A CQE has been written.
	virtual void completed(const Cq &) {}
	// Memory of the program has been written.
	virtual void wrote(const Context &) {}

	// ---- What the program does.

	// It has rung the doorbell of this queue pair. Only where stores are trapped.
	virtual void ring(Qp &qp) = 0;
	// It has stored `bytes` of a WQE after the doorbell (BlueFlame); `first`: the first of that WQE.
	virtual void blueflame(Qp &qp, size_t bytes, bool first) = 0;
	virtual void stored_to_device_memory(unsigned, size_t) {}
	// It polls a completion queue of the device file `fd`; then it has found a completion or not. after_poll() is true
	// when another poll may find one.
	virtual void before_poll(int) {}
	virtual bool after_poll(int fd, bool found) = 0;
	// It has polled queues of that device without libibverbs.
	virtual void polled(unsigned, bool) {}
	// It counts its work, and says how much that is.
	virtual void count_work(softhca_work_t (*)(void *), void *) {}
	// It has posted sends.
	virtual void posted() {}
	// It has mapped memory that others may have mapped as well; it is about to unmap memory.
	virtual void shared(void *, size_t) {}
	virtual void unmapped(void *, size_t) {}
	// It has asked for an event and is going to sleep.
	virtual void armed() {}
};

} // namespace softhca
