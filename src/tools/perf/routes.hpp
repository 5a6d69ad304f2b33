// SPDX-License-Identifier: BSD-3-Clause
// pt2p_perf --routes: the routes that messages between all ranks of a job take.
#pragma once

#include <pt2p.h>

namespace pt2p::perf {

// All ranks call it. Each sends short messages to each, and verifies those that come. Rank 0 prints the table. Throws
// Failure.
void show_routes(pt2p_context_t *ctx);

} // namespace pt2p::perf
