// Where a fibre goes on: its stack and registers. On x86-64 a change is a few instructions, as swapcontext() calls the
// kernel twice for the mask of signals, which is the same for all fibres.
#pragma once

#include <cstddef>
#include <ucontext.h>

namespace softhca::time {

class Continuation {
public:
	// Goes on with start() on that stack, which does not return.
	void begin(void *stack, size_t bytes, void (*start)());
	// Keeps the running fibre here and lets `next` go on; returns when somebody changes to this one.
	void change_to(Continuation &next);

private:
#ifdef __x86_64__
	void *top_ = nullptr; // of the stack
#else
	ucontext_t context_;
#endif
};

} // namespace softhca::time
