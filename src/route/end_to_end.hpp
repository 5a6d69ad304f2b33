// What two ranks keep of the messages between them when these may take several ways, some of them by way of ranks that may
// die: each message arrives once and in order whatever way it took.
//
//   Outbox (sender)                                         Inbox (receiver)
//   copies of the messages that are not confirmed  ----->   delivers number n after n-1, holds what is ahead,
//   yet; at most `window` of them                  <-----   drops what it has had; tells the number that it expects
//
// Neither sends anything itself: see relay.hpp.
//
// Bare messages are those without an envelope. They are on one way, which keeps its order and loses nothing, and have numbers
// that both sides count. They may be sent while no copies are kept: then the receiver has had all that went another way. How
// many of them are under way is not known, so what follows them keeps to their way until something that came after them has
// been confirmed; else it could be further ahead of them than the receiver has room for.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "base/memory/pool.hpp"

namespace pt2p {

// What comes before the payload of such a message.
struct Envelope {
	uint64_t header;    // of the layer above
	uint32_t sequence;  // number of this message from its source to its destination
	uint32_t confirmed; // number of the next message that its source expects from its destination
	uint8_t id;         // of the layer above
	uint8_t flags;
	int16_t told;    // with PT2P_ROUTE=auto: tune::WayTuner::told() of its source
	uint32_t moment; // and moment()
};
static_assert(sizeof(Envelope) == 24);

class Outbox {
public:
	struct Kept {
		unsigned char *bytes = nullptr; // envelope and payload; null: no longer needed
		size_t length = 0;              // of both, bytes
	};

	// `window`: a power of two.
	Outbox(BufferPool &buffers, uint32_t window) : buffers_(buffers), kept_(window) {}
	~Outbox() { clear(); }
	Outbox(const Outbox &) = delete;
	Outbox &operator=(const Outbox &) = delete;

	bool full() const { return next_ - first_ == kept_.size(); }
	bool empty() const { return next_ == first_; }
	// Bare messages may be under way yet.
	bool after_bare() const { return after_bare_; }
	uint32_t first() const { return first_; } // that is not confirmed
	uint32_t next() const { return next_; }
	Kept &at(uint32_t number) { return kept_[number & (kept_.size() - 1)]; }

	const Kept &at(uint32_t number) const { return kept_[number & (kept_.size() - 1)]; }
	// Whether there is any that may have to be sent again.
	bool keeps() const { return copies_; }

	// A bare message has been sent; not while keeps().
	void bare()
	{
		first_ = ++next_;
		after_bare_ = true;
	}
	// A copy of a message; not while full().
	Kept &add(Envelope envelope, const void *payload, size_t length)
	{
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
	// This one need not be sent again; its number stays.
	void release(uint32_t number)
	{
		Kept &kept = at(number);
		if (!kept.bytes)
			return;
		buffers_.give(std::exchange(kept.bytes, nullptr), kept.length);
		--copies_;
	}
	// The receiver expects number `upto`: it has all before. True when that is news. Numbers that cannot be are not.
	bool confirm(uint32_t upto)
	{
		if (upto - first_ - 1 >= next_ - first_)
			return false;
		while (first_ != upto)
			release(first_++);
		after_bare_ = false;
		return true;
	}
	void clear() { confirm(next_); }

private:
	BufferPool &buffers_;
	std::vector<Kept> kept_;
	uint32_t first_ = 0, next_ = 0;
	uint32_t copies_ = 0;
	bool after_bare_ = false;
};

class Inbox {
public:
	struct Held {
		Envelope envelope;
		unsigned char *payload = nullptr; // null: nothing is held
		size_t length = 0;
	};
	enum class Verdict : uint8_t {
		deliver,    // its turn: expected() has moved on
		held,       // it came early, and a copy waits for its turn
		duplicate,  // it was here before
		impossible, // beyond what the sender's window allows
	};

	// `window`: that of the sender's outbox.
	Inbox(BufferPool &buffers, uint32_t window) : buffers_(buffers), held_(window) {}
	~Inbox() { clear(); }
	Inbox(const Inbox &) = delete;
	Inbox &operator=(const Inbox &) = delete;

	uint32_t expected() const { return expected_; }
	// Messages that the sender has not been told of.
	uint32_t untold() const { return expected_ - told_; }
	// The number that the sender is told now.
	uint32_t tell() { return told_ = expected_; }

	Verdict take(const Envelope &envelope, const void *payload, size_t length)
	{
		const uint32_t ahead = envelope.sequence - expected_;
		if (static_cast<int32_t>(ahead) < 0)
			return Verdict::duplicate;
		if (ahead >= held_.size())
			return Verdict::impossible;
		if (!ahead) {
			drop(at(expected_++)); // a copy that came early by another way
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
	// A bare message has come; false: there cannot be one now. Nobody waits to be told of what came before it.
	bool bare()
	{
		if (at(expected_).payload)
			return false;
		told_ = ++expected_;
		return true;
	}
	// What has been held for the next turn, if it is there; moves on. To be given back.
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
	uint32_t expected_ = 0, told_ = 0;
};

} // namespace pt2p
