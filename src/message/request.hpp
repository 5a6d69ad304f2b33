// A request: one send, receive or one-sided operation in flight.
#pragma once

#include <cstddef>
#include <cstdint>

#include "message/matching.hpp"

namespace pt2p {

//   free --> posted --> moving --> done --> free        receive: posted until a message matches, moving while a large
//                                                       message comes in
//   free -------------> moving --> done --> free        send: moving while queued, or until the receiver has the data
//   free ----------> one_sided --> done --> free        one-sided operation: the one-sided layer sees to it
// Two cache lines: what only a receive needs, and what both need. A send that is done at once touches the second alone.
struct alignas(64) Request : PostedReceive {
	enum class State : uint8_t { free, posted, moving, one_sided, done };
	// As source, which sends do not have: costs them nothing.
	static constexpr int no_source = -2;

	// Receive of an announced message.
	uint64_t sender_token = 0;
	union {
		size_t received = 0; // in pieces
		void *exposure;      // of the buffer
	};

	uint64_t handle = 0;       // see HandlePool
	State state = State::free;
	bool is_send = false;
	// What the peer may still say about it while it moves.
	bool awaits_answer = false; // send: announced, neither accepted nor finished
	bool in_pieces = false;     // receive: accepted, comes in pieces
	bool exposed = false;       // the buffer is reachable for the peer. False again before the request is done
	pt2p_status_t status = PT2P_OK;
	int peer = 0;              // destination, or source once known; for a lost peer, that peer
	uint64_t message_tag = 0;
	size_t length = 0;         // bytes of the message
	union {
		void *buffer = nullptr;
		const char *operation; // one-sided: its name
	};
	size_t capacity = 0;       // receive: bytes of the buffer
	Request *next_free = nullptr;

	bool active() const { return state != State::free; }
	bool done() const { return state == State::done; }
	bool is_one_sided() const { return !is_send && source == no_source; }
	// Receive: bytes that go into the buffer.
	size_t expected() const { return length < capacity ? length : capacity; }
};
static_assert(sizeof(Request) == 128);

// What the user gets to see of a request.
inline pt2p_request_t *to_handle(const Request *r) { return reinterpret_cast<pt2p_request_t *>(r->handle); }

} // namespace pt2p
