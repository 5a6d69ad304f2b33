// The responder of a queue pair: executes what the requester on the other side asks for.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "softhca/kernel/objects.hpp"
#include "softhca/nic/completion.hpp"
#include "softhca/nic/packet.hpp"
#include "softhca/time/clock.hpp"
#include "softhca/wire/faults.hpp"

namespace softhca {

class Nic;
struct Qp;

class Responder {
public:
	Responder(Qp &qp, uint16_t lid, uint32_t number) : qp_(qp), lid_(lid), number_(number) {}

	// Serves the requester of that address from packet `psn` on.
	void begin(uint16_t lid, uint32_t number, uint32_t psn);
	// A packet from the requester of the other side.
	void handle(Nic &nic, const Packet &packet, const uint8_t *payload);
	// Sends answers, at most `burst` packets. True when something is left.
	bool respond(Nic &nic, unsigned burst);
	// Sends the answers that it can send at once: all before the first READ.
	void settle(Nic &nic);
	// Forgets everything; a receive of a message that is not complete ends as flushed.
	void flush();

	Qp &qp() { return qp_; }
	uint32_t requester() const { return number_; }
	uint32_t connection = 0; // DC: which of the initiator's
	bool queued = false;     // the scheduler will call respond()

private:
	enum class Message : uint8_t { none, send, write };
	// A READ whose bytes a fault rule takes from memory in pieces, with pauses after them.
	struct Torn {
		std::vector<Piece> pieces; // that are left, the next one last
		std::vector<uint8_t> bytes;
		uint64_t address; // of the first byte
		Time pause, until;
	};
	// An answer that the requester has not been sent yet.
	struct Owed {
		PacketKind kind; // acknowledge, refuse, read_response or atomic_response
		Refusal reason;
		uint32_t psn;       // of the next packet
		bool again = false; // it has been sent before
		// The rest of a READ.
		uint64_t address = 0;
		uint32_t bytes = 0, key = 0;
		bool begun = false;
		uint64_t value = 0;  // of an atomic operation: the old value
		bool looked = false; // at the fault rules
		std::shared_ptr<Torn> torn = nullptr;
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
	bool complete(Nic &nic, Owed &owed);
	bool pay(Nic &nic, Owed &owed);
	Completion completion(const Packet &packet) const;

	Qp &qp_;
	uint16_t lid_;
	uint32_t number_; // of the requester
	uint32_t expected_ = 0;
	bool refused_ = false;   // it answers nothing until the expected packet comes
	bool not_ready_ = false; // because there was no receive
	Message message_ = Message::none;
	bool has_receive_ = false;
	Receive receive_{};
	uint64_t done_ = 0;    // bytes of the message so far
	uint64_t address_ = 0; // of a WRITE: where it began
	uint32_t key_ = 0, length_ = 0;
	// Why the connection ends, and at which packet. Nothing is executed any more; the connection ends when the NAK is
	// sent.
	Refusal final_ = Refusal::none;
	uint32_t final_psn_ = 0;
	bool ended_ = false;
	bool told_ = false; // the completion of a receive has told the program
	std::deque<Owed> owed_;
	std::deque<AtomicResult> atomics_; // of the last ones
};

} // namespace softhca
