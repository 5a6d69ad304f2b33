// A request: one send, receive, one-sided operation or call in flight.
#pragma once

#include <cstddef>
#include <cstdint>

#include "message/matching/matching.hpp"
#include "message/request/details.hpp"

namespace pt2p {

//   free --> posted --> moving --> done --> free        receive: posted until a message matches, moving while a large
//                                                       message comes in
//   free -------------> moving --> done --> free        send: moving while queued, or until the receiver has the data
//   free ----------> one_sided --> done --> free        one-sided operation, or call: their layers complete them
// A detached request, which nobody waits for, becomes finished instead of done: the engine frees it in a later turn.
// A request has two cache lines: one that only a receive needs, and one that both need. A send that is done at once
// touches the second line alone.
struct alignas(64) Request : PostedReceive {
	enum class State : uint8_t { free, posted, moving, one_sided, done, finished };
	// As source, which sends do not have: costs them nothing. Of one-sided operations, and of calls.
	static constexpr int no_source = -2, call_source = -3;

	// Receive of an announced message.
	uint64_t sender_token = 0;
	union {
		size_t received = 0; // in pieces
		void *exposure;      // of the buffer
	};

	uint64_t handle = 0; // see HandlePool
	State state = State::free;
	bool is_send = false;
	// Which messages about it the peer may still send while it moves.
	bool awaits_answer = false; // send: announced or synchronous, neither accepted nor finished
	uint8_t of_message = 0;     // receive, see OfMessage
	bool exposed = false;       // the buffer is reachable for the peer. False again before the request is done
	// What few requests have; 0 for the others, and while it is free. Looked at when the request has completed.
	enum Special : uint8_t { detached = 1, with_details = 2, nested = 4 /* see Callbacks */ };
	uint8_t special = 0;
	enum OfMessage : uint8_t { in_pieces = 1 /* accepted, comes in pieces */, with_data = 2 /* in `data` */ };
	pt2p_status_t status = PT2P_OK;
	int peer = 0; // destination, or source once known; for a lost peer, that peer
	uint64_t message_tag = 0;
	size_t length = 0; // bytes of the message
	union {
		void *buffer = nullptr;
		const char *operation; // one-sided, call: its name
	};
	// Receive: bytes of the buffer. The highest bit is set, so that it is negative, when the request is special: one
	// comparison tells whether a message needs only a copy.
	int64_t room = 0;
	union {
		Request *next_free = nullptr;
		Details *details; // of with_details
	};

	void start_send(size_t bytes, int dest, uint64_t with_tag, State with_state)
	{
		state = with_state;
		is_send = true;
		awaits_answer = false;
		of_message = 0; // neighbours: the four are one store
		status = PT2P_OK;
		peer = dest;
		message_tag = with_tag;
		length = bytes;
	}
	void start_receive(void *into, size_t bytes, int from, uint64_t with_tag, uint64_t with_mask)
	{
		source = from;
		tag = with_tag;
		mask = with_mask;
		state = State::posted;
		is_send = awaits_answer = false;
		of_message = 0; // here, too
		status = PT2P_OK;
		peer = from;
		message_tag = with_tag;
		length = 0;
		buffer = into;
		room = static_cast<int64_t>(bytes);
	}

	bool active() const { return state != State::free; }
	bool done() const { return state == State::done; }
	bool comes_in_pieces() const { return of_message & in_pieces; }
	bool has_data() const { return of_message & with_data; }
	bool is_one_sided() const { return !is_send && source == no_source; }
	bool is_call() const { return !is_send && source == call_source; }
	bool in_segments() const { return (special & with_details) && details->count; }
	bool is_reading_runs() const { return (special & with_details) && details->phase != Details::Phase::none; }
	bool is_detached() const { return special & detached; }
	size_t capacity() const { return static_cast<size_t>(room & INT64_MAX); }
	// Receive: bytes that go into the buffer.
	size_t expected() const { return length < capacity() ? length : capacity(); }
	void make_special(Special what)
	{
		special |= what;
		room |= INT64_MIN;
	}
};
static_assert(sizeof(Request) == 128);

// The handle of a request as the program sees it.
inline pt2p_request_t *to_handle(const Request *r) { return reinterpret_cast<pt2p_request_t *>(r->handle); }

} // namespace pt2p
