// Queue pairs. A queue pair has two halves that know nothing of each other (InfiniBand specification, volume 1, 9.7):
// the requester executes its send queue, the responder executes what the other side's requester asks for. A DC target
// has a responder for each initiator that is connected to it.
#pragma once

#include <memory>
#include <rdma/ib_user_verbs.h>
#include <span>

#include "softhca/counters/counters.hpp"
#include "softhca/kernel/objects.hpp"
#include "softhca/kernel/qp_states.hpp"
#include "softhca/nic/qp/initiators.hpp"
#include "softhca/nic/qp/requester.hpp"
#include "softhca/nic/qp/responder.hpp"

namespace softhca {

class Nic;

// What modify sets.
struct QpSettings {
	uint32_t access = 0, qkey = 0;
	uint16_t pkey_index = 0;
	uint8_t port = 0;
	ib_uverbs_qp_dest path{};
	uint8_t mtu = 1; // code: 128 << mtu bytes
	uint32_t destination = 0;
	uint32_t rq_psn = 0, sq_psn = 0;
	uint8_t timeout = 0, retry_count = 0, rnr_retry = 0, min_rnr_timer = 0;
	uint8_t max_rd_atomic = 0, max_dest_rd_atomic = 0;

	uint32_t mtu_bytes() const { return 128u << mtu; }
};

struct Qp {
	Qp(Context &c, QpKind k) : context(c), kind(k), requester(*this), responder(*this, 0, 0), initiators(*this) {}

	Context &context;
	const QpKind kind;
	std::shared_ptr<Pd> pd;
	std::shared_ptr<Cq> send_cq, receive_cq;
	std::shared_ptr<Srq> srq;
	uint32_t number = 0, user_index = 0;
	uint64_t user_handle = 0;
	bool signal_all = false;
	uint32_t async_events = 0;
	QpState state = QpState::reset;
	bool drain_event = false; // the step to `sqd` asked for it
	bool overrun = false;     // of one of its completion queues: it will enter the error state
	QpSettings settings;
	// The most bytes of a message received, and of an answer to a READ or atomic operation, that come in the CQE.
	struct {
		uint32_t received = 0, answered = 0;
	} payload_in_cqe;
	struct {
		uint32_t send_wr = 0, recv_wr = 0, send_sge = 0, recv_sge = 0, inline_bytes = 0;
	} capacity; // as the program is told
	struct {
		std::span<const uint8_t> send, receive;
		uint32_t receive_stride = 0;
		uint32_t *doorbell = nullptr; // big-endian: receives posted, WQEBBs of the send queue filled; modulo 2^16
		uint16_t received = 0;        // receives consumed
		ReadAhead ahead;              // of receives
	} rings;                          // in memory of the program

	Requester requester;
	Responder responder;   // not of a DC target
	Initiators initiators; // of a DC target
	Counters *counters = nullptr, *device_counters = nullptr;

	bool ready = false; // in the live scheduler's list
	size_t watched = 0; // position in the NIC's list, from 1 on; 0: not in it

	void count(Counter counter, uint64_t n)
	{
		counters->add(counter, n);
		device_counters->add(counter, n);
	}
	// What the doorbell record of the send queue says.
	uint16_t send_producer() const;
	// How many receives are posted, of its own or of a shared queue.
	uint16_t receives_posted() const;
	// Takes the next receive; false when there is none.
	bool take_receive(Receive &receive);
	// Writes a CQE. When the completion queue has overrun, the queue pair will enter the error state, though not at
	// once: callers are not done.
	void complete(Cq &cq, Completion completion, bool solicited);
	// Enters `error` and flushes the queues, unless it is in `error` already.
	void enter_error(Nic &nic);
	// Ends all posted receives as flushed. True when there were any.
	bool flush_receives();
	// Tells the program of an event.
	void report(Event event);
	// Enters `reset`: as if it had just been created.
	void reset(Nic &nic);
	// A packet for this queue pair.
	void handle(Nic &nic, const Packet &packet, const uint8_t *payload);
	// Whether the state lets packets in.
	bool receives() const { return state >= QpState::rtr && state <= QpState::sqe; }
};

} // namespace softhca
