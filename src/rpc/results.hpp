// Results that callers fetch (RFP, Remote Fetching Paradigm): the server leaves the result of a call in its memory, and
// the caller READs it. The server posts no work request for such a call, and over dct never changes an initiator's
// target.
//
//   slot   [ number | word | length, CRC, service time, consumer index | payload ... ]      64-byte lines
//
// A caller has a result slot for each of its slots (wire.hpp), or for the first of them. One READ brings the number,
// the length and the payload, or their beginning. The number is that of the call, so nothing is cleared, and what an
// earlier call has left never passes for the result.
//
// A READ may come in between. A device reads a line at once and lines in any order, and processors show their stores in
// order. The number is stored last and is in the first line, so a line with the number of the call is complete. A
// result that goes on in further lines has a CRC over everything, the number included; where it does not fit, the
// result is not there yet. This does not rest on the order in which a device reads.
//
// The caller owns the slot: it uses it for another call when all READs of the one before have ended. So no READ sees a
// later result in place of its own.
//
// A result arrives, though nobody wakes a caller that fetches. A caller that stops looking sends PUSH_IT: because
// several looks were in vain, before it sleeps, when it cancels the call, and when the deadline has passed. PUSH_IT
// comes once and after the call, and the server handles it and replies under one lock. So either it replies later, and
// pushes; or it has stored the result, and pushes what is in the slot; or it has pushed already, because the result was
// too long or the call was refused. In each case one reply comes, and the slot is free again with this and no other; a
// READ that was on its way, or one last look, may bring the result earlier. The slot belongs to the call all that time,
// so the result is there to be pushed. A server that leaves pushes all results that may not have been fetched; the
// caller drops those that it has.
//
// Results are pushed where no device is between, or messages are forwarded: a READ would connect what forwarding saves.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "rpc/crc32c.hpp"

namespace pt2p {
struct Config;
class Engine;
class Reporter;
namespace onesided {
class OneSided;
struct Memory;
} // namespace onesided
} // namespace pt2p

namespace pt2p::rpc {

struct Peer;
struct Incoming;

constexpr size_t result_line = 64;

// Of which calls a caller is to fetch the results, if it has not chosen itself.
enum class ToFetch : uint32_t { nothing, of_service, all };

struct ResultHead {
	uint64_t number, word;
	uint32_t length : 31; // of the payload
	uint32_t stop : 1;    // results are to be fetched no more
	uint32_t crc;         // of all, with 0 in this place; 0 when there is one line only
	uint32_t took;        // service time, ns
	uint32_t consumed;    // how far the server has read the caller's write ring
};
static_assert(sizeof(ResultHead) == 32);

inline uint32_t crc_of(ResultHead head, const void *payload)
{
	head.crc = 0;
	return crc32c(crc32c(0, &head, sizeof head), payload, head.length);
}

// What the first `have` bytes of a slot show of the result of a call.
enum class Look : uint8_t {
	absent,  // it is not there
	partial, // it is longer than what was read
	there,
	wrong, // it cannot be: the server is at fault
};
inline Look look_at(const unsigned char *bytes, size_t have, size_t slot_bytes, uint64_t number, ResultHead &head)
{
	std::memcpy(&head, bytes, sizeof head);
	if (head.number != number)
		return Look::absent;
	const size_t whole = sizeof head + head.length;
	if (whole > slot_bytes)
		return Look::wrong;
	if (whole > have)
		return Look::partial;
	return whole > result_line && head.crc != crc_of(head, bytes + sizeof head) ? Look::absent : Look::there;
}
// Puts a result into a slot.
void store_result(unsigned char *slot, ResultHead head, const void *payload);

// The result slots of a caller at this rank.
struct ResultSlots {
	struct Stored {
		uint64_t number = 0, word = 0; // 0: nothing
		uint32_t length = 0;
	};
	unsigned char *memory = nullptr;
	uint32_t slot_bytes = 0;
	std::vector<Stored> stored;     // by slot
	std::vector<uint32_t> services; // of those that want results to be fetched, which the caller knows

	uint32_t count() const { return static_cast<uint32_t>(stored.size()); }
	unsigned char *at(uint32_t slot) const { return memory + size_t{slot} * slot_bytes; }
};

// All result slots of this rank, in one piece of registered memory.
class Results {
public:
	// `ranks`: of the job.
	Results(const Config &config, Reporter &reporter, Engine &engine, onesided::OneSided &onesided, size_t ranks);
	~Results();
	Results(const Results &) = delete;
	Results &operator=(const Results &) = delete;

	// Gives a caller slots if it has none, and tells it where they are, and of which calls results are to be fetched.
	// Nothing happens where they cannot be.
	void offer(Peer &peer, ToFetch what, uint32_t service = 0);
	// Whether they could be. Finds that out, and makes nothing.
	bool could_offer(const Peer &peer) const;
	bool fits(size_t length) const { return length <= slot_bytes_ - sizeof(ResultHead); }
	// Leaves a result in its slot, which has room for it. `stop`: see ResultHead.
	void store(const Incoming &call, const void *data, bool stop);
	// So many have slots.
	size_t callers() const { return callers_; }
	// That caller is gone.
	void take_back(Peer &peer);

private:
	bool make_memory();

	Reporter &reporter_;
	Engine &engine_;
	onesided::OneSided &onesided_;
	const size_t slot_bytes_;
	size_t slots_, bytes_; // of a caller; of all callers
	bool failed_ = false;
	struct Free {
		void operator()(unsigned char *memory) const;
	};
	std::unique_ptr<unsigned char, Free> bytes_of_all_;
	onesided::Memory *memory_ = nullptr;
	size_t given_ = 0, callers_ = 0;    // bytes; callers that have slots
	std::vector<unsigned char *> free_; // that callers have had
};

} // namespace pt2p::rpc
