// At thread level multiple, one waiting thread polls for all. The others park: each leaves behind a test of what it
// waits for, and spins, then sleeps, on a word of its own. The thread that polls runs the tests and wakes those that
// are done. When its own wait is over it passes the polling on to a parked thread.
//
//            park                          its test is true
//   (wait) --------> [ parked ] ------------------------------> (end of the wait)
//     |                  |                                           ^
//     | nobody polls     | passed on                                 |
//     +--------------> [ polls ] ------------------------------------+
//
// All of it but the wait on the word happens under the lock of the context. Where there are fewer cores than waiting
// threads, each polls in its turns, and parks when nothing has arrived for long.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

namespace pt2p {

// A thread that waits; on its stack.
class Waiting {
public:
	template <class Done>
	explicit Waiting(Done &done)
	    : done_([](void *argument) { return (*static_cast<Done *>(argument))(); }),
	      argument_(const_cast<void *>(static_cast<const void *>(&done)))
	{
	}
	Waiting(const Waiting &) = delete;
	Waiting &operator=(const Waiting &) = delete;

	int64_t start = 0; // of the wait, ns; 0: it has not looked at the clock yet
	// A test that lacks memory is tried again.
	bool done() noexcept
	try {
		return done_(argument_);
	} catch (...) {
		return false;
	}

	enum Word : uint32_t { parked, asleep, finished, polls };
	void prepare() { word_.store(parked, std::memory_order_relaxed); }
	// Spins for that time, then sleeps; true when the wait is over, false when this thread has to poll.
	bool wait(int64_t spin_time);
	// The last that may be done with it, by the thread that polls. True: it has been awake.
	bool wake(Word word);

private:
	bool (*const done_)(void *);
	void *const argument_;
	std::atomic<uint32_t> word_{parked};
};

class Poller {
public:
	bool is(const Waiting &w) const { return polling_ == &w; }
	bool anybody() const { return polling_ != nullptr; }
	int parked() const { return static_cast<int>(parked_.size()); }
	// Nobody polls; this thread does from now on.
	void begin(Waiting &w) { polling_ = &w; }
	// This thread polls no more: a parked one does. True: there is one, and it is awake.
	bool pass_on();
	void park(Waiting &w)
	{
		w.prepare();
		parked_.push_back(&w);
	}
	// Wakes the parked threads whose tests are true.
	void wake_finished();
	// When the thread that has waited longest began to, or `start` if that is earlier; ns.
	int64_t oldest(int64_t start) const;

private:
	Waiting *polling_ = nullptr;
	std::vector<Waiting *> parked_; // the first has waited longest
};

} // namespace pt2p
