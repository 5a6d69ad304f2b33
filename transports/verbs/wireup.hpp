// Datagrams with which two ranks set up a connection. They may be lost, so whoever waits for an answer asks again.
//
// Anybody on the fabric can send a datagram. A valid one proves that its sender knows the secret of one of the two
// ranks, names the receiver, and has a higher number than all before it from the same rank. A recorded datagram is
// therefore worthless, at this rank and at others.
#pragma once

#include <cstddef>
#include <cstdint>

#include "transports/verbs/device/device.hpp"

namespace pt2p::verbs {

// Where a rank receives datagrams.
struct WireupAddress {
	PortAddress port;
	uint32_t number;
};

struct WireupMessage {
	enum class Kind : uint8_t {
		request, // here is my queue pair; send me yours
		accept,  // here is mine, ready to receive
		confirm, // mine is ready, too
		refuse,  // I cannot connect: `reason` says why
		part,    // I count you as lost, and do not connect any more
		bye,     // I have called pt2p_finalize, and do not connect any more
	};
	uint64_t number; // counts the datagrams of the sender, from 1
	WireupAddress from;
	int32_t rank, to; // sender; receiver
	uint32_t qp, psn; // the sender's queue pair; in a refusal, psn holds the low bits of the refused number
	uint32_t attempt; // counts how often this connection was made, from 1
	Kind kind;
	uint8_t connection; // which connection of the two ranks; 0 carries the messages
	char reason[90];    // zero-terminated
	uint64_t proof;     // of all fields above

	uint64_t proof_by(const Secret &secret) const { return proof_of(secret, this, offsetof(WireupMessage, proof)); }
};
static_assert(offsetof(WireupMessage, proof) + sizeof(uint64_t) == sizeof(WireupMessage));

class Wireup {
public:
	// `channel` gets its events; may be null. Throws Error.
	Wireup(const Device &device, ibv_comp_channel *channel, int numa_node);

	uint32_t number() const { return qp_->qp_num; }
	// Adds number and proof, and sends; best effort.
	void send(const WireupAddress &to, WireupMessage &message, const Secret &secret);
	uint64_t next_number() const { return number_ + 1; }
	// The next message that has come, not yet verified; false: there is none.
	bool take(WireupMessage &message);
	bool idle() const { return sent_ == done_; }
	// Datagrams so far that were no messages.
	uint64_t strange() const { return strange_; }
	// Requests an event with the next message.
	bool arm() { return ibv_req_notify_cq(cq_.get(), 0) == 0; }

private:
	static constexpr uint32_t slots = 64;
	static constexpr size_t slot_bytes = 256;
	static_assert(slot_bytes >= route_header + sizeof(WireupMessage));
	int start(); // returns an errno; 0: done
	void start_again();
	void post_receive(uint32_t slot);

	const Device &device_;
	RegisteredMemory memory_; // receive slots, then send slots
	CqOwner cq_;
	QpOwner qp_;
	AhOwner handles_[slots]; // of datagrams in flight
	uint32_t sent_ = 0, done_ = 0;
	uint64_t number_ = 0, strange_ = 0;
	bool broken_ = false;
};

} // namespace pt2p::verbs
