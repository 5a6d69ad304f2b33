// At thread level multiple, one waiting thread polls for all. The others park: each leaves behind a test of what it
// waits for, and spins, then sleeps, on a word of its own. The thread that polls runs the tests and wakes those that
// are done. When its own wait is over it is away for a time, or passes the polling on to a parked thread.
//
//            park                          its test is true
//   (wait) --------> [ parked ] ------------------------------> (end of the wait)
//     |                  |                                         ^         |
//     | nobody polls     | passed on, or it ends an absence        |         | comes back
//     +--------------> [ polls ] ----------------------------------+         |
//                          ^                                                 |
//                          +-------------------------------------------------+
//
// The queues of the devices are in the caches of the core that polls, and move to who polls next. A thread that makes
// one call after the other comes back at once. So where such absences have been short, the others wait as long as that
// move takes (Karlin, Li, Manasse, Owicki, Empirical Studies of Competitive Spinning, SOSP 1991: so they lose at most
// as much again). Then one that is awake ends the absence and polls.
//
// All of it but the wait on the word, and the end of an absence, happens under the lock of the context. Where there are
// fewer cores than waiting threads, each polls in its turns, and parks when nothing has arrived for long.
#pragma once

#include <atomic>
#include <cstdint>
#include <pthread.h>
#include <vector>

#include "base/clock.hpp"
#include "progress/combine.hpp"

namespace pt2p {

// The thread that polls has left, and may come back. The number grows when an absence begins and when it ends, so it is
// odd while one lasts.
class Absence {
public:
	// How long the others wait, ns: what a doorbell takes of a queue that another core has used last.
	static constexpr int64_t max_time = 1350;

	static bool lasts(uint32_t number) { return number & 1; }
	uint32_t number() const { return word_.load(); }
	bool is_long(int64_t now) const { return now - since_.load(std::memory_order_relaxed) >= max_time; }
	void begin(int64_t now)
	{
		since_.store(now, std::memory_order_relaxed);
		word_.fetch_add(1);
	}
	// By any thread, without the lock. True: this call has ended it.
	bool end(uint32_t number)
	{
		return lasts(number) && word_.compare_exchange_strong(number, number + 1, std::memory_order_relaxed);
	}

private:
	std::atomic<uint32_t> word_{0};
	std::atomic<int64_t> since_{0};
};

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
	// Spins for that time, then sleeps. True: the wait is over. False: this thread has to poll, because that has been
	// passed on to it, or it has ended an absence.
	bool wait(int64_t spin_time, Absence &absence, const CombiningLock &lock);
	// Of a parked one.
	bool is_awake() const { return word_.load() == parked; }
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
	// Also if it is away.
	bool anybody() const { return polling_ || away_; }
	int parked() const { return static_cast<int>(parked_.size()); }
	Absence &absence() { return absence_; }
	// Nobody polls; this thread does from now on.
	void begin(Waiting &w) { polling_ = &w; }
	// This thread polls no more: a parked one does. True: there is one, and it is awake.
	bool pass_on();
	// This thread, which polls, is away from now on. False: it had better pass that on.
	bool leave();
	// Without the lock: whether it is that thread.
	bool is_away(pthread_t thread) const
	{
		return Absence::lasts(absence_.number()) && leaver_.load(std::memory_order_relaxed) == thread;
	}
	// If that thread was away, it polls again, in this wait.
	bool come_back(Waiting &w, pthread_t thread);
	// By the parked thread that has ended the absence. It polls, also if its own wait is over: false.
	bool take_over(Waiting &w);
	// By who has the lock: an absence that was long is over, and so is one in which all that wait are asleep. Then
	// nobody polls.
	bool end_long_absence() { return away_ && absence_.is_long(now_ns()) && end_absence(); }
	bool end_unwatched_absence() { return away_ && all_sleep() && end_absence(); }
	// False: there is no memory for that.
	bool park(Waiting &w) noexcept;
	// Wakes the parked threads whose tests are true.
	void wake_finished();
	// When the thread that has waited longest began to, or `start` if that is earlier; ns.
	int64_t oldest(int64_t start) const;

private:
	// The one that has come last is the likeliest to be still awake.
	bool all_sleep() const { return !parked_.empty() && !parked_.back()->is_awake(); }
	bool end_absence();

	Waiting *polling_ = nullptr;
	std::vector<Waiting *> parked_; // the first has waited longest
	bool woke_others_ = false;      // the thread that polls
	// Its absence:
	Absence absence_;
	std::atomic<pthread_t> leaver_{};
	bool away_ = false;                // or who has ended the absence has not had the lock yet
	unsigned short_ = 2, avoided_ = 0; // those that were short, less those that were long; those avoided since
};

} // namespace pt2p
