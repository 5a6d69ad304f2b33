// Which senders have a write ring. The receiver polls each ring in every turn, so there are few. They are granted by
// use, one period after the other, as a FLOCK receiver activates queue pairs (Monga, Kashyap, Min, SOSP 2021; the rule
// itself is not in that paper's slides and is this library's): to those that send most, none to the dormant. Whoever
// has none is served through the shared receive queue, so nobody starves.
//
// A period is a number of messages from all senders together, so that it needs no clock and follows the load.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace pt2p::tune {

// What is known of a sender: in this period, and from those before.
struct SenderUse {
	uint32_t messages = 0; // in this period
	bool holds = false;    // has a ring
	bool wants = false;    // has requested one
	uint8_t dormant = 0;   // periods without a message, of a holder
	uint8_t behind = 0;    // periods in which another one should have had its ring
};

class Grants {
public:
	// Messages in a period, with so many rings.
	static uint32_t period(uint32_t rings) { return messages_per_ring * std::max(rings, min_rings); }

	struct Change {
		size_t sender; // index in the list
		bool grant;    // else: take back
	};
	// At the end of a period: what changes, with room for `rings` in all, of which `returning` are on their way back to
	// this rank. Updates the senders' counts of periods. The list is valid until the next call.
	const std::vector<Change> &decide(std::vector<SenderUse> &senders, uint32_t rings, uint32_t returning)
	{
		holders_.clear();
		others_.clear();
		changes_.clear();
		for (size_t i = 0; i < senders.size(); ++i) {
			SenderUse &s = senders[i];
			s.dormant = s.holds && !s.messages ? static_cast<uint8_t>(s.dormant + 1) : 0;
			if (s.holds)
				holders_.push_back(i);
			else if (s.wants && s.messages >= min_messages)
				others_.push_back(i);
		}
		// The holder that has used its ring least comes first, and of the others the one that has sent most.
		const auto key = [&](size_t i) { return std::pair(senders[i].messages, i); };
		std::sort(holders_.begin(), holders_.end(), [&](size_t a, size_t b) { return key(a) < key(b); });
		std::sort(others_.begin(), others_.end(), [&](size_t a, size_t b) { return key(b) < key(a); });

		const size_t taken = holders_.size() + returning;
		size_t next = 0;
		for (size_t free = rings > taken ? rings - taken : 0; free && next < others_.size(); --free)
			changes_.push_back({others_[next++], true});
		// The rings on their way back are for the next ones. The rest compete for those that are used least.
		next = std::min(others_.size(), next + returning);
		for (const size_t h : holders_) {
			SenderUse &holder = senders[h];
			const bool loses =
			    next < others_.size() && senders[others_[next]].messages > margin * uint64_t{holder.messages};
			next += loses;
			holder.behind = loses ? static_cast<uint8_t>(holder.behind + 1) : 0;
			if (holder.behind >= patience || holder.dormant >= max_dormant) {
				changes_.push_back({h, false});
				holder.behind = holder.dormant = 0;
			}
		}
		return changes_;
	}

private:
	static constexpr uint32_t messages_per_ring = 256, min_rings = 4;
	static constexpr uint32_t min_messages = 32; // of a period, that are worth a ring
	static constexpr uint64_t margin = 2;        // by so much another sender has to send more
	static constexpr uint8_t patience = 2;       // periods in a row
	static constexpr uint8_t max_dormant = 4;    // the same, without a message

	std::vector<size_t> holders_, others_; // indices of senders
	std::vector<Change> changes_;
};

} // namespace pt2p::tune
