// What only few requests have: a callback, or data in segments.
#pragma once

#include "base/memory/pool.hpp"
#include "base/memory/segments.hpp"
#include "pt2p.h"

namespace pt2p {

struct Details {
	pt2p_callback_t callback = nullptr;
	void *argument = nullptr;
	// Whether nothing below has been used: most requests with a callback need no more than that.
	bool callback_only = true;

	// From the pool of buffers, with their sizes in bytes.
	struct Buffer {
		void *memory = nullptr;
		size_t bytes = 0;
	};
	// Data in segments; `count` 0: it is contiguous.
	Buffer list;
	size_t count = 0;
	const Segment *segments() const { return static_cast<const Segment *>(list.memory); }

	// Send.
	Buffer packed;    // a short message
	Buffer exposures; // of the segments, and of the list
	Gather gather;    // in pieces
	Buffer bounce;    // for that

	// Receive.
	SegmentCursor to; // where the next bytes go
	// Receive that reads the sender's memory in runs.
	enum class Phase : uint8_t { none, list, runs } phase = Phase::none;
	bool starting = false, refused = false, listed = false;
	unsigned in_flight = 0; // gets
	pt2p_status_t status = PT2P_OK;
	Buffer remote; // the sender's list
	size_t remote_count = 0;
	Segment here{}, there{}; // lists of one
	SegmentCursor from;
};

// Details, and the buffers that they hold. Free ones are as new.
class DetailsPool {
public:
	Details *take() { return pool_.take(); }
	// With a list of segments. Empty ones are left out, and neighbours that touch become one.
	Details *take_list(const pt2p_iovec_t *segments, size_t count);
	// With its buffers.
	void give(Details *d)
	{
		if (__builtin_expect(!d->callback_only, 0))
			clear(*d);
		d->callback = nullptr;
		pool_.give(d);
	}
	void take_buffer(Details::Buffer &b, size_t bytes) { b = {buffers_.take(bytes), bytes}; }
	void give_buffer(Details::Buffer &b)
	{
		if (b.memory)
			buffers_.give(b.memory, b.bytes);
		b = {};
	}
	BufferPool &buffers() { return buffers_; }

private:
	[[gnu::noinline]] void clear(Details &d)
	{
		for (Details::Buffer *b : {&d.list, &d.packed, &d.exposures, &d.bounce, &d.remote})
			give_buffer(*b);
		d = {};
	}

	Pool<Details> pool_;
	BufferPool buffers_;
};

} // namespace pt2p
