// A full memory fence.
#pragma once

#include <atomic>

namespace pt2p {

// ThreadSanitizer does not model fences, and needs none of this one's ordering.
inline void full_fence()
{
#if defined(__SANITIZE_THREAD__) && defined(__x86_64__)
	asm volatile("mfence" ::: "memory");
#else
	std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

} // namespace pt2p
