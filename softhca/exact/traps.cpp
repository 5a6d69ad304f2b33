#include "softhca/exact/traps.hpp"

#include <cerrno>

#ifdef __x86_64__

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <list>
#include <mutex>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include "softhca/exact/interpreter.hpp"
#include "softhca/exact/store_instruction.hpp"
#include "softhca/kernel/device.hpp"

namespace softhca {

namespace {

constexpr uint64_t trap_flag = 0x100; // of the flags register: stop after one instruction

// A hash table of the pages. A handler looks without a lock, so a key is written after what belongs to it; and as
// nobody stores into a page that is being released, what belongs to a key that was found stays.
struct Page {
	std::atomic<uintptr_t> key; // its address, or one of these
	uintptr_t start;            // the region it is in
	size_t bytes;
	uint64_t to_alias;
	StoreSeen seen;
	void *argument;
};
constexpr uintptr_t never_used = 0, no_longer_used = 1;
constexpr unsigned table_bits = 16;
std::array<Page, 1u << table_bits> pages;
static_assert(2 * max_trapped_pages <= pages.size());

std::mutex mutex; // whoever changes the table or the handlers
size_t page_count;

size_t home_of(uintptr_t key) { return (key / page_bytes * 0x9e3779b97f4a7c15u) >> (64 - table_bits); }

Page *find(uintptr_t address)
{
	const uintptr_t key = address & ~(page_bytes - 1);
	for (size_t i = 0; i < pages.size(); ++i) {
		Page &page = pages[(home_of(key) + i) % pages.size()];
		const uintptr_t there = page.key.load(std::memory_order_acquire);
		if (there == key && key != never_used)
			return &page;
		if (there == never_used)
			return nullptr;
	}
	return nullptr;
}

void add(uintptr_t key, uintptr_t start, size_t bytes, uint64_t to_alias, StoreSeen seen, void *argument)
{
	size_t at = home_of(key);
	while (pages[at].key > no_longer_used)
		at = (at + 1) % pages.size();
	Page &page = pages[at];
	page.start = start;
	page.bytes = bytes;
	page.to_alias = to_alias;
	page.seen = seen;
	page.argument = argument;
	page.key.store(key, std::memory_order_release);
	++page_count;
}

void forget(uintptr_t start, size_t bytes)
{
	for (size_t at = 0; at < bytes; at += page_bytes, --page_count)
		find(start + at)->key = no_longer_used;
}

// One instruction of a thread on its way into the alias.
struct Step {
	const Page *page; // null: none
	int place;        // of the register that leads there
	size_t offset, bytes;
	uint64_t blocked; // signals, before
	bool traced;      // whether the program itself goes in single steps
};
// In the thread's own block from the start: a handler must not have it allocated.
[[gnu::tls_model("initial-exec")]] constinit thread_local Step step{};

// The kernel's set of signals, which is what a context has room for; not that of libc.
constexpr uint64_t bit(int signal) { return uint64_t{1} << (signal - 1); }
// Signals that could find a register changed or a lock of `seen` taken. Not those that an instruction raises.
constexpr uint64_t held_back =
    ~(bit(SIGSEGV) | bit(SIGTRAP) | bit(SIGBUS) | bit(SIGILL) | bit(SIGFPE) | bit(SIGSYS) | bit(SIGABRT));

uint64_t get_mask(const ucontext_t &context)
{
	uint64_t mask;
	std::memcpy(&mask, &context.uc_sigmask, sizeof mask);
	return mask;
}
void set_mask(ucontext_t &context, uint64_t mask) { std::memcpy(&context.uc_sigmask, &mask, sizeof mask); }

void move_register(ucontext_t &context, int place, uint64_t by)
{
	greg_t &value = context.uc_mcontext.gregs[place];
	value = static_cast<greg_t>(static_cast<uint64_t>(value) + by);
}

void begin_step(ucontext_t &context, const Page &page, const StoreInstruction &instruction)
{
	greg_t &flags = context.uc_mcontext.gregs[REG_EFL];
	step = {&page,
	        instruction.base,
	        instruction.address - page.start,
	        instruction.bytes,
	        get_mask(context),
	        (flags & trap_flag) != 0};
	move_register(context, step.place, page.to_alias);
	flags |= trap_flag;
	set_mask(context, (step.blocked | held_back) & ~bit(SIGTRAP));
}

// As if nothing had been done to the thread. Where the instruction has changed the register, it has done so by a
// difference.
Step end_step(ucontext_t &context)
{
	const Step done = step;
	step.page = nullptr;
	move_register(context, done.place, -done.page->to_alias);
	if (!done.traced)
		context.uc_mcontext.gregs[REG_EFL] &= ~static_cast<greg_t>(trap_flag);
	set_mask(context, done.blocked);
	return done;
}

template <class T>
void store(uint64_t to, uint64_t value)
{
	struct [[gnu::packed]] Anywhere {
		T value;
	};
	reinterpret_cast<volatile Anywhere *>(to)->value = static_cast<T>(value);
}

bool is_simple(const StoreInstruction &instruction) { return instruction.is_move || instruction.vector >= 0; }
bool is_inside(const StoreInstruction &instruction, const Page &page)
{
	const uint64_t offset = instruction.address - page.start;
	return offset < page.bytes && instruction.bytes <= page.bytes - offset;
}

void move(ucontext_t &context, const Page &page, const StoreInstruction &instruction)
{
	const uint64_t to = instruction.address + page.to_alias;
	const bool vector = instruction.vector >= 0;
	switch (vector ? 0 : instruction.bytes) {
	case 0: read_vector(context, instruction.vector, reinterpret_cast<uint8_t *>(to)); break;
	case 1: store<uint8_t>(to, instruction.value); break;
	case 2: store<uint16_t>(to, instruction.value); break;
	case 4: store<uint32_t>(to, instruction.value); break;
	default: store<uint64_t>(to, instruction.value);
	}
	context.uc_mcontext.gregs[REG_RIP] = static_cast<greg_t>(instruction.next);
}

// The SIGSEGV or SIGTRAP of this library, in front of what was there before.
struct Handler {
	int signal;
	void (*function)(int, siginfo_t *, void *);
	std::atomic<const struct sigaction *> earlier;
};
extern Handler faults, steps;
bool (*explains_fault)(uintptr_t address); // see show_faults()

// What the program would have got without this library.
void pass_on(const Handler &handler, siginfo_t *info, void *context)
{
	ucontext_t &thread = *static_cast<ucontext_t *>(context);
	const struct sigaction &earlier = *handler.earlier.load();
	const bool sent = info->si_code <= 0; // by a process
	if (earlier.sa_handler == SIG_IGN && sent)
		return;
	// A handler that was installed after this one may have it as its own earlier one. The kernel leaves uc_link zero,
	// and does not read it.
	const bool round = thread.uc_link != nullptr;
	if (earlier.sa_handler == SIG_DFL || earlier.sa_handler == SIG_IGN || round) {
		std::signal(handler.signal, SIG_DFL);
		// Only a fault comes again by itself.
		if (sent || handler.signal != SIGSEGV)
			std::raise(handler.signal);
		return;
	}
	thread.uc_link = &thread;
	if (earlier.sa_flags & static_cast<int>(SA_RESETHAND))
		std::signal(handler.signal, SIG_DFL);
	uint64_t blocked;
	std::memcpy(&blocked, &earlier.sa_mask, sizeof blocked);
	blocked |= get_mask(thread) | (earlier.sa_flags & SA_NODEFER ? 0 : bit(handler.signal));
	syscall(SYS_rt_sigprocmask, SIG_SETMASK, &blocked, nullptr, sizeof blocked);
	if (earlier.sa_flags & SA_SIGINFO)
		earlier.sa_sigaction(handler.signal, info, context);
	else
		earlier.sa_handler(handler.signal);
}

[[noreturn]] void refuse(const void *address, uint64_t instruction)
{
	constexpr size_t longest = 15;
	char text[160];
	int at = std::snprintf(text, sizeof text, "softhca: cannot carry out a store into a user access region, at %p by",
	                       address);
	// What comes after the instruction may not be mapped.
	const size_t known = std::min<size_t>(longest, page_bytes - instruction % page_bytes);
	for (size_t i = 0; i < known; ++i)
		at += std::snprintf(text + at, sizeof text - static_cast<size_t>(at), " %02x",
		                    *reinterpret_cast<const uint8_t *>(instruction + i));
	text[at++] = '\n';
	[[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text, static_cast<size_t>(at));
	std::abort();
}

void on_fault(int, siginfo_t *info, void *context)
{
	const int error = errno;
	ucontext_t &thread = *static_cast<ucontext_t *>(context);
	const gregset_t &registers = thread.uc_mcontext.gregs;
	const uint64_t fault = reinterpret_cast<uintptr_t>(info->si_addr);
	constexpr greg_t writing = 2;
	const Page *page = nullptr;
	if (step.page && info->si_code > 0)
		end_step(thread); // something else about the instruction is not as it should be
	else if (info->si_code == SEGV_ACCERR && registers[REG_ERR] & writing)
		page = find(fault);
	if (!page) {
		if (info->si_code != SEGV_ACCERR || !explains_fault || !explains_fault(fault))
			pass_on(faults, info, context);
		errno = error;
		return;
	}

	const uint64_t at = static_cast<uint64_t>(registers[REG_RIP]);
	StoreInstruction instruction{};
	const bool understood = read_store(registers, instruction);
	// That the fault is in what the instruction stores is also the proof that it has been read correctly.
	if (!understood || fault - instruction.address >= instruction.bytes || !is_inside(instruction, *page))
		refuse(info->si_addr, at);
	if (!is_simple(instruction)) {
		begin_step(thread, *page, instruction);
		errno = error;
		return;
	}
	do {
		move(thread, *page, instruction);
		page->seen(page->argument, instruction.address - page->start, instruction.bytes);
	} while (run_to_store(thread, instruction) && is_simple(instruction) && is_inside(instruction, *page));
	errno = error;
}

void on_step(int, siginfo_t *info, void *context)
{
	const int error = errno;
	if (step.page && info->si_code == TRAP_TRACE) {
		const Step done = end_step(*static_cast<ucontext_t *>(context));
		done.page->seen(done.page->argument, done.offset, done.bytes);
	} else {
		pass_on(steps, info, context);
	}
	errno = error;
}

Handler faults{SIGSEGV, on_fault, nullptr}, steps{SIGTRAP, on_step, nullptr};

// Puts the handler in front; also again, where the program has replaced it since.
bool install(Handler &handler)
{
	// A handler may be reading an older one. Never destroyed.
	static std::list<struct sigaction> &all = *new std::list<struct sigaction>;
	struct sigaction now;
	if (sigaction(handler.signal, nullptr, &now) != 0)
		return false;
	if (now.sa_sigaction == handler.function)
		return true;
	handler.earlier = &all.emplace_back(now);
	struct sigaction ours = {};
	ours.sa_sigaction = handler.function;
	ours.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
	std::memcpy(&ours.sa_mask, &held_back, sizeof held_back);
	return sigaction(handler.signal, &ours, nullptr) == 0;
}

bool is_whole(const void *pointer) { return reinterpret_cast<uintptr_t>(pointer) % page_bytes == 0; }

} // namespace

bool show_faults(bool (*explains)(uintptr_t address))
{
	const std::lock_guard guard(mutex);
	explains_fault = explains;
	return install(faults);
}

bool trap_stores(void *page, size_t bytes, void *alias, StoreSeen seen, void *argument)
{
	if (!page || !bytes || bytes % page_bytes || !is_whole(page) || !is_whole(alias)) {
		errno = EINVAL;
		return false;
	}
	const uintptr_t start = reinterpret_cast<uintptr_t>(page);
	const std::lock_guard guard(mutex);
	if (bytes / page_bytes > max_trapped_pages - page_count) {
		errno = ENOMEM;
		return false;
	}
	for (size_t at = 0; at < bytes; at += page_bytes)
		if (find(start + at)) {
			errno = EEXIST;
			return false;
		}
	if (!install(faults) || !install(steps))
		return false;
	const uint64_t to_alias = reinterpret_cast<uintptr_t>(alias) - start;
	for (size_t at = 0; at < bytes; at += page_bytes)
		add(start + at, start, bytes, to_alias, seen, argument);
	// Loads go on as before.
	if (mprotect(page, bytes, PROT_READ) == 0)
		return true;
	const int error = errno;
	forget(start, bytes);
	errno = error;
	return false;
}

void release_stores(void *page)
{
	const uintptr_t start = reinterpret_cast<uintptr_t>(page);
	const std::lock_guard guard(mutex);
	const Page *first = find(start);
	if (!first || first->start != start)
		return;
	const size_t bytes = first->bytes;
	mprotect(page, bytes, PROT_READ | PROT_WRITE);
	forget(start, bytes);
}

} // namespace softhca

#else

namespace softhca {

bool trap_stores(void *, size_t, void *, StoreSeen, void *)
{
	errno = ENOTSUP;
	return false;
}
void release_stores(void *) {}

bool show_faults(bool (*)(uintptr_t))
{
	errno = ENOTSUP;
	return false;
}

} // namespace softhca

#endif
