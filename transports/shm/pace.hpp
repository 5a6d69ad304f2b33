// How quickly long messages go through a ring, and whether that beats a single copy by the kernel.
//
// A ring takes two copies, one by each side. They are quick between cores that share a cache; between others each line
// costs several times as much. A single copy costs nearly the same in both cases, because most of it is the kernel's
// work on pages. So the writer measures its own copy and compares it with a threshold.
//
// The threshold is the time of a single copy of 32 to 64 KiB, measured with pt2p_perf on Zen 4 under Linux 6: 110 to
// 140 ns for a KiB. Writing into a ring took 50 to 105 ns there between cores that share a cache, and 140 to 290
// between others.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace pt2p::shm {

class Pace {
public:
	// A quick ring takes eager messages that are so many times as long as others do.
	static constexpr unsigned factor = 4;
	// Longest eager message that waits for room in a ring that is not quick, bytes.
	static constexpr size_t slow_in_stream = 4096;

	// Whether to time the writing of a message of that length.
	bool wants(size_t length) { return length >= min_length && (samples_ < decided || ++skipped_ % timed_one_of == 0); }
	// Writing took so long. True: quick() has changed.
	bool add(size_t bytes, int64_t ns)
	{
		const float now = std::min(static_cast<float>(ns) * 1024 / static_cast<float>(bytes), 2 * threshold);
		if (samples_ < decided)
			++samples_;
		if (samples_ <= cold)
			return false;
		// What is quicker counts more: page faults and interrupts are no property of the ring.
		const float weight = now < ns_per_kib_ ? 0.25f : 0.0625f;
		ns_per_kib_ = samples_ == cold + 1 ? now : ns_per_kib_ + (now - ns_per_kib_) * weight;
		const bool was = quick_;
		if (samples_ == decided)
			quick_ = ns_per_kib_ < (was ? threshold + slack : threshold - slack);
		return quick_ != was;
	}
	// True until it is known to be false.
	bool quick() const { return quick_; }
	// Lets long messages through again, to measure again: a process can move, and may send no others.
	void retry()
	{
		quick_ = true;
		samples_ = cold;
	}
	// The ring has new memory, which is slow at first.
	void restart() { samples_ = 0; }

private:
	static constexpr size_t min_length = 4096;             // bytes
	static constexpr float threshold = 120, slack = 10;    // ns for a KiB
	static constexpr uint8_t cold = 8, decided = cold + 8; // samples: ignored, and from when on they count
	static constexpr uint8_t timed_one_of = 8;

	float ns_per_kib_ = 0;
	uint8_t samples_ = 0, skipped_ = 0;
	bool quick_ = true;
};

} // namespace pt2p::shm
