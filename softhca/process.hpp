// What this process has of softhca: one NIC and its scheduler. The only way to them from functions that are not given a
// context: those that the program calls (kernel/libc_hooks.cpp, kernel/verbs_hooks.cpp, counters/interface.cpp).
#pragma once

namespace softhca {

class Nic;
class Scheduler;

// Made by the first call; never destroyed, as threads may come by until the very end of the process.
Nic &process_nic();
Scheduler &process_scheduler();
// From now on a forked child begins without what the parent has in its queues.
void follow_forks();

} // namespace softhca
