// Traps every store of the program into some pages and executes it exactly once: a write to them faults, and the
// handler of SIGSEGV directs it to a second mapping of the same memory.
//
// Linux on x86-64. Stores of the kernel (a read() into the page) fail with EFAULT. A thread that stores must not have
// SIGSEGV blocked: the kernel kills a process whose fault finds it blocked. Earlier handlers of SIGSEGV and SIGTRAP get
// signals for other pages. A handler that the program installs later prevents trapping until the next trap_stores(),
// unless it passes on unknown signals.
#pragma once

#include <cstddef>
#include <cstdint>

namespace softhca {

// Called in the thread that stores, after the store: what was written, as offset from the page and length. May take
// locks and allocate: the store is a synchronous fault in code of the program, never inside the allocator. Signals are
// blocked meanwhile. Runs on the signal stack if the thread has one.
using StoreSeen = void (*)(void *argument, size_t offset, size_t bytes);

constexpr size_t max_trapped_pages = 1 << 15;

// From now on every store into [page, page + bytes) goes to the same offset of `alias` (a second, writable shared
// mapping of the same memory), and `seen` is called. Whole pages of 4096 bytes, up to max_trapped_pages at a time.
// False with errno when not possible. A store that cannot be executed (a masked vector, or a vector with the stack
// pointer as base) aborts the process with a message.
bool trap_stores(void *page, size_t bytes, void *alias, StoreSeen seen, void *argument);
// Stops trapping the pages from `page` on, and makes them writable again if they are still mapped. Call this before
// something else can be mapped there, while no thread stores into them.
void release_stores(void *page);

// From now on forbidden accesses to other pages are shown to `explains`, too; true: the instruction goes on. False with
// errno when not possible.
bool show_faults(bool (*explains)(uintptr_t address));

} // namespace softhca
