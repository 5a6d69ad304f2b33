// A mutex whose uncontended calls are one atomic instruction each, and inline: each call of a program at thread level
// multiple takes and releases one. The states are those of "Futexes Are Tricky" (Drepper, 2011), section 6.
#pragma once

#include <atomic>
#include <cstdint>

namespace pt2p {

class Lock {
public:
	Lock() = default;
	Lock(const Lock &) = delete;
	Lock &operator=(const Lock &) = delete;

	bool try_lock()
	{
		uint32_t expected = free;
		return state_.compare_exchange_strong(expected, held, std::memory_order_acquire, std::memory_order_relaxed);
	}
	void lock()
	{
		if (__builtin_expect(!try_lock(), 0))
			wait();
	}
	void unlock()
	{
		if (__builtin_expect(state_.exchange(free, std::memory_order_release) == wanted, 0))
			state_.notify_one();
	}

private:
	static constexpr uint32_t free = 0, held = 1, wanted = 2; // wanted: held, and somebody may sleep

	[[gnu::noinline, gnu::cold]] void wait()
	{
		while (state_.exchange(wanted, std::memory_order_acquire) != free)
			state_.wait(wanted, std::memory_order_relaxed);
	}

	std::atomic<uint32_t> state_{free};
};

} // namespace pt2p
