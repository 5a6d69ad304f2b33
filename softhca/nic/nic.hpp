// The NIC of this process: its queue pairs, its devices, its slot on the wire.
//
// One lock guards everything below an open device. The scheduler decides when the NIC's work happens; in live mode,
// whoever holds the lock may call its progress().
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "softhca/counters/accounts.hpp"
#include "softhca/fabric/fabric.hpp"
#include "softhca/nic/devices.hpp"
#include "softhca/nic/qp/queue_pair.hpp"
#include "softhca/nic/scheduler.hpp"
#include "softhca/wire/wire.hpp"

namespace softhca {

class Nic {
public:
	// Without a fabric there is nothing to do for it.
	explicit Nic(const Fabric *fabric);
	// Once, before anything else.
	void run_by(std::unique_ptr<Scheduler> scheduler) { scheduler_ = std::move(scheduler); }
	Scheduler &scheduler() const { return *scheduler_; }

	std::mutex mutex;

	// Everything below is called with the lock held.

	Faults faults;
	// Reads the file of fault rules again when it has changed.
	void refresh_faults(Time now) { faults.look_at_file(fault_file_, now); }

	Devices devices;
	// The context is closed.
	void remove(Context &context);
	// The device stops working for good.
	void fail(unsigned device);

	// Gives a queue pair its number and its counters; it then receives packets. The number is 0 when there is no room,
	// with the cause in errno.
	void add(Qp &qp);
	void remove(Qp &qp);
	// The queue pair is about to be destroyed or reset: sends what it owes for requests that it has executed, and tells
	// the target that it is connected to.
	void settle(Qp &qp);
	// Null when this process has none of that number.
	Qp *find(uint32_t number) const;
	unsigned index_of(uint32_t number) const { return number & ((1u << index_bits_) - 1); }
	// Looks at its doorbell and its time-outs from now on, until it is forgotten.
	void watch(Qp &qp);
	void forget(Qp &qp);
	const std::vector<Qp *> &watched() const { return watched_; }
	void forget(Responder &responder);
	// The responder has something to answer, but not before that time.
	void pause(Responder &responder, Time until);
	// Looks at its arm commands.
	void watch(Cq &cq) { armed_.push_back(&cq); }
	void forget(Cq &cq) { std::erase(armed_, &cq); }
	const std::vector<Cq *> &armed() const { return armed_; }

	// The time of the scheduler's last turn.
	Time now() const { return now_; }
	void set_time(Time now) { now_ = now; }
	// When the next time-out is due; 0: none.
	Time next_deadline() const { return next_deadline_; }
	void remind(Time deadline);
	// Lets those that wait look at their time-outs, or go on.
	void check_times();

	// Sends a packet of this queue pair: `fill` writes the payload. False when it must be tried again later. A packet
	// to nobody counts as sent.
	template <class F>
	bool transmit(Qp &qp, Packet &packet, const F &fill)
	{
		return send(qp, packet, Fill(fill));
	}
	bool transmit(Qp &qp, Packet &packet)
	{
		return transmit(qp, packet, [](uint8_t *) {});
	}
	// A packet has come. Nothing in it is trusted.
	void handle(const Packet &packet, const uint8_t *payload);

	// The wire: null before the first queue pair.
	Wire *wire() { return wire_.get(); }
	unsigned slot_of(uint32_t number) const { return number >> index_bits_; }
	// The position on the way to a queue pair: how much has been put there.
	uint64_t posted(uint32_t number) const { return wire_->posted(slot_of(number)); }
	// Whether the process of a queue pair runs. Slow.
	bool alive(uint32_t number) { return wire_->alive(slot_of(number)); }
	// Whether the process of a queue pair has not yet taken what was put there up to `position`: it had no time.
	bool lags(uint32_t number, uint64_t position);
	// Numbers a DC connection. A target may still know one of an earlier queue pair of the same number, even one of an
	// earlier process in this slot: numbers differ from theirs.
	uint32_t next_connection();

	Accounts &accounts() { return accounts_; }
	// Whether there is any queue pair.
	bool used() const { return count_ != 0; }
	// After fork(), in the child: nothing of the parent's belongs to this process.
	void abandon();

private:
	bool join();
	bool send(Qp &qp, Packet &packet, const Fill &fill);

	const Fabric *const fabric_;
	const unsigned index_bits_;
	std::unique_ptr<Scheduler> scheduler_;
	std::unique_ptr<Wire> wire_;
	std::vector<Qp *> table_; // by index
	unsigned last_index_ = first_index - 1, count_ = 0;
	uint32_t connections_ = 0;
	std::vector<Qp *> watched_;
	std::vector<Cq *> armed_;
	std::vector<std::pair<Responder *, Time>> paused_;
	Time now_ = 0, next_deadline_ = 0;
	Accounts accounts_;
	const std::string fault_file_;
};

} // namespace softhca
