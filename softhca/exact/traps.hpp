// Every store of the program into some pages is seen, and carried out exactly once: a write to them faults, and the
// handler of SIGSEGV lets it happen in a second mapping of the same memory.
//
// Linux on x86-64. Stores of the kernel (a read() into the page) fail with EFAULT. A thread that stores must not have
// SIGSEGV blocked: the kernel kills a process whose fault finds it blocked. Handlers of SIGSEGV and SIGTRAP that were
// there before get what is not about such a page. One that the program installs later is in the way until the next
// trap_stores, unless it passes on what it does not know.
#pragma once

#include <cstddef>

namespace softhca {

// Called in the thread that stores, after the store has been carried out: what was written, as offset from the page and
// length. May take locks and allocate: the store is a synchronous fault in code of the program, never inside the
// allocator. Signals are blocked meanwhile. It runs on the stack for signals where the thread has one.
using StoreSeen = void (*)(void *argument, size_t offset, size_t bytes);

constexpr size_t max_trapped_pages = 1 << 14;

// From now on every store into [page, page + bytes) goes to the same offset of `alias` (a second, writable shared
// mapping of the same memory) and `seen` is told. Whole pages of 4096 bytes, up to max_trapped_pages at a time. False with errno
// when not possible. A store that cannot be carried out (a masked vector, say, or a vector with the stack pointer as
// base) aborts the process with a message.
bool trap_stores(void *page, size_t bytes, void *alias, StoreSeen seen, void *argument);
// Forgets what begins at `page`, and gives it back its access if it is still mapped. To be called before something else
// can be mapped there, with no thread storing into it.
void release_stores(void *page);

} // namespace softhca
