// Queue pairs. A queue pair has two halves that know nothing of each other: the requester executes its send queue, the
// responder carries out what the other side's requester asks for (InfiniBand specification, volume 1, 9.7). A DC target
// has a responder for each initiator that is connected to it.
#pragma once

#include <array>
#include <deque>
#include <map>
#include <memory>
#include <rdma/ib_user_verbs.h>
#include <span>

#include "softhca/counters/counters.hpp"
#include "softhca/kernel/objects.hpp"
#include "softhca/nic/packet.hpp"
#include "softhca/kernel/qp_states.hpp"
#include "softhca/nic/wqe.hpp"

namespace softhca {

class Nic;
struct Qp;

// Nanoseconds of a clock that only goes forward.
using Time = uint64_t;

// What modify sets.
struct QpSettings {
	uint32_t access = 0, qkey = 0;
	uint16_t pkey_index = 0;
	uint8_t port = 0;
	ib_uverbs_qp_dest path{};
	uint8_t mtu = 1;           // code: 128 << mtu bytes
	uint32_t destination = 0;
	uint32_t rq_psn = 0, sq_psn = 0;
	uint8_t timeout = 0, retry_count = 0, rnr_retry = 0, min_rnr_timer = 0;
	uint8_t max_rd_atomic = 0, max_dest_rd_atomic = 0;

	uint32_t mtu_bytes() const { return 128u << mtu; }
};

class Requester {
public:
	explicit Requester(Qp &qp) : qp_(qp) {}

	void reset();
	// The first packet will have this number.
	void begin(uint32_t psn);
	// How far the program has filled the queue, in units, as its doorbell says.
	void rung(uint16_t producer);
	// The entry of the last ring came with it: it was not fetched.
	void brought_along();
	// Takes entries from the queue and sends what may be sent, at most `burst` packets. True when it should be called
	// again without anything else happening.
	bool run(Nic &nic, unsigned burst);
	// A packet from the responder of the other side.
	void handle(Nic &nic, const Packet &packet, const uint8_t *payload);
	// Looks whether an acknowledgement is overdue, or a pause is over.
	void check_time(Nic &nic);
	// Whether something waits for the other side or for a time.
	bool waits() const { return deadline_ || not_before_; }
	bool drained() const { return in_flight_.empty(); }
	uint16_t producer() const { return producer_; }
	uint32_t next_psn() const { return sent_; }
	// The entry whose packet is being sent, and the oldest that is not complete; null: none.
	const Wqe *sending() const { return fetched_ ? &fetched_->wqe : at_ < in_flight_.size() ? &in_flight_[at_]->wqe : nullptr; }
	const Wqe *oldest() const { return in_flight_.empty() ? nullptr : &in_flight_.front()->wqe; }
	// Raises the event that was asked for when nothing is in flight any more.
	void check_drained();
	// The state has become `error` or `sqe`: all entries end as flushed.
	void flush();
	// DC: tells the target that we are gone.
	void leave(Nic &nic);

private:
	// An entry that has been taken from the queue and is not complete yet.
	struct Sent {
		Wqe wqe;
		uint32_t psn, packets; // its range
		Syndrome error;        // local
		// What a READ or an atomic operation has brought, when it goes into the completion.
		uint32_t brought;
		std::array<uint8_t, 64> answer;
	};
	bool fetch();
	bool strike(Nic &nic);
	bool may_start(const Sent &entry) const;
	bool is_target(const Wqe &wqe) const;
	void start(Nic &nic);
	void switch_target(Nic &nic, const Wqe &wqe);
	void address(Packet &packet) const;
	bool send(Nic &nic, Sent &entry);
	bool send_datagram(Nic &nic);
	bool acknowledged(Nic &nic, uint32_t psn);
	void advance(Nic &nic, uint32_t psn);
	void go_back(uint32_t psn);
	void retry(Nic &nic, uint32_t psn);
	void ask_again(Nic &nic, uint32_t psn);
	void refused(Nic &nic, const Packet &packet);
	void response(Nic &nic, const Packet &packet, const uint8_t *payload);
	bool take_answer(Sent &entry, uint64_t offset, const uint8_t *bytes, uint32_t n);
	// Whether the program gets a completion for it, also when all goes well.
	bool completes(const Sent &entry) const;
	void complete(const Sent &entry);
	void complete_with_error(const Wqe &wqe, Syndrome syndrome);
	void fail(Nic &nic, Syndrome syndrome);
	void arm_timer(Nic &nic);
	uint32_t outstanding() const { return static_cast<uint32_t>(psn_distance(sent_, una_)); }

	Qp &qp_;
	uint16_t next_ = 0, producer_ = 0; // units of the ring, modulo 2^16
	std::unique_ptr<Sent> fetched_;    // waits until it may start
	std::deque<std::unique_ptr<Sent>> in_flight_;
	size_t at_ = 0;                    // which of these is being sent; in_flight_.size(): none
	uint32_t psn_ = 0;                 // of the next packet to send
	uint32_t sent_ = 0;                // after the last that was ever sent
	uint32_t una_ = 0;                 // the first that is not acknowledged
	uint32_t end_ = 0;                 // after the range of the last entry
	unsigned reads_ = 0;               // READs and atomics in flight
	Time deadline_ = 0, not_before_ = 0; // 0: none
	unsigned retries_ = 0, rnr_retries_ = 0; // since something was acknowledged
	uint64_t fetch_reads_ = 0, fetch_bytes_ = 0; // of the last ring
	bool not_ready_ = false;           // what is sent again is so because a receive was wanting
	bool asked_again_ = false;         // sent again, and nothing has come of it yet
	uint64_t posted_ = 0;              // position of our last packet on the way to the other side
	// DC: whom we are connected to.
	bool connected_ = false;
	uint16_t target_lid_ = 0;
	uint32_t target_ = 0, connection_ = 0, connect_psn_ = 0;
	uint64_t target_key_ = 0;
};

class Responder {
public:
	Responder(Qp &qp, uint16_t lid, uint32_t number) : qp_(qp), lid_(lid), number_(number) {}

	// Serves the requester of that address from packet `psn` on.
	void begin(uint16_t lid, uint32_t number, uint32_t psn);
	// A packet from the requester of the other side.
	void handle(Nic &nic, const Packet &packet, const uint8_t *payload);
	// Sends what is owed to it, at most `burst` packets. True when something is left.
	bool respond(Nic &nic, unsigned burst);
	// Sends what it can at once of that: READs would take their time.
	void settle(Nic &nic);
	// Forgets everything; a receive of a message that is not complete ends as flushed.
	void flush();

	Qp &qp() { return qp_; }
	uint32_t requester() const { return number_; }
	uint32_t connection = 0; // DC: which of the initiator's
	bool queued = false;     // the NIC will call respond()

private:
	enum class Message : uint8_t { none, send, write };
	// What is owed to the requester, in order.
	struct Owed {
		PacketKind kind; // acknowledge, refuse, read_response or atomic_response
		Refusal reason;
		uint32_t psn;    // of the next packet
		bool again = false; // an answer that has been given before
		// Of a READ, what is still to send.
		uint64_t address = 0;
		uint32_t bytes = 0, key = 0;
		bool begun = false;
		uint64_t value = 0; // of an atomic operation: what was there before
	};
	struct AtomicResult {
		uint32_t psn;
		uint64_t value;
	};
	Refusal execute(Nic &nic, const Packet &packet, const uint8_t *payload);
	void duplicate(Nic &nic, const Packet &packet);
	Refusal receive_send(const Packet &packet, const uint8_t *payload);
	Refusal receive_write(const Packet &packet, const uint8_t *payload);
	Refusal receive_read(Nic &nic, const Packet &packet);
	Refusal receive_atomic(Nic &nic, const Packet &packet);
	Refusal take_receive();
	Refusal fail_receive(const Packet &packet, Syndrome syndrome, Refusal reason);
	void finish_receive(const Packet &packet, CqeKind kind, uint64_t bytes, std::span<const uint8_t> payload = {});
	void break_off(Nic &nic, uint32_t psn, Refusal reason);
	void end(Nic &nic);
	bool owes_too_much(bool again) const;
	void owe(Nic &nic, const Owed &owed);
	void owe_read(Nic &nic, const Packet &packet, bool again);
	bool readable(const Owed &owed) const;
	bool pay(Nic &nic, Owed &owed);
	Completion completion(const Packet &packet) const;

	Qp &qp_;
	uint16_t lid_;
	uint32_t number_;           // of the requester
	uint32_t expected_ = 0;
	bool refused_ = false;      // nothing is answered until the expected packet comes
	bool not_ready_ = false;    // because a receive was wanting
	Message message_ = Message::none;
	bool has_receive_ = false;
	Receive receive_{};
	uint64_t done_ = 0;         // bytes of the message so far
	uint64_t address_ = 0;      // of a WRITE: where it began
	uint32_t key_ = 0, length_ = 0;
	// Why the connection ends, at which packet; nothing is carried out any more. It has ended when that has been sent.
	Refusal final_ = Refusal::none;
	uint32_t final_psn_ = 0;
	bool ended_ = false;
	bool told_ = false;         // the program knows, by the completion of a receive
	std::deque<Owed> owed_;
	std::deque<AtomicResult> atomics_; // of the last ones
};

struct Qp {
	Qp(Context &c, QpKind k) : context(c), kind(k), requester(*this), responder(*this, 0, 0) {}

	Context &context;
	const QpKind kind;
	std::shared_ptr<Pd> pd;
	std::shared_ptr<Cq> send_cq, receive_cq;
	std::shared_ptr<Srq> srq;
	uint32_t number = 0, user_index = 0;
	uint64_t user_handle = 0;
	uint64_t access_key = 0; // DC target
	bool signal_all = false;
	uint32_t async_events = 0;
	QpState state = QpState::reset;
	bool drain_event = false; // asked for with the step to `sqd`
	bool overrun = false;     // of one of its completion queues: it is to be broken
	QpSettings settings;
	// Payload of so many bytes, of a message received and of an answer to a READ or an atomic operation, comes in the
	// completion; 0: none does.
	uint32_t most_in_receive_entry = 0, most_in_request_entry = 0;
	uint32_t max_send_wr = 0, max_recv_wr = 0, max_send_sge = 0, max_recv_sge = 0, max_inline = 0;

	// The rings, in memory of the program.
	std::span<const uint8_t> send_ring, receive_ring;
	uint32_t receive_stride = 0;
	uint32_t *doorbell = nullptr; // big-endian: receives posted, units of the send ring filled; modulo 2^16
	uint32_t uar = 0;             // page it rings
	uint16_t received = 0;        // receives consumed

	Requester requester;
	Responder responder;          // not of a DC target
	std::map<uint64_t, std::unique_ptr<Responder>> initiators; // DC target: by LID and number
	std::map<uint64_t, uint32_t> last_connections; // of initiators that have left, by the same
	Counters *counters = nullptr, *device_counters = nullptr;

	// As the NIC keeps it.
	bool ready = false;           // in the list of those with something to send
	size_t watched = 0;           // place in the list of those it looks at, from 1 on; 0: it does not

	void count(Counter counter, uint64_t n)
	{
		counters->add(counter, n);
		device_counters->add(counter, n);
	}
	// What the doorbell record of the send queue says.
	uint16_t send_producer() const;
	// Takes the next receive; false when there is none.
	bool take_receive(Receive &receive);
	// Writes a completion; when its queue has overrun, the queue pair will be broken: not at once, callers are not done.
	void complete(Cq &cq, Completion completion, bool solicited);
	// To `error`, with everything that is in the queues; nothing happens when it is there already.
	void enter_error(Nic &nic);
	// Ends receives that were posted, as flushed; whether there were any.
	bool flush_receives();
	// Tells the program of an event.
	void report(Event event);
	// To `reset`: as if it had just been made.
	void reset(Nic &nic);
	// A packet for this queue pair.
	void handle(Nic &nic, const Packet &packet, const uint8_t *payload);

private:
	void forget_dead_initiators(Nic &nic);
	void handle_initiator(Nic &nic, const Packet &packet, const uint8_t *payload);
};

} // namespace softhca
