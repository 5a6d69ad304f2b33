// How many queue pairs the bulk data of one peer is spread over (PT2P_NET_QUEUE_PAIRS). Parts of operations need no
// order among themselves, and a device works on several queue pairs at once; whether that moves more bytes only the
// rate tells, so that the hill climber of climb.hpp decides. Nothing here reads a clock: transports say when a part was
// posted and when it was done.
//
// The rate counts while something waits that another queue pair might have taken: for room, or as more parts are under
// way than there are queue pairs, all of which are in use. Time in which that is not so is left out.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "transports/verbs/tuning/climb.hpp"

namespace pt2p::tune {

class Striping {
public:
	static constexpr size_t min_part = size_t{16} << 10, max_part = size_t{1} << 20; // bytes
	static constexpr uint32_t interval = 8; // parts: so that one more or less at its ends does not matter

	// `pinned` other than 0: as many as that; `most`: as there can be.
	Striping(uint32_t pinned, uint32_t max)
	    : pinned_(pinned != 0),
	      climber_(pinned ? ClimbLaw{.min = std::min(pinned, max), .max = std::min(pinned, max)}
	                      : ClimbLaw{.max = max})
	{
	}

	// How many there may be at present.
	uint32_t queue_pairs() const { return climber_.setting(); }
	// Bytes of the next part of an operation of this length: one for each queue pair, but others get their turn in
	// between.
	size_t part_of(size_t length) const
	{
		constexpr size_t page = 4096;
		const size_t share = (length / queue_pairs() + page - 1) / page * page;
		return std::clamp(share, min_part, max_part);
	}
	// So many have work for this peer, or could.
	void uses(uint32_t queue_pairs) { in_use_ = queue_pairs; }
	// An operation of so many bytes begins; a part of it was posted.
	void begins(size_t bytes) { unposted_ += bytes; }
	void posted(size_t bytes)
	{
		unposted_ -= bytes;
		++under_way_;
	}
	// One was completed, or will not be: no bytes then.
	void completed(size_t bytes, int64_t now)
	{
		// And was so when the last one had been completed: parts were only added since.
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
	// Of the interval so far.
	double bytes_ = 0, time_ = 0;
	uint32_t parts_ = 0;
};

} // namespace pt2p::tune
