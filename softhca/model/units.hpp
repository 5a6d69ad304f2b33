// The processing units of the model's devices. A unit does one thing after the other. A queue pair is bound to a unit
// when it is first used, a connection of a DC target while it lasts; no unit has more of them than others.
#pragma once

#include <unordered_set>

#include "softhca/model/core.hpp"

namespace softhca::model {

class Packets;

class Units {
public:
	Units(Core &core, Packets &packets) : core_(core), packets_(packets) {}

	// The requester of a queue pair is to run; the responder is to answer.
	void ready(Qp &qp);
	void owes(Responder &responder);
	// The packet is to be executed: by the responder that `requester` has, or by the requester of `qp`.
	void serve(Qp &qp, uint32_t requester, uint32_t packet);
	void take(Qp &qp, uint32_t packet);

	void forget(Qp &qp);
	void forget(Responder &responder) { owing_.erase(&responder); }

	// When the unit of a queue pair's requester is free.
	Picoseconds free(Qp &qp);
	// An initiator's connection with a DC target: made when it is first asked for.
	Connection &connection_of(Qp &target, uint32_t initiator);
	// The initiator has left.
	void leave(Qp &target, uint32_t initiator);

	Core &core() { return core_; }

private:
	static unsigned bind(Device &device);
	size_t unit_of(Qp &qp);
	size_t serving_unit_of(Qp &qp, uint32_t requester);
	void submit(Device &device, size_t unit, Work work);

	// An event.
	void work(uint64_t device_and_unit);

	Core &core_;
	Packets &packets_;
	std::unordered_set<Responder *> owing_;
};

} // namespace softhca::model
