// Progress: polling the transports, and what a waiting call does with its core.
//
//   poll + pause            for PT2P_SPIN_TIME   (not if the host has more ranks than cores)
//   poll + sched_yield      for PT2P_YIELD_TIME
//   arm + sleep on a futex  until something arrives, at most `nap` at a time (devices: see waker.hpp)
//
// Each arrival starts the sequence anew. Each context has one lock, which is taken only at thread level multiple or
// with a progress thread. It is held while anything of the context is touched, and released between two polls. Where
// several threads wait and have cores, one of them polls (poller.hpp).
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <pthread.h>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "base/report/report.hpp"
#include "progress/combine.hpp"
#include "progress/poller.hpp"
#include "progress/waker.hpp"
#include "transports/transport.hpp"

namespace pt2p {

// The layer above, as progress sees it.
class ProgressClient {
public:
	// Sends what had to wait; called while has_work.
	virtual unsigned drive() = 0;
	// Calls callbacks of the program; called while has_finished.
	virtual unsigned call_back() { return 0; }
	bool has_work = false, has_finished = false;
	// Slow checks, every few milliseconds of waiting: lost ranks, launcher events.
	virtual void check() = 0;
	// Called about every millisecond of waiting, and every few polls, while it is asked for.
	virtual void tick(int64_t now) { (void)now; }
	bool ticks = false; // whether tick() is wanted
	// Messages from now on may leave together; not after cork(false).
	virtual void cork(bool corked) { (void)corked; }
	// A call is going to sleep, until something arrives.
	virtual void before_sleep() {}

protected:
	~ProgressClient() = default;
};

class Progress final : BatchObserver {
public:
	struct Settings {
		int cores = 1; // for each rank of this host; 0: there are fewer than ranks
		bool locking = false;
		bool thread = false; // makes progress while the program computes
		// That thread also calls the program's callbacks, which the program then expects.
		bool thread_calls_back = false;
	};
	Progress(const Config &config, Reporter &reporter, Job &job, ProgressClient &client, Settings settings);
	~Progress();
	void add(Transport &transport);
	// Shows what is waited for. Called with the reason: a wait is long, or a signal asks for it.
	std::function<void(const char *reason)> dump = [](const char *) {};
	// Once all transports are added; does nothing unless the settings ask for a thread.
	void start_thread();
	void stop_thread();
	bool has_thread() const { return thread_.joinable(); }
	// Whether callbacks of the program may be called now.
	bool may_call_back() const { return !in_thread_ || settings_.thread_calls_back; }

	// Held by every call into the context.
	class Guard {
	public:
		explicit Guard(Progress &progress) : progress_(progress) { progress.lock(); }
		Guard(Progress &progress, std::adopt_lock_t) : progress_(progress) {}
		~Guard() { progress_.unlock(); }
		Guard(const Guard &) = delete;
		Guard &operator=(const Guard &) = delete;

	private:
		Progress &progress_;
	};

	bool locking() const { return settings_.locking; }
	// Takes the lock if that takes no waiting; false also if there is none.
	bool try_lock() { return settings_.locking && lock_.try_lock(); }
	// True: another thread, which held the lock, has executed `quick`, and that has returned true. Else this thread has
	// the lock, if there is one, and `quick` has changed nothing.
	template <class F>
	bool combine_or_lock(F &&quick)
	{
		if (!settings_.locking || take_lock())
			return false;
		bool done = false;
		lock_.combine([&, self = pthread_self()] {
			const OnBehalf acting(*this, self);
			done = quick();
		});
		if (!done)
			lock();
		return done;
	}
	// The same, and then waits as wait_unlocked() does. The thread that holds the lock is asked once for both.
	template <class F, class Over>
	bool combine_and_wait_or_lock(F &&quick, Over &&over)
	{
		if (!settings_.locking || take_lock())
			return false;
		bool done = false;
		Waiting self(over);
		Standing standing = Standing::locked;
		lock_.combine([&, thread = pthread_self()] {
			const OnBehalf acting(*this, thread);
			done = quick();
			if (done)
				standing = begin_wait(self, thread);
		});
		if (done)
			go_on_waiting(self, standing);
		else
			lock();
		return done;
	}

	// The thread whose call is executed. Under the lock.
	pthread_t caller() const { return __builtin_expect(acting_for_ != nullptr, 0) ? *acting_for_ : pthread_self(); }

	// A turn on behalf of another context. None if a thread is in a call into this one: that makes progress itself.
	void poll_if_free()
	{
		if (settings_.locking && !lock_.try_lock() && !lock_.try_lock_attended())
			return;
		const Guard guard(*this, std::adopt_lock);
		poll();
	}

	// Held while a callback of the program runs: other threads may make calls, and so may the callback.
	class Callback {
	public:
		explicit Callback(Progress &progress) : progress_(progress)
		{
			if (progress_.settings_.locking) {
				// It may take long, or be the end of this thread's wait.
				if (std::exchange(progress_.in_turn_of_poller_, false))
					progress_.pass_on();
				progress_.lock_.unlock();
			} else {
				progress_.careful_ = true;
			}
		}
		~Callback()
		{
			if (progress_.settings_.locking)
				progress_.lock_.lock();
			else
				progress_.careful_ = false;
		}
		Callback(const Callback &) = delete;
		Callback &operator=(const Callback &) = delete;

	private:
		Progress &progress_;
	};

	// Whether calls have to hold a Guard, or may come from a callback.
	bool careful() const { return careful_; }
	// There is something to do that no transport reports.
	void nudge()
	{
		if (__builtin_expect(sleepers_ != 0, 0))
			wake_sleepers();
	}

	// One turn: polls all transports and sends what waits; returns how many events were handled.
	unsigned step()
	{
		unsigned n = 0;
		for (const Polled &p : polled_)
			n += p.progress(*p.transport);
		if (client_.has_work)
			n += client_.drive();
		if (client_.has_finished)
			n += client_.call_back();
		if (__builtin_expect(others_ != 0, 0) && n)
			wake_others();
		return n;
	}
	// A turn for a call that does not wait.
	unsigned poll()
	{
		if (__builtin_expect(++polls_ % polls_unchecked == 0, 0))
			check_now_and_then();
		return step();
	}

	// The same for a call that a program may repeat until it finds something. On an oversubscribed host, many idle
	// polls in a row yield the CPU, as a wait does; the guard is released meanwhile.
	void poll_or_yield()
	{
		const unsigned n = poll();
		if (__builtin_expect(settings_.cores == 0, 0))
			yield_if_idle(n);
	}

	// Makes progress until done() is true. The guard is held when done() is called and released in between.
	template <class Done>
	void wait(Done &&done)
	{
		step();
		if (!done()) // one turn is often enough
			wait_longer(done);
	}
	// As wait, at thread level multiple, by a thread that does not hold the lock. Whoever has the lock calls over():
	// this thread need not have it, neither before nor after.
	template <class Over>
	void wait_unlocked(Over &&over)
	{
		Waiting self(over);
		wait_unlocked(self);
	}
	// As wait, for memory that peers write without waking anybody: sleeps are short.
	template <class Done>
	void wait_on_memory(Done &&done)
	{
		const Waiter watching(memory_waiters_);
		wait(done);
	}
	// As wait, for at most `limit` nanoseconds; false when the time is up.
	template <class Done>
	bool wait_for(int64_t limit, Done &&done)
	{
		const int64_t end = now_ns() + limit;
		bool finished = false;
		wait([&] {
			finished = done();
			return finished || now_ns() >= end;
		});
		return finished;
	}

private:
	struct Backoff {
		uint32_t turns = 0;
		int64_t start = 0;      // of the wait
		int64_t idle_since = 0; // 0: not looked at the clock yet
		int64_t last_check = 0;
		bool spinning = true;
		bool may_stall = true; // not the progress thread: nobody waits in it
	};
	// While one exists, this thread executes the call of another one, and keeps no explanation of a failure.
	struct OnBehalf {
		OnBehalf(Progress &p, const pthread_t &thread) : progress(p)
		{
			progress.acting_for_ = &thread;
			progress.reporter_.mute(true);
		}
		~OnBehalf()
		{
			progress.acting_for_ = nullptr;
			progress.reporter_.mute(false);
		}
		OnBehalf(const OnBehalf &) = delete;
		OnBehalf &operator=(const OnBehalf &) = delete;
		Progress &progress;
	};
	struct Waiter {
		explicit Waiter(int &counter) : count(counter) { ++count; }
		~Waiter() { --count; }
		int &count;
	};
	struct Polled {
		unsigned (*progress)(Transport &);
		Transport *transport;
	};

	// The rest of wait(), after a turn.
	template <class Done>
	[[gnu::noinline]] void wait_longer(Done &done)
	{
		Backoff backoff;
		const Waiter waiter(waiters_); // correct also after an exception: the progress thread reads the count
		if (settings_.locking) {
			Waiting self(done);
			return wait_among_threads(self, backoff);
		}
		for (;;) {
			if (idle(backoff) && sleep())
				backoff.turns = 0; // more may follow what has arrived
			const unsigned n = step();
			if (done())
				break;
			if (n)
				backoff.turns = 0, backoff.idle_since = 0;
		}
	}
	void begin_batch() override { client_.cork(true); }
	void end_batch(unsigned operations) override;
	// A wait as it stands: over, parked, or not begun, without and with the lock.
	enum class Standing { over, parked, unlocked, locked };
	Standing begin_wait(Waiting &self, pthread_t thread); // under the lock, by any thread
	void go_on_waiting(Waiting &self, Standing standing);
	void wait_unlocked(Waiting &self);
	bool take_over(Waiting &self);
	void wait_among_threads(Waiting &self, Backoff &backoff);
	int waiting() const { return waiters_ + poller_.parked(); }
	bool park(Waiting &self);
	bool wait_parked(Waiting &self);
	void leave();
	void pass_on();
	void wake_finished();

	// Without waiting. The thread that polls and is away leaves the lock to itself.
	bool take_lock() { return lock_.try_lock() || (poller_.is_away(pthread_self()) && lock_.try_lock_attended()); }
	void lock()
	{
		if (settings_.locking && !lock_.try_lock())
			lock_when_free();
	}
	void lock_when_free();
	void unlock()
	{
		if (settings_.locking)
			lock_.unlock();
	}
	// True when it is time to sleep. `attends`: it executes the calls of other threads meanwhile.
	bool idle(Backoff &backoff, bool attends = false)
	{
		if (__builtin_expect(++backoff.turns % 64 != 0 && backoff.spinning && spin_, 1)) {
			if (attends) {
				if (lock_.pause())
					wake_finished(); // such a call may be what some wait for
				return false;
			}
			unlock();
			cpu_relax();
			lock();
			return false;
		}
		return idle_slowly(backoff);
	}
	bool idle_slowly(Backoff &backoff);
	bool sleep(); // true: something may have arrived
	bool watch_descriptor(int fd);
	void yield();
	void give_way();
	void wake_sleepers();
	void wake_others();
	void check();
	void check_now_and_then();
	void yield_if_idle(unsigned events);
	void watch(Backoff &backoff, int64_t now);

	const Config &config_;
	Reporter &reporter_;
	Job &job_;
	ProgressClient &client_;
	std::vector<Polled> polled_;
	std::vector<Transport *> transports_;
	const Settings settings_;
	const bool spin_;
	bool careful_;
	CombiningLock lock_{this};
	const pthread_t *acting_for_ = nullptr;
	Poller poller_;
	bool in_turn_of_poller_ = false;
	std::atomic<int> wanting_{0}; // threads that wait for it
	// Calls that do not wait look at the clock after so many with ticks, and after 16 times as many without: a look
	// takes 20 ns, and a program may call seldom.
	static constexpr uint32_t polls_unchecked = 16;
	uint32_t polls_ = 0;
	uint32_t idle_polls_ = 0; // in a row
	int64_t last_check_ = 0;
	int64_t dumped_ = 0, next_dump_ = 0; // the start of the wait that was shown last, and when it is shown again, ns
	int waiters_ = 0;                    // calls that wait, without those of parked threads
	int sleepers_ = 0, memory_waiters_ = 0;
	int others_ = 0; // sleepers and parked threads
	std::atomic<uint32_t> own_word_{0};
	uint32_t *word_;
	uint32_t dumps_seen_ = 0;
	std::unique_ptr<Waker> waker_; // for devices; made when it is first needed
	bool missed_waker_ = false;
	std::thread thread_;
	bool stopping_ = false;
	bool in_thread_ = false; // in a turn of that thread
};

} // namespace pt2p
