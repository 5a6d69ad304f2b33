// The one interface through which the library reads time.
#pragma once

#include <cstdint>
#include <ctime>

namespace pt2p {

// Monotonic nanoseconds.
inline int64_t now_ns()
{
	timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return static_cast<int64_t>(t.tv_sec) * 1000000000 + t.tv_nsec;
}

// A counter that runs evenly, and is quicker to read; ticks of a length of its own.
inline int64_t now_ticks()
{
#if defined(__x86_64__)
	return static_cast<int64_t>(__builtin_ia32_rdtsc());
#elif defined(__aarch64__)
	int64_t ticks;
	asm volatile("mrs %0, cntvct_el0" : "=r"(ticks));
	return ticks;
#else
	return now_ns();
#endif
}

// A hint that the core is polling: lets a hyper-thread sibling run and takes pressure off the polled cache line.
inline void cpu_relax()
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	asm volatile("yield");
#endif
}

} // namespace pt2p
