// Trapped pages in a program: regions, threads, signals, the program's own handlers, and memory that cannot be trapped.
#include <catch2/catch.hpp>

#ifdef __x86_64__

#include <array>
#include <atomic>
#include <cerrno>
#include <csetjmp>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <string>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include "tests/softhca/parts/trapped.hpp"

using namespace trapped;

namespace {

struct End {
	int status;
	std::string said;
};
// Runs this in a child without signal handlers. Returns how the child ends.
template <class F>
End end_of(F code)
{
	int ends[2];
	REQUIRE(pipe2(ends, O_CLOEXEC) == 0);
	const pid_t child = fork();
	REQUIRE(child >= 0);
	if (child == 0) {
		constexpr rlimit no_core{0, 0};
		setrlimit(RLIMIT_CORE, &no_core);
		for (const int signal : {SIGSEGV, SIGTRAP, SIGABRT})
			std::signal(signal, SIG_DFL);
		dup2(ends[1], STDERR_FILENO);
		code();
		_exit(0);
	}
	close(ends[1]);
	End end{};
	char piece[512];
	for (ssize_t n; (n = read(ends[0], piece, sizeof piece)) > 0;)
		end.said.append(piece, static_cast<size_t>(n));
	close(ends[0]);
	REQUIRE(waitpid(child, &end.status, 0) == child);
	return end;
}
bool killed_by(const End &end, int signal) { return WIFSIGNALED(end.status) && WTERMSIG(end.status) == signal; }

// Memory where nothing may be written.
uint8_t *forbidden()
{
	void *const page = mmap(nullptr, page_bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	return static_cast<uint8_t *>(page);
}

std::atomic<int> calls;
sigjmp_buf back;
struct sigaction replaced;

void count_and_return(int, siginfo_t *info, void *)
{
	++calls;
	mprotect(info->si_addr, page_bytes, PROT_READ | PROT_WRITE);
}
void count_and_leave(int)
{
	++calls;
	siglongjmp(back, 1);
}
void count(int) { ++calls; }
void count_and_pass_on(int signal, siginfo_t *info, void *context)
{
	if (++calls < 10)
		replaced.sa_sigaction(signal, info, context);
}
struct sigaction action_of(void (*function)(int), int flags = 0)
{
	struct sigaction action = {};
	action.sa_handler = function;
	action.sa_flags = flags;
	return action;
}
struct sigaction action_of(void (*function)(int, siginfo_t *, void *))
{
	struct sigaction action = {};
	action.sa_sigaction = function;
	action.sa_flags = SA_SIGINFO;
	return action;
}

} // namespace

TEST_CASE("traps: a region of several pages", "[softhca]")
{
	Trapped trapped(3);
	uint8_t *const p = trapped.page;
	asm volatile("movq $-1, 4090(%0); movups %%xmm0, 8190(%0); movb $1, 12287(%0)" : : "r"(p) : "memory");
	CHECK(trapped.take() == Stores{{4090, 8}, {8190, 16}, {12287, 1}});
	release_stores(p + page_bytes); // nothing begins there
	p[page_bytes] = 1;
	CHECK(trapped.take() == Stores{{page_bytes, 1}});
}

TEST_CASE("traps: each store of many threads is seen once", "[softhca]")
{
	constexpr unsigned threads = 4, stores = 20000;
	Memory memory;
	struct Seen {
		std::atomic<unsigned> calls, bytes;
		std::array<std::atomic<unsigned>, page_bytes> at;
	} seen{};
	REQUIRE(trap_stores(
	    memory.page, memory.bytes, memory.alias,
	    [](void *argument, size_t offset, size_t bytes) {
		    Seen &all = *static_cast<Seen *>(argument);
		    ++all.calls;
		    all.bytes += static_cast<unsigned>(bytes);
		    ++all.at[offset];
	    },
	    &seen));
	SECTION("moves")
	{
		std::vector<std::thread> all;
		for (unsigned t = 0; t < threads; ++t)
			all.emplace_back([&, t] {
				auto *const mine = reinterpret_cast<volatile uint64_t *>(memory.page + 64 * t);
				for (unsigned i = 0; i < stores; ++i)
					*mine = i;
			});
		for (std::thread &thread : all)
			thread.join();
		CHECK(seen.calls == threads * stores);
		CHECK(seen.bytes == threads * stores * 8);
		for (unsigned t = 0; t < threads; ++t)
			CHECK(seen.at[64 * t] == stores);
	}
	SECTION("vectors, and sums in one place")
	{
		std::vector<std::thread> all;
		for (unsigned t = 0; t < threads; ++t)
			all.emplace_back([&, t] {
				uint8_t *const mine = memory.page + 64 + 64 * t;
				for (unsigned i = 0; i < stores; ++i)
					asm volatile("movups %%xmm0, (%0); lock incq (%1)"
					             :
					             : "r"(mine), "r"(memory.page)
					             : "memory", "cc");
			});
		for (std::thread &thread : all)
			thread.join();
		CHECK(seen.calls == 2 * threads * stores);
		CHECK(seen.at[0] == threads * stores);
		CHECK(*reinterpret_cast<uint64_t *>(memory.alias) == threads * stores);
		for (unsigned t = 0; t < threads; ++t)
			CHECK(seen.at[64 + 64 * t] == stores);
	}
	release_stores(memory.page);
}

TEST_CASE("traps: signals in the middle of stores", "[softhca]")
{
	static uint8_t *other;
	static std::atomic<int> alarms;
	alarms = 0;
	Trapped mine, theirs;
	other = theirs.page;
	struct sigaction before;
	struct sigaction action = action_of([](int) {
		asm volatile("movups %%xmm0, (%0); movb $1, 16(%0)" : : "r"(other) : "memory");
		++alarms;
	});
	REQUIRE(sigaction(SIGALRM, &action, &before) == 0);
	constexpr itimerval often{{0, 300}, {0, 300}}, never{};
	REQUIRE(setitimer(ITIMER_REAL, &often, nullptr) == 0);
	size_t stores = 0;
	for (; alarms < 100 && stores < 3000000; ++stores)
		asm volatile("movups %%xmm0, (%0)" : : "r"(mine.page) : "memory");
	setitimer(ITIMER_REAL, &never, nullptr);
	sigaction(SIGALRM, &before, nullptr);
	CHECK(mine.take() == repeat(stores, 0, 0, 16));
	CHECK(theirs.take().size() == 2 * static_cast<size_t>(alarms));
	CHECK(alarms >= 100);
}

TEST_CASE("traps: blocked signals", "[softhca]")
{
	Trapped trapped;
	sigset_t mine, before, after;
	sigemptyset(&mine);
	sigaddset(&mine, SIGTRAP);
	sigaddset(&mine, SIGUSR1);
	REQUIRE(pthread_sigmask(SIG_SETMASK, &mine, &before) == 0);
	asm volatile("movups %%xmm0, (%0); movb $1, 16(%0)" : : "r"(trapped.page) : "memory");
	pthread_sigmask(SIG_SETMASK, &before, &after);
	CHECK(trapped.take() == Stores{{0, 16}, {16, 1}});
	CHECK(std::memcmp(&after, &mine, sizeof(uint64_t)) == 0);
}

TEST_CASE("traps: after release", "[softhca]")
{
	Trapped trapped;
	trapped.page[0] = 1;
	CHECK(trapped.take() == Stores{{0, 1}});
	release_stores(trapped.page);
	trapped.page[1] = 2;
	CHECK(trapped.take().empty());
	CHECK(trapped.alias[1] == 2);
	release_stores(trapped.page); // has no effect now
}

TEST_CASE("traps: what cannot be trapped", "[softhca]")
{
	const auto seen = [](void *argument, size_t, size_t) { ++*static_cast<int *>(argument); };
	const auto refused = [&](void *page, size_t bytes, void *alias) {
		errno = 0;
		CHECK_FALSE(trap_stores(page, bytes, alias, seen, nullptr));
		return errno;
	};
	Memory memory(max_trapped_pages + 1);
	CHECK(refused(memory.page + 8, page_bytes, memory.alias) == EINVAL);
	CHECK(refused(memory.page, page_bytes, memory.alias + 8) == EINVAL);
	CHECK(refused(memory.page, 100, memory.alias) == EINVAL);
	CHECK(refused(memory.page, 0, memory.alias) == EINVAL);
	CHECK(refused(memory.page, memory.bytes, memory.alias) == ENOMEM);
	void *const gone = mmap(nullptr, page_bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	munmap(gone, page_bytes);
	CHECK(refused(gone, page_bytes, memory.alias) == ENOMEM);

	// As many regions as possible, in two rounds.
	std::vector<int> counts(max_trapped_pages);
	for (int round = 1; round <= 2; ++round) {
		bool all = true;
		for (size_t i = 0; i < counts.size(); ++i)
			all &=
			    trap_stores(memory.page + i * page_bytes, page_bytes, memory.alias + i * page_bytes, seen, &counts[i]);
		CHECK(all);
		CHECK(refused(memory.page + max_trapped_pages * page_bytes, page_bytes, memory.alias) == ENOMEM);
		for (size_t i = 0; i < counts.size(); ++i)
			memory.page[i * page_bytes] = static_cast<uint8_t>(i);
		CHECK(counts == std::vector<int>(counts.size(), round));
		release_stores(memory.page);
		CHECK(refused(memory.page + page_bytes, page_bytes, memory.alias) == EEXIST);
		for (size_t i = 1; i < counts.size(); ++i)
			release_stores(memory.page + i * page_bytes);
	}
}

TEST_CASE("traps: instructions that cannot be carried out", "[softhca]")
{
	const auto refused = [](auto code) {
		const End end = end_of([&] {
			Memory memory(3);
			uint8_t *const middle = memory.page + page_bytes;
			if (trap_stores(
			        middle, page_bytes, memory.alias + page_bytes, [](void *, size_t, size_t) {}, nullptr))
				code(middle);
		});
		CHECK(killed_by(end, SIGABRT));
		return end.said;
	};
	using Catch::Contains;
	CHECK_THAT(refused([](uint8_t *p) {
		           asm volatile("xchgq %0, (%0)" : "+a"(p) : : "memory");
	           }),
	           Contains("softhca: cannot carry out a store into a user access region, at 0x") &&
	               Contains("by 48 87 00"));
	CHECK_THAT(refused([](uint8_t *p) {
		           asm volatile("subq %%rsp, %0; movss %%xmm0, (%%rsp,%0)" : "+c"(p) : : "memory", "cc");
	           }),
	           Contains("by f3 0f 11 04 0c"));
	CHECK_THAT(refused([](uint8_t *p) {
		           asm volatile("cmpxchgq %%rcx, (%0)" : "+a"(p) : : "memory", "cc");
	           }),
	           Contains("by 48 0f b1 08"));
	CHECK_THAT(refused([](uint8_t *p) {
		           asm volatile("subq %%fs:0, %0; movb $1, %%fs:(%0)" : "+a"(p) : : "memory", "cc");
	           }),
	           Contains("by 64 c6 00 01"));
	if (__builtin_cpu_supports("avx512f")) {
		CHECK_THAT(refused([](uint8_t *p) {
			           asm volatile("kxnorw %%k1, %%k1, %%k1; vmovups %%zmm0, (%0)%{%%k1%}" : : "a"(p) : "memory");
		           }),
		           Contains("by 62 f1 7c 49 11 00"));
	}
	CHECK_THAT(refused([](uint8_t *p) { asm volatile("fstpl (%0)" : : "a"(p) : "memory"); }), Contains("by dd 18"));
	// Partly outside.
	CHECK_THAT(refused([](uint8_t *p) {
		           asm volatile("movups %%xmm0, 4090(%0)" : : "a"(p) : "memory");
	           }),
	           Contains("by 0f 11 80"));
	CHECK_THAT(refused([](uint8_t *p) {
		           asm volatile("movq $0, -4(%0)" : : "a"(p) : "memory");
	           }),
	           Contains("by 48 c7 40 fc"));
}

TEST_CASE("traps: faults elsewhere kill the process as usual", "[softhca]")
{
	CHECK(killed_by(end_of([] {
		                Trapped trapped;
		                trapped.page[0] = 1;
		                *static_cast<volatile uint8_t *>(forbidden()) = 1;
	                }),
	                SIGSEGV));
	CHECK(killed_by(end_of([] {
		                Trapped trapped;
		                raise(SIGSEGV);
	                }),
	                SIGSEGV));
	CHECK(killed_by(end_of([] {
		                Trapped trapped;
		                asm volatile("int3");
	                }),
	                SIGTRAP));
	CHECK(killed_by(end_of([] {
		                std::signal(SIGSEGV, SIG_IGN);
		                Trapped trapped;
		                raise(SIGSEGV);
		                *static_cast<volatile uint8_t *>(forbidden()) = 1;
	                }),
	                SIGSEGV));
	// A store whose source has gone faults before it comes to the page.
	CHECK(killed_by(end_of([] {
		                Trapped trapped;
		                uint8_t *source = forbidden(), *to = trapped.page;
		                munmap(source, page_bytes);
		                asm volatile("movsb" : "+S"(source), "+D"(to) : : "memory");
	                }),
	                SIGSEGV));
}

namespace {

// Puts the handlers of signals back.
struct Handlers {
	Handlers()
	{
		REQUIRE(sigaction(SIGSEGV, nullptr, &fault_before) == 0);
		REQUIRE(sigaction(SIGTRAP, nullptr, &trap_before) == 0);
		calls = 0;
	}
	~Handlers()
	{
		sigaction(SIGSEGV, &fault_before, nullptr);
		sigaction(SIGTRAP, &trap_before, nullptr);
	}
	struct sigaction fault_before, trap_before;
};

} // namespace

TEST_CASE_METHOD(Handlers, "traps: the program's handler mends what it faults on", "[softhca]")
{
	const struct sigaction action = action_of(count_and_return);
	sigaction(SIGSEGV, &action, nullptr);
	Trapped trapped;
	uint8_t *const mended = forbidden();
	*static_cast<volatile uint8_t *>(mended) = 5;
	trapped.page[0] = 1;
	CHECK(calls == 1);
	CHECK(*mended == 5);
	CHECK(trapped.take() == Stores{{0, 1}});
	// Both in one instruction: the source cannot be read until the handler has mended it.
	mprotect(mended, page_bytes, PROT_NONE);
	uint8_t *source = mended, *to = trapped.page + 1;
	asm volatile("movsb" : "+S"(source), "+D"(to) : : "memory");
	CHECK(calls == 2);
	CHECK(to == trapped.page + 2);
	CHECK(trapped.alias[1] == 5);
	CHECK(trapped.take() == Stores{{1, 1}});
	munmap(mended, page_bytes);
}

TEST_CASE_METHOD(Handlers, "traps: the program's handler leaves by a jump, again and again", "[softhca]")
{
	const struct sigaction action = action_of(count_and_leave);
	sigaction(SIGSEGV, &action, nullptr);
	Trapped trapped;
	uint8_t *const page = forbidden();
	for (std::atomic<int> i = 0; i < 3; ++i) // a jump may take a register back
		if (sigsetjmp(back, 1) == 0)
			*static_cast<volatile uint8_t *>(page) = 5;
	CHECK(calls == 3);
	munmap(page, page_bytes);
}

TEST_CASE_METHOD(Handlers, "traps: the program's handlers get traps and signals that are sent", "[softhca]")
{
	const struct sigaction action = action_of(count);
	sigaction(SIGSEGV, &action, nullptr);
	sigaction(SIGTRAP, &action, nullptr);
	Trapped trapped;
	asm volatile("int3");
	CHECK(calls == 1);
	raise(SIGTRAP);
	raise(SIGSEGV);
	CHECK(calls == 3);
	asm volatile("movups %%xmm0, (%0)" : : "r"(trapped.page) : "memory");
	CHECK(trapped.take() == Stores{{0, 16}});
}

TEST_CASE_METHOD(Handlers, "traps: the program's handler is called once where that was asked for", "[softhca]")
{
	CHECK(killed_by(end_of([] {
		                const struct sigaction action = action_of(count, static_cast<int>(SA_RESETHAND));
		                sigaction(SIGSEGV, &action, nullptr);
		                Trapped trapped;
		                *static_cast<volatile uint8_t *>(forbidden()) = 5;
	                }),
	                SIGSEGV));
}

TEST_CASE_METHOD(Handlers, "traps: the program's handler is called once when it passes on to one installed again",
                 "[softhca]")
{
	CHECK(killed_by(end_of([] {
		                Trapped first;
		                const struct sigaction action = action_of(count_and_pass_on);
		                sigaction(SIGSEGV, &action, &replaced);
		                first.page[0] = 1;
		                Trapped second;
		                second.page[0] = 1;
		                if (calls != 1 || first.take().size() != 1 || second.take().size() != 1)
			                _exit(1);
		                *static_cast<volatile uint8_t *>(forbidden()) = 5;
	                }),
	                SIGSEGV));
}

#endif
