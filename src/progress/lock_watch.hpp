// Tools that follow locks see none that is made of atomics. They are told of it by the interface that the sanitizers
// define for locks of one's own (sanitizer/tsan_interface.h); a tool that wants to know defines these functions. So the
// model of softhca learns which thread waits for which.
#pragma once

extern "C" {
[[gnu::weak, gnu::visibility("default")]] void __tsan_mutex_create(void *lock, unsigned flags);
[[gnu::weak, gnu::visibility("default")]] void __tsan_mutex_pre_lock(void *lock, unsigned flags);
[[gnu::weak, gnu::visibility("default")]] void __tsan_mutex_post_lock(void *lock, unsigned flags, int recursion);
[[gnu::weak, gnu::visibility("default")]] int __tsan_mutex_pre_unlock(void *lock, unsigned flags);
[[gnu::weak, gnu::visibility("default")]] void __tsan_mutex_post_unlock(void *lock, unsigned flags);
// The thread that has the lock looks at what others do.
[[gnu::weak, gnu::visibility("default")]] void __tsan_mutex_pre_divert(void *lock, unsigned flags);
[[gnu::weak, gnu::visibility("default")]] void __tsan_mutex_post_divert(void *lock, unsigned flags);
[[gnu::weak, gnu::visibility("default")]] void __tsan_acquire(void *address);
[[gnu::weak, gnu::visibility("default")]] void __tsan_release(void *address);
}

namespace pt2p::lock_watch {

// Not ThreadSanitizer itself: it understands the atomics, and is to see those that programs execute without a tool.
inline bool wanted()
{
#ifdef __SANITIZE_THREAD__
	return false;
#else
	return __tsan_mutex_pre_lock != nullptr;
#endif
}

constexpr unsigned try_lock = 1 << 4, try_lock_failed = 1 << 5;

} // namespace pt2p::lock_watch
