// The device in real time: it works whenever somebody calls progress(), as fast as it can.
#pragma once

#include <vector>

#include "softhca/live/service.hpp"
#include "softhca/nic/nic.hpp"
#include "softhca/nic/scheduler.hpp"

namespace softhca::live {

class Live : public Scheduler {
public:
	explicit Live(Nic &nic) : nic_(nic), service_(nic) {}

	void start() override { service_.start(); }
	void ready(Qp &qp) override;
	void owes(Responder &responder) override;
	bool transmit(Qp &qp, const Packet &packet, Faults::Fate fate, Time delay, const Fill &fill) override;
	bool progress() override;
	void receive_all() override;
	void forget(Qp &qp) override;
	void forget(Responder &responder) override;
	void release_held(const Qp &qp) override;
	void abandon() override;

	void ring(Qp &qp) override;
	void blueflame(Qp &qp, size_t bytes, bool first) override;
	bool after_poll(int fd, bool found) override;
	void posted() override { service_.help(); }
	void armed() override { service_.going_to_sleep(); }

private:
	// A packet that a fault rule holds back.
	struct Held {
		Time due;
		uint32_t after; // until this queue pair has sent another; 0: until it is due
		std::vector<uint8_t> frame;
	};
	void hold(const Packet &packet, const Fill &fill, Time due, uint32_t after);
	Wire::Room put(Qp &qp, const Packet &packet, const Fill &fill);
	void release_due();
	bool receive();
	void look_at_doorbell(Qp &qp);
	void look_at_doorbells();

	Nic &nic_;
	Service service_;
	std::vector<Qp *> recent_; // whose doorbells have moved lately
	std::vector<Qp *> ready_, working_ready_;
	std::vector<Responder *> owing_, working_owing_;
	size_t cursor_ = 0;     // in the NIC's list of queue pairs
	uint64_t activity_ = 0; // changes whenever something is done
	std::vector<Held> held_;
};

} // namespace softhca::live
