#include "progress/combine.hpp"

#include <sched.h>

#include "base/clock.hpp"
#include "progress/futex.hpp"

namespace pt2p {

namespace {

constexpr unsigned max_spins = 128, max_yields = 4;
// Rounds of queued operations that a thread executes after its own call. Then one of those that wait goes on.
constexpr unsigned max_rounds = 4;

// What a thread does between two looks, before it sleeps.
class Patience {
public:
	// False: it is used up.
	bool wait()
	{
		if (turn_ < max_spins)
			cpu_relax();
		else if (turn_ < max_spins + max_yields)
			sched_yield();
		else
			return false;
		++turn_;
		return true;
	}

private:
	unsigned turn_ = 0;
};

} // namespace

void CombiningLock::lock_when_free()
{
	Patience patience;
	while (patience.wait())
		if (state_.load(std::memory_order_relaxed) == free && try_lock())
			return;
	sleepers_.fetch_add(1);
	for (;;) {
		const uint32_t seen = wakes_.load(std::memory_order_acquire);
		woken_.store(false, std::memory_order_relaxed);
		queue_.fetch_or(marked);
		membarrier_.all_cores_fence();
		if (try_lock())
			break;
		sleep_while(wakes_, seen);
	}
	woken_.store(false, std::memory_order_relaxed);
	sleepers_.fetch_sub(1, std::memory_order_relaxed);
}

void CombiningLock::submit(Operation &operation)
{
	uintptr_t newest = queue_.load(std::memory_order_relaxed);
	do
		operation.next = reinterpret_cast<Operation *>(newest & ~marked);
	while (!queue_.compare_exchange_weak(newest, reinterpret_cast<uintptr_t>(&operation) | (newest & marked),
	                                     std::memory_order_release, std::memory_order_relaxed));
	Patience patience;
	for (;;) {
		uint32_t state = operation.state.load(std::memory_order_acquire);
		if (state == Operation::done)
			return;
		if (state == Operation::leads) {
			lock();
			break;
		}
		if (state_.load(std::memory_order_relaxed) == free && try_lock())
			break;
		if (patience.wait())
			continue;
		if (state == Operation::queued &&
		    !operation.state.compare_exchange_strong(state, Operation::asleep, std::memory_order_acquire))
			continue;
		membarrier_.all_cores_fence();
		if (try_lock())
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
	auto *operation = reinterpret_cast<Operation *>(queue_.fetch_and(marked, std::memory_order_acquire) & ~marked);
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
		operation.execute();
		executed.push(operation);
	}
	if (observer_)
		observer_->end_batch(n);
	while (!executed.empty())
		say(executed.pop(), Operation::done);
}

// The lock has been released while others waited for it. Those that are awake take it themselves.
void CombiningLock::attend()
{
	if (!membarrier_.works())
		full_fence();
	bool led = false;
	for (unsigned round = 0; !led && queued() && try_lock(); ++round) {
		if (round < max_rounds)
			execute_queued();
		else
			led = appoint_leader();
		release();
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
	return true;
}

} // namespace pt2p
