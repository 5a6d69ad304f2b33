// SPDX-License-Identifier: BSD-3-Clause
// This process as a rank of the job: what every case uses.
#pragma once

#include <pt2p.h>

#include <cstdint>
#include <string>
#include <vector>

namespace fault {

constexpr int victim = 1;
constexpr double soon = 10; // seconds
constexpr uint64_t tag_eager = 1, tag_large = 2, tag_after = 3, tag_never = 4, tag_given_up = 5;

extern pt2p_context_t *ctx;
extern int me, ranks;

double now(); // seconds

[[noreturn]] void fail(const char *what, const char *detail = "");
void must(pt2p_status_t status, const char *what);

// Starts the library, and nothing else.
void init_context();
// Starts the library in a job of three ranks or more, and prints the process's number for run.sh.
void join();

void fill(std::vector<unsigned char> &data, unsigned seed);
void verify(const std::vector<unsigned char> &data, unsigned seed);

// Ranks meet with the help of files. These are empty, so they take no memory.
void leave_mark(const std::string &point, int rank);
void wait_for_mark(const std::string &point, int rank);
void meet(const std::string &point); // all ranks

} // namespace fault
