// What engines send each other.
//
//   eager        EAGER(tag, payload)                                 the payload is copied when sent
//   synchronous  SYNCHRONOUS(tag, token, payload) -->                the same, and the sender is told of the match;
//                                  <-- FINISHED                      long ones, and those without room, are announced
//   with data    WITH_DATA(tag, data, payload)                       an eager message with a word beside its payload
//   rendezvous   ANNOUNCE(tag, length, memory[, data]) -->                   the receiver reads the sender's memory:
//                                  <-- FINISHED                      get by the transport, no copy in between
//                or                <-- ACCEPT(length, memory)         the sender writes the receiver's memory:
//                WRITTEN -->                                         put by the transport, then a notice
//                or                <-- ACCEPT(length)                where neither can be done:
//                PIECE, PIECE, ... -->                               the sender streams pieces
//
// Order: EAGER and ANNOUNCE of one pair travel in order on one channel and are matched in the order of arrival.
// STOP_EAGER tells a sender to announce all its messages, because too many unexpected bytes wait at the receiver.
// RESUME_EAGER undoes it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "transports/transport.hpp"

namespace pt2p::wire {

enum Id : uint8_t {
	id_eager = 1,
	id_announce,
	id_accept,
	id_piece,
	id_finished,
	id_written,
	id_stop_eager,
	id_resume_eager,
	id_barrier,
	id_synchronous,
	id_barrier_failed,
	id_with_data,
};

struct Announcement {
	uint64_t length, token;
	RemoteMemory memory;
	uint64_t exposed; // 0: `memory` may not be read; 1: it may; more: it is a list of so many segments
};

// Of a message with a word beside its payload.
struct AnnouncementWithData {
	Announcement announcement;
	uint64_t data;
};

struct Acceptance {
	uint64_t token, length;
	RemoteMemory memory;
	uint64_t exposed; // whether `memory` may be written: else in pieces
};

// Copies what a control message carries: it may be unaligned, and a peer may go on writing to it. False: the length is
// wrong.
template <class T>
bool read(T &value, const void *data, size_t length)
{
	if (length != sizeof value)
		return false;
	std::memcpy(&value, data, sizeof value);
	return true;
}

} // namespace pt2p::wire
