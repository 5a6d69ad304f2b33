// What ranks send each other for calls.
//
//   caller                                            server
//   CALL(number; service, windows, input) -->         with all of the input, or with its beginning:
//   MORE(number; bytes) --> ...                       the rest follows
//                       <-- REPLY(number; word, status, data)    the same
//                       <-- REST(number; bytes) ...
//   CANCEL(number; abandoned) -->                     the caller would rather have no reply, or takes none any more
//
// Windows that fit are carried (windows.hpp): the bytes of `give` by CALL, those that the server pushes by PUSHED
// before the reply, and the last of these by the reply itself:
//                       <-- PUSHED(number; offset, bytes) ...
//                       <-- REPLY(number; word, status, offset, bytes, data)
//
// An input of 64 KiB and more is a window as well: the server gets its bytes itself (windows.hpp). So is such a reply:
//                       <-- REPLY(number; word, window)
//   FETCHED(number) -->                               the caller has got its bytes
//
// Short forms of CALL and REPLY, if all goes in one message and there is neither a deadline nor a window nor a failure:
//   SHORT_CALL(number; service, input) -->
//                       <-- SHORT_REPLY(number; word, data)
//
// A caller may fetch the result instead (results.hpp): CALL says so once it knows where results lie.
//                       <-- RESULTS(slots; where they lie)
//   CALL(number; ...) -->                             the result is in its slot; nothing comes back
//   PUSH_IT(number) -->                               unless the caller asks for a REPLY after all
//
// Half of a call, or all of it, may go by datagram (datagrams.hpp):
//                       <-- GONE                      no call by datagram is answered any more
//
// Where the library chooses (laws/way_back.hpp), what comes back says how later results are to get to the caller:
//   a reply over the connection    fetch_bit of its number: they are to be fetched. The first time, RESULTS says so
//                                  datagram_bit: they are to go by datagram
//   a result that was fetched      `stop`: they are to be fetched no more
//   a reply by datagram            stop_bit of its number: they are to go by datagram no more
//
//   NOTICE(service, input) -->                        a call without a reply, whose input fits in one message
//                       <-- TAKEN(how many)           from time to time: notices that this rank has taken so far
//
// The number of a call has the slot that it occupies at both ends in its lowest 16 bits. A caller has `window` slots
// for each server (PT2P_CALL_WINDOW), and more for nested calls. A slot is free again when the whole reply is there, so
// a reply always finds its place kept, and a server holds at most so many calls of each caller, and those that its own
// calls have brought about.
//
// All messages of a call go over one lane of the endpoint (Endpoint::lane()), which has an order of its own, unless
// that breaks before the first of them has left. So does the reply, over the lane that the call names. FETCHED may be
// overtaken by the next call in the slot, over another lane, which says the same.
//
// A call that lends memory ends when the server has answered, or is lost: nothing moves from then on. If the deadline
// passes before, the server answers CANCEL once its transfers have ended, and starts no others.
//
// Why calls do not deadlock. A call waits for a slot of the pair (caller, server), and nothing else does. Replies,
// CANCEL and TAKEN wait for nothing but room in a transport, which a rank gets as long as its peer makes progress. So a
// server always gets rid of its replies, and every slot whose call is replied to becomes free. A nested call, which a
// handler makes, or a callback of what a handler has started, waits for no slot of the window (up to max_slots): those
// may be held by calls that wait for this very handler, as when two ranks call each other back. What remains is the
// program's: handlers that wait for each other in a circle, and calls that are kept while other code makes calls for
// them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "message/extension.hpp"
#include "onesided/operation.hpp"
#include "rpc/results.hpp"

namespace pt2p::rpc {

enum WireId : uint8_t {
	id_call = calls_range.first_id,
	id_notice,
	id_more,
	id_cancel,
	id_reply,
	id_rest,
	id_taken,
	id_fetched,
	id_short_call,
	id_short_reply,
	id_pushed,
	id_results,
	id_push_it,
	id_gone,
};
static_assert(id_gone <= calls_range.last_id);

constexpr uint32_t max_slots = 16384; // of a pair, with those of nested calls
constexpr uint64_t fetch_bit = UINT64_C(1) << 63, datagram_bit = UINT64_C(1) << 62, stop_bit = datagram_bit;
// In place of a pt2p_delivery_t: by datagram, as the server has asked.
constexpr uint8_t by_datagram_as_asked = PT2P_DELIVERY_DATAGRAM + 1;
inline uint32_t slot_of(uint64_t number) { return static_cast<uint32_t>(number & 0xffff); }

struct CallHead {
	uint32_t service;
	uint16_t lane;
	uint16_t window;        // notices that the server may hold of this caller
	int64_t remaining;      // until the deadline, ns; 0: there is none
	uint64_t lane_back : 2; // of the endpoint; for the reply
	uint64_t length : 54;   // of the whole input, bytes
	uint64_t windows : 4;   // a bit for each that is lent and follows, in the order of Window; then Carried
	uint64_t reply_by : 3;  // pt2p_delivery_t, or by_datagram_as_asked
	uint64_t fetches : 1;   // the caller fetches the result
};
static_assert(sizeof(CallHead) == 24);

// Lengths of the windows that are carried, bytes. Those of `give` follow, before the input.
struct Carried {
	uint16_t give, take;
};

struct CallLanes {
	uint16_t service; // of the service
	uint16_t back;    // of the endpoint, for the reply
};

struct ShortCall {
	uint32_t service;
	CallLanes lanes;
};
static_assert(sizeof(ShortCall) == 8);

struct ReplyHead {
	uint64_t word;
	uint64_t length : 54; // of the whole reply, bytes
	uint64_t lent : 1;    // it is a window, which follows
	uint64_t pushed : 1;  // Pushed follows, and its bytes, before those of the reply
	uint64_t status : 8;
};
static_assert(sizeof(ReplyHead) == 16);

// Bytes of a carried window.
struct Pushed {
	uint32_t offset, length;
};

// Where the results of a caller lie. Its header has their number, and the bytes of one from bit 32 on.
struct ResultsOffer {
	onesided::LentMemory memory;
	uint32_t service;
	ToFetch what;
};
static_assert(sizeof(ResultsOffer) == 48); // a control message

// Said of a peer that sends something else.
inline constexpr const char *wrong_message = "a message about a call that does not exist or has the wrong length";

} // namespace pt2p::rpc
