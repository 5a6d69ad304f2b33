// The program's side of the model: what the program does takes its processor's time, and reaches the device after the
// PCIe's.
#pragma once

#include <unordered_map>

#include "softhca/model/core.hpp"
#include "softhca/softhca.h"

namespace softhca {
class Context;
struct Cq;
} // namespace softhca

namespace softhca::model {

class Units;

class Programs {
public:
	Programs(Core &core, Units &units) : core_(core), units_(units) {}

	// Stores: a doorbell, `bytes` of a WQE that follow it, device memory.
	void ring(Qp &qp);
	void blueflame(Qp &qp, size_t bytes, bool first);
	void stored_to_device_memory(unsigned device, size_t bytes);
	// Polls: before one, and when it has found nothing.
	void before_poll(Context &context);
	void after_empty_poll(Context &context);
	// The device has written a CQE, or other memory of the program.
	void completed(const Cq &cq);
	void wrote(const Context &context);
	// By which context of that device the running thread has posted last; null: by none.
	Context *posts_by(unsigned device) const;
	void forget(const Context &context);
	// The running thread's work since then is charged in its polls, and when it rings a doorbell.
	void count_work(softhca_work_t (*read)(void *), void *object);

	Core &core() { return core_; }

private:
	struct Program {
		unsigned free_polls = 0; // that do not wait, though they find nothing
		unsigned idle = 0;       // polls in a row
		unsigned arrived = 0;    // messages in its memory that are not charged
	};
	struct Counted {
		softhca_work_t (*read)(void *);
		void *object;
		softhca_work_t charged;
	};
	Program &program(const Context &context);
	void charge_work(Context &context);

	// Events.
	void doorbell_arrives(uint64_t queue_pair);
	void wqes_arrive(uint64_t queue_pair_and_doorbell);

	Core &core_;
	Units &units_;
	std::unordered_map<const Context *, Program> programs_;
	std::unordered_map<int, Counted> counted_;    // by thread
	std::unordered_map<int, Context *> posts_by_; // by thread
};

} // namespace softhca::model
