// SPDX-License-Identifier: BSD-3-Clause
// Two contexts of an in-process job. They exchange real messages while the input forges what rank 1 gets from rank 0.
#pragma once

#include <memory>
#include <vector>

#include "api/context.hpp"
#include "tests/fuzz/input.hpp"
#include "transports/shm/shm.hpp"

namespace fuzz {

using namespace pt2p;

class Pair {
public:
	// gentle: a peer that lies only in ways that look right, so that it is not given up at the first message.
	Pair(bool single_copy, bool tight, bool gentle);
	~Pair();
	void run(Input in);

private:
	void step(Input &in);
	bool given_up() const;

	// ---- honest operations (pair.cpp)

	struct Held {
		pt2p_request_t *request;
		std::unique_ptr<unsigned char[]> buffer;
		bool is_send;
	};

	void receive(Input &in, int rank);
	void send(Input &in, int from, int to);
	void keep(int rank, pt2p_request_t *r, std::unique_ptr<unsigned char[]> buffer, bool is_send);
	void collect(Input &in) { collect_from(in.byte() % 2); }
	// Frees the buffers of what has ended, so that AddressSanitizer catches whoever still uses them. With single copy,
	// buffers of sends are kept: the other context may still get them, as it has the address from the announcement.
	// Between processes the kernel would check that.
	void collect_from(int rank);
	// Gives rank 1 memory that rank 0 may operate on, amid bytes that nobody may touch.
	void share(unsigned char *memory);
	void check_guards() const;
	// An operation of rank 0 on that memory. Now and then the memory goes.
	void one_sided(Input &in);
	// Services of both ranks; a step of a call between them (forged_calls.cpp).
	void open_services();
	void call(Input &in);

	// ---- forged messages (forged_messages.cpp)

	uint64_t any_number(Input &in);
	// The handle of one of rank 1's sends or receives.
	uint64_t live_handle(Input &in, bool is_send) const;
	// A message that an honest peer could send, though perhaps not now.
	void plausible(Input &in);
	// Any message, straight to the engine, as a transport would deliver it.
	void forge_message(Input &in);
	// Several of them in one, as a receiver over a device takes them apart.
	void forge_bundle(Input &in);
	// Fills the payload of one of the engine's own messages with the numbers that tell most: what was handed out, and
	// its neighbours. Returns the payload's length.
	size_t control_payload(Input &in, uint8_t id, unsigned char *payload);

	// ---- forged rings (forged_rings.cpp)

	void forge_slot(Input &in);
	void forge_header(Input &in);
	void forge_payload_at_end(Input &in);
	size_t a_slot(Input &in); // where the reader looks next, or anywhere
	void ring_doorbell();

	// ---- forged one-sided operations (forged_one_sided.cpp)

	// An operation of rank 0 on memory of rank 1 as a peer would ask for it, with numbers that are nearly right.
	void forge_one_sided(Input &in);

	// ---- forged calls (forged_calls.cpp)

	// A message about a call as rank 0 would send it, with numbers that are nearly right.
	void forge_call(Input &in);

	std::vector<std::unique_ptr<unsigned char[]>> sent_;
	pt2p_context_t *ctx_[2] = {};
	shm::ShmTransport *shm_ = nullptr;
	shm::Ring ring_;
	uint32_t slots_ = 0, data_bytes_ = 0;
	bool single_copy_, gentle_;
	std::vector<Held> requests_[2];
	std::vector<uint64_t> tokens_; // handles that were given out
	static constexpr size_t shared_bytes = 600;
	alignas(8) unsigned char guarded_[64 + shared_bytes + 64];
	unsigned char *const in_reach_ = guarded_ + 64;
	unsigned char private_[shared_bytes] = {};
	pt2p_memory_t *mem_ = nullptr;
	pt2p_remote_t *remote_[2] = {};
	pt2p_service_t *services_[2] = {};         // those with lanes
	std::vector<pt2p_call_t *> kept_calls_[2]; // that have no reply yet
};

// Announcements are length, token, address, key, flag; acceptances token, length, and the same. Forged ones get an
// address within memory of their own: in one process a get reads the address that it is told without asking the kernel.
void bound(uint8_t id, uint64_t *words);

} // namespace fuzz
