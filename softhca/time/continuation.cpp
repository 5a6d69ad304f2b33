#include "softhca/time/continuation.hpp"

#include <cstdint>

#ifdef __x86_64__

// What a call preserves (System V application binary interface, AMD64 supplement, 3.2.1) goes to the old stack; its top
// to *old_top. The same comes from the new one.
extern "C" [[gnu::visibility("hidden")]] void softhca_change_stack(void **old_top, void *new_top);
asm(R"(
	.text
	.hidden softhca_change_stack
	.type softhca_change_stack, @function
softhca_change_stack:
	pushq %rbp
	pushq %rbx
	pushq %r12
	pushq %r13
	pushq %r14
	pushq %r15
	subq $8, %rsp
	stmxcsr (%rsp)
	fnstcw 4(%rsp)
	movq %rsp, (%rdi)
	movq %rsi, %rsp
	ldmxcsr (%rsp)
	fldcw 4(%rsp)
	addq $8, %rsp
	popq %r15
	popq %r14
	popq %r13
	popq %r12
	popq %rbx
	popq %rbp
	ret
	.size softhca_change_stack, . - softhca_change_stack
)");

namespace softhca::time {

void Continuation::begin(void *stack, size_t bytes, void (*start)())
{
	constexpr size_t registers = 6, control = 0x0000'037f'0000'1f80; // of floating point: as at the start of a program
	// Before its first instruction the top of a function's stack is 8 below a multiple of 16.
	auto *top = reinterpret_cast<uintptr_t *>((reinterpret_cast<uintptr_t>(stack) + bytes) / 16 * 16);
	*--top = 0; // the return address of start()
	*--top = reinterpret_cast<uintptr_t>(start);
	for (size_t i = 0; i < registers; ++i)
		*--top = 0;
	*--top = control;
	top_ = top;
}

void Continuation::change_to(Continuation &next) { softhca_change_stack(&top_, next.top_); }

} // namespace softhca::time

#else

namespace softhca::time {

void Continuation::begin(void *stack, size_t bytes, void (*start)())
{
	getcontext(&context_);
	context_.uc_stack = {stack, 0, bytes};
	context_.uc_link = nullptr;
	makecontext(&context_, start, 0);
}

void Continuation::change_to(Continuation &next) { swapcontext(&context_, &next.context_); }

} // namespace softhca::time

#endif
