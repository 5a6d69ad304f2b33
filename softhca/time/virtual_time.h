// Virtual time: the program's threads are fibres of one thread, and the clock advances when a fibre waits. `softhca
// --model` preloads the library that defines these functions; in other programs they are null.
//
// The running fibre has a time of its own, which charge() advances. Events and waiting fibres run in the order of time,
// those of the same time in the order of their creation, so every run is the same. All times are in picoseconds. Only
// the functions that say so may be called in signal handlers.
#pragma once

#include <cstdint>

extern "C" {

// The time of the running fibre or event. Signal handlers may call it.
[[gnu::weak]] uint64_t softhca_time_now();
// The number of the running fibre, which no other has. Signal handlers may call it.
[[gnu::weak]] int softhca_time_thread();
// The running fibre has been busy for so long. Signal handlers may call it.
[[gnu::weak]] void softhca_time_charge(uint64_t picoseconds);
// Schedules call(object, argument) at that time, not before now. Signal handlers may call it.
[[gnu::weak]] void softhca_time_at(uint64_t time, void (*call)(void *object, uint64_t argument), void *object,
                                   uint64_t argument);
// The running fibre goes on when everything up to its own time has happened.
[[gnu::weak]] void softhca_time_sync();
// It waits until wake() is called for `place`, at most so long.
[[gnu::weak]] void softhca_time_wait(const void *place, uint64_t most);
// It shares memory, which it polls, with all fibres that have named the same `memory`: when one of them yields that has
// stored there, the others see it `later`. Null: with none.
[[gnu::weak]] void softhca_time_share(const void *memory, uint64_t later);
// The running fibre has stored into memory that it shares. When it yields, shown() is called, and the next store has to
// be told again. Signal handlers may call it.
[[gnu::weak]] void softhca_time_stored(void (*shown)());
// As wait(); it goes on also when the memory that it shares may have changed.
[[gnu::weak]] void softhca_time_poll(const void *place, uint64_t most);
// As charge(); fibres that share its memory meanwhile see its earlier stores.
[[gnu::weak]] void softhca_time_compute(uint64_t picoseconds);
// Something has happened to `place`: fibres that wait for it go on, `later` than now.
[[gnu::weak]] void softhca_time_wake(const void *place, uint64_t later);
// From now on memcpy() and memmove() charge the running fibre, unless code between those two addresses calls them.
[[gnu::weak]] void softhca_time_copies(uint64_t ps_per_kib, const void *device, const void *device_end);
// From now on a spin lock that several fibres use costs who takes it so much, and as much again for each processor, of
// so many, on which others wait; with 0, it is not taken in the order of time either.
[[gnu::weak]] void softhca_time_locks(uint64_t picoseconds, uint64_t processors);
// From now on the processor's time stamp counter is virtual, too. It stays so after exec(), and then the new program
// cannot start: this is for programs that use a device, not for shells that start them.
[[gnu::weak]] void softhca_time_trap_counter();
}

namespace softhca {

// Whether this program runs in virtual time.
inline bool time_is_virtual() { return softhca_time_now != nullptr; }

} // namespace softhca
