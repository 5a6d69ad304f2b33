// From one store to the next without a signal for each: programs fill user access regions and device memory in short runs of
// loads, stores, counting and jumping back, and whoever has carried out the first store can go on with what follows.
#pragma once

#include <ucontext.h>

#include "softhca/exact/store_instruction.hpp"

namespace softhca {

// Carries out the simple instructions from RIP on, until one that read_store() understands: false when there is none
// before something else, or soon. The thread is always between two instructions, where it may as well go on by itself.
bool go_straight_on(ucontext_t &context, StoreInstruction &store);

// 16 bytes of a vector register.
void read_vector(const ucontext_t &context, int number, uint8_t *to);

} // namespace softhca
