// The requester of a queue pair: executes its send queue. requester.cpp is the way out, acknowledgements.cpp the way
// back.
#pragma once

#include <array>
#include <deque>
#include <memory>

#include "softhca/nic/completion.hpp"
#include "softhca/nic/packet.hpp"
#include "softhca/nic/wqe.hpp"
#include "softhca/time/clock.hpp"

namespace softhca {

class Nic;
struct Qp;

class Requester {
public:
	explicit Requester(Qp &qp) : qp_(qp) {}

	void reset();
	// The first packet will have this PSN.
	void begin(uint32_t psn);
	// The doorbell says how far the program has filled the queue, in WQEBBs.
	void doorbell(uint16_t producer);
	// The WQE of the last doorbell came with it and was not fetched.
	void blueflame();
	// Takes WQEs from the queue and sends at most `burst` packets. True when it should be called again without anything
	// else happening.
	bool run(Nic &nic, unsigned burst);
	// A packet from the responder of the other side.
	void handle(Nic &nic, const Packet &packet, const uint8_t *payload);
	// Retries when an acknowledgement is overdue; goes on when a pause is over.
	void check_time(Nic &nic);
	// Whether it waits for the other side or for a time.
	bool waits() const { return deadline_ || not_before_; }
	bool drained() const { return in_flight_.empty(); }
	uint16_t producer() const { return producer_; }
	uint32_t next_psn() const { return sent_; }
	// The WQE whose packet is being sent, and the oldest that is not complete; null: none.
	const Wqe *sending() const
	{
		return fetched_ ? &fetched_->wqe : at_ < in_flight_.size() ? &in_flight_[at_]->wqe : nullptr;
	}
	const Wqe *oldest() const { return in_flight_.empty() ? nullptr : &in_flight_.front()->wqe; }
	// Raises the event that was asked for, when nothing is in flight.
	void check_drained();
	// The state has become `error` or `sqe`: all WQEs end as flushed.
	void flush();
	// DC: disconnects from the target.
	void leave(Nic &nic);

private:
	// A WQE that has been taken from the queue and is not complete yet.
	struct Sent {
		Wqe wqe;
		uint32_t psn, packets; // its range of PSNs
		Syndrome error;        // local
		// The answer to a READ or an atomic operation, when it goes into the CQE.
		uint32_t brought;
		std::array<uint8_t, 64> answer;
	};
	bool fetch();
	bool strike(Nic &nic);
	bool may_start(const Sent &sent) const;
	bool is_target(const Wqe &wqe) const;
	void start(Nic &nic);
	void switch_target(Nic &nic, const Wqe &wqe);
	void address(Packet &packet) const;
	Packet packet_of(const Sent &sent, uint32_t &psns) const;
	bool send(Nic &nic, const Sent &sent);
	bool send_datagram(Nic &nic);
	bool acknowledged(Nic &nic, uint32_t psn);
	void advance(Nic &nic, uint32_t psn);
	void go_back(uint32_t psn);
	void retry(Nic &nic, uint32_t psn);
	void ask_again(Nic &nic, uint32_t psn);
	void refused(Nic &nic, const Packet &packet);
	void response(Nic &nic, const Packet &packet, const uint8_t *payload);
	bool take_answer(Sent &sent, uint64_t offset, const uint8_t *bytes, uint32_t n);

	void complete(const Sent &sent);
	void complete_with_error(const Wqe &wqe, Syndrome syndrome);
	void fail(Nic &nic, Syndrome syndrome);
	void arm_timer(Nic &nic);
	uint32_t outstanding() const { return static_cast<uint32_t>(psn_distance(sent_, una_)); }

	Qp &qp_;
	uint16_t next_ = 0, producer_ = 0; // WQEBBs, modulo 2^16
	std::unique_ptr<Sent> fetched_;    // waits until it may start
	std::deque<std::unique_ptr<Sent>> in_flight_;
	size_t at_ = 0;                              // which of these is being sent; in_flight_.size(): none
	uint32_t psn_ = 0;                           // of the next packet to send
	uint32_t sent_ = 0;                          // after the last that was ever sent
	uint32_t una_ = 0;                           // the first that is not acknowledged
	uint32_t end_ = 0;                           // after the range of the last WQE
	unsigned reads_ = 0;                         // READs and atomics in flight
	Time deadline_ = 0, not_before_ = 0;         // 0: none
	unsigned retries_ = 0, rnr_retries_ = 0;     // since the last acknowledgement
	uint64_t fetch_reads_ = 0, fetch_bytes_ = 0; // of the last doorbell
	bool not_ready_ = false;                     // it sends again because there was no receive
	bool asked_again_ = false;                   // it has sent again, and nothing has come of it yet
	uint64_t posted_ = 0;                        // position of the last packet on the way to the other side
	struct {
		bool connected = false;
		uint16_t lid = 0;
		uint32_t number = 0, connection = 0, connect_psn = 0;
		uint64_t key = 0;
	} target_; // of a DC initiator
};

} // namespace softhca
