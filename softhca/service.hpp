// Who moves the NIC: a thread of its own, which sleeps as much as it can, and threads of the program that poll in vain.
#pragma once

#include <cstdint>

namespace softhca::service {

// Starts the thread, once.
void start();
// Polls of that completion queue (an ibv_cq), and what is posted by its context, from now on move the NIC.
void assist(uint64_t cq);

} // namespace softhca::service
