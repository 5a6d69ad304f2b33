// The two ends of a ring: the writer's and the reader's private state over the shared Ring of layout.hpp.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>

#include "base/memory/copy_short.hpp"
#include "transports/shm/layout.hpp"

namespace pt2p::shm {

// The writer. Data positions only grow; the position modulo the room is the offset in the data area. The room is the
// part of the data area that has memory so far.
class Writer {
public:
	void open(const Ring &ring, uint32_t slots, uint32_t data_bytes, uint32_t room)
	{
		ring_ = ring;
		mask_ = slots - 1;
		limit_ = static_cast<uint16_t>(mask_);
		data_bytes_ = data_bytes;
		room_ = room;
		data_ends_ = std::make_unique<DataEnd[]>(slots);
	}
	bool is_open() const { return ring_.head != nullptr; }
	RingHeader &head() const { return *ring_.head; }
	const Ring &ring() const { return ring_; }
	static size_t max_payload(uint64_t data_bytes) { return data_bytes / 4; }
	size_t max_payload() const { return max_payload(data_bytes_); }
	uint32_t room() const { return static_cast<uint32_t>(room_); }
	// Whether a message of that length, which needs the data area, waits for more room, and there can be more.
	bool wants_room(size_t length) const { return room_ < used_by(length) && sent_ - acknowledged_ <= limit_; }
	// Whether the data area has payloads in flight, as far as the writer knows. The second looks at the credit line
	// first.
	bool data_in_flight() const { return data_first_ != data_last_; }
	bool refresh_data_in_flight()
	{
		if (data_in_flight())
			refresh();
		return data_in_flight();
	}
	// Whether the room is too small for two messages of that length, and can grow. With room for two, the writer claims
	// lines for the next message while the reader reads this one.
	bool cramped(size_t length) const { return 2 * length > room_ && room_ < data_bytes_; }
	// The data area has got memory for twice as much. The new half is used next. Data in flight may lie anywhere in the
	// old half, which is free again when all of it has been read.
	void double_room()
	{
		const uint64_t old = room_;
		room_ = 2 * old;
		data_tail_ = round_up(data_head_, room_);
		data_head_ = data_claimed_ = data_tail_ + old;
		for (uint32_t i = data_first_; i != data_last_; ++i)
			data_ends_[i & mask_].end = static_cast<uint32_t>(i + 1 == data_last_ ? data_head_ : data_tail_);
		if (data_first_ == data_last_)
			data_tail_ = data_head_;
	}
	static size_t private_bytes(uint32_t slots) { return slots * sizeof(DataEnd); }

	// Writes a message of at most inline_max bytes. False: write() is needed, for a slot that is not known to be free,
	// or one after which slots are claimed. Makes no call. The message carries `credit`, see layout.hpp.
	[[gnu::always_inline]] bool write_short(uint8_t id, uint64_t header, const void *payload, size_t length,
	                                        uint32_t credit)
	{
		if (__builtin_expect(short_path_ == 0, 0))
			return false;
		--short_path_;
		Slot &slot = ring_.slots[index_];
		copy_short(slot.payload, payload, length);
		const uint64_t word = advance(slot, id, header, length, credit);
		slot.word.store(word, std::memory_order_release);
		return true;
	}
	// Writes one message; false when there is no room now.
	[[gnu::noinline]] bool write(uint8_t id, uint64_t header, const void *payload, size_t length, uint32_t credit)
	{
		if (sent_ - acknowledged_ > limit_ && !refresh())
			return false;
		if (length > inline_max)
			return write_data(id, header, payload, length, credit);
		copy_short(ring_.slots[index_].payload, payload, length);
		publish(id, header, length, credit);
		return true;
	}

	// A piggybacked acknowledgement: low bits of the reader's position. Nonsense (more than is outstanding) is ignored.
	void acknowledge(uint32_t credit)
	{
		const uint32_t news = (credit - static_cast<uint32_t>(acknowledged_)) & Word::credit_mask;
		if (news && news <= sent_ - acknowledged_)
			accept(acknowledged_ + news);
	}

private:
	static constexpr uint32_t claimed_at_once = 8;  // slots
	static constexpr uint64_t min_stream = 3;       // messages in flight that make a stream
	static constexpr uint32_t short_lap = 16;       // slots
	static constexpr uint64_t max_in_short_lap = 4; // messages in flight at the end of a short lap
	static constexpr uint8_t full_lap_every = 128;
	static constexpr uint64_t short_data_lap = 4096; // bytes

	struct DataEnd {
		uint32_t position, end; // of a message with data: its slot, and the data area's head after it; low 32 bits
	};

	// Completes the slot but for its word, which it returns, and goes to the next one.
	[[gnu::always_inline]] uint64_t advance(Slot &slot, uint8_t id, uint64_t header, size_t length, uint32_t credit)
	{
		slot.header = header;
		++sent_;
		++index_;
		return Word::pack(lap_, id, static_cast<uint32_t>(length), credit);
	}
	// The payload is in its place; the word makes the message visible.
	void publish(uint8_t id, uint64_t header, size_t length, uint32_t credit)
	{
		Slot &slot = ring_.slots[index_];
		uint64_t word = advance(slot, id, header, length, credit);
		const bool boundary = index_ % claimed_at_once == 0;
		if (boundary)
			word |= wrap_if_due();
		slot.word.store(word, std::memory_order_release);
		if (boundary)
			claim_slots(length);
		short_path_ = static_cast<uint16_t>(std::min<uint64_t>(claimed_at_once - 1 - index_ % claimed_at_once,
		                                                       limit_ + UINT64_C(1) - (sent_ - acknowledged_)));
	}
	// Begins the next lap at the end of the ring, and earlier if few messages are in flight. Returns the word's wrap
	// bit, or 0. After a short lap, the first `short_lap` slots may still be in flight, and all others are free.
	uint64_t wrap_if_due()
	{
		const bool shortly = index_ == short_lap && sent_ - acknowledged_ <= max_in_short_lap && lap_ % full_lap_every;
		if (index_ == short_lap || index_ > mask_)
			limit_ = static_cast<uint16_t>(shortly ? std::min(short_lap - 1, mask_) : mask_);
		if (!shortly && index_ <= mask_)
			return 0;
		index_ = 0;
		++lap_;
		return Word::wrap;
	}
	// The claims below take lines away from the reader that will be written soon. They store values that nobody reads,
	// several at a time. Stores leave a core in order, and its store queue is short: without claims, a store to a line
	// that the reader still shares holds up all later ones, and lines are fetched one by one. (Prefetching for writing
	// does not help: the lines are in this core's cache already, shared.) Only lines that the reader has given back are
	// claimed.
	static void touch(void *line) { *static_cast<volatile unsigned char *>(line) = 0; }

	// In a stream, claims the next slots for messages like this one. The reader reads a header only with the word of
	// its lap, and a payload only up to its length. Messages that are answered one by one claim nothing: the reader
	// polls the line that would be taken.
	void claim_slots(size_t length)
	{
		const uint64_t outstanding = sent_ - acknowledged_, n = claimed_at_once - 1;
		if (outstanding < min_stream || outstanding + n > limit_ + UINT64_C(1))
			return;
		for (uint64_t i = 0; i < n; ++i) {
			Slot &slot = ring_.slots[index_ + i];
			touch(&slot.header);
			if (length > first_line_max && length <= inline_max)
				touch(&slot.payload[inline_max - 1]);
		}
	}
	// After a payload, claims the place of another one of its size.
	void claim_data(uint64_t place, uint64_t size)
	{
		// Local copies: else the compiler stores a member after every claim.
		unsigned char *const data = ring_.data;
		const uint64_t mask = room_ - 1;
		const uint64_t end = std::min(place + size, data_tail_ + room_);
		for (uint64_t at = std::max(data_claimed_, place); at < end; at += 64)
			touch(data + (at & mask));
		data_claimed_ = std::max(data_claimed_, end);
	}
	void accept(uint64_t position)
	{
		acknowledged_ = position;
		for (; data_first_ != data_last_; ++data_first_) {
			const DataEnd &first = data_ends_[data_first_ & mask_];
			if (static_cast<int32_t>(first.position - static_cast<uint32_t>(position)) >= 0)
				break;
			data_tail_ += first.end - static_cast<uint32_t>(data_tail_);
		}
	}
	// Looks at the reader's credit line; true when a slot is free now.
	[[gnu::noinline]] bool refresh()
	{
		const uint64_t consumed = ring_.head->consumed.load(std::memory_order_acquire);
		if (consumed - acknowledged_ <= sent_ - acknowledged_ && consumed != acknowledged_)
			accept(consumed);
		return sent_ - acknowledged_ <= limit_;
	}
	// Bytes of the data area that a stream of such payloads uses. Small payloads use a part that stays in the
	// first-level caches and holds at least four of them. Large ones use all: lines that have been claimed for them
	// gain more.
	uint64_t used_by(uint64_t size) const
	{
		if (size > 2 * short_data_lap)
			return data_bytes_;
		const uint64_t eight = std::min(8 * size, 3 * short_data_lap);
		return std::min<uint64_t>(std::max({short_data_lap, eight, 4 * size}), data_bytes_);
	}
	// The position of a payload. Small ones return to the beginning even sooner if they are `alone` in flight.
	uint64_t place_for(uint64_t size, bool alone) const
	{
		const uint64_t offset = data_head_ & (room_ - 1);
		const uint64_t lap = alone ? std::max(short_data_lap, 2 * size) : used_by(size);
		return offset + size > std::min(room_, lap) ? data_head_ + room_ - offset : data_head_;
	}
	// Puts a payload into the data area, in one piece.
	[[gnu::noinline]] bool write_data(uint8_t id, uint64_t header, const void *payload, size_t length, uint32_t credit)
	{
		const uint64_t size = round_up(length, 64);
		const bool alone = !data_in_flight();
		const uint64_t at = place_for(size, alone);
		uint64_t tail = alone ? at : data_tail_;
		if (at + size - tail > room_) {
			refresh();
			tail = data_in_flight() ? data_tail_ : at;
			if (at + size - tail > room_)
				return false;
		}
		data_tail_ = tail;
		const auto offset = static_cast<uint32_t>(at & (room_ - 1));
		std::memcpy(ring_.data + offset, payload, length);
		data_head_ = at + size;
		data_ends_[data_last_++ & mask_] = {static_cast<uint32_t>(sent_), static_cast<uint32_t>(data_head_)};
		std::memcpy(ring_.slots[index_].payload, &offset, sizeof offset);
		publish(id, header, length, credit);
		claim_data(place_for(size, alone), size);
		return true;
	}

	Ring ring_;
	uint64_t sent_ = 0, acknowledged_ = 0;
	uint32_t mask_ = 0, data_bytes_ = 0;
	uint16_t index_ = 0;      // of the next slot
	uint16_t limit_ = 0;      // one less than there may be messages in flight
	uint16_t short_path_ = 0; // slots up to the next boundary that are known to be free
	uint8_t lap_ = 1;
	uint64_t data_head_ = 0, data_tail_ = 0, data_claimed_ = 0, room_ = 0;
	std::unique_ptr<DataEnd[]> data_ends_; // those from data_first_ to data_last_ are not acknowledged
	uint32_t data_first_ = 0, data_last_ = 0;
};

// The reader.
class Reader {
public:
	void open(const Ring &ring, uint32_t slots, uint32_t data_bytes)
	{
		ring_ = ring;
		next_ = ring_.slots;
		due_ = slots / 4;
		data_bytes_ = data_bytes;
	}
	bool is_open() const { return ring_.head != nullptr; }
	RingHeader &head() const { return *ring_.head; }
	// For tests: where the next message arrives, and with which lap.
	const Slot *slot() const { return next_; }
	uint8_t lap() const { return lap_; }

	bool ready() const { return Word::lap(next_->word.load(std::memory_order_relaxed)) == lap_; }
	// While a message is handled: whether another one has arrived after it.
	bool more() const
	{
		const bool wraps = at_end(next_->word.load(std::memory_order_relaxed));
		const Slot *const following = wraps ? ring_.slots : next_ + 1;
		return Word::lap(following->word.load(std::memory_order_relaxed)) == static_cast<uint8_t>(lap_ + wraps);
	}
	// The next message's slot if it has arrived, else null. The slot stays the reader's until pop().
	[[gnu::always_inline]] const Slot *next(uint64_t &word) const
	{
		const Slot *const slot = next_;
		word = slot->word.load(std::memory_order_acquire);
		return Word::lap(word) == lap_ ? slot : nullptr;
	}
	// The payload of the message in `slot`; null: its header is impossible.
	[[gnu::always_inline]] const unsigned char *payload(const Slot *slot, uint32_t length) const
	{
		return __builtin_expect(length <= inline_max, 1) ? slot->payload : payload_in_data(*slot, length);
	}
	// In a burst: fetches the line of a later message while the next one is handled.
	void fetch_ahead() const
	{
		if (ring_.last_slot() - next_ >= fetched_ahead)
			__builtin_prefetch(next_ + fetched_ahead);
	}
	// `word`: of the message.
	void pop(uint64_t word)
	{
		++read_;
		if (__builtin_expect(at_end(word), 0))
			begin_lap();
		else
			++next_;
		if (__builtin_expect(Word::length(word) > inline_max, 0))
			pop_data(Word::length(word));
	}
	// After a burst: publishes the position when enough slots are free to be worth writing the credit line.
	void publish_if_due()
	{
		if (read_ - published_ >= due_)
			publish();
	}
	// A message has carried the position to the writer: the credit line is not needed for it.
	void piggybacked(uint64_t position)
	{
		published_ = position;
		data_unpublished_ = 0;
	}
	void publish()
	{
		ring_.head->consumed.store(read_, std::memory_order_release);
		published_ = read_;
		data_unpublished_ = 0;
		line_position_ = read_;
	}
	// The ring is idle: a writer that waits for room gets also the few slots that are otherwise not worth writing the
	// credit line.
	void relieve()
	{
		if (line_position_ != read_ && ring_.head->starved.load(std::memory_order_relaxed))
			publish();
	}
	void settle()
	{
		if (line_position_ != read_)
			publish();
	}
	uint64_t position() const { return read_; }
	uint64_t seen_at_sweep = 0; // position at the last look for idle rings

private:
	// Whether the next message, which has this word, is the last one of its lap. The writer is not trusted.
	bool at_end(uint64_t word) const { return Word::wraps(word) || next_ == ring_.last_slot(); }
	// After a short lap the writer uses few slots, and needs to know of free ones sooner.
	void begin_lap()
	{
		const bool full = next_ == ring_.last_slot();
		due_ = full ? static_cast<uint32_t>(ring_.last_slot() + 1 - ring_.slots) / 4 : due_after_short_lap;
		next_ = ring_.slots;
		++lap_;
	}

	void pop_data(uint32_t length)
	{
		data_unpublished_ += length;
		if (data_unpublished_ > std::min(data_bytes_ / 8, 2 * length)) // see Writer::used_by
			publish();
	}
	[[gnu::noinline]] const unsigned char *payload_in_data(const Slot &slot, uint32_t length) const
	{
		uint32_t offset; // read once: the writer could change it
		std::memcpy(&offset, slot.payload, sizeof offset);
		return length > data_bytes_ / 4 || offset > data_bytes_ - length ? nullptr : ring_.data + offset;
	}

	static constexpr ptrdiff_t fetched_ahead = 4; // slots
	static constexpr uint32_t due_after_short_lap = 4;

	Ring ring_;
	const Slot *next_ = nullptr; // of position read_
	uint64_t read_ = 0;
	uint64_t published_ = 0;     // the writer knows this position, from a message or from the credit line
	uint64_t line_position_ = 0; // position in the credit line
	uint32_t due_ = 0;           // messages read before the position is published
	uint32_t data_bytes_ = 0;
	uint32_t data_unpublished_ = 0; // bytes
	uint8_t lap_ = 1;               // of position read_
};

} // namespace pt2p::shm
