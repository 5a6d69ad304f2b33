// Locks that a program has made itself and of which it tells by the sanitizers' interface (sanitizer/tsan_interface.h).
// One that several fibres use is taken and released in the order of time, and its cache line moves to who takes it.
// What the holder of a lock executes for another fibre is told by acquire and release: it moves a line each.
//
// A fibre that polls for nothing waits until there is something to be found, and may hold a lock all that time, which
// it would have released after each poll. So who finds the lock held ends that wait.
#ifndef __SANITIZE_THREAD__ // which has these functions itself
#include <unordered_map>

#include "softhca/time/fibres.hpp"

using namespace softhca::time;

namespace {

struct Lock {
	int user = 0;        // who has or had it
	bool shared = false; // several fibres have used it
	bool wanted = false; // somebody has found it taken since
	Fibre *holder = nullptr;
};

Lock &lock_at(const void *address)
{
	static auto &locks = *new std::unordered_map<const void *, Lock>;
	return locks[address];
}

constexpr unsigned try_failed = 1 << 5; // __tsan_mutex_try_lock_failed

} // namespace

extern "C" {

void __tsan_mutex_create(void *address, unsigned) { lock_at(address) = {}; }

void __tsan_mutex_pre_lock(void *address, unsigned)
{
	Lock &lock = lock_at(address);
	const bool moves = lock.user && lock.user != number(*running());
	lock.shared |= moves;
	if (!lock.shared)
		return;
	if (moves || lock.wanted)
		softhca_time_charge(lock_line());
	let_others_catch_up();
	if (lock.holder)
		end_poll(*lock.holder);
}

void __tsan_mutex_post_lock(void *address, unsigned flags, int)
{
	Lock &lock = lock_at(address);
	lock.wanted = flags & try_failed;
	if (lock.wanted)
		return;
	lock.user = number(*running());
	lock.holder = running();
}

int __tsan_mutex_pre_unlock(void *address, unsigned)
{
	if (lock_at(address).shared)
		let_others_catch_up();
	return 0;
}

void __tsan_mutex_post_unlock(void *address, unsigned) { lock_at(address).holder = nullptr; }

void __tsan_mutex_pre_divert(void *address, unsigned) { __tsan_mutex_pre_unlock(address, 0); }
void __tsan_mutex_post_divert(void *, unsigned) {}

void __tsan_acquire(void *) { softhca_time_charge(lock_line()); }
void __tsan_release(void *) { softhca_time_charge(lock_line()); }

} // extern "C"
#endif
