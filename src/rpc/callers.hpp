// The threads that call a rank, and the lanes that they have. Made when a second thread calls it, or when there are
// always several lanes; a thread that is alone pays a comparison for each call.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "rpc/laws/lanes.hpp"

namespace pt2p::rpc {

// A thread that makes calls, with those of this period. Bytes are there and back.
struct Caller : laws::ThreadLoad {
	uintptr_t thread = 0;
	bool known = false;
	uint8_t idle = 0; // periods
};

class Callers {
public:
	// In place of a thread: each call is examined, as there are several, or as replies may go by datagram.
	static constexpr uintptr_t all_examined = UINTPTR_MAX;

	// `lanes`: see laws::Lanes.
	explicit Callers(unsigned lanes) : law_(lanes), lanes_(lanes) { loads_.reserve(max); }

	// A thread makes a call with so many bytes.
	Caller &call(uintptr_t thread, size_t bytes)
	{
		if (++calls_ == period)
			end_period();
		Caller &caller = find(thread);
		++caller.calls;
		caller.bytes += bytes;
		return caller;
	}
	// The lane for its call. A thread that is alone takes all in turn where their number is fixed.
	unsigned lane_of(const Caller &caller)
	{
		return __builtin_expect(known_ == 1 && lanes_ > 1, 0) ? next_++ % lanes_ : caller.lane;
	}
	// How often threads were given other lanes.
	uint64_t moves() const { return moves_; }

private:
	static constexpr unsigned period = 256; // calls
	static constexpr size_t max = 64, reach = 8;
	static constexpr uint8_t max_idle = 16; // periods

	// More threads than there are places for share one.
	Caller &find(uintptr_t thread)
	{
		const size_t first = thread * UINT64_C(0x9e3779b97f4a7c15) >> 58;
		Caller *free = nullptr;
		for (size_t i = 0; i < reach; ++i) {
			Caller &c = callers_[(first + i) % max];
			if (c.known && c.thread == thread)
				return c;
			if (!c.known && !free)
				free = &c;
		}
		return free ? add(*free, thread) : callers_[first];
	}
	Caller &add(Caller &caller, uintptr_t thread)
	{
		caller = {};
		caller.known = true;
		caller.thread = thread;
		caller.lane = static_cast<uint8_t>(lanes_ ? known_ % lanes_ : 0); // until the law has seen it
		++known_;
		return caller;
	}
	[[gnu::noinline]] void end_period()
	{
		calls_ = 0;
		loads_.clear();
		for (Caller &c : callers_)
			if (c.known)
				loads_.push_back(&c);
		moves_ += law_.decide(loads_);
		for (laws::ThreadLoad *load : loads_) {
			Caller &c = static_cast<Caller &>(*load);
			c.idle = c.calls ? 0 : static_cast<uint8_t>(c.idle + 1);
			c.calls = c.bytes = 0;
			if (c.idle == max_idle) { // it may have ended
				c.known = false;
				--known_;
			}
		}
	}

	laws::Lanes law_;
	const unsigned lanes_;
	unsigned calls_ = 0, known_ = 0, next_ = 0;
	uint64_t moves_ = 0;
	std::array<Caller, max> callers_;
	std::vector<laws::ThreadLoad *> loads_;
};

} // namespace pt2p::rpc
