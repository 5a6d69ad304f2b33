// Where a message waits for the device that is too long to go inside of its work request: in the device's own memory or
// in a buffer of host memory. A pure function of observations, for each channel and length class: powers of two.
//
// The processor writes into device memory at the price of a store over PCIe for each word or line; from a buffer the
// device reads, at the price of a trip there and back. Which is quicker depends on the machine, the length and the
// load, so both are measured: from before the payload is copied to the completion. either.hpp is the law, with a sample
// every 251 messages of a class: a prime number, lest samples fall on the same message of each burst that a program
// sends; and not a smaller one, since completions are looked at more often while one is under way, which parts what
// would share a doorbell: a sample is under way as long as what is before it in the queue, 85 messages. A change is
// therefore followed after at most (3 * 4 + 1) * 251 = 3263 messages of the class.
//
// Device memory that is half taken is not tried for: there would soon be none for those that have proved to gain by it.
// Of a message that found it full, the buffer is what is observed.
//
// A message that fits inside of its work request always goes there, and nothing is to be chosen. It makes the entry
// longer by 64 bytes at most: where the entry goes along with the doorbell, that is one more write of 64 bytes over
// PCIe and no read. Device memory takes as many writes for the payload, and a fence between them and the doorbell; a
// buffer a read. Where the device reads entries, it reads the payload in the same read.
#pragma once

#include <array>
#include <bit>

#include "transports/verbs/tuning/either.hpp"

namespace pt2p::tune {

enum class Staging : uint8_t { device_memory, buffer };

class StagingTuner {
public:
	using Next = Either<Staging>::Next;
	// For the next message; `scarce`: device memory is half taken, or more.
	Next next(bool scarce) const { return either_.next(!scarce || either_.chosen() == Staging::device_memory); }
	// It has been sent, and is there.
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

// The tuners of all lengths.
class Stagings {
public:
	static constexpr size_t classes = 11;
	// Of messages of so many bytes, as they are staged.
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
