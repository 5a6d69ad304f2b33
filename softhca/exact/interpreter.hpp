// An interpreter of simple instructions, which saves a signal for each store: programs fill user access regions and
// device memory in short loops of loads and stores, so the handler of the first store can execute what follows.
#pragma once

#include <ucontext.h>

#include "softhca/exact/store_instruction.hpp"

namespace softhca {

// Executes simple instructions from RIP on, up to the next that read_store() understands. False when another comes
// first, or none comes soon. The thread is then between two instructions and can go on by itself.
bool run_to_store(ucontext_t &context, StoreInstruction &store);

// 16 bytes of a vector register.
void read_vector(const ucontext_t &context, int number, uint8_t *to);

} // namespace softhca
