// Several short messages to one peer in one work request. While messages are to leave together, the last one of a
// send queue stays open, and others to the same peer join it (EagerSender::join). As soon as something else is posted,
// or the doorbell is rung, the work request leaves with what it has. So nothing waits for more to come, and a message
// alone is no bundle.
//
//   by SEND               [ header | frame, payload | frame, payload | ... ]
//   into a write ring     [ frame, payload | frame, payload | ... | trailer ]      as long as it fits in a slot; then
//   by SEND
//
// The header says how many messages there are, and has the sequence number of the first. The others follow it without a
// gap, and a bundle is delivered as a whole. So a bundle that is sent again after a queue pair has broken, or that has
// overtaken another message, is dropped or held by its first number, as a single message is.
//
// No credit can be missing for a bundle. It takes what one message takes: a work request, which the first message got
// when it was accepted, and a receive or a slot of the ring. What its messages owe to the layers above (slots of calls,
// credits of forwarders) they had before they came here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "transports/verbs/message/header.hpp"

namespace pt2p::verbs {

// Goes before the payload of each message of a bundle.
struct BundleFrame {
	uint64_t header; // of the layer above
	uint32_t length; // of the payload, bytes; then zeros up to a multiple of 8
	uint32_t id;
};
static_assert(sizeof(BundleFrame) == 16);

constexpr uint32_t max_bundled = 64; // messages in a bundle

constexpr size_t padded(size_t length) { return (length + 7) & ~size_t{7}; }
// Of a message with its frame.
constexpr size_t framed_bytes(size_t length) { return sizeof(BundleFrame) + padded(length); }

// Writes a message with its frame. `data` may overlap the place that it has in there. Returns the end.
inline unsigned char *write_frame(unsigned char *to, uint8_t id, uint64_t header, const void *data, size_t length)
{
	if (length)
		std::memmove(to + sizeof(BundleFrame), data, length);
	std::memset(to + sizeof(BundleFrame) + length, 0, padded(length) - length);
	const BundleFrame frame{header, static_cast<uint32_t>(length), id};
	std::memcpy(to, &frame, sizeof frame);
	return to + framed_bytes(length);
}

// Calls deliver(frame, payload) for each message. Returns what is wrong with the bundle; null: nothing. What comes
// before a wrong message is delivered.
template <class Deliver>
const char *read_bundle(uint64_t count, const unsigned char *bytes, size_t length, Deliver &&deliver)
{
	if (count < 2 || count > max_bundled)
		return "it has too few messages, or too many";
	for (uint64_t n = 0; n < count; ++n) {
		BundleFrame frame;
		if (length < sizeof frame)
			return "it is too short for its messages";
		std::memcpy(&frame, bytes, sizeof frame);
		if (frame.length > length - sizeof frame || framed_bytes(frame.length) > length)
			return "a message in it is longer than the rest of it";
		if (frame.id >= first_own_id)
			return "a message in it is none that can be bundled";
		deliver(frame, bytes + sizeof frame);
		bytes += framed_bytes(frame.length);
		length -= framed_bytes(frame.length);
	}
	return length ? "it has bytes behind its last message" : nullptr;
}

} // namespace pt2p::verbs
