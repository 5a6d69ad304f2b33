// Tells the scheduler when the program calls libibverbs: a poll, a post, a request for an event.
#pragma once

#include <cstdint>

namespace softhca {

// Calls for this completion queue (an ibv_cq), and posts by its context, are seen from now on. A queue that is being
// made has no extended poll yet: call this again when a queue pair uses it.
void hook_verbs(uint64_t cq);

} // namespace softhca
