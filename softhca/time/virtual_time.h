// Virtual time in place of the machine's: a program whose threads are fibres of one thread, and a clock that moves when somebody
// waits. `softhca --model` preloads the library that has this; in other programs the functions are null.
//
// Whoever runs has a time of its own, which charge() moves on. Events, and fibres that wait, go on in the order of time, those
// of the same time in the order in which they were made: what happens is the same in every run, whatever the machine does.
// Picoseconds everywhere. One thread of the system; none of these may be called in a handler of a signal but those that say so.
#pragma once

#include <cstdint>

extern "C" {

// Of the fibre or event that runs. Also in handlers of signals.
[[gnu::weak]] uint64_t softhca_time_now();
// The fibre that runs has been busy for so long. Also in handlers of signals.
[[gnu::weak]] void softhca_time_charge(uint64_t picoseconds);
// call(object, argument) at that time, not before now. Also in handlers of signals.
[[gnu::weak]] void softhca_time_at(uint64_t time, void (*call)(void *object, uint64_t argument), void *object, uint64_t argument);
// The fibre that runs goes on when everything up to its own time has happened.
[[gnu::weak]] void softhca_time_sync();
// It waits until something happens to `place`, at most so long.
[[gnu::weak]] void softhca_time_wait(const void *place, uint64_t most);
// It shares memory, which it polls, with all others that have said the same of `memory`: what one of them has stored when it
// gives way, the others can see `later`. Null: with nobody.
[[gnu::weak]] void softhca_time_share(const void *memory, uint64_t later);
// As wait, and it goes on also when it may see something new in the memory that it shares.
[[gnu::weak]] void softhca_time_poll(const void *place, uint64_t most);
// As charge, and those with whom it shares memory see meanwhile what it has stored before. Not in handlers of signals.
[[gnu::weak]] void softhca_time_compute(uint64_t picoseconds);
// Something has happened to `place`: those who wait for it go on `later` than now.
[[gnu::weak]] void softhca_time_wake(const void *place, uint64_t later);
// From now on memcpy() and memmove() charge the fibre that runs, unless they are called by code between those two addresses.
[[gnu::weak]] void softhca_time_copies(uint64_t ps_per_kib, const void *device, const void *device_end);
// From now on the processor's counter of ticks is virtual, too. It stays so when another program takes the place of this one,
// which cannot start then: for programs that use a device, not for the shells that start them.
[[gnu::weak]] void softhca_time_trap_counter();
}

namespace softhca {

// Whether this program runs in virtual time.
inline bool time_is_virtual() { return softhca_time_now != nullptr; }

} // namespace softhca
