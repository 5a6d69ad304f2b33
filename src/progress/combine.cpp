#include "progress/combine.hpp"

#include <sched.h>

#include "base/clock.hpp"
#include "progress/futex.hpp"

namespace pt2p {

namespace {

constexpr unsigned max_spins = 512, max_yields = 4;
// A thread leaves its operation to the holder for so long, and again to one that is about to take the lock. If those
// that wait took it one after the other, all that it protects would move from core to core.
constexpr unsigned spins_for_holder = 32;
// Rounds of queued operations that a thread executes after its own call. Then one of those that wait goes on.
constexpr unsigned max_rounds = 4;

// What a thread does between two looks, before it sleeps.
class Patience {
public:
	explicit Patience(bool watched) : watched_(watched) {}
	// False: it is used up.
	bool wait()
	{
		if (turn_ < max_spins)
			spin();
		else if (turn_ < max_spins + max_yields)
			sched_yield();
		else
			return false;
		++turn_;
		return true;
	}
	bool has_left_time() const { return turn_ >= spins_for_holder; }

private:
	void spin() const
	{
		cpu_relax();
		if (watched_ && turn_ % 8 == 0)
			now_ns(); // a tool that keeps time sees no pause, but looks at the clock
	}

	const bool watched_;
	unsigned turn_ = 0;
};

} // namespace

bool CombiningLock::try_lock_watched(uint32_t state)
{
	__tsan_mutex_pre_lock(this, lock_watch::try_lock);
	const bool taken = take(state);
	__tsan_mutex_post_lock(this, taken ? lock_watch::try_lock : lock_watch::try_lock | lock_watch::try_lock_failed, 0);
	return taken;
}

void CombiningLock::release(State state)
{
	if (watched_)
		__tsan_mutex_pre_unlock(this, 0);
	state_.store(state, std::memory_order_release);
	std::atomic_signal_fence(std::memory_order_seq_cst);
	if (watched_)
		__tsan_mutex_post_unlock(this, 0);
}

bool CombiningLock::lock_soon()
{
	Patience patience(watched_);
	while (patience.wait())
		if (try_lock_again())
			return true;
	return false;
}

void CombiningLock::lock_when_free()
{
	if (lock_soon())
		return;
	sleepers_.fetch_add(1);
	do {
		const uint32_t seen = wakes_.load(std::memory_order_acquire);
		woken_.store(false, std::memory_order_relaxed);
		queue_.fetch_or(marked);
		membarrier_.all_cores_fence();
		if (try_lock_again())
			break;
		sleep_while(wakes_, seen);
	} while (!lock_soon());
	woken_.store(false, std::memory_order_relaxed);
	sleepers_.fetch_sub(1, std::memory_order_relaxed);
}

void CombiningLock::submit(Operation &operation)
{
	uintptr_t newest = queue_.load(std::memory_order_relaxed);
	do
		operation.next = newest_of(newest);
	while (!queue_.compare_exchange_weak(newest, reinterpret_cast<uintptr_t>(&operation) | (newest & marks),
	                                     std::memory_order_release, std::memory_order_relaxed));
	Patience patience(watched_);
	unsigned attended_turns = 0;
	for (;;) {
		uint32_t state = operation.state.load(std::memory_order_acquire);
		if (state == Operation::done)
			return;
		if (state == Operation::leads) {
			lock();
			break;
		}
		if (patience.has_left_time()) {
			attended_turns = state_.load(std::memory_order_relaxed) == attended ? attended_turns + 1 : 0;
			const bool long_attended = attended_turns >= spins_for_holder;
			if (try_lock_again(long_attended)) {
				if (long_attended)
					expect(false);
				break;
			}
		}
		if (patience.wait())
			continue;
		if (state == Operation::queued &&
		    !operation.state.compare_exchange_strong(state, Operation::asleep, std::memory_order_acquire))
			continue;
		membarrier_.all_cores_fence();
		if (try_lock_again())
			break;
		sleep_while(operation.state, Operation::asleep);
	}
	execute_queued();
	// It is queued no more if its caller is to lead.
	if (operation.state.load(std::memory_order_relaxed) != Operation::done)
		operation.execute();
	unlock();
}

void CombiningLock::say(Operation &operation, Operation::State state)
{
	std::atomic<uint32_t> *const word = &operation.state;
	if (word->exchange(state, std::memory_order_release) == Operation::asleep)
		wake_one(word);
}

void CombiningLock::take_queued()
{
	Operation *operation = newest_of(queue_.fetch_and(marked | watched, std::memory_order_acquire));
	Fifo<Operation> taken;
	while (operation) {
		Operation *const next = operation->next;
		taken.push_front(*operation);
		operation = next;
	}
	while (!taken.empty())
		backlog_.push(taken.pop());
}

void CombiningLock::execute_queued()
{
	take_queued();
	if (backlog_.empty())
		return;
	if (observer_)
		observer_->begin_batch();
	Fifo<Operation> executed;
	unsigned n = 0;
	for (; !backlog_.empty(); ++n) {
		Operation &operation = backlog_.pop();
		if (watched_)
			__tsan_acquire(&operation);
		operation.execute();
		if (watched_)
			__tsan_release(&operation);
		executed.push(operation);
	}
	if (observer_)
		observer_->end_batch(n);
	while (!executed.empty())
		say(executed.pop(), Operation::done);
}

bool CombiningLock::execute_rounds()
{
	bool executed = false;
	for (unsigned round = 0; round < max_rounds; ++round) {
		if (watched_) {
			__tsan_mutex_pre_divert(this, 0);
			__tsan_mutex_post_divert(this, 0);
		}
		if (!queued())
			break;
		execute_queued();
		executed = true;
	}
	return executed;
}

bool CombiningLock::pause()
{
	const bool executed = execute_rounds();
	release(attended);
	if (!membarrier_.works())
		full_fence();
	if (queue_.load(std::memory_order_relaxed) & marked)
		wake_sleeper();
	cpu_relax();
	if (!try_lock_attended())
		lock();
	return executed;
}

// The lock has been released while others waited for it, or a tool is to see its release.
void CombiningLock::attend()
{
	if (!membarrier_.works())
		full_fence();
	if (watched_)
		release(released_);
	bool led = false;
	for (unsigned round = 0; !led && queued() && try_lock(); ++round) {
		if (round < max_rounds)
			execute_queued();
		else
			led = appoint_leader();
		release(released_);
		full_fence();
	}
	if (queue_.load(std::memory_order_relaxed) & marked)
		wake_sleeper();
}

void CombiningLock::wake_sleeper()
{
	if (!sleepers_.load()) {
		// A sleeper counts itself before it sets the mark.
		if (membarrier_.works()) {
			queue_.fetch_and(~marked);
			if (sleepers_.load())
				queue_.fetch_or(marked);
		}
		return;
	}
	if (!woken_.exchange(true, std::memory_order_relaxed)) {
		wakes_.fetch_add(1, std::memory_order_release);
		wake_one(&wakes_);
	}
}

bool CombiningLock::appoint_leader()
{
	take_queued();
	if (backlog_.empty())
		return false;
	say(backlog_.pop(), Operation::leads);
	if (!backlog_.empty())
		queue_.fetch_or(more);
	return true;
}

} // namespace pt2p
