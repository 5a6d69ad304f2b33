// SPDX-License-Identifier: BSD-3-Clause
// What pt2p_perf prints.
#pragma once

#include <vector>

#include "tools/perf/bench.hpp"

namespace pt2p::perf {

void print_table(Pair &pair, const Options &options, const std::vector<Point> &points, const Bench &bench);
void print_json(Pair &pair, const Options &options, const std::vector<Point> &points, const Bench &bench);
// Measures, too.
void print_demo(Pair &pair, Bench &bench);

} // namespace pt2p::perf
