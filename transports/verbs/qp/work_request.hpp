// A work request and its target, as a send queue gets them. The caller has resolved where the payload is and where it
// goes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>

#include "transports/transport.hpp"
#include "transports/verbs/mlx5/wqe.hpp"
#include "transports/verbs/tuning/channel.hpp"

namespace pt2p::verbs {

struct Operation;
struct WorkRequest;

enum class QueueKind : uint8_t {
	connection, // reliable
	initiator,  // of DC
	datagrams,  // all that it sends is SEND with immediate data
};

// A queue pair at the other end that each work request names: of DC, or of datagrams.
struct RemoteQueue {
	ibv_ah *path = nullptr;
	uint32_t number = 0;
	uint64_t key = 0; // DC access key, or Q_Key
	mlx5_wqe_av av{}; // the same, as in a WQE
};

// A peer, as a send queue sees it.
struct Target : Endpoint {
	const RemoteQueue *remote = nullptr; // null: reached by a reliable connection
	uint32_t in_flight = 0;              // work requests that are not complete
	bool ready = false;                  // connected if need be, and not down
	bool down = false;
	bool answered = false;     // something has completed since this was last cleared: it is alive
	uint64_t inline_bytes = 0; // of completed inline messages
	// WQEs outside the short path: messages among them, WQEs, WQEBBs. The last also counts what messages of the short
	// path have beyond one WQEBB over a reliable connection.
	struct {
		uint64_t messages = 0, wqes = 0, wqebbs = 0;
	} encoded;
	std::unique_ptr<tune::ChannelTuner> tuner; // null: nothing is tuned

	// Whether it has read this message from its write ring. The slot may then hold a later one.
	virtual bool has_read(const WorkRequest &ring_write) = 0;
};

enum class Kind : uint8_t {
	send,           // a message by SEND
	ring_write,     // a message by WRITE, into a write ring
	consumer_index, // of a write ring, written to its sender
	probe,          // a WRITE of no bytes
	read,
	write,
	fetch_add,
	compare_swap, // read and later: one-sided operations
};

// Where the device reads the payload, or writes it.
enum class Payload : uint8_t {
	inlined,       // in the WQE
	buffer,        // in a buffer of the library
	device_memory, // in a cell of device memory
	result,        // result of an atomic, in a word of the library
	memory,        // in the program's memory
	none,
};

struct alignas(64) WorkRequest {
	static constexpr size_t max_inline = 64;

	Kind kind = Kind::send;
	bool abandoned = false; // nobody waits for it
	Payload payload = Payload::inlined;
	uint8_t unused = 0;
	uint32_t length = 0; // bytes that the device moves, including a message's header
	Target *target = nullptr;
	uint32_t place = 0;  // of the buffer, cell or result
	uint32_t number = 0; // ring_write: of the message in the ring; a datagram of no bytes: its immediate data
	uint64_t local_address = 0, remote_address = 0;
	uint32_t local_key = 0, remote_key = 0;
	Operation *operation = nullptr; // the operation that this is a part of
	void *copy_to = nullptr;        // destination of a copy after completion; null: none
	// Inline payload. A message of the short path has it only in the device's queue while it is there. Atomics:
	// operand, and expected value.
	unsigned char bytes[max_inline];

	// The usual case, found by one comparison: an inline message by SEND that is not abandoned.
	bool is_plain() const
	{
		uint32_t front;
		std::memcpy(&front, static_cast<const void *>(this), sizeof front);
		return front == 0;
	}
	void make(Kind k) // one store
	{
		kind = k;
		abandoned = false;
		payload = Payload::inlined;
		unused = 0;
	}
	bool is_operation() const { return kind >= Kind::read && !abandoned; }
	bool is_atomic() const { return kind >= Kind::fetch_add; }
	bool is_inline() const { return payload == Payload::inlined; }
	bool is_inline_message() const { return kind <= Kind::ring_write && is_inline(); }
	tune::SizeClass size_class() const
	{
		if (kind > Kind::probe)
			return tune::SizeClass::bulk;
		return payload == Payload::device_memory ? tune::SizeClass::device_memory
		       : payload == Payload::buffer      ? tune::SizeClass::buffer
		                                         : tune::SizeClass::inlined;
	}
	uint64_t operand() const { return word(0); }
	uint64_t compare() const { return word(1); }
	void set_operands(uint64_t operand, uint64_t compare)
	{
		std::memcpy(bytes, &operand, sizeof operand);
		std::memcpy(bytes + sizeof operand, &compare, sizeof compare);
	}

private:
	uint64_t word(size_t i) const
	{
		uint64_t value;
		std::memcpy(&value, bytes + i * sizeof value, sizeof value);
		return value;
	}
};

static_assert(sizeof(WorkRequest) == 128);
static_assert(offsetof(WorkRequest, unused) == 3 && static_cast<int>(Kind::send) == 0 &&
              static_cast<int>(Payload::inlined) == 0);

} // namespace pt2p::verbs
