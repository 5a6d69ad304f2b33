// The lock of a context, in front of which calls combine: one that finds the lock taken queues its operation, and the
// thread that holds the lock executes what is queued before it releases it. So short calls of many threads need neither
// hand the lock from one to the next nor wake anybody. This is the leader with its followers of FLOCK (Monga, Kashyap,
// Min, SOSP 2021), with no fixed leader: a thread that waits for its operation takes the lock if it becomes free.
//
//   caller                               holder of the lock
//   queue the operation  ------------->  executes it, says so
//   spin until that is said, or the lock can be taken, then sleep
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
	    : observer_(observer), queue_(membarrier_.works() ? 0 : marked)
	{
	}
	CombiningLock(const CombiningLock &) = delete;
	CombiningLock &operator=(const CombiningLock &) = delete;

	bool try_lock()
	{
		uint32_t expected = free;
		return state_.compare_exchange_strong(expected, held, std::memory_order_acquire, std::memory_order_relaxed);
	}
	void lock()
	{
		if (__builtin_expect(!try_lock(), 0))
			lock_when_free();
	}
	void unlock()
	{
		release();
		if (__builtin_expect(queue_.load(std::memory_order_relaxed) != 0, 0))
			attend();
	}
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
	enum State : uint32_t { free, held };
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

	void release()
	{
		state_.store(free, std::memory_order_release);
		std::atomic_signal_fence(std::memory_order_seq_cst);
	}
	void lock_when_free();
	void submit(Operation &operation);
	bool queued() const { return queue_.load(std::memory_order_relaxed) & ~marked; }
	void execute_queued();
	void take_queued();
	void attend();
	void wake_sleeper();
	bool appoint_leader();
	static void say(Operation &operation, Operation::State state);

	// In the queue's word: look for sleepers, too. Always set where only a fence shows them.
	static constexpr uintptr_t marked = 1;

	BatchObserver *const observer_;
	const Membarrier membarrier_{Membarrier::process};
	std::atomic<uint32_t> state_{free};
	std::atomic<uintptr_t> queue_; // the newest of the queued operations, and the mark
	// The rest is for threads that wait. Under the lock:
	Fifo<Operation> backlog_; // taken from the queue, in order
	// Of those that sleep in lock():
	std::atomic<uint32_t> sleepers_{0};
	std::atomic<uint32_t> wakes_{0}; // futex
	std::atomic<bool> woken_{false}; // one of them is about to look at the lock
};

} // namespace pt2p
