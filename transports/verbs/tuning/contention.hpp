// Whether a device works for so many others that a channel is to have no more under way than its share (window.hpp).
// For payload outside of work queue entries: less of that is not quicker for the channel itself, but for all, as their
// entries fit the device's cache again. A pure function of observations.
//
//   L > 16 N      there is a crowd: under way is 16 times as much as it takes to keep the device busy
//   L < 4 N       there is none any more
//
// N is the shortest that any channel has seen, as one that was measured in a crowd tells nothing; L the mean of two.
// The bounds are ours, and far apart, as L falls from the one towards the other when all channels go down to their
// shares.
#pragma once

#include <cstdint>
#include <utility>

namespace pt2p::tune {

class Contention {
public:
	// L/N
	void see(double ratio)
	{
		sum_ += ratio;
		if (++count_ < window)
			return;
		contended_ = std::exchange(sum_, 0) / std::exchange(count_, 0) > (contended_ ? leave_below : enter_above);
	}
	bool contended() const { return contended_; }

private:
	static constexpr double enter_above = 16, leave_below = 4;
	static constexpr uint32_t window = 2; // observations, which are rare where L is long

	bool contended_ = false;
	double sum_ = 0;
	uint32_t count_ = 0;
};

} // namespace pt2p::tune
