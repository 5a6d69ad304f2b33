// Puts the messages of each rank in the order in which they were sent, over all queue pairs; those of each lane by
// themselves. A message that has overtaken another waits for it. A duplicate is dropped. A bundle has the number of its
// first message.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "transports/verbs/message/bundle.hpp"

namespace pt2p::verbs {

class Sequencer {
public:
	explicit Sequencer(int ranks) : expected_(static_cast<size_t>(ranks)) {}

	// What is expected from a rank.
	struct Expected {
		uint32_t sequence = 0; // of the next message
		bool unusual = true;   // the next message takes the slow path: not connected, or later messages are held
		bool gone = false;     // a rank without an endpoint has left or is lost
	};
	Expected &from(int rank) { return expected_[static_cast<size_t>(rank)]; }
	const Expected &from(int rank) const { return expected_[static_cast<size_t>(rank)]; }

	struct Held {
		MessageHeader header;
		std::vector<unsigned char> payload;
	};
	// Keeps a message that has come too early. False: it is too far ahead to be valid.
	bool hold(Expected &expected, const MessageHeader &h, const unsigned char *data, size_t length)
	{
		// More than PT2P_NET_SEND_DEPTH lets a sender have in flight.
		constexpr uint32_t max_ahead = 16384 * max_bundled;
		expected.unusual = true;
		if (h.sequence - expected.sequence >= max_ahead)
			return false;
		held_[{h.sender(), h.sequence}] = {h, std::vector<unsigned char>(data, data + length)};
		return true;
	}
	bool holds_any() const { return !held_.empty(); }
	// The next message of that sender (see MessageHeader) in order, if it is held. Counts it as delivered; of a bundle,
	// the first in it.
	std::optional<Held> next(Expected &expected, uint32_t sender)
	{
		const auto found = held_.find({sender, expected.sequence});
		if (found == held_.end())
			return std::nullopt;
		std::optional<Held> held(std::move(found->second));
		held_.erase(found);
		++expected.sequence;
		return held;
	}
	void drop(int rank)
	{
		std::erase_if(held_, [rank](const auto &held) { return held.second.header.rank() == rank; });
	}

private:
	std::vector<Expected> expected_;                     // by rank; of the first lane
	std::map<std::pair<uint32_t, uint32_t>, Held> held_; // by sender and sequence number
};

} // namespace pt2p::verbs
