#include "transports/verbs/message/eager.hpp"

#include <cstring>

#include "base/clock.hpp"
#include "base/report/report.hpp"

namespace pt2p::verbs {

// False: there is no free place.
bool EagerSender::stage(SendQueue &queue, NetPeer &peer, uint32_t bytes, Staged &staged)
{
	const bool fits = bytes <= memory_.device_memory.max_bytes();
	tune::StagingTuner *const tuner =
	    fits && queue.tunes() && tuner_.tunes_staging() ? &peer.tuner->stagings.of(bytes) : nullptr;
	bool to_device = fits;
	// Beside others that wait for a doorbell, others can join it in a buffer.
	if (queue.bundles() && queue.waits()) {
		to_device = false;
	} else if (tuner && queue.saturated()) {
		to_device = false;
	} else if (tuner) {
		const auto next = tuner->next(memory_.device_memory.shortage() != Shortage::none);
		staged.sample = next.sample && !queue.samples();
		to_device = (staged.sample ? next.what : tuner->chosen()) == tune::Staging::device_memory;
		staged.since = staged.sample ? now_ticks() : 0;
	}
	if (to_device) {
		staged.place = memory_.device_memory.take(bytes);
		if (staged.place == FreeList::none)
			reporter_.add(Counter::net_device_memory_full);
		else
			staged.payload = Payload::device_memory;
	}
	const bool on_device = staged.payload == Payload::device_memory;
	if (!on_device) {
		staged.place = memory_.take_buffer();
		staged.payload = Payload::buffer;
	}
	if (staged.place == FreeList::none)
		return false;
	staged.shortage = on_device ? memory_.device_memory.shortage() : memory_.shortage_of_buffers();
	auto &count = on_device ? peer.by_device_memory : peer.by_buffer;
	++count.messages;
	count.bytes += bytes;
	peer.device_memory_full += to_device && !on_device;
	if (tuner)
		tuner->sent(on_device ? tune::Staging::device_memory : tune::Staging::buffer, staged.sample);
	return true;
}

bool EagerSender::send(SendQueue &queue, NetPeer &peer, uint8_t id, uint64_t header, const void *data, size_t length)
{
	const bool by_ring =
	    __builtin_expect(static_cast<int64_t>(length) <= peer.ring.max_payload, 0) && peer.ring.takes(length);
	// The header goes before the payload; in a write ring it is part of the trailer behind it.
	const MessageHeader front{header, static_cast<uint32_t>(peer.next_sequence), peer.from | id};
	const RingTrailer back{front, static_cast<uint32_t>(length), peer.ring.sent + 1};
	const Piece pieces[] = {{&front, by_ring ? 0 : sizeof front}, {data, length}, {&back, by_ring ? sizeof back : 0}};
	const auto bytes = static_cast<uint32_t>(length + (by_ring ? sizeof back : sizeof front));

	Staged staged;
	if (__builtin_expect(bytes > queue.max_inline(), 0) && !stage(queue, peer, bytes, staged))
		return false;
	WorkRequest &request = queue.next(peer, by_ring ? Kind::ring_write : Kind::send, bytes);
	request.payload = staged.payload;
	request.place = staged.place;
	if (__builtin_expect(staged.payload == Payload::device_memory, 0)) {
		memory_.device_memory.write(staged.place, pieces);
		request.local_address = memory_.device_memory.address(staged.place);
		request.local_key = memory_.device_memory.key();
		reporter_.add(Counter::net_device_memory_messages);
	} else {
		unsigned char *to = request.bytes;
		if (staged.payload == Payload::buffer) {
			to = memory_.buffer(staged.place);
			request.local_address = reinterpret_cast<uintptr_t>(to);
			request.local_key = memory_.buffer_key();
		}
		if (__builtin_expect(!by_ring, 1)) {
			std::memcpy(to, &front, sizeof front);
			if (length)
				std::memcpy(to + sizeof front, data, length);
		} else {
			if (length)
				std::memcpy(to, data, length);
			std::memcpy(to + length, &back, sizeof back);
		}
	}
	if (by_ring) {
		request.number = ++peer.ring.sent;
		request.remote_address = peer.ring.place(request.number, bytes);
		request.remote_key = peer.ring.key;
		reporter_.add(Counter::net_deposits);
	}
	++peer.next_sequence;
	++peer.encoded.messages;
	if (__builtin_expect(staged.sample, 0))
		queue.submit_sample(staged.since);
	else if (__builtin_expect(queue.bundles(), 0) && stays_open(peer, request, id, length))
		queue.submit_open(staged.shortage);
	else
		queue.submit_message(staged.shortage);
	return true;
}

// ---- bundles --------------------------------------------------------------------------------------------------------

// Bytes of a SEND with its header, at most.
size_t EagerSender::max_send_bytes(const NetPeer &peer) { return peer.max_send + sizeof(MessageHeader); }

// Whether others may join the message.
bool EagerSender::stays_open(const NetPeer &peer, const WorkRequest &request, uint8_t id, size_t length) const
{
	const size_t two = framed_bytes(length) + framed_bytes(0);
	return id < first_own_id && request.payload != Payload::device_memory &&
	       (request.kind == Kind::ring_write && !peer.ring.may_send_bundles
	            ? two + sizeof(RingTrailer) <= peer.ring.slot_bytes
	            : two + sizeof(MessageHeader) <= max_send_bytes(peer));
}

bool EagerSender::join(SendQueue &queue, NetPeer &peer, uint8_t id, uint64_t header, const void *data, size_t length)
{
	WorkRequest *const open = queue.open_for(peer);
	if (!open || id >= first_own_id || !peer.ready)
		return false;
	const bool was_in_ring = open->kind == Kind::ring_write;
	// It goes the way that it would go alone, unless the bundle is longer than a slot of the ring. What finds the ring
	// full may share a SEND.
	const auto fits_in_slot = [&peer](size_t frames) { return frames + sizeof(RingTrailer) <= peer.ring.slot_bytes; };
	if (was_in_ring ? peer.ring.max_payload < 0
	                : fits_in_slot(open->length - sizeof(MessageHeader)) && peer.ring.takes(length))
		return false;

	unsigned char *bytes = open->is_inline() ? open->bytes : memory_.buffer(open->place);
	const size_t had_front = was_in_ring ? 0 : sizeof(MessageHeader), had_back = was_in_ring ? sizeof(RingTrailer) : 0;
	RingTrailer t{};
	std::memcpy(static_cast<void *>(&t), bytes + (was_in_ring ? open->length - had_back : 0), had_front + had_back);
	const bool single = t.header.id() != id_bundle;
	const uint64_t count = single ? 1 : t.header.header;
	const size_t held = open->length - had_front - had_back; // the payload of a single message, or frames
	const size_t frames = (single ? framed_bytes(held) : held) + framed_bytes(length);
	const bool by_ring = was_in_ring && fits_in_slot(frames), leaves_ring = was_in_ring && !by_ring;
	const size_t front = by_ring ? 0 : sizeof(MessageHeader), back = by_ring ? sizeof(RingTrailer) : 0;
	const size_t all = front + frames + back;
	if (count == max_bundled || (!by_ring && all > max_send_bytes(peer)) ||
	    (leaves_ring && (!peer.ring.may_send_bundles || open->number != peer.ring.sent)))
		return false;

	Shortage shortage = Shortage::none;
	if (open->is_inline() && all > queue.max_inline()) {
		const uint32_t place = memory_.take_buffer();
		if (place == FreeList::none)
			return false;
		unsigned char *const buffer = memory_.buffer(place);
		std::memcpy(buffer, bytes, open->length);
		bytes = buffer;
		open->payload = Payload::buffer;
		open->place = place;
		open->local_address = reinterpret_cast<uintptr_t>(buffer);
		open->local_key = memory_.buffer_key();
		peer.by_buffer.messages += count;
		peer.by_buffer.bytes += open->length;
	}
	if (single) {
		write_frame(bytes + front, t.header.id(), t.header.header, bytes + had_front, held);
		t.header.rank_and_id = peer.from | id_bundle;
		reporter_.add(Counter::net_bundles);
		reporter_.add(Counter::net_bundled);
	} else if (front != had_front) {
		std::memmove(bytes + front, bytes, held);
	}
	if (leaves_ring) {
		open->kind = Kind::send;
		--peer.ring.sent;
		reporter_.add(Counter::net_deposits, -count);
	}
	const size_t end = front + frames - framed_bytes(length);
	write_frame(bytes + end, id, header, data, length);
	t.header.header = count + 1;
	t.length = static_cast<uint32_t>(all - back);
	std::memcpy(bytes + (by_ring ? all - back : 0), &t, front + back);
	if (!open->is_inline()) {
		++peer.by_buffer.messages;
		peer.by_buffer.bytes += all - open->length;
		shortage = memory_.shortage_of_buffers();
	}
	open->length = static_cast<uint32_t>(all);
	if (by_ring) {
		open->remote_address = peer.ring.place(open->number, open->length);
		reporter_.add(Counter::net_deposits);
	}
	reporter_.add(Counter::net_bundled);
	++peer.next_sequence;
	++peer.encoded.messages;
	queue.submit_open(shortage);
	return true;
}

} // namespace pt2p::verbs
