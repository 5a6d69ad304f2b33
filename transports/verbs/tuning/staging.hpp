// Where a message that is too long to be inlined is staged: in the device's memory or in a buffer of host memory. A
// pure function of observations, for each channel and length class (powers of two).
//
// Writing to device memory costs the processor a store over PCIe for each word or cache line. Reading a buffer costs
// the device a round trip over PCIe. Which is faster depends on the machine, the length and the load. Both are
// therefore measured, from before the payload is copied to the completion.
//
// Latency does not decide for a queue that keeps the device busy (WindowTuner::saturated()): it stages in host memory.
// The device reads one buffer while it sends another, so the round trip costs nothing, and its reads take less of PCIe
// than the processor's stores of 64 bytes each. A queue keeps to host memory for many messages, because a mixture of
// the two is slower than either (softhca/studies/RESULTS.md).
//
// either.hpp is the law, with every 251st message of a class as a sample. The number is prime, so that samples do not
// always fall on the same message of a burst. It is not smaller because completions are polled more often while a
// sample is in flight, and polling splits up work requests that would share a doorbell.
//
// Device memory is not tried while half of it is in use: the messages that gain by it would soon find none. A message
// that finds device memory full is observed as one in a buffer.
//
// A message that can be inlined always is. It makes the WQE longer by at most 64 bytes. With BlueFlame that is one more
// write of 64 bytes over PCIe, and no read. Device memory would take as many writes and a fence before the doorbell; a
// buffer would take a read. If the device reads the WQE, it reads inlined payload in the same read.
#pragma once

#include <array>
#include <bit>

#include "transports/verbs/tuning/either.hpp"

namespace pt2p::tune {

enum class Staging : uint8_t { device_memory, buffer };

class StagingTuner {
public:
	using Next = Either<Staging>::Next;
	// For the next message; `scarce`: half of the device memory, or more, is in use.
	Next next(bool scarce) const { return either_.next(!scarce || either_.chosen() == Staging::device_memory); }
	// The message has been sent and is staged there.
	void sent(Staging where, bool as_sample)
	{
		either_.sent(as_sample);
		++messages_[static_cast<size_t>(where)];
	}
	void see(Staging where, int64_t latency)
	{
		either_.see(where, latency);
		changes_ += either_.judge();
	}
	Staging chosen() const { return either_.chosen(); }
	// The median of the last samples; 0: there is none.
	int64_t latency_of(Staging where) const { return either_.latency_of(where); }
	uint64_t messages(Staging where) const { return messages_[static_cast<size_t>(where)]; }
	uint64_t changes() const { return changes_; }

private:
	Either<Staging> either_{EitherLaw{.every = 251}};
	std::array<uint64_t, 2> messages_{};
	uint64_t changes_ = 0;
};

// The tuners of all length classes.
class Stagings {
public:
	static constexpr size_t classes = 11;
	// For messages that take so many bytes when they are staged.
	StagingTuner &of(size_t bytes)
	{
		return tuners_[std::min(static_cast<size_t>(std::bit_width((bytes - 1) / shortest)), classes - 1)];
	}
	const StagingTuner &at(size_t i) const { return tuners_[i]; }
	// Longest message of a class.
	static size_t max_bytes(size_t i) { return shortest << i; }

private:
	static constexpr size_t shortest = 128;
	std::array<StagingTuner, classes> tuners_{};
};

} // namespace pt2p::tune
