// End-to-end reliability between two ranks: each message arrives once and in order, although messages may take several
// paths, and forwarders may die.
//
//   Outbox (sender)                            Inbox (receiver)
//   keeps a copy of each message that is  ---> delivers message n after n-1, holds what comes early,
//   not confirmed, `window` at most       <--- drops duplicates, confirms with the number that it expects
//
// Neither class sends anything: sessions.hpp does.
//
// A plain message has no envelope. Plain messages take one path, which keeps their order and loses none, and both sides
// count them. The sender may send them while it keeps no copies: the receiver then has every message that took another
// path. The sender does not know how many plain messages are in flight. So the messages after them keep to their path
// until one of these is confirmed; else they could be further ahead of the plain messages than the receiver has room
// for.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "base/assert.hpp"
#include "base/memory/pool.hpp"

namespace pt2p {

// In front of the payload of a message that is not plain.
struct Envelope {
	uint64_t header;    // of the layer above
	uint32_t sequence;  // number of this message from its source to its destination
	uint32_t confirmed; // number of the next message that its source expects from its destination
	uint8_t id;         // of the layer above
	uint8_t flags;
	int16_t report; // with PT2P_ROUTE=auto: tune::RouteTrial::report() of its source
	uint32_t epoch; // and epoch()
};
static_assert(sizeof(Envelope) == 24);

class Outbox {
public:
	struct Kept {
		unsigned char *bytes = nullptr; // envelope and payload; null: no longer needed
		size_t length = 0;              // of both, bytes
	};

	// `window`: a power of two.
	Outbox(BufferPool &buffers, uint32_t window) : buffers_(buffers), kept_(window)
	{
		PT2P_ASSERT(std::has_single_bit(window));
	}
	~Outbox() { clear(); }
	Outbox(const Outbox &) = delete;
	Outbox &operator=(const Outbox &) = delete;

	bool full() const { return next_ - first_ == kept_.size(); }
	bool empty() const { return next_ == first_; }
	// Whether plain messages may still be in flight.
	bool after_plain() const { return after_plain_; }
	uint32_t first() const { return first_; } // the oldest message that is not confirmed
	uint32_t next() const { return next_; }
	Kept &at(uint32_t number) { return kept_[number & (kept_.size() - 1)]; }

	const Kept &at(uint32_t number) const { return kept_[number & (kept_.size() - 1)]; }
	// Whether any message may have to be sent again.
	bool keeps() const { return copies_; }

	// Counts a plain message that has been sent; not while keeps().
	void count_plain()
	{
		PT2P_ASSERT(!keeps());
		first_ = ++next_;
		after_plain_ = true;
	}
	// Numbers a message and keeps a copy of it; not while full().
	Kept &add(Envelope envelope, const void *payload, size_t length)
	{
		PT2P_ASSERT(!full());
		Kept &kept = at(next_);
		envelope.sequence = next_++;
		kept.length = sizeof envelope + length;
		kept.bytes = static_cast<unsigned char *>(buffers_.take(kept.length));
		++copies_;
		std::memcpy(kept.bytes, &envelope, sizeof envelope);
		if (length)
			std::memcpy(kept.bytes + sizeof envelope, payload, length);
		return kept;
	}
	// Frees the copy of a message that need not be sent again; its number stays in use.
	void release(uint32_t number)
	{
		Kept &kept = at(number);
		if (!kept.bytes)
			return;
		buffers_.give(std::exchange(kept.bytes, nullptr), kept.length);
		--copies_;
	}
	// The receiver expects message `upto` and has all before it. False: that is no news, or impossible.
	bool confirm(uint32_t upto)
	{
		if (upto - first_ - 1 >= next_ - first_)
			return false;
		while (first_ != upto)
			release(first_++);
		after_plain_ = false;
		return true;
	}
	void clear() { confirm(next_); }

private:
	BufferPool &buffers_;
	std::vector<Kept> kept_;
	uint32_t first_ = 0, next_ = 0;
	uint32_t copies_ = 0;
	bool after_plain_ = false;
};

class Inbox {
public:
	struct Held {
		Envelope envelope;
		unsigned char *payload = nullptr; // null: nothing is held
		size_t length = 0;
	};
	enum class Verdict : uint8_t {
		deliver,    // the next in order: expected() has moved on
		held,       // early: a copy waits for its turn
		duplicate,  // received before
		impossible, // beyond the sender's window
	};

	// `window`: that of the sender's outbox.
	Inbox(BufferPool &buffers, uint32_t window) : buffers_(buffers), held_(window)
	{
		PT2P_ASSERT(std::has_single_bit(window));
	}
	~Inbox() { clear(); }
	Inbox(const Inbox &) = delete;
	Inbox &operator=(const Inbox &) = delete;

	uint32_t expected() const { return expected_; }
	// Messages that have not been confirmed to the sender.
	uint32_t unconfirmed() const { return expected_ - confirmed_; }
	// The number to confirm with; all before it count as confirmed from now on.
	uint32_t confirm() { return confirmed_ = expected_; }

	Verdict take(const Envelope &envelope, const void *payload, size_t length)
	{
		const uint32_t ahead = envelope.sequence - expected_;
		if (static_cast<int32_t>(ahead) < 0)
			return Verdict::duplicate;
		if (ahead >= held_.size())
			return Verdict::impossible;
		if (!ahead) {
			drop(at(expected_++)); // a copy that came early by another path
			return Verdict::deliver;
		}
		Held &held = at(envelope.sequence);
		if (held.payload)
			return Verdict::duplicate;
		held.envelope = envelope;
		held.length = length;
		held.payload = static_cast<unsigned char *>(buffers_.take(length + 1)); // never null, also without payload
		if (length)
			std::memcpy(held.payload, payload, length);
		return Verdict::held;
	}
	// Counts a plain message that has come; false: there cannot be one now. The sender needs no confirmation of what
	// came before it.
	bool count_plain()
	{
		if (at(expected_).payload)
			return false;
		confirmed_ = ++expected_;
		return true;
	}
	// Takes the next message out of those that are held; false: it has not come. The caller gives it back.
	bool next(Held &held)
	{
		if (!at(expected_).payload)
			return false;
		held = std::exchange(at(expected_), {});
		++expected_;
		return true;
	}
	void give_back(Held &held) { drop(held); }
	void clear()
	{
		for (Held &held : held_)
			drop(held);
	}

private:
	Held &at(uint32_t number) { return held_[number & (held_.size() - 1)]; }
	void drop(Held &held)
	{
		if (held.payload)
			buffers_.give(std::exchange(held.payload, nullptr), held.length + 1);
	}

	BufferPool &buffers_;
	std::vector<Held> held_;
	uint32_t expected_ = 0, confirmed_ = 0;
};

} // namespace pt2p
