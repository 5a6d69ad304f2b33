#include "softhca/traps.hpp"

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

namespace softhca {

namespace {

constexpr size_t page_bytes = 4096;
constexpr size_t most_pages = 1024;
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
constexpr unsigned table_bits = 11;
std::array<Page, 1u << table_bits> pages;
static_assert(2 * most_pages <= pages.size());

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

// What the ModRM byte names beside the memory, and how the store is carried out.
enum class Role : uint8_t {
	move,      // a general register, which is stored as it is: no need to run the instruction
	immediate, // a constant, likewise
	general,   // a general register
	compare,   // a general register, and RAX has a part in it too
	other,     // nothing that could be the base of the memory
	vector,    // a vector register; the only role with VEX and EVEX forms
	string,    // there is none: the memory is at RDI
	pointer,   // the general register that holds the address; its memory is read
};

enum : uint8_t { vector_width = 0x80, operand, byte_or_operand, four_or_eight };

// Prefixes in the encoding of VEX, as a set.
enum : uint8_t { none = 1, p66 = 2, pf3 = 4, pf2 = 8, any = 15 };

struct Form {
	uint8_t map;          // 0, 1: 0F, 2: 0F 38, 3: 0F 3A
	uint8_t mask, opcode; // where the bits of `mask` are as in `opcode`
	uint8_t prefixes;
	uint8_t bytes; // as a number, or one of the above
	Role role;
};
// Only instructions that write get here, so a form may take in those that only read.
constexpr Form forms[] = {
    {0, 0xfe, 0x88, any, byte_or_operand, Role::move},
    {0, 0xfe, 0xc6, any, byte_or_operand, Role::immediate},
    {0, 0xfe, 0xa4, any, byte_or_operand, Role::string},  // movs
    {0, 0xfe, 0xaa, any, byte_or_operand, Role::string},  // stos
    {0, 0xfe, 0x86, any, byte_or_operand, Role::general}, // xchg
    {0, 0xc6, 0x00, any, byte_or_operand, Role::general}, // add, or, adc, sbb, and, sub, xor
    {0, 0xfc, 0x80, any, byte_or_operand, Role::other},   // the same with a constant; its ModRM.reg is no register
    {0, 0xfe, 0xf6, any, byte_or_operand, Role::other},   // not, neg
    {0, 0xfe, 0xfe, any, byte_or_operand, Role::other},   // inc, dec
    {0, 0xfe, 0xc0, any, byte_or_operand, Role::other},   // shifts; CL is not changed with RCX, that changes by pages
    {0, 0xfc, 0xd0, any, byte_or_operand, Role::other},
    {1, 0xff, 0x11, none | p66, vector_width, Role::vector}, // movups
    {1, 0xff, 0x11, pf3, 4, Role::vector},                   // movss
    {1, 0xff, 0x11, pf2, 8, Role::vector},
    {1, 0xfb, 0x13, none | p66, 8, Role::vector},                 // movlps, movhps
    {1, 0xfd, 0x29, none | p66, vector_width, Role::vector},      // movaps, movntps
    {1, 0xff, 0x7e, p66, four_or_eight, Role::vector},            // movd, movq
    {1, 0xff, 0x7f, p66 | pf3 | pf2, vector_width, Role::vector}, // movdqa, movdqu
    {1, 0xff, 0xd6, p66, 8, Role::vector},                        // movq
    {1, 0xff, 0xe7, p66, vector_width, Role::vector},             // movntdq
    {1, 0xf0, 0x90, any, 1, Role::other},                         // setcc
    {1, 0xff, 0xab, any, operand, Role::general},                 // bts
    {1, 0xf7, 0xb3, any, operand, Role::general},                 // btr, btc
    {1, 0xff, 0xba, any, operand, Role::other},                   // the same with a constant
    {1, 0xfe, 0xb0, any, byte_or_operand, Role::compare},         // cmpxchg
    {1, 0xfe, 0xc0, any, byte_or_operand, Role::general},         // xadd
    {1, 0xff, 0xc3, none, four_or_eight, Role::move},             // movnti
    {2, 0xff, 0xf1, none | p66, operand, Role::general},          // movbe
    {2, 0xff, 0xf8, p66, 64, Role::pointer},                      // movdir64b
    {2, 0xff, 0xf9, none, four_or_eight, Role::move},             // movdiri
    {3, 0xff, 0x14, p66, 1, Role::vector},                        // pextr
    {3, 0xff, 0x15, p66, 2, Role::vector},
    {3, 0xff, 0x16, p66, four_or_eight, Role::vector},
    {3, 0xff, 0x17, p66, 4, Role::vector},
    {3, 0xdf, 0x19, p66, 16, Role::vector}, // vextract of 128 bits
    {3, 0xdf, 0x1b, p66, 32, Role::vector}, // and of 256
};

constexpr int rax = 0, rsp = 4, rbp = 5, rdi = 7, no_register = -1;
constexpr int places[] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                          REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};

// The instruction at RIP, as far as it matters: what it stores, where, and how it can be sent elsewhere.
class Instruction {
public:
	explicit Instruction(const gregset_t &registers) : registers_(registers), at_(get(REG_RIP)) {}

	// False when this is no store that can be carried out.
	bool read()
	{
		read_opcode();
		for (const Form &form : forms)
			if (form.map == map_ && form.opcode == (opcode_ & form.mask) && form.prefixes & 1u << prefix_)
				return (!vex_ || form.role == Role::vector) && !masked_ && read_operands(form);
		return false;
	}

	uint64_t address() const { return address_; }
	size_t bytes() const { return bytes_; }
	bool is_move() const { return is_move_; }
	// Of a move.
	uint64_t value() const { return value_; }
	uint64_t end() const { return at_; }
	// Of anything else: the register that leads to the memory and to nothing else.
	int base() const { return base_; }

private:
	uint64_t get(int place) const { return static_cast<uint64_t>(registers_[place]); }
	uint64_t general(int number) const { return number < 0 ? 0 : get(places[number]); }

	template <class T>
	T take()
	{
		T value;
		std::memcpy(&value, reinterpret_cast<const void *>(at_), sizeof value);
		at_ += sizeof value;
		return value;
	}
	uint8_t byte() { return take<uint8_t>(); }
	// A constant of that many bytes, as a number with a sign.
	uint64_t constant(size_t bytes)
	{
		return static_cast<uint64_t>(bytes == 1 ? take<int8_t>() : bytes == 2 ? take<int16_t>() : take<int32_t>());
	}

	void read_opcode()
	{
		opcode_ = byte();
		// Segments other than FS and GS mean nothing. Those two and short addresses have no form, so they are refused.
		for (;; opcode_ = byte()) {
			if (opcode_ == 0x66)
				short_operand_ = true;
			else if (opcode_ == 0xf2 || opcode_ == 0xf3)
				prefix_ = opcode_ == 0xf2 ? 3 : 2;
			else if (opcode_ != 0xf0 && (opcode_ & 0xe7) != 0x26) // LOCK; ES, CS, SS, DS
				break;
		}
		if (!prefix_)
			prefix_ = short_operand_;
		if ((opcode_ & 0xf0) == 0x40) {
			rex_ = true;
			extend(static_cast<uint8_t>(opcode_ << 5));
			wide_ = opcode_ & 8;
			opcode_ = byte();
		}
		if (opcode_ == 0xc4 || opcode_ == 0xc5 || opcode_ == 0x62) {
			const uint8_t kind = opcode_;
			const uint8_t first = byte();
			extend(static_cast<uint8_t>(~first));
			uint8_t last = first;
			map_ = 1;
			if (kind == 0xc5) {
				index_more_ = base_more_ = 0; // those bits mean something else here
			} else {
				map_ = first & (kind == 0x62 ? 7 : 0x1f);
				last = byte();
				wide_ = last & 0x80;
			}
			vex_ = true;
			prefix_ = last & 3;
			vector_bytes_ = last & 4 ? 32 : 16;
			if (kind == 0x62) {
				const uint8_t third = byte();
				vector_bytes_ = size_t{16} << (third >> 5 & 3);
				masked_ = third & 7;
				scaled_ = true;
			}
			opcode_ = byte();
		} else if (opcode_ == 0x0f) {
			opcode_ = byte();
			map_ = opcode_ == 0x38 ? 2 : opcode_ == 0x3a ? 3 : 1;
			if (map_ > 1)
				opcode_ = byte();
		}
	}
	// The fourth bits of the three register numbers: in front as in VEX, where they are inverted; REX has them last.
	void extend(uint8_t bits)
	{
		reg_more_ = bits >> 4 & 8;
		index_more_ = bits >> 3 & 8;
		base_more_ = bits >> 2 & 8;
	}

	bool read_operands(const Form &form)
	{
		const size_t operand_bytes = wide_ ? 8 : short_operand_ ? 2 : 4;
		switch (form.bytes) {
		case vector_width: bytes_ = vector_bytes_; break;
		case operand: bytes_ = operand_bytes; break;
		case byte_or_operand: bytes_ = opcode_ & 1 ? operand_bytes : 1; break;
		case four_or_eight: bytes_ = wide_ ? 8 : 4; break;
		default: bytes_ = form.bytes;
		}
		if (form.role == Role::string) {
			base_ = rdi;
			address_ = general(rdi);
			return true;
		}

		const uint8_t modrm = byte();
		const int mod = modrm >> 6;
		int reg = (modrm >> 3 & 7) | reg_more_;
		if (mod == 3)
			return false; // no memory
		int index = no_register;
		unsigned scale = 0;
		base_ = modrm & 7;
		bool relative = false;
		size_t displacement = mod == 1 ? 1 : mod == 2 ? 4 : 0;
		if (base_ == rsp) {
			const uint8_t sib = byte();
			scale = sib >> 6;
			index = (sib >> 3 & 7) | index_more_;
			if (index == rsp)
				index = no_register;
			base_ = sib & 7;
		} else {
			relative = mod == 0 && base_ == rbp;
		}
		if (mod == 0 && base_ == rbp) {
			base_ = no_register;
			displacement = 4;
		} else {
			base_ |= base_more_;
		}
		if (displacement)
			address_ = constant(displacement) * (scaled_ && displacement == 1 ? bytes_ : 1);
		address_ += general(base_) + (general(index) << scale);

		// AH, CH, DH and BH.
		const bool high = bytes_ == 1 && !rex_ && reg >= 4;
		if (high)
			reg -= 4;
		is_move_ = form.role == Role::move || form.role == Role::immediate;
		if (is_move_) {
			value_ = form.role == Role::immediate ? constant(bytes_) : general(reg) >> (high ? 8 : 0);
			if (relative)
				address_ += at_;
			return true;
		}
		if (form.role == Role::pointer) {
			const bool also_source = reg == base_ || reg == index;
			base_ = reg;
			address_ = general(reg);
			return !also_source && reg != rsp;
		}
		const bool compare = form.role == Role::compare;
		if (base_ == reg && (form.role == Role::general || compare))
			return false;
		// With RSP as base, the next signal would go into the alias.
		return base_ != no_register && base_ != rsp && base_ != index && !(compare && base_ == rax);
	}

	const gregset_t &registers_;
	uint64_t at_;
	uint8_t opcode_ = 0, map_ = 0, prefix_ = 0;
	bool short_operand_ = false, wide_ = false, rex_ = false, vex_ = false;
	bool masked_ = false; // by a register of EVEX
	bool scaled_ = false; // a displacement of one byte counts in units of the store: EVEX
	int reg_more_ = 0, index_more_ = 0, base_more_ = 0;
	size_t vector_bytes_ = 16;

	uint64_t address_ = 0, value_ = 0;
	size_t bytes_ = 0;
	bool is_move_ = false;
	int base_ = no_register;
};

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

void begin_step(ucontext_t &context, const Page &page, const Instruction &instruction)
{
	greg_t &flags = context.uc_mcontext.gregs[REG_EFL];
	step = {&page,
	        places[instruction.base()],
	        instruction.address() - page.start,
	        instruction.bytes(),
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

void move(ucontext_t &context, const Page &page, const Instruction &instruction)
{
	const uint64_t to = instruction.address() + page.to_alias;
	switch (instruction.bytes()) {
	case 1: store<uint8_t>(to, instruction.value()); break;
	case 2: store<uint16_t>(to, instruction.value()); break;
	case 4: store<uint32_t>(to, instruction.value()); break;
	default: store<uint64_t>(to, instruction.value());
	}
	context.uc_mcontext.gregs[REG_RIP] = static_cast<greg_t>(instruction.end());
}

// The SIGSEGV or SIGTRAP of this library, in front of what was there before.
struct Handler {
	int signal;
	void (*function)(int, siginfo_t *, void *);
	std::atomic<const struct sigaction *> earlier;
};
extern Handler faults, steps;

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
		pass_on(faults, info, context);
		errno = error;
		return;
	}

	const uint64_t at = static_cast<uint64_t>(registers[REG_RIP]);
	Instruction instruction(registers);
	const bool understood = instruction.read();
	const uint64_t address = instruction.address(), offset = address - page->start;
	// That the fault is in what the instruction stores is also the proof that it has been read correctly.
	if (!understood || fault - address >= instruction.bytes() || offset >= page->bytes ||
	    instruction.bytes() > page->bytes - offset)
		refuse(info->si_addr, at);
	if (instruction.is_move()) {
		move(thread, *page, instruction);
		page->seen(page->argument, offset, instruction.bytes());
	} else {
		begin_step(thread, *page, instruction);
	}
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

bool trap_stores(void *page, size_t bytes, void *alias, StoreSeen seen, void *argument)
{
	if (!page || !bytes || bytes % page_bytes || !is_whole(page) || !is_whole(alias)) {
		errno = EINVAL;
		return false;
	}
	const uintptr_t start = reinterpret_cast<uintptr_t>(page);
	const std::lock_guard guard(mutex);
	if (bytes / page_bytes > most_pages - page_count) {
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

} // namespace softhca

#endif
