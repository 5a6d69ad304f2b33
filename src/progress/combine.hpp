// The lock of a context, in front of which calls combine: one that finds the lock taken queues its operation, and the
// thread that holds the lock executes what is queued before it releases it. So short calls of many threads need neither
// hand the lock from one to the next nor wake anybody. This is the leader with its followers of FLOCK (Monga, Kashyap,
// Min, SOSP 2021), with no fixed leader: a thread whose operation nobody executes for long takes the lock.
//
//   caller                               holder of the lock
//   queue the operation  ------------->  executes it, says so
//   spin until that is said; after a while try to take the lock, too; then sleep
//
// A holder that polls does not give the lock away between two polls (pause()): calls still leave their operations to
// it, and only those take the lock that need it.
//
// A call that finds the lock free executes one atomic read-modify-write: to release it takes a store and a look at the
// queue. Those are not ordered. A thread that is about to sleep marks the queue, makes all cores fence, and looks at
// the lock once more; so either it sees that the lock is free, or the holder sees the mark.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <type_traits>

#include "base/memory/fifo.hpp"
#include "base/memory/membarrier.hpp"
#include "progress/lock_watch.hpp"

namespace pt2p {

// Is told of the operations that a thread executes for others.
class BatchObserver {
public:
	virtual void begin_batch() = 0;
	virtual void end_batch(unsigned operations) = 0;

protected:
	~BatchObserver() = default;
};

class CombiningLock {
public:
	explicit CombiningLock(BatchObserver *observer = nullptr)
	    : observer_(observer), watched_(lock_watch::wanted()),
	      queue_((membarrier_.works() ? 0 : marked) | (watched_ ? watched : 0))
	{
		expect(false);
		state_.store(released_, std::memory_order_relaxed);
		if (watched_)
			__tsan_mutex_create(this, 0);
	}
	CombiningLock(const CombiningLock &) = delete;
	CombiningLock &operator=(const CombiningLock &) = delete;

	bool try_lock() { return take(free) || (watched_ && try_lock_watched(free_watched)); }
	// By the thread that is about to take it: see expect().
	bool try_lock_attended() { return watched_ ? try_lock_watched(attended) : take(attended); }
	void lock()
	{
		if (__builtin_expect(!try_lock(), 0))
			lock_when_free();
	}
	void unlock()
	{
		if (__builtin_expect((queue_.load(std::memory_order_relaxed) & ~marked) != 0, 0))
			execute_rounds();
		state_.store(unlocked_, std::memory_order_release);
		std::atomic_signal_fence(std::memory_order_seq_cst);
		if (__builtin_expect(queue_.load(std::memory_order_relaxed) != 0, 0))
			attend();
	}
	// The holder is back soon: it lets those have the lock that need it, but calls leave their operations to it, whose
	// core has all that the lock protects. True: it has executed such.
	bool pause();
	// Under the lock: whether somebody who is awake is about to take it and look after the queue. A thread that waits
	// for that one too long expects nobody.
	void expect(bool attendant)
	{
		released_ = attendant ? attended : watched_ ? free_watched : free;
		unlocked_ = watched_ ? held : released_;
	}
	// At a glance, by any thread.
	bool is_held() const { return state_.load(std::memory_order_relaxed) == held; }
	// After try_lock() has failed: `function` is executed once, with the lock held, here or by the thread that holds
	// it. It does not release the lock. What it throws is thrown here.
	template <class F>
	void combine(F &&function)
	{
		Of<std::remove_reference_t<F>> operation(function);
		submit(operation);
		if (operation.thrown)
			std::rethrow_exception(operation.thrown);
	}

private:
	// free_watched: only try_lock_watched() takes it. attended: free, and somebody looks after the queue.
	enum State : uint32_t { free, free_watched, attended, held };
	// On the stack of its caller. `leads`: its caller takes the lock for all that is queued.
	struct Operation {
		enum State : uint32_t { queued, asleep, leads, done };
		explicit Operation(void (*call)(Operation &)) : call(call) {}
		void execute() noexcept
		try {
			call(*this);
		} catch (...) {
			thrown = std::current_exception();
		}
		void (*const call)(Operation &);
		std::exception_ptr thrown;
		Operation *next = nullptr;
		std::atomic<uint32_t> state{queued};
	};
	template <class F>
	struct Of final : Operation {
		explicit Of(F &f) : Operation([](Operation &o) { static_cast<Of &>(o).function(); }), function(f) {}
		F &function;
	};

	bool take(uint32_t state)
	{
		return state_.compare_exchange_strong(state, held, std::memory_order_acquire, std::memory_order_relaxed);
	}
	// By a thread that waits: it looks before it tries, but for a tool, which is to see each try.
	bool try_lock_again(bool attended_too = true)
	{
		const uint32_t state = state_.load(std::memory_order_relaxed);
		if (state == attended)
			return attended_too && try_lock_attended();
		return (state == free || watched_) && try_lock();
	}
	void release(State state);
	[[gnu::noinline]] bool try_lock_watched(uint32_t state);
	bool lock_soon(); // false: it has not become free for long
	void lock_when_free();
	void submit(Operation &operation);
	bool queued() const { return queue_.load(std::memory_order_relaxed) & ~(marked | watched); }
	static Operation *newest_of(uintptr_t queue) { return reinterpret_cast<Operation *>(queue & ~marks); }
	void execute_queued();
	bool execute_rounds(); // false: there was nothing to execute
	void take_queued();
	void attend();
	void wake_sleeper();
	bool appoint_leader();
	static void say(Operation &operation, Operation::State state);

	// In the queue's word: look for sleepers, too. Always set where only a fence shows them.
	static constexpr uintptr_t marked = 1;
	// There is a backlog, too; a tool watches the lock, for ever.
	static constexpr uintptr_t more = 2, watched = 4, marks = marked | more | watched;

	BatchObserver *const observer_;
	const bool watched_; // by a tool
	State released_;     // its state when it is free
	State unlocked_;     // after unlock(): the same, but a watched one is released by attend()
	const Membarrier membarrier_{Membarrier::process};
	std::atomic<uint32_t> state_;
	std::atomic<uintptr_t> queue_; // the newest of the queued operations, and marks
	// The rest is for threads that wait. Under the lock:
	Fifo<Operation> backlog_; // taken from the queue, in order
	// Of those that sleep in lock():
	std::atomic<uint32_t> sleepers_{0};
	std::atomic<uint32_t> wakes_{0}; // futex
	std::atomic<bool> woken_{false}; // one of them is about to look at the lock
};

} // namespace pt2p
