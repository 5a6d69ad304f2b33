// The NIC of this process: its queue pairs, its place on the wire, and what moves them.
//
// One lock guards everything below an open device. progress() is called under it by whoever comes by: a thread of its own
// (service.hpp), or a thread of the program that polls in vain.
#pragma once

#include <cstring>
#include <memory>
#include <mutex>
#include <vector>

#include "softhca/counters/accounts.hpp"
#include "softhca/kernel/context.hpp"
#include "softhca/wire/faults.hpp"
#include "softhca/model/model.hpp"
#include "softhca/wire/wire.hpp"

namespace softhca {

class Nic {
public:
	// Of this process; never destroyed.
	static Nic &get();

	std::mutex mutex;

	// Everything below is called with the lock held.

	Faults faults;
	// Looks for changed rules; before they are asked.
	void refresh_faults();
	// Those who have a device open hear of its events.
	void add(Context &context) { contexts_.push_back(&context); }
	void remove(Context &context) { std::erase(contexts_, &context); }
	const std::vector<Context *> &contexts() const { return contexts_; }
	// The device stops working, for good.
	void fail(unsigned device);
	bool failed(unsigned device) const { return failed_[device]; }
	bool link_down(unsigned device) const { return down_[device]; }

	// Gives a queue pair its number and counters; it then receives packets. The number is 0 when there is no room, with
	// the cause in errno.
	void add(Qp &qp);
	void remove(Qp &qp);
	// It is about to end, or to begin anew: what it owes for requests that it has carried out leaves the device first, as does
	// word to the target that it is connected to.
	void settle(Qp &qp);
	// Null when there is none of that number in this process.
	Qp *find(uint32_t number) const;
	unsigned index_of(uint32_t number) const { return number & ((1u << index_bits_) - 1); }
	// A doorbell has been rung for it, and seen (exact mode).
	void ring(Qp &qp);
	// Looks at its doorbell from now on, until it is forgotten.
	void watch(Qp &qp);
	// Nothing is under way for it any more.
	void forget(Qp &qp);
	// Looks at its arm commands.
	void watch(Cq &cq);
	void forget(Cq &cq);

	// Moves everything forward by a bounded amount. True when something was done.
	bool progress();
	// Handles all packets that are there.
	void take_all();
	static Time read_clock();
	// Time as of the last progress().
	Time now() const { return now_; }
	// When the next time-out is due; 0: none.
	Time next_deadline() const { return next_deadline_; }
	void remind(Time deadline)
	{
		if (deadline && (!next_deadline_ || deadline < next_deadline_)) {
			next_deadline_ = deadline;
			if (model_)
				model_->remind(deadline);
		}
	}
	// What is overdue.
	void check_times();

	// In virtual time, the model moves everything, and progress() is not called; null in live mode.
	model::Model *model() const { return model_.get(); }
	void set_time(Time now) { now_ = now; }
	// Tells of links that a rule has taken down or given back. When the next comes back; 0: none is down.
	Time look_at_links();

	// Something to send, to be looked after in progress().
	void ready(Qp &qp);
	void owes(Responder &responder);
	void forget(Responder &responder);

	// Sends a packet: `fill` writes the payload. False when it must be tried again later. A packet for nobody is gone.
	template <class Fill>
	bool transmit(Qp &qp, Packet &packet, const Fill &fill);
	bool transmit(Qp &qp, Packet &packet)
	{
		return transmit(qp, packet, [](uint8_t *) {});
	}
	// Position on the way to a queue pair: what has been put there, what has been taken.
	uint64_t posted(uint32_t number) const { return wire_->posted(slot_of(number)); }
	// Whether the process of a queue pair runs. Slow.
	bool alive(uint32_t number) { return wire_->alive(slot_of(number)); }
	// Whether the process of a queue pair still has packets of ours before it, up to `position`: it had no time yet.
	bool lags(uint32_t number, uint64_t position);
	// Names a DC connection: a target may still know one of an earlier queue pair of the same number, even one of an
	// earlier process in our slot.
	uint32_t next_connection();

	// A packet that has come. Nothing in it is trusted.
	void handle(const Packet &packet, const uint8_t *payload);

	Counters &device_counters(unsigned device) { return accounts_.device(device); }
	const Accounts &accounts() const { return accounts_; }
	uint16_t lid(const Qp &qp) const;
	uint64_t guid(const Qp &qp) const;
	// In the child after fork(): nothing of the parent's is ours.
	void abandon();
	Wire *wire() { return wire_.get(); }
	bool used() const { return count_ != 0; }

private:
	Nic();

	unsigned slot_of(uint32_t number) const { return number >> index_bits_; }
	bool join();
	bool receive();
	void look_at_doorbells();
	void look_at(Qp &qp);
	void address(const Qp &qp, Packet &packet) const;
	Faults::Fate fate(Qp &qp, const Packet &packet, Time &delay);
	uint8_t *begin(Qp &qp, const Packet &packet, bool &gone);
	void end(const Packet &packet);
	void release_held();
	void let_go(const Qp &qp);

	const unsigned index_bits_;
	std::unique_ptr<model::Model> model_;
	std::unique_ptr<Wire> wire_; // from the first queue pair on
	std::vector<Qp *> table_;    // by index
	unsigned last_index_ = first_index - 1, count_ = 0;
	uint32_t connections_ = 0;
	std::vector<Qp *> watched_, recent_, ready_, working_ready_;
	std::vector<Cq *> armed_;
	std::vector<Responder *> owing_, working_owing_;
	size_t cursor_ = 0;
	uint64_t activity_ = 0; // changes whenever something was done
	Time now_ = 0, next_deadline_ = 0;
	Accounts accounts_;
	// Packets that a fault rule holds back.
	struct Held {
		Time due;
		uint32_t after; // until this queue pair has sent another; 0: until it is time
		std::vector<uint8_t> frame;
	};
	std::vector<Held> held_;
	std::vector<Context *> contexts_;
	bool failed_[most_devices] = {}, down_[most_devices] = {}, any_down_ = false;
	const std::string fault_file_;
};

template <class Fill>
bool Nic::transmit(Qp &qp, Packet &packet, const Fill &fill)
{
	address(qp, packet);
	Time delay = 0;
	const Faults::Fate what = faults.none() ? Faults::Fate::pass : fate(qp, packet, delay);
	if (what == Faults::Fate::drop)
		return true;
	if (model_) {
		for (int copies = what == Faults::Fate::twice ? 2 : 1; copies; --copies) {
			const uint64_t memory = qp.counters->get(Counter::payload_read_bytes), device = qp.counters->get(Counter::dm_read_bytes);
			fill(model_->begin(packet));
			model_->end(qp, qp.counters->get(Counter::payload_read_bytes) - memory,
			            qp.counters->get(Counter::dm_read_bytes) - device, delay);
			qp.count(Counter::packets_sent, 1);
		}
		return true;
	}
	if (what == Faults::Fate::later || what == Faults::Fate::after_next) {
		Held held{now_ + delay, what == Faults::Fate::after_next ? qp.number : 0, {}};
		held.frame.resize(sizeof packet + packet.payload);
		std::memcpy(held.frame.data(), &packet, sizeof packet);
		fill(held.frame.data() + sizeof packet);
		held_.push_back(std::move(held));
		return true;
	}
	bool gone = false;
	for (int copies = what == Faults::Fate::twice ? 2 : 1; copies; --copies) {
		uint8_t *payload = begin(qp, packet, gone);
		if (!payload)
			return gone;
		fill(payload);
		end(packet);
	}
	return true;
}

} // namespace softhca
