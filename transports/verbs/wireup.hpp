// How two ranks tell each other of a connection before they have one: short datagrams, which may be lost, so whoever
// waits for an answer asks again.
//
// Anybody on the fabric can send one. One that counts proves that its sender knows the secret of one of the two ranks,
// names the rank that it is for, and has a higher number than all before it from the same rank, so that one that was
// recorded is worth nothing, here or at another rank.
#pragma once

#include <cstddef>
#include <cstdint>

#include "transports/verbs/device/device.hpp"

namespace pt2p::verbs {

// Where a rank takes such datagrams.
struct WireupAddress {
	PortAddress port;
	uint32_t number;
};

struct WireupMessage {
	enum class Kind : uint8_t {
		request, // here is my queue pair; give me yours
		accept,  // here is mine, ready to receive
		confirm, // mine is ready, too
		refuse,  // I cannot make one: `reason` says why
		part,    // I count you as lost: there will be none any more
	};
	uint64_t number; // of the datagram, among all that the sender has sent; from 1
	WireupAddress from;
	int32_t rank, to; // of the sender; of the receiver
	uint32_t qp, psn; // of the sender's queue pair; in a refusal psn is the end of the number of what is refused
	uint32_t attempt; // counts the connections between the two, from 1
	Kind kind;
	uint8_t connection; // which of those between the two: 0 carries the messages
	char reason[90];    // ended by zero
	uint64_t proof;     // of all before it

	uint64_t proof_by(const Secret &secret) const { return proof_of(secret, this, offsetof(WireupMessage, proof)); }
};
static_assert(offsetof(WireupMessage, proof) + sizeof(uint64_t) == sizeof(WireupMessage));

class Wireup {
public:
	// `channel` gets its events; may be null. Throws Error.
	Wireup(const Device &device, ibv_comp_channel *channel, int numa_node);

	uint32_t number() const { return qp_->qp_num; }
	// Numbers it, adds the proof of knowing the secret, and sends it; best effort.
	void send(const WireupAddress &to, WireupMessage &message, const Secret &secret);
	uint64_t next_number() const { return number_ + 1; }
	// The next message that has come, from whomever; false: there is none.
	bool take(WireupMessage &message);
	// Datagrams so far that were no messages at all.
	uint64_t strange() const { return strange_; }
	// Asks for an event with the next message.
	bool arm() { return ibv_req_notify_cq(cq_.get(), 0) == 0; }

private:
	static constexpr uint32_t slots = 64, route_header = 40;
	static constexpr size_t slot_bytes = 256;
	static_assert(slot_bytes >= route_header + sizeof(WireupMessage));
	int start(); // an errno, 0: done
	void start_again();
	void post_receive(uint32_t slot);

	const Device &device_;
	RegisteredMemory memory_; // receive slots, then send slots
	CqOwner cq_;
	QpOwner qp_;
	AhOwner handles_[slots]; // of what is being sent
	uint32_t sent_ = 0, done_ = 0;
	uint64_t number_ = 0, strange_ = 0;
	bool broken_ = false;
};

} // namespace pt2p::verbs
