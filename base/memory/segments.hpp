// Data in several segments: lists of them, and cursors.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace pt2p {

// Contiguous bytes of one rank, and the key by which peers reach them, where the transport has keys. Peers read lists
// of these as they are: see message/rendezvous/runs.cpp.
struct Segment {
	uint64_t address, length, key;

	unsigned char *base() const { return reinterpret_cast<unsigned char *>(address); }
};

// A position in a list whose segments are not empty.
class SegmentCursor {
public:
	SegmentCursor() = default;
	SegmentCursor(const Segment *list, size_t count) : at_(list), end_(list + count) {}

	// Bytes from here to the end of the segment; 0 at the end of the list.
	size_t run() const { return at_ != end_ ? at_->length - offset_ : 0; }
	uint64_t address() const { return at_->address + offset_; }
	unsigned char *base() const { return at_->base() + offset_; }
	uint64_t key() const { return at_->key; }
	// By at most a run.
	void advance(size_t bytes)
	{
		offset_ += bytes;
		if (offset_ == at_->length) {
			++at_;
			offset_ = 0;
		}
	}
	// Copy up to `bytes` bytes and go past them; return how many there were.
	size_t copy_to(void *to, size_t bytes)
	{
		auto *out = static_cast<unsigned char *>(to);
		return along(bytes, [out](unsigned char *base, size_t done, size_t n) { std::memcpy(out + done, base, n); });
	}
	size_t copy_from(const void *from, size_t bytes)
	{
		auto *in = static_cast<const unsigned char *>(from);
		return along(bytes, [in](unsigned char *base, size_t done, size_t n) { std::memcpy(base, in + done, n); });
	}

private:
	template <class F>
	size_t along(size_t bytes, F &&copy)
	{
		size_t done = 0;
		while (const size_t n = std::min(run(), bytes - done)) {
			copy(base(), done, n);
			advance(n);
			done += n;
		}
		return done;
	}

	const Segment *at_ = nullptr, *end_ = nullptr;
	size_t offset_ = 0;
};

// Cuts a list into messages. Takes bytes in place where the run is long enough, and packs them into a buffer where not.
struct Gather {
	SegmentCursor at;
	unsigned char *buffer = nullptr;
	size_t capacity = 0;         // of the buffer
	size_t start = 0, ready = 0; // bytes in the buffer that have not been taken: where they begin, how many they are

	// The next message, of at most `limit` bytes. The limit may shrink before the message is taken.
	const unsigned char *next(size_t limit, size_t &length)
	{
		const size_t wanted = std::min(limit, capacity);
		if (!ready && at.run() >= wanted) {
			length = std::min(at.run(), limit);
			return at.base();
		}
		if (!ready) {
			start = 0;
			ready = at.copy_to(buffer, wanted);
		}
		length = std::min(ready, limit);
		return buffer + start;
	}
	void taken(size_t length)
	{
		if (ready) {
			start += length;
			ready -= length;
		} else {
			at.advance(length);
		}
	}
};

} // namespace pt2p
