// SPDX-License-Identifier: BSD-3-Clause
// The cases, as fault.cpp lists them by name.
#pragma once

#include <string>

namespace fault {

// killed_traffic.cpp
int eager();
int large(bool from_victim);
int callbacks();
int announced();
int overtaken(int source);
int ignored(bool synchronous);
int taken();
int one_sided(bool stopped);

// killed_calls.cpp
int calls(bool as_caller);

// killed_waits.cpp
int barrier(bool before);
int starting(const std::string &call, bool unpublished);
int any_source();
int any_source_probed();
int finalize_dead(bool synchronous);
int finalized();

// lacking.cpp
int exchange();
int first_send();
int barrier_lacks(const char *ballast, double late);
int descriptors_sleeping();
int descriptors(bool connecting);
int no_space();

// forked.cpp
int forked();

// launcher.cpp
int orphaned(const std::string &file);
int orphaned_early(const std::string &file, const std::string &call);
int finalize_stuck();

// alone.cpp
int init();
int inprocess(int size);
int unfinished();

} // namespace fault
