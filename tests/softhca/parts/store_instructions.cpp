// Store instructions into trapped pages. Each store is reported once, and leaves the same bytes and registers as in
// ordinary memory.
#include <catch2/catch.hpp>

#ifdef __x86_64__

#include <array>
#include <cerrno>
#include <cpuid.h>
#include <cstring>
#include <utility>
#include <vector>

#include "tests/softhca/parts/trapped.hpp"

using namespace trapped;

namespace {

// `code` gets a page to store into. What it returns must not depend on the page.
template <class F>
void check(const Stores &expected, F code)
{
	alignas(page_bytes) static std::array<uint8_t, page_bytes> ordinary;
	ordinary.fill(0);
	const uint64_t result = code(ordinary.data());

	Trapped trapped;
	errno = 0;
	CHECK(code(trapped.page) == result);
	CHECK(errno == 0);
	CHECK(trapped.take() == expected);
	CHECK(std::memcmp(trapped.page, ordinary.data(), page_bytes) == 0);
	CHECK(std::memcmp(trapped.alias, ordinary.data(), page_bytes) == 0);
}

// Code with one store, memory at %[p] and vector register 0 full of something; the pointer must come back unchanged.
#define CHECK_ASM(offset, bytes, ...)                                                                                  \
	check({{offset, bytes}}, [](uint8_t *page) {                                                                       \
		uint8_t *p = page;                                                                                             \
		asm volatile("movq %[v], %%xmm0; punpcklqdq %%xmm0, %%xmm0;" __VA_ARGS__                                       \
		             : [p] "+r"(p)                                                                                     \
		             : [v] "r"(0x1122334455667788), [i] "r"(uint64_t{3})                                               \
		             : "memory", "cc", "xmm0", "r9", "r12", "r13", "r14");                                             \
		return static_cast<uint64_t>(p - page);                                                                        \
	})

// A whole vector and a constant at that base register.
#define CHECK_BASE(name)                                                                                               \
	check({{32, 16}, {160, 8}, {512, 16}}, [](uint8_t *page) {                                                         \
		uint8_t *p = page;                                                                                             \
		asm volatile("pcmpeqd %%xmm0, %%xmm0; xchgq %0, %%" name "; movups %%xmm0, 32(%%" name ");"                    \
		             "movq $-77, 160(%%" name "); movaps %%xmm0, 512(%%" name "); xchgq %0, %%" name                   \
		             : "+r"(p)                                                                                         \
		             :                                                                                                 \
		             : "memory", "xmm0");                                                                              \
		return static_cast<uint64_t>(p - page);                                                                        \
	})

// Reads and writes memory that holds 100, with 7 in a register; the flags and the register are part of the result.
#define CHECK_UPDATE(size, ...)                                                                                        \
	check({{0, 8}, {0, size}}, [](uint8_t *page) {                                                                     \
		*reinterpret_cast<volatile uint64_t *>(page) = 100;                                                            \
		uint8_t *p = page;                                                                                             \
		uint64_t value = 7, accumulator = 100;                                                                         \
		bool carry;                                                                                                    \
		asm volatile(__VA_ARGS__ : [p] "+r"(p), [v] "+r"(value), "+a"(accumulator), "=@ccc"(carry) : : "memory");      \
		return static_cast<uint64_t>(p - page) + value + accumulator * 1000 + carry * 100000u;                         \
	})

bool cpu_has(unsigned leaf, unsigned ecx_bit)
{
	unsigned a, b, c, d;
	return __get_cpuid_count(leaf, 0, &a, &b, &c, &d) && c & 1u << ecx_bit;
}

} // namespace

TEST_CASE("traps: stores of C++", "[softhca]")
{
	check({{0, 8}, {8, 4}, {12, 2}, {14, 1}, {4088, 8}}, [](uint8_t *page) {
		*reinterpret_cast<volatile uint64_t *>(page) = 0x0123456789abcdef;
		*reinterpret_cast<volatile uint32_t *>(page + 8) = 0x89abcdef;
		*reinterpret_cast<volatile uint16_t *>(page + 12) = 0xfedc;
		*reinterpret_cast<volatile uint8_t *>(page + 14) = 0x77;
		*reinterpret_cast<volatile uint64_t *>(page + 4088) = ~uint64_t{0};
		return uint64_t{0};
	});
	volatile uint64_t eight = 0xf1f2f3f4f5f6f7f8;
	check({{16, 8}, {24, 4}, {28, 2}, {30, 1}}, [&](uint8_t *page) {
		const uint64_t value = eight;
		*reinterpret_cast<volatile uint64_t *>(page + 16) = value;
		*reinterpret_cast<volatile uint32_t *>(page + 24) = static_cast<uint32_t>(value);
		*reinterpret_cast<volatile uint16_t *>(page + 28) = static_cast<uint16_t>(value);
		*reinterpret_cast<volatile uint8_t *>(page + 30) = static_cast<uint8_t>(value);
		return uint64_t{0};
	});
}

TEST_CASE("traps: memcpy", "[softhca]")
{
	std::array<uint8_t, page_bytes> from;
	for (size_t i = 0; i < from.size(); ++i)
		from[i] = static_cast<uint8_t>(i * 7 + 1);
	// Not known to the compiler, so that the library does it.
	for (const volatile size_t bytes : {1u, 3u, 8u, 15u, 31u, 64u, 100u, 128u, 256u, 1000u, 3500u})
		for (const size_t at : {0u, 64u, 77u}) {
			const size_t n = bytes;
			Trapped trapped;
			std::memcpy(trapped.page + at, from.data(), n);
			CHECK(std::memcmp(trapped.alias + at, from.data(), n) == 0);
			// It may write some bytes twice.
			std::vector<bool> written(page_bytes);
			for (const auto &[offset, length] : trapped.take())
				for (size_t i = 0; i < length; ++i)
					written.at(offset + i) = true;
			std::vector<bool> expected(page_bytes);
			for (size_t i = 0; i < n; ++i)
				expected[at + i] = true;
			CHECK(written == expected);
		}
}

TEST_CASE("traps: moves of general registers", "[softhca]")
{
	CHECK_ASM(5, 8, "movq %[v], 5(%[p])"); // not aligned
	CHECK_ASM(24, 8, "movq %[v], (%[p],%[i],8)");
	CHECK_ASM(24 + 100, 4, "movl %k[v], 100(%[p],%[i],8)");
	CHECK_ASM(12 + 1000, 2, "movw %w[v], 1000(%[p],%[i],4)");
	CHECK_ASM(3, 1, "movb %b[v], (%[p],%[i])");
	CHECK_ASM(0, 8, "movnti %[v], (%[p])");
	CHECK_ASM(24 + 8, 4, "movnti %k[v], 8(%[p],%[i],8)");
	CHECK_ASM(0, 8, "movq $-2, (%[p])");
	CHECK_ASM(200, 4, "movl $0x12345678, 200(%[p])");
	CHECK_ASM(2, 2, "movw $0x1234, 2(%[p])");
	CHECK_ASM(6, 1, "movb $0x12, 3(%[p],%[i])");
	CHECK_ASM(16, 8, "movq %[v], %%r9; movq %%r9, 16(%[p])");
	CHECK_ASM(24, 8, "leaq (%[p],%[i],8), %%r12; movq %[v], (%%r12)");
	check({{0, 1}, {1, 1}, {2, 1}}, [](uint8_t *page) {
		asm volatile("movb %%ah, (%0); movb %%ch, 1(%0); movb %%sil, 2(%0)"
		             :
		             : "D"(page), "a"(0x1234), "c"(0x5678), "S"(0x9abc)
		             : "memory");
		return uint64_t{0};
	});

	// The base register cannot be changed: it is the value, or the index, or the stack pointer, or there is none.
	Trapped trapped;
	uint8_t *p = trapped.page;
	asm volatile("movq %0, 32(%0)" : "+r"(p) : : "memory");
	CHECK(p == trapped.page);
	CHECK(*reinterpret_cast<uint8_t **>(trapped.alias + 32) == p);
	uint64_t half = reinterpret_cast<uintptr_t>(trapped.page + 64) / 2;
	asm volatile("movw $0x55, (%0,%0)" : "+r"(half) : : "memory");
	CHECK(trapped.alias[64] == 0x55);
	asm volatile("movq %0, %%rdx; subq %%rsp, %%rdx; movl $0x66, 72(%%rsp,%%rdx)" : : "r"(p) : "memory", "rdx", "cc");
	CHECK(trapped.alias[72] == 0x66);
	asm volatile("movb $0x77, 80(,%0,2)" : : "r"(reinterpret_cast<uintptr_t>(p) / 2) : "memory");
	CHECK(trapped.alias[80] == 0x77);
	CHECK(trapped.take() == Stores{{32, 8}, {64, 2}, {72, 4}, {80, 1}});
}

TEST_CASE("traps: every base register", "[softhca]")
{
	CHECK_BASE("rax");
	CHECK_BASE("rbx");
	CHECK_BASE("rcx");
	CHECK_BASE("rdx");
	CHECK_BASE("rsi");
	CHECK_BASE("rdi");
	CHECK_BASE("rbp");
	CHECK_BASE("r8");
	CHECK_BASE("r9");
	CHECK_BASE("r10");
	CHECK_BASE("r11");
	CHECK_BASE("r12");
	CHECK_BASE("r13");
	CHECK_BASE("r14");
	CHECK_BASE("r15");
}

TEST_CASE("traps: vectors", "[softhca]")
{
	CHECK_ASM(0, 16, "movups %%xmm0, (%[p])");
	CHECK_ASM(7, 16, "movupd %%xmm0, 7(%[p])");
	CHECK_ASM(24 + 64, 16, "movdqu %%xmm0, 64(%[p],%[i],8)");
	CHECK_ASM(24 + 1000, 16, "movdqu %%xmm0, 1000(%[p],%[i],8)");
	CHECK_ASM(16, 16, "movdqa %%xmm0, 16(%[p])");
	CHECK_ASM(16, 16, "movapd %%xmm0, 16(%[p])");
	CHECK_ASM(32, 16, "movntdq %%xmm0, 32(%[p])");
	CHECK_ASM(32, 16, "movntps %%xmm0, 32(%[p])");
	CHECK_ASM(9, 4, "movss %%xmm0, 9(%[p])");
	CHECK_ASM(9, 8, "movsd %%xmm0, 9(%[p])");
	CHECK_ASM(8, 8, "movlps %%xmm0, 8(%[p])");
	CHECK_ASM(8, 8, "movhpd %%xmm0, 8(%[p])");
	CHECK_ASM(8, 8, "movq %%xmm0, 8(%[p])");
	CHECK_ASM(4, 4, "movd %%xmm0, 4(%[p])");
	// With registers 8 to 15 all three ways.
	CHECK_ASM(24 + 16, 16,
	          "movq %[p], %%r13; movq %[i], %%r14; movaps %%xmm0, %%xmm9; movdqu %%xmm9, 16(%%r13,%%r14,8)");
	if (__builtin_cpu_supports("sse4.1")) {
		CHECK_ASM(3, 1, "pextrb $2, %%xmm0, 3(%[p])");
		CHECK_ASM(2, 2, "pextrw $1, %%xmm0, 2(%[p])");
		CHECK_ASM(4, 4, "pextrd $1, %%xmm0, 4(%[p])");
		CHECK_ASM(8, 8, "pextrq $1, %%xmm0, 8(%[p])");
		CHECK_ASM(4, 4, "extractps $1, %%xmm0, 4(%[p])");
	}
	if (__builtin_cpu_supports("avx")) {
		CHECK_ASM(1, 16, "vmovdqu %%xmm0, 1(%[p])");
		CHECK_ASM(1, 32, "vinsertf128 $1, %%xmm0, %%ymm0, %%ymm0; vmovdqu %%ymm0, 1(%[p]); vzeroupper");
		CHECK_ASM(24 + 32, 32, "vmovups %%ymm0, 32(%[p],%[i],8); vzeroupper");
		CHECK_ASM(32, 32, "vmovntdq %%ymm0, 32(%[p]); vzeroupper");
		CHECK_ASM(24 + 1024, 32, "movq %[p], %%r12; movq %[i], %%r9; vmovdqu %%ymm0, 1024(%%r12,%%r9,8); vzeroupper");
		CHECK_ASM(8, 4, "vmovss %%xmm0, 8(%[p])");
		CHECK_ASM(8, 8, "vmovq %%xmm0, 8(%[p])");
		CHECK_ASM(16, 16, "vextractf128 $0, %%ymm0, 16(%[p]); vzeroupper");
	}
	if (__builtin_cpu_supports("avx512f")) {
		CHECK_ASM(1, 64, "vbroadcastss %%xmm0, %%zmm0; vmovdqu64 %%zmm0, 1(%[p]); vzeroupper");
		CHECK_ASM(128, 64, "vbroadcastss %%xmm0, %%zmm0; vmovdqa32 %%zmm0, 128(%[p]); vzeroupper");
		CHECK_ASM(64, 64, "vbroadcastss %%xmm0, %%zmm17; vmovntdq %%zmm17, 64(%[p])");
		CHECK_ASM(24 + 128, 64, "vbroadcastss %%xmm0, %%zmm17; vmovups %%zmm17, 128(%[p],%[i],8)");
		CHECK_ASM(
		    24 + 2048, 64,
		    "vbroadcastss %%xmm0, %%zmm17; movq %[p], %%r13; movq %[i], %%r14; vmovups %%zmm17, 2048(%%r13,%%r14,8)");
		CHECK_ASM(32, 32, "vbroadcastss %%xmm0, %%zmm17; vextracti64x4 $1, %%zmm17, 32(%[p])");
	}
	if (__builtin_cpu_supports("avx512vl")) {
		CHECK_ASM(16, 16, "vbroadcastss %%xmm0, %%xmm17; vmovups %%xmm17, 16(%[p])");
		CHECK_ASM(96, 32, "vbroadcastss %%xmm0, %%ymm17; vmovdqu64 %%ymm17, 96(%[p])");
	}
	if (cpu_has(7, 27)) {
		CHECK_ASM(8, 8, "movdiri %[v], 8(%[p])");
	}
	if (cpu_has(7, 28)) {
		alignas(64) static std::array<uint8_t, 64> from;
		from.fill(0x5a);
		check({{64, 64}}, [](uint8_t *page) {
			asm volatile("movdir64b (%0), %1" : : "r"(from.data()), "r"(page + 64) : "memory");
			return uint64_t{0};
		});
	}
}

TEST_CASE("traps: string instructions store one element after the other", "[softhca]")
{
	static std::array<uint8_t, 64> from;
	for (size_t i = 0; i < from.size(); ++i)
		from[i] = static_cast<uint8_t>(i + 1);
	check(repeat(50, 10, 1, 1), [](uint8_t *page) {
		const void *source = from.data();
		uint8_t *to = page + 10;
		uint64_t n = 50;
		asm volatile("rep movsb" : "+S"(source), "+D"(to), "+c"(n) : : "memory");
		return static_cast<uint64_t>(to - page) + n +
		       static_cast<uint64_t>(static_cast<const uint8_t *>(source) - from.data());
	});
	check(repeat(30, 64, 8, 8), [](uint8_t *page) {
		uint8_t *to = page + 64;
		uint64_t n = 30;
		asm volatile("rep stosq" : "+D"(to), "+c"(n) : "a"(0x0102030405060708) : "memory");
		return static_cast<uint64_t>(to - page) + n;
	});
	check(repeat(5, 64, -2, 2), [](uint8_t *page) {
		uint8_t *to = page + 64;
		uint64_t n = 5;
		asm volatile("std; rep stosw; cld" : "+D"(to), "+c"(n) : "a"(0x0708) : "memory", "cc");
		return static_cast<uint64_t>(to - page) + n;
	});
	check(repeat(1, 0, 0, 4), [](uint8_t *page) {
		const void *source = from.data();
		uint8_t *to = page;
		asm volatile("movsl" : "+S"(source), "+D"(to) : : "memory");
		return static_cast<uint64_t>(to - page);
	});
}

TEST_CASE("traps: instructions that read and write", "[softhca]")
{
	CHECK_UPDATE(8, "xchgq %[v], (%[p])");
	CHECK_UPDATE(1, "xchgb %b[v], (%[p])");
	CHECK_UPDATE(8, "lock xaddq %[v], (%[p])");
	CHECK_UPDATE(8, "lock cmpxchgq %[v], (%[p])");
	CHECK_UPDATE(8, "lock subq %[v], (%[p])");
	CHECK_UPDATE(4, "subl $101, (%[p])");
	CHECK_UPDATE(2, "lock orw $0x1234, (%[p])");
	CHECK_UPDATE(8, "incq (%[p])");
	CHECK_UPDATE(4, "negl (%[p])");
	CHECK_UPDATE(8, "shrq $3, (%[p])");
	CHECK_UPDATE(8, "lock btsq $2, (%[p])");
	CHECK_UPDATE(4, "btcl %k[v], (%[p])");
	CHECK_UPDATE(1, "cmpq %[v], %[p]; setae (%[p])");
	if (cpu_has(1, 22)) {
		CHECK_UPDATE(8, "movbe %[v], (%[p])");
		CHECK_UPDATE(2, "movbe %w[v], (%[p])");
	}
	// Number 4 is AH here, not the stack pointer.
	check({{0, 1}}, [](uint8_t *page) {
		uint64_t a = 0x1234;
		asm volatile("xchgb %%ah, (%1)" : "+a"(a) : "D"(page) : "memory");
		return a;
	});
}

// Instructions after a store are executed with it, by the handler of the trap. They leave the same registers and flags
// as without a trap.
#define CHECK_FOLLOWED(a_value, b_value, instruction)                                                                  \
	check({{0, 8}, {8, 8}}, [&](uint8_t *page) {                                                                       \
		uint64_t a = a_value, b = b_value, flags;                                                                      \
		asm volatile("cmpq %[b], %[a]; movq %[a], (%[p]); " instruction "; movq %[a], 8(%[p]); pushfq; popq %[f]"      \
		             : [a] "+&r"(a), [b] "+&r"(b), [f] "=&r"(flags)                                                    \
		             : [p] "r"(page)                                                                                   \
		             : "memory", "cc", "r9");                                                                          \
		constexpr uint64_t auxiliary_carry = 0x10;                                                                     \
		return a * 3 + b + (flags & ~auxiliary_carry) * 0x9e3779b97f4a7c15u;                                           \
	})

TEST_CASE("traps: what follows a store", "[softhca]")
{
	constexpr uint64_t values[] = {0,
	                               1,
	                               7,
	                               0x7f,
	                               0x80,
	                               0x7fffffff,
	                               0x80000000,
	                               0xffffffff,
	                               0x123456789abcdef0,
	                               UINT64_MAX >> 1,
	                               UINT64_C(1) << 63,
	                               UINT64_MAX};
	for (const uint64_t x : values) {
		CHECK_FOLLOWED(x, 5, "addq $8, %[a]");
		CHECK_FOLLOWED(x, 5, "addl $-8, %k[a]");
		CHECK_FOLLOWED(x, 5, "subq $8, %[a]");
		CHECK_FOLLOWED(x, 5, "cmpq $7, %[a]");
		CHECK_FOLLOWED(x, 5, "andq $-8, %[a]");
		CHECK_FOLLOWED(x, 5, "orl $16, %k[a]");
		CHECK_FOLLOWED(x, 5, "xorq $-1, %[a]");
		CHECK_FOLLOWED(x, 5, "leaq 9(%[a],%[b],4), %[a]");
		CHECK_FOLLOWED(x, 5, "leal -9(%[a]), %k[a]");
		CHECK_FOLLOWED(x, 5, "nop; sfence; xchgq %[a], %[b]");
		for (const uint64_t y : values) {
			CHECK_FOLLOWED(x, y, "addq %[b], %[a]");
			CHECK_FOLLOWED(x, y, "addl %k[b], %k[a]");
			CHECK_FOLLOWED(x, y, "subq %[b], %[a]");
			CHECK_FOLLOWED(x, y, "subl %k[b], %k[a]");
			CHECK_FOLLOWED(x, y, "cmpq %[b], %[a]");
			CHECK_FOLLOWED(x, y, "testq %[b], %[a]");
			CHECK_FOLLOWED(x, y, "testl %k[b], %k[a]");
			CHECK_FOLLOWED(x, y, "andq %[b], %[a]");
			CHECK_FOLLOWED(x, y, "orq %[b], %[a]");
			CHECK_FOLLOWED(x, y, "xorl %k[b], %k[a]");
			CHECK_FOLLOWED(x, y, "movl %k[b], %k[a]");
#define CHECK_JUMP(condition)                                                                                          \
	CHECK_FOLLOWED(x, y, "cmpq %[b], %[a]; j" condition " 1f; leaq 77(%[a]), %[a]; 1: nopw 8(%[a])")
			CHECK_JUMP("o");
			CHECK_JUMP("no");
			CHECK_JUMP("b");
			CHECK_JUMP("ae");
			CHECK_JUMP("e");
			CHECK_JUMP("ne");
			CHECK_JUMP("be");
			CHECK_JUMP("a");
			CHECK_JUMP("s");
			CHECK_JUMP("ns");
			CHECK_JUMP("p");
			CHECK_JUMP("np");
			CHECK_JUMP("l");
			CHECK_JUMP("ge");
			CHECK_JUMP("le");
			CHECK_JUMP("g");
#undef CHECK_JUMP
		}
	}
	// Loads, of general and of vector registers, also of one that nothing has been in.
	alignas(16) static const uint64_t from[] = {1, 2, 3, 4, 5, 6, 7, 8};
	check({{0, 16}, {16, 16}, {32, 16}, {48, 8}, {56, 4}}, [](uint8_t *page) {
		uint64_t i = 2;
		asm volatile(
		    "movdqa (%[f]), %%xmm1; movups %%xmm1, (%[p]); movdqu 8(%[f],%[i],8), %%xmm15; movntdq %%xmm15, 16(%[p]);"
		    "movaps 32(%[f]), %%xmm8; movaps %%xmm8, 32(%[p]); movq (%[f],%[i],8), %%r9; movq %%r9, 48(%[p]);"
		    "jmp 1f; ud2; 1: movl 8(%[f]), %%r9d; movl %%r9d, 56(%[p])"
		    :
		    : [p] "r"(page), [f] "r"(from), [i] "r"(i)
		    : "memory", "xmm1", "xmm8", "xmm15", "r9");
		return i;
	});
	// A loop, and vector registers that are not stored keep what is in them.
	check(repeat(8, 64, 8, 8), [](uint8_t *page) {
		uint64_t i = 0, value, kept;
		asm volatile(
		    "movq %[v], %%xmm3; 1: movq (%[f],%[i],8), %[t]; movq %[t], 64(%[p],%[i],8); addq $1, %[i]; cmpq $8, %[i];"
		    "jne 1b; movq %%xmm3, %[k]"
		    : [i] "+&r"(i), [t] "=&r"(value), [k] "=&r"(kept)
		    : [p] "r"(page), [f] "r"(from), [v] "r"(UINT64_C(0x1122334455667788))
		    : "memory", "cc", "xmm3");
		return i + value + kept;
	});
}

#endif
