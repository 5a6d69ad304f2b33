// Sleeping on a word of this process.
#pragma once

#include <atomic>
#include <cstdint>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace pt2p {

// May return early.
inline void sleep_while(std::atomic<uint32_t> &word, uint32_t value)
{
	syscall(SYS_futex, reinterpret_cast<uint32_t *>(&word), FUTEX_WAIT_PRIVATE, value, nullptr, nullptr, 0);
}

// Only the address is used: the word may be gone.
inline void wake_one(const std::atomic<uint32_t> *word)
{
	syscall(SYS_futex, reinterpret_cast<const uint32_t *>(word), FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
}

} // namespace pt2p
