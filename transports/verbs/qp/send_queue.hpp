// The send side of a queue pair, reliable connection or DC initiator alike: work requests in order, kept until their
// completion is known, so that they can be posted again when the queue pair breaks.
//
//   posted -----> rung -----> executed by the device -----> completed
//          ring()                                  a completion frees all before it; it is asked for every `period`
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>

#include "transports/verbs/tuning/channel.hpp"
#include "transports/verbs/tuning/spread.hpp"
#include "transports/verbs/device/device.hpp"
#include "transports/verbs/message/header.hpp"
#include "transports/verbs/mlx5/queues.hpp"
#include "transports/verbs/device/registrations.hpp"
#include "transports/verbs/message/write_ring.hpp"

struct mlx5dv_qp_ex;

namespace pt2p::verbs {

class Net;
class SendQueue;
struct Peer;

// Who looks after a queue pair.
class QueueOwner {
public:
	// It is in error: completions up to the failure have been read. `status` is that of the first that failed, success when
	// none has.
	virtual void on_broken(SendQueue &queue, ibv_wc_status status) = 0;
	// Whether all that it could still deliver is for somebody who has left: nothing need be waited for.
	virtual bool left() const { return false; }
	// Who answers when everything before is complete, when the last peer of a queue is down; null: nobody.
	virtual Peer *substitute() { return nullptr; }
	// Every few milliseconds: whether what is first in it keeps others waiting for ever.
	virtual void look_after(SendQueue &queue) { (void)queue; }

protected:
	~QueueOwner() = default;
};

// A peer, as what sends to it sees it.
struct Peer : Endpoint {
	Net *net = nullptr;
	uint32_t in_flight = 0;      // its work requests that are not complete
	uint64_t next_sequence = 0;  // goes on the wire as 32 bits, and counts the messages
	bool ready = false;          // connected, as far as need be, and not down
	bool down = false;
	bool answered = false;       // something was completed since this was last cleared: it lives
	int64_t last_sign = 0;       // of life
	OutgoingRing ring;           // to it
	std::unique_ptr<IncomingRing> incoming; // from it
	std::unique_ptr<tune::ChannelTuner> tuner; // null: nothing is tuned
	struct {
		uint64_t messages = 0, bytes = 0;
	} by_device_memory, by_buffer, bulk; // what is not inline; bulk: parts of operations
	uint64_t bulk_written = 0;           // of its bytes, those that this rank's device reads
	uint64_t device_memory_full = 0;     // messages that are in a buffer for that reason
	uint32_t most_queue_pairs = 1;       // that parts of operations may be spread over
	std::unique_ptr<tune::Spread> spread; // of these; null: none has been spread yet
	uint64_t inline_bytes = 0;           // of inline messages, once these are complete
	// Entries that were written to the device's queue in other than the short way, and the messages and blocks in these.
	struct {
		uint64_t messages = 0, entries = 0, blocks = 0;
	} laid_down;
	// What DC work requests are addressed with: by verbs, and as the device has it.
	ibv_ah *ah = nullptr;
	uint32_t dct = 0;
	uint64_t dc_key = 0;
	mlx5_wqe_av dc_address{};

	// A queue with room for a work request to it; null: none now.
	virtual SendQueue *acquire() = 0;
	// The same for a part that may be spread: it needs no order.
	virtual SendQueue *acquire_for_part() = 0;
	// The same for a message that nothing may be in front of, if others could be kept waiting by what it is for.
	virtual SendQueue *acquire_alone() { return acquire(); }
	// It is down: the device is to stop working on what is for it, and its operations fail.
	virtual void cut() = 0;
	Refusal refusal() const override;
};

enum class Kind : uint8_t {
	message,   // by SEND
	deposit,   // a message by WRITE, into a ring
	told,      // how much of a ring has been read
	probe,
	read, write, fetch_add, compare_swap, // one-sided operations
};

// A one-sided operation.
struct Operation {
	Kind kind;
	void *owner = nullptr;          // named when it is complete
	unsigned char *local = nullptr; // read and write: the program's memory
	uint64_t *result = nullptr;     // atomics: where the program wants what was there before
	size_t length = 0;
	RemoteMemory remote{};
	uint64_t operand = 0, compare = 0;
	Peer *peer = nullptr;
	// For Net only.
	// Where the device finds the bytes, or puts them: in the program's memory, in a buffer, or, of a write, in the work request.
	enum class Place : uint8_t { memory, buffer, entry } place = Place::memory;
	Registration *registration = nullptr; // of `local`, where that is the place
	bool spreads = false;                 // its parts may go by several queue pairs
	size_t posted = 0, done = 0;          // bytes
	pt2p_status_t status = PT2P_OK;       // of what has failed so far
	const char *reason = "";              // why
	Operation *next = nullptr;            // that waits for room
};

// A work request.
struct alignas(64) WorkRequest {
	Kind kind = Kind::message;
	bool abandoned = false;      // nobody waits for it
	bool placed = false;         // the message is at `place`, else here; or an operation's bytes, or result, are there
	bool on_device = false;      // that is a cell of device memory, else a buffer
	Peer *peer = nullptr;
	uint32_t length = 0;         // bytes of the message with its header, or of this part of an operation
	uint32_t place = 0;
	uint32_t number = 0;         // deposit: in the ring
	Operation *operation = nullptr;
	size_t offset = 0;           // in the operation
	// The message, when it is that short, or what is to be written; but while a message is in an entry that was written directly,
	// it is there.
	unsigned char bytes[64];

	// What most are: a message by SEND, inline, that is waited for. One comparison.
	bool is_plain() const
	{
		uint32_t front;
		std::memcpy(&front, static_cast<const void *>(this), sizeof front);
		return front == 0;
	}
	bool is_operation() const { return kind >= Kind::read && !abandoned; }
	bool is_atomic() const { return kind >= Kind::fetch_add; }
	bool is_inline() const
	{
		return kind <= Kind::told ? !placed : kind == Kind::write && operation->place == Operation::Place::entry;
	}
	bool is_inline_message() const { return kind <= Kind::deposit && !placed; }
	tune::SizeClass size_class() const
	{
		if (kind > Kind::probe)
			return tune::SizeClass::bulk;
		return !placed ? tune::SizeClass::inlined : on_device ? tune::SizeClass::device_memory : tune::SizeClass::buffer;
	}
	// Of what the device moves.
	uint32_t wire_length() const { return is_atomic() ? sizeof(uint64_t) : length; }
};

static_assert(offsetof(WorkRequest, on_device) == 3 && static_cast<int>(Kind::message) == 0); // for is_plain()

class SendQueue {
public:
	static constexpr size_t most_inline = sizeof(WorkRequest::bytes);

	// Takes the queue pair over.
	SendQueue(Net &net, QueueOwner &owner, QpOwner qp, uint32_t max_inline, bool dc);
	~SendQueue();
	SendQueue(const SendQueue &) = delete;
	SendQueue &operator=(const SendQueue &) = delete;

	ibv_qp *qp() const { return qp_.get(); }
	uint32_t number() const { return qp_->qp_num; } // of the queue pair
	bool room() const { return posted_ - completed_ < limit_; }
	// Whether everything that was posted is complete, as far as known.
	bool idle() const { return posted_ == completed_; }
	uint32_t outstanding() const { return posted_ - completed_; }
	// The number of the last work request; whether that of this number is complete.
	uint32_t posted() const { return posted_; }
	bool has_completed(uint32_t number) const { return static_cast<int32_t>(completed_ - number) >= 0; }
	bool works_for(const Peer &peer) const;

	// What has gone through it since it was made.
	struct Totals {
		uint64_t work_requests = 0, doorbells = 0;
		uint64_t fetched = 0;        // of the work requests, those whose entries did not go along with a doorbell
		uint32_t most_in_flight = 0;
	};
	Totals totals();
	uint32_t depth() const { return depth_; }
	// What the peer's counts do not have yet: of inline messages that are not complete.
	uint64_t inline_bytes_under_way(const Peer &peer) const;
	// Bytes of an entry that took the short way.
	size_t entry_bytes_at_once() const { return (dc_ ? 2 : 1) * mlx5::block_bytes; }

	// Each needs room().
	// Posts a message; false when there is no place for its payload.
	bool send(Peer &peer, uint8_t id, uint64_t header, const void *data, size_t length);
	// The short way (send_at_once.hpp) of a message of up to most_at_once bytes: what fits into one block beside what an entry of
	// a reliable connection needs. `dc`: whether this is a DC initiator; its entry has to be in one piece in the device's queue.
	static constexpr size_t most_at_once = mlx5::block_bytes - mlx5::SendRing::control_bytes - sizeof(mlx5_wqe_inl_data_seg) -
	                                       sizeof(MessageHeader);
	template <bool dc>
	bool goes_at_once(size_t length) const;
	template <bool dc>
	void send_at_once(Peer &peer, uint8_t id, uint64_t header, const void *data, size_t length);
	// Writes a word that tells the peer how much of its ring has been read.
	void tell(Peer &peer, const RingRequest &where, uint64_t value);
	// Posts one part of an operation.
	void post(Peer &peer, Operation &operation, size_t offset, size_t length, bool signal);
	// A write of no bytes, whose completion, or failure, tells whether the peer is there and frees all before it.
	void probe(Peer &peer);
	// Asks for a completion of everything that was posted, unless that has been done.
	void flush();
	// For who has to know when all is done: each of so many from the next one on is signalled, whatever the period.
	void signal_each(uint32_t work_requests);

	// Makes the device see what has been posted.
	void ring();

	// A completion has been read: of this work request and all before it.
	void complete(uint32_t upto);
	// The same for an entry of the device's queue: of its work request and all before it, or all before it.
	void complete_entry(uint16_t entry);
	void complete_before_entry(uint16_t entry);
	// The queue pair has been reset.
	void was_reset();
	// The queue pair is in error: nothing is posted, completions of flushed work requests mean nothing.
	bool broken() const { return limit_ == 0; }
	void set_broken();
	// The first that is not complete: after a failure, the one that has failed. Null: there is none.
	WorkRequest *front() { return idle() ? nullptr : &at(completed_); }
	// The queue pair works again: posts what is not complete once more, in order. Not what is for a peer that is down, and
	// not atomics, which the peer may have done already: those fail.
	void post_again();
	// Its operation fails, and it is not posted again.
	void abandon(WorkRequest &request, pt2p_status_t status, const char *reason = "");
	// The operations of this peer fail; its work requests are not posted again.
	void drop(Peer &peer);
	// Forgets everything that is not complete. The device must have stopped.
	void drop_all();

	QueueOwner &owner;
	uint32_t index = 0;  // in the table of queues
	bool listed = false; // among those that have to be rung

private:
	// Registered memory.
	struct Where {
		uint64_t address;
		uint32_t key;
	};

	// Takes one more.
	WorkRequest &next(Peer &peer, Kind kind, uint32_t length)
	{
		WorkRequest &request = at(posted_++);
		request.kind = kind;
		request.abandoned = request.placed = request.on_device = false; // with the kind, one store
		request.peer = &peer;
		request.length = length;
		++peer.in_flight;
		return request;
	}
	void signalled(uint32_t number)
	{
		signalled_ = number;
		due_ = number + (each_ ? 1 : period_);
		each_ -= each_ != 0;
		// Together, or the limit could be reached before anything is signalled.
		if (!broken())
			limit_ = std::max(period_, window_);
	}
	// This work request is signalled because a period is over. In net.hpp.
	void end_period(uint32_t number);
	void tune(uint32_t upto);
	void see_sample();
	void count();
	void stop_watching();
	void keep_messages();
	static RemoteMemory destination(const WorkRequest &request);
	static unsigned char *lay_down_remote(const WorkRequest &request, unsigned char *to);
	void lay_down(const WorkRequest &request, uint32_t number, bool signalled);
	void hand_over(const WorkRequest &request, uint32_t number, bool signalled);
	Where where_is(const WorkRequest &request) const;
	void submit(const WorkRequest &request, bool signal);
	void release(WorkRequest &request);
	void complete_other(WorkRequest &request);
	WorkRequest &at(uint32_t number) const { return ring_[number & mask_]; }
	// Of the signalled work request whose entry in the device's queue is this.
	uint32_t &number_of(uint32_t entry) { return numbers_[entry & (direct_->blocks() - 1)]; }

	Net &net_;
	const uint32_t from_; // this rank, as a message has it beside its id
	QpOwner qp_;
	ibv_qp_ex *ex_;
	mlx5dv_qp_ex *dc_ = nullptr;           // null: a reliable connection
	std::optional<mlx5::SendRing> direct_; // none: by verbs
	std::unique_ptr<uint32_t[]> numbers_;  // of work requests that are signalled, by entry of the device's queue
	uint16_t first_entry_ = 0;             // in the device's queue, of the first work request that is not complete
	const uint32_t depth_, mask_, max_inline_;
	uint32_t period_;
	const int64_t most_at_once_;           // longest payload that takes the short way, bytes; negative: none does
	const bool tuned_, tied_;
	uint32_t each_ = 0; // so many more are signalled before the period counts again
	// Counted from the beginning; work request n is at place n of the ring.
	uint32_t posted_ = 0, completed_ = 0, signalled_ = 0;
	uint32_t due_ = 0; // to be signalled
	uint32_t unrung_ = 0;
	uint32_t window_; // what may be under way beside a period: the depth, or what is tuned; nothing where that is tied
	uint32_t limit_;  // to what may be under way; nothing while it is broken
	// The signalled work request whose latency is being observed, if watching_.
	struct {
		uint32_t number;
		bool alone;    // the channel was idle before it
		int64_t since; // ticks
	} watched_{};
	bool watching_ = false;
	// The same of a message that is a sample of where it is staged.
	struct {
		uint32_t number;
		int64_t since;
	} sample_{};
	bool sampling_ = false;
	uint32_t times_idle_ = 0, periods_ = 0;
	// For totals().
	uint32_t counted_ = 0; // up to this number
	uint64_t work_requests_ = 0;
	uint64_t rung_together_ = 0, together_ = 0; // work requests that shared a doorbell, and such doorbells
	uint32_t most_in_flight_ = 0;
	bool measure_normal_ = false; // anew, with the next that is posted to an idle channel
	std::unique_ptr<WorkRequest[]> ring_;
};

} // namespace pt2p::verbs
