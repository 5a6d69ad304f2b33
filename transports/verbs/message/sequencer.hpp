// Messages in the order in which each rank has sent them, by whatever queue pair they came: a message that has
// overtaken another waits for it, and one that comes twice is dropped.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "transports/verbs/message/header.hpp"

namespace pt2p::verbs {

class Sequencer {
public:
	explicit Sequencer(int ranks) : expected_(static_cast<size_t>(ranks)) {}

	// From a rank.
	struct Expected {
		uint32_t sequence = 0; // of the next message
		bool unusual = true;   // that takes the slow path in any case: no connection, or later ones are held
		bool gone = false;     // a rank without an endpoint has left, or is lost
	};
	Expected &from(int rank) { return expected_[static_cast<size_t>(rank)]; }
	const Expected &from(int rank) const { return expected_[static_cast<size_t>(rank)]; }

	struct Held {
		MessageHeader header;
		std::vector<unsigned char> payload;
	};
	// Keeps a message that is ahead of its turn. False: it is so far ahead that something is wrong.
	bool hold(const MessageHeader &h, const unsigned char *data, size_t length)
	{
		constexpr uint32_t max_ahead = 16384; // more than PT2P_NET_SEND_DEPTH lets a sender have in flight
		Expected &expected = from(h.rank());
		expected.unusual = true;
		if (h.sequence - expected.sequence >= max_ahead)
			return false;
		held_[{h.rank(), h.sequence}] = {h, std::vector<unsigned char>(data, data + length)};
		return true;
	}
	bool holds_any() const { return !held_.empty(); }
	// The one of that rank whose turn it is, if it is held; its turn is over then.
	std::optional<Held> next(int rank)
	{
		const auto found = held_.find({rank, from(rank).sequence});
		if (found == held_.end())
			return std::nullopt;
		std::optional<Held> held(std::move(found->second));
		held_.erase(found);
		++from(rank).sequence;
		return held;
	}
	void drop(int rank)
	{
		std::erase_if(held_, [rank](const auto &held) { return held.first.first == rank; });
	}

private:
	std::vector<Expected> expected_;                // by rank
	std::map<std::pair<int, uint32_t>, Held> held_; // by rank and sequence number
};

} // namespace pt2p::verbs
