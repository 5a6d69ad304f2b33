// Messages delivered by WRITE: into a ring in the receiver's memory, which the receiver polls. They need no receive and
// no CQE. In return the receiver polls every ring in each turn, so only the peers that send most have one.
//
//   slot     [ ... free ... | payload | trailer ]      a message ends where its slot ends
//                                         marker       the last word: number of the message in this ring, from 1
//
// Huang and Ghandeharizadeh ("An Evaluation of RDMA-based Message Passing Protocols", section 3) put the length first
// and a marker behind the payload. Their receiver looks twice, and has to clear what it has read, as old bytes could
// pass for a marker. Here messages are aligned to the end of slots, so the marker has a fixed place. Only markers are
// ever written there, each different from the one before. The receiver looks once and clears nothing. Both designs rely
// on the same property: the device writes the bytes of a WRITE in ascending order.
//
// A message that is too long for a slot, or finds the ring full, goes by SEND. The sequence numbers put both kinds in
// order. Twice a round, the receiver writes its consumer index into the sender's memory. A flag in this word says that
// the receiver is going to sleep: a WRITE wakes nobody, so the sender uses SEND until the flag is gone. The receiver
// finds messages that were in flight at that time when its sleep ends.
//
//   sender                                       receiver
//   request (address of its consumer index) -->  makes the ring, at once or when it takes back another one
//                                           <--  offer (address of the ring)
//                                           <--  retire: it wants the ring back, and reports all that it reads
//   goes on by SEND; once all is read:
//   returned                                -->  frees the ring
//
// All that was written into a ring has been read when it is returned, and the sender knows it. So nothing is written
// there again, not even by the replay of a broken queue pair. The next ring of the same sender continues its numbers.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "transports/verbs/device/device.hpp"
#include "transports/verbs/message/header.hpp"

namespace pt2p::verbs {

struct RingTrailer {
	MessageHeader header;
	uint32_t length; // of the payload
	uint32_t marker;
};
static_assert(sizeof(RingTrailer) == 24);

struct RingRequest {
	uint64_t consumer_index_at; // address and key of the word for the consumer index
	uint32_t key;
	uint32_t sent; // messages in earlier rings
};
struct RingOffer {
	uint64_t address;
	uint32_t key;
	uint32_t slots, slot_bytes; // 0 slots: there is no ring
	uint32_t unused;
};
constexpr uint64_t ring_asleep = UINT64_C(1) << 63; // flag in the consumer index
constexpr uint8_t id_ring_request = first_own_id, id_ring_offer = 0xf1, id_ring_retire = 0xf2, id_ring_returned = 0xf3;

// The sender's side. Part of a peer.
struct OutgoingWriteRing {
	int64_t max_payload = -1; // bytes; -1: no ring is in use
	uint64_t address = 0;
	uint32_t key = 0, slots = 0, slot_bytes = 0;
	uint32_t sent = 0, read = 0;        // messages sent; messages read, as far as known
	bool returning = false;             // the receiver wants it back
	bool may_send_bundles = false;      // what grows longer than a slot is sent
	int64_t wanted_for = -1;            // payloads of up to so many bytes; -1: no ring is wanted
	uint32_t due = 0;                   // first sequence number that does not simply go by SEND
	uint32_t ask_every = 0;             // messages between two requests
	uint64_t *consumer_index = nullptr; // the receiver writes it; null: no ring was requested

	// Starts or stops using the ring.
	void use(bool yes, uint32_t sequence)
	{
		max_payload = yes && slots && !returning ? static_cast<int64_t>(slot_bytes - sizeof(RingTrailer)) : -1;
		if (max_payload >= 0)
			due = sequence;
	}
	// Whether a message of this length goes into the ring: there is a ring, a slot is free, and the receiver is awake.
	bool takes(size_t length) { return static_cast<int64_t>(length) <= max_payload && update() && sent - read < slots; }
	bool has_read(uint32_t number)
	{
		update();
		return static_cast<int32_t>(read - number) >= 0;
	}
	// The receiver wants the ring back. The sender may return it when all messages in it have been read.
	void retire() { returning = true, max_payload = -1; }
	bool drained() { return has_read(sent); }
	// There is none any more; the next one is requested in time.
	void forget(uint32_t sequence)
	{
		returning = false;
		slots = 0;
		due = sequence + ask_every;
	}
	// Whether there is a ring, or a request for one is due.
	bool is_due(uint32_t sequence) const { return static_cast<int32_t>(sequence - due) >= 0; }
	// Whether to request a ring together with this message.
	bool asks(uint32_t sequence, size_t length)
	{
		if (!is_due(sequence))
			return false;
		const bool ask = static_cast<int64_t>(length) <= wanted_for && max_payload < 0;
		if (max_payload >= 0)
			due = sequence;
		else if (ask || wanted_for < 0)
			due = sequence + ask_every;
		return ask;
	}
	// The address for message `n`, which has `bytes` with its trailer.
	uint64_t place(uint32_t n, uint32_t bytes) const
	{
		return address + uint64_t{(n - 1) & (slots - 1)} * slot_bytes + slot_bytes - bytes;
	}

	// The receiver has read so many. Never backwards and never beyond what was sent, whatever the peer says.
	void was_read(uint32_t now)
	{
		if (static_cast<int32_t>(now - read) > 0 && static_cast<int32_t>(sent - now) >= 0)
			read = now;
	}

private:
	// Reads the consumer index. False: the receiver sleeps.
	bool update()
	{
		const uint64_t word = __atomic_load_n(consumer_index, __ATOMIC_ACQUIRE);
		was_read(static_cast<uint32_t>(word));
		return !(word & ring_asleep);
	}
};

// Where the slots of a ring are.
struct RingPlace {
	unsigned char *slots;
	uint32_t key;
};

// Memory for rings. It is registered for many rings at a time, as each registration is a call to the kernel.
class RingMemory {
public:
	RingMemory(const Device &device, size_t ring_bytes, uint32_t max_rings, int numa_node)
	    : device_(device), ring_bytes_(ring_bytes), rings_per_block_(std::min(max_rings, max_per_block)),
	      numa_node_(numa_node)
	{
	}
	// Throws Error.
	RingPlace take()
	{
		if (free_.empty())
			add_block();
		const RingPlace place = free_.back();
		free_.pop_back();
		return place;
	}
	// Nobody writes there any more.
	void give(RingPlace place) { free_.push_back(place); }

private:
	void add_block()
	{
		const RegisteredMemory &block = *blocks_.emplace_back(std::make_unique<RegisteredMemory>(
		    device_, rings_per_block_ * ring_bytes_, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, numa_node_));
		for (uint32_t i = rings_per_block_; i--;)
			free_.push_back({block.at(i * ring_bytes_), block.remote_key()});
	}

	static constexpr uint32_t max_per_block = 16;

	const Device &device_;
	const size_t ring_bytes_, rings_per_block_;
	const int numa_node_;
	std::vector<std::unique_ptr<RegisteredMemory>> blocks_;
	std::vector<RingPlace> free_;
};

// The receiver's side.
class IncomingWriteRing {
public:
	// `slots` is a power of two, `slot_bytes` a multiple of 8.
	IncomingWriteRing(RingPlace place, uint32_t slots, uint32_t slot_bytes, RingRequest sender)
	    : place_(place), sender_(sender), slots_(slots), slot_bytes_(slot_bytes), read_(sender.sent),
	      reported_(sender.sent)
	{
		// Another sender's markers could pass for this one's.
		for (uint32_t slot = 1; slot <= slots; ++slot)
			trailer_before(size_t{slot} * slot_bytes)->marker = 0;
	}
	RingOffer offer() const { return {reinterpret_cast<uintptr_t>(place_.slots), place_.key, slots_, slot_bytes_, 0}; }
	RingPlace place() const { return place_; }
	// The trailer of the next message; null: it has not come.
	const RingTrailer *next() const
	{
		const RingTrailer *trailer = trailer_before(end());
		return __atomic_load_n(&trailer->marker, __ATOMIC_ACQUIRE) == read_ + 1 ? trailer : nullptr;
	}
	uint32_t max_payload() const { return slot_bytes_ - static_cast<uint32_t>(sizeof(RingTrailer)); }
	const unsigned char *payload(uint32_t length) const { return place_.slots + end() - sizeof(RingTrailer) - length; }
	void pop() { ++read_; }
	// Whether the consumer index should be written to the sender.
	bool owes_report() const { return read_ - reported_ >= (retired_ ? 1 : slots_ / 2); }
	// The sender has been told that this rank wants it back.
	void retire() { retired_ = true; }
	bool retired() const { return retired_; }
	uint32_t read() const { return read_; }
	void reported() { reported_ = read_; }
	// Messages so far, and those in the slots of the last ones: how many, and bytes with trailers. Some may have come
	// since.
	uint32_t taken() const { return read_ - sender_.sent; }
	void add_last(uint64_t &messages, uint64_t &bytes) const
	{
		constexpr uint32_t looked_at = 16;
		const uint32_t n = std::min({taken(), slots_, looked_at});
		messages += n;
		for (uint32_t i = 1; i <= n; ++i) {
			const size_t end = size_t{((read_ - i) & (slots_ - 1)) + 1} * slot_bytes_;
			const uint32_t length = __atomic_load_n(&trailer_before(end)->length, __ATOMIC_RELAXED);
			bytes += std::min(length, max_payload()) + sizeof(RingTrailer);
		}
	}
	// Where the sender keeps the consumer index.
	const RingRequest &sender() const { return sender_; }

private:
	size_t end() const { return size_t{(read_ & (slots_ - 1)) + 1} * slot_bytes_; }

	RingTrailer *trailer_before(size_t end) const
	{
		return reinterpret_cast<RingTrailer *>(place_.slots + end - sizeof(RingTrailer));
	}

	const RingPlace place_;
	const RingRequest sender_;
	const uint32_t slots_, slot_bytes_;
	uint32_t read_, reported_;
	bool retired_ = false;
};

} // namespace pt2p::verbs
