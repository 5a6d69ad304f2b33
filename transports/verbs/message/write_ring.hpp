// Messages delivered by WRITE: into a ring in the receiver's memory, which it finds by looking there. No receive is
// posted and no completion is read for them; in return the receiver looks at every ring in each turn, so rings are for
// peers that send much.
//
//   slot     [ ... free ... | payload | trailer ]      a message ends where its slot ends
//                                         marker       the last word: number of the message in this ring, from 1
//
// Huang and Ghandeharizadeh ("An Evaluation of RDMA-based Message Passing Protocols", section 3) put the length first
// and a marker after the payload, so the receiver looks twice, and has to clear what it has read, lest old bytes be
// taken for a marker. Here the word to look at has a fixed place, because messages are aligned at the end of slots, and
// only markers are ever written there, each different from the one before: one look, nothing to clear. It rests on the
// same property: the device writes the bytes of a WRITE in ascending order.
//
// A message that does not fit, or finds the ring full, is sent by SEND; the sequence numbers of messages tell the
// receiver where to go on. The receiver tells how far it has read by writing that number into the sender's memory,
// twice a round. With it, it tells that it is going to sleep: a WRITE wakes nobody, so it is sent to until it is awake.
// What was on its way then is found when the sleep ends, at the latest.
//
//   sender                                  receiver
//   request(where to tell) ------------->   makes the ring
//                  <-------------------     offer(where it is)
#pragma once

#include <cstdint>
#include <memory>

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
	uint64_t consumer_index_at; // address and key of the word that takes what has been read
	uint32_t key;
	uint32_t unused;
};
struct RingOffer {
	uint64_t address;
	uint32_t key;
	uint32_t slots, slot_bytes; // 0 slots: there is none
	uint32_t unused;
};
constexpr uint64_t ring_asleep = UINT64_C(1) << 63; // beside the number of messages read
constexpr uint8_t id_ring_request = 0xf0, id_ring_offer = 0xf1;

// The sender's side. Part of a peer.
struct OutgoingWriteRing {
	int64_t max_payload = -1; // bytes; -1: there is no ring
	uint64_t address = 0;
	uint32_t key = 0, slots = 0, slot_bytes = 0;
	uint32_t sent = 0, read = 0;        // messages so far, and how many of them the receiver is known to have read
	int64_t wanted_for = -1;            // payloads up to this many bytes; -1: none is wanted
	uint32_t due = 0;                   // sequence number of the next message that does not just go by SEND
	uint32_t ask_every = 0;             // messages, until one is offered
	uint64_t *consumer_index = nullptr; // that the receiver writes; null: no ring has been asked for

	// From now on it is used, or not.
	void use(bool yes, uint32_t sequence)
	{
		max_payload = yes && slots ? static_cast<int64_t>(slot_bytes - sizeof(RingTrailer)) : -1;
		if (max_payload >= 0)
			due = sequence;
	}
	// Whether a message of this length goes into it now: there is a ring, it has a free slot, and its reader is awake.
	bool takes(size_t length) { return static_cast<int64_t>(length) <= max_payload && update() && sent - read < slots; }
	bool has_read(uint32_t number)
	{
		update();
		return static_cast<int32_t>(read - number) >= 0;
	}
	// Whether there is a ring, or this message, or one before it that was too long for a ring, is one to ask for it
	// with.
	bool is_due(uint32_t sequence) const { return static_cast<int32_t>(sequence - due) >= 0; }
	// Whether to ask for one together with this message.
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
	// Where message number `n` of `bytes` with its trailer goes.
	uint64_t place(uint32_t n, uint32_t bytes) const
	{
		return address + uint64_t{(n - 1) & (slots - 1)} * slot_bytes + slot_bytes - bytes;
	}

private:
	// Takes note of how much has been read. False while the reader sleeps.
	bool update()
	{
		const uint64_t word = __atomic_load_n(consumer_index, __ATOMIC_ACQUIRE);
		const auto now = static_cast<uint32_t>(word);
		// Never back, and never beyond what was sent, whatever is written there.
		if (static_cast<int32_t>(now - read) > 0 && static_cast<int32_t>(sent - now) >= 0)
			read = now;
		return !(word & ring_asleep);
	}
};

// The receiver's side.
class IncomingWriteRing {
public:
	// Throws Error: no memory, or the device refuses. `slots` is a power of two, `slot_bytes` a multiple of 8.
	IncomingWriteRing(const Device &device, uint32_t slots, uint32_t slot_bytes, int numa_node, RingRequest sender)
	    : memory_(device, size_t{slots} * slot_bytes, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, numa_node),
	      sender_(sender), slots_(slots), slot_bytes_(slot_bytes)
	{
	}
	RingOffer offer() const
	{
		return {reinterpret_cast<uintptr_t>(memory_.at(0)), memory_.remote_key(), slots_, slot_bytes_, 0};
	}
	// The trailer of the next message; null: it has not come.
	const RingTrailer *next() const
	{
		const auto *trailer = reinterpret_cast<const RingTrailer *>(memory_.at(end() - sizeof(RingTrailer)));
		return __atomic_load_n(&trailer->marker, __ATOMIC_ACQUIRE) == read_ + 1 ? trailer : nullptr;
	}
	uint32_t max_payload() const { return slot_bytes_ - static_cast<uint32_t>(sizeof(RingTrailer)); }
	const unsigned char *payload(uint32_t length) const { return memory_.at(end() - sizeof(RingTrailer) - length); }
	void pop() { ++read_; }
	// Whether the sender should be told how much has been read.
	bool owes_report() const { return read_ - reported_ >= slots_ / 2; }
	uint32_t read() const { return read_; }
	void reported() { reported_ = read_; }
	// Where the sender keeps the consumer index.
	const RingRequest &sender() const { return sender_; }

private:
	size_t end() const { return size_t{(read_ & (slots_ - 1)) + 1} * slot_bytes_; }

	RegisteredMemory memory_;
	const RingRequest sender_;
	const uint32_t slots_, slot_bytes_;
	uint32_t read_ = 0, reported_ = 0;
};

} // namespace pt2p::verbs
