// Whether a rank adds to memory of another by that rank's device itself, or asks the owner, which adds up what several
// ranks ask of it at a time (additions.hpp). The device does the additions either way, so both are atomic with each
// other.
//
// A device does one atomic operation at a time on a word, and each one waits for those before it. Where many ranks, or
// one rank with many at a time, add to one word, an addition takes several times its normal latency N; the owner then
// has the device add once for all of them. Which of the two is quicker is measured:
//
//   device --- `slow_in_row` additions in a row took more than `slow` N -----------------------------------> owner
//   owner ---- of `looked_at`, fewer than two went together on average, or they took longer than the device -> device
//
// After a return the device is used for at least 64 additions, and for four times as many after each further return.
#pragma once

#include <algorithm>
#include <cstdint>

namespace pt2p::onesided {

class AtomicWay {
public:
	bool asks() const { return asks_; }

	// Latencies are in any unit; 0: the normal one is not known.
	void by_device(int64_t latency, int64_t normal)
	{
		device_ = device_ ? device_ + (latency - device_) / 8 : latency;
		slow_ = normal && latency > slow * normal ? slow_ + 1 : 0;
		if (rest_)
			--rest_;
		if (rest_ || slow_ < slow_in_row || asks_)
			return;
		asks_ = true;
		looks_ = 0;
		seen_ = together_ = taken_ = 0;
	}
	// `together`: how many additions the owner has combined, this one included.
	void by_owner(int64_t latency, uint32_t together)
	{
		if (!asks_)
			return; // was under way when the device was chosen
		taken_ += latency;
		together_ += together;
		const bool late = taken_ > device_ * looked_at;
		if (++seen_ < looked_at && !late)
			return;
		const bool good = !late && together_ >= 2 * looked_at;
		seen_ = together_ = taken_ = 0;
		if (good) {
			if (++looks_ == forgiven)
				pause_ = shortest_pause;
			return;
		}
		asks_ = false;
		slow_ = 0;
		rest_ = pause_;
		pause_ = std::min(4 * pause_, longest_pause);
	}

private:
	static constexpr int64_t slow = 3;
	static constexpr uint32_t slow_in_row = 8, shortest_pause = 64, longest_pause = 65536, forgiven = 16;
	static constexpr int64_t looked_at = 16;

	bool asks_ = false;
	uint32_t slow_ = 0, rest_ = 0, pause_ = shortest_pause, looks_ = 0;
	int64_t device_ = 0;                          // latency, a mean of the last ones
	int64_t seen_ = 0, together_ = 0, taken_ = 0; // answers of the owner
};

} // namespace pt2p::onesided
