// The fibres and events behind virtual_time.h. Threads are made of them.
#pragma once

#include <cstdint>

#include "softhca/time/virtual_time.h"

namespace softhca::time {

struct Fibre;

constexpr uint64_t ps_per_ns = 1000;
// The clock starts here: zero stands for "none" in too many programs.
constexpr uint64_t beginning = UINT64_C(1'000'000'000) * ps_per_ns;

// A fibre that runs start(argument) from now on; null with errno when there is no memory for its stack.
Fibre *make(void *(*start)(void *), void *argument);
// The one that runs.
Fibre *running();
// It ends with that result; does not return.
[[noreturn]] void end(void *result);
bool ended(const Fibre &fibre);
// Each has another; from 1 on.
int number(const Fibre &fibre);
bool has_ended(int number);
// Frees a fibre that has ended, or will be freed at its end. Its result, if it has ended.
void *release(Fibre &fibre);
// The running fibre goes on at that time.
void sleep_until(uint64_t time);
// If that fibre polls and has found nothing, it goes on now.
void end_poll(Fibre &fibre);
// Those that wait for `place`, at most so many, go on `later` than now; how many these are.
unsigned wake(const void *place, uint64_t later, unsigned most);
// Until a cache line has moved from one processor to another, ps; softhca_time_locks.
uint64_t lock_line();
// Fibres that are behind go on first, if locks take time.
void let_others_catch_up();
// It polls again after a while, which grows with `times`: for things that nobody signals.
void look_again(unsigned &times);

} // namespace softhca::time
