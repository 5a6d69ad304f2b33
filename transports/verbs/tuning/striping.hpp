// How many queue pairs the bulk data of one peer is striped over (PT2P_NET_QUEUE_PAIRS). Parts of operations need no
// order, and a device works on several queue pairs at once. Only the rate tells whether this moves more bytes, so the
// hill climber of climb.hpp decides. Nothing here reads a clock: transports report when a part was posted and when it
// completed.
//
// The rate counts only while another queue pair could have helped. All queue pairs are then in use, and either parts
// wait for room or more parts are in flight than there are queue pairs.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "transports/verbs/tuning/climb.hpp"

namespace pt2p::tune {

class Striping {
public:
	static constexpr size_t min_part = size_t{16} << 10, max_part = size_t{1} << 20; // bytes
	static constexpr uint32_t interval = 8; // parts; enough that one more or less at the ends does not matter

	// `pinned`: that many, at most `max`; 0: up to `max`, as tuned.
	Striping(uint32_t pinned, uint32_t max)
	    : pinned_(pinned != 0),
	      climber_(pinned ? ClimbLaw{.min = std::min(pinned, max), .max = std::min(pinned, max)} : ClimbLaw{.max = max})
	{
	}

	// How many may be in use at present.
	uint32_t queue_pairs() const { return climber_.setting(); }
	// Bytes of the next part of an operation of this length: an equal share for each queue pair, within limits that let
	// other operations have their turn.
	size_t part_of(size_t length) const
	{
		constexpr size_t page = 4096;
		const size_t share = (length / queue_pairs() + page - 1) / page * page;
		return std::clamp(share, min_part, max_part);
	}
	// So many queue pairs have work for this peer, or could have.
	void uses(uint32_t queue_pairs) { in_use_ = queue_pairs; }
	// An operation of so many bytes begins; a part of it was posted.
	void begins(size_t bytes) { unposted_ += bytes; }
	void posted(size_t bytes)
	{
		unposted_ -= bytes;
		++under_way_;
	}
	// A part has completed, or has failed: then with 0 bytes.
	void completed(size_t bytes, int64_t now)
	{
		// Busy at both ends of the time in between: parts were only added since the last completion.
		const bool busy = was_busy_ && is_busy();
		--under_way_;
		if (busy) {
			bytes_ += static_cast<double>(bytes);
			time_ += static_cast<double>(now - last_);
			if (++parts_ == interval) {
				climber_.see(bytes_, time_);
				bytes_ = time_ = 0;
				parts_ = 0;
			}
		}
		was_busy_ = is_busy();
		last_ = now;
	}

	bool pinned() const { return pinned_; }
	uint32_t under_way() const { return under_way_; } // parts
	uint32_t in_use() const { return in_use_; }       // queue pairs
	const Climber &climber() const { return climber_; }

private:
	bool is_busy() const { return (unposted_ || under_way_ > queue_pairs()) && in_use_ >= queue_pairs(); }

	const bool pinned_;
	Climber climber_;
	uint32_t under_way_ = 0, in_use_ = 0;
	size_t unposted_ = 0; // bytes that wait for room
	bool was_busy_ = false;
	int64_t last_ = 0; // completion
	// Of the current interval.
	double bytes_ = 0, time_ = 0;
	uint32_t parts_ = 0;
};

} // namespace pt2p::tune
