// Who moves the NIC: a thread of its own, which sleeps as much as it can, and threads of the program that poll in vain.
#pragma once

#include <cstdint>

namespace softhca::service {

// Starts the thread, once.
void start();
// Polls of that completion queue (an ibv_cq), and what is posted by its context, from now on move the NIC. For a queue that is
// being made nothing is known of extended polls yet: to be called again when a queue pair uses it.
void assist(uint64_t cq);

} // namespace softhca::service
