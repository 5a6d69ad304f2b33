// Whether other channels load the device so much that a channel should use no more than its share (window.hpp). This is
// for payload outside WQEs. A smaller window does not make such a channel faster by itself. It makes all channels of
// the device faster, because their WQEs fit into the device's cache again. A pure function of observations.
//
//   L > 16 N     the device is contended: 16 times what keeps it busy is in flight
//   L < 4 N      it is no longer contended
//
// N is the shortest of any channel, because an N that was measured under contention is useless. L/N is the mean of two
// observations. The bounds are libpt2p's own. They are far apart because L falls from one towards the other when all
// channels go down to their shares.
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
	static constexpr uint32_t window = 2; // observations, which are rare while L is long

	bool contended_ = false;
	double sum_ = 0;
	uint32_t count_ = 0;
};

} // namespace pt2p::tune
