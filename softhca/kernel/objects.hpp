// Objects of an open device: protection domains, memory regions, device memory, completion queues, shared receive
// queues. Queue pairs are in nic/qp/queue_pair.hpp.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <span>

#include "softhca/nic/completion.hpp"
#include "softhca/nic/wqe.hpp"

namespace softhca {

class Context;
class EventPipe;

// Asynchronous events, by the numbers of the verbs interface.
enum class Event : uint32_t {
	cq_error = 0,
	qp_fatal = 1,
	qp_request_error = 2,
	qp_access_error = 3,
	send_queue_drained = 5,
	device_fatal = 8,
	port_active = 9,
	port_error = 10,
	srq_limit_reached = 15,
	last_wqe_reached = 16,
};

struct Pd {
	uint32_t number;
	unsigned users = 0; // objects made with it
};

struct Dm {
	size_t offset, length; // bytes of the device memory
	unsigned users = 0;    // regions registered in it
};

struct Mr {
	std::shared_ptr<Pd> pd;
	std::shared_ptr<Dm> dm; // null: memory of the process
	uint64_t start, length; // in this process, or in the device memory
	uint64_t iova;          // the address that work requests use for `start`
	uint32_t access, key;   // local and remote key are the same number, as on hardware
};

struct Cq {
	Context *context;
	uint32_t number;
	uint32_t cqes;      // a power of two
	uint32_t cqe_bytes; // 64 or 128
	uint8_t *buffer;    // in this process
	uint32_t *doorbell; // big-endian records: consumer index, arm command
	uint64_t user_handle;
	std::shared_ptr<EventPipe> channel;
	bool ignore_overrun = false, overrun = false;
	uint32_t completion_events = 0, async_events = 0; // raised so far
	unsigned users = 0;                               // queue pairs

	uint32_t producer = 0;  // CQEs written
	uint32_t consumed = 0;  // the consumer index at the last take_consumed()
	uint32_t solicited = 0; // the value of `producer` after the last solicited CQE
	uint32_t notified = 0;  // the value of `producer` at the last event
	uint8_t fired = 3;      // sequence number (two bits) of the last arm command that has raised an event

	// Writes a CQE and raises the event that is due. False, for ever, when the queue has overrun.
	bool put(const Completion &completion, bool is_solicited);
	// Goes on in another buffer; the program copies what it has not polled. False when that has no room there.
	bool move(uint8_t *to, uint32_t count);
	// How many CQEs the program has read since the last call.
	uint32_t take_consumed();
	// Raises the event for an arm command that came after the CQE. True when it did.
	bool check_armed();
};

constexpr size_t max_receive_segments = 32;

// A receive WQE that a message has taken.
struct Receive {
	uint16_t index;
	uint64_t length; // of all segments
	std::array<DataSegment, max_receive_segments> segments;
	size_t segment_count;

	std::span<const DataSegment> all() const { return {segments.data(), segment_count}; }
};
// Reads the data segments of a receive WQE.
void parse_receive(std::span<const uint8_t> segments, Receive &receive);

// Receive WQEs that the device has read and no message has taken (model mode), and how long the read keeps a processing
// unit busy for each of them, in picoseconds.
struct ReadAhead {
	unsigned left = 0;
	uint64_t share = 0;
};

struct Srq {
	Context *context;
	std::shared_ptr<Pd> pd;
	uint32_t number;
	uint32_t entries; // WQEs, a power of two
	uint32_t stride;  // bytes of a WQE
	uint8_t *buffer;
	uint32_t *doorbell; // big-endian: WQEs posted so far, modulo 2^16
	uint64_t user_handle;
	uint32_t max_wr, max_sge;
	uint32_t limit = 0; // 0: no event asked for
	uint32_t async_events = 0;
	unsigned users = 0; // queue pairs

	uint16_t next = 0; // the WQE to take next: they form a list
	uint16_t taken = 0;
	uint16_t seen = 0; // the doorbell's value at the last look
	ReadAhead ahead;

	uint16_t available() const;
	bool take(Receive &receive);
	// Raises the limit event when fewer than `limit` are left.
	void check_limit();
};

// Objects by handle. A handle is reused as late as possible: a stale one finds nothing for long.
template <class T>
class Table {
public:
	explicit Table(uint32_t max) : max_(max) {}
	bool full() const { return objects_.size() >= max_; }
	uint32_t add(std::shared_ptr<T> object)
	{
		do
			last_ = last_ % (max_ * 2) + 1;
		while (objects_.count(last_));
		objects_[last_] = std::move(object);
		return last_;
	}
	std::shared_ptr<T> find(uint32_t handle) const
	{
		const auto found = objects_.find(handle);
		return found == objects_.end() ? nullptr : found->second;
	}
	bool remove(uint32_t handle) { return objects_.erase(handle) != 0; }
	template <class F>
	void for_each(const F &f)
	{
		for (const auto &[handle, object] : objects_)
			f(*object);
	}

private:
	std::map<uint32_t, std::shared_ptr<T>> objects_;
	uint32_t max_, last_ = 0;
};

} // namespace softhca
