// SPDX-License-Identifier: BSD-3-Clause
// The points that pt2p_perf measures, each by several pairs of ranks at the same time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tools/perf/perf.hpp"

namespace pt2p::perf {

// Between the leading ranks, and from rank 0 to idle ones; the pairs' own tags are below.
constexpr uint64_t kTagLine = 100, kTagAgree = 101, kTagFigures = 102, kTagOver = 103, kTagPlace = 104;

struct Point {
	Test test = Test::lat;
	size_t size = 0;
	size_t window = 0;
	std::vector<double> values; // one for each repetition
	// With a baseline, in step with the values:
	std::vector<double> tight, pausing, ratio_tight, ratio_pausing;
};

// Runs the points with the other leading ranks in step.
class Bench {
public:
	Bench(Pair &pair, const Options &options);

	bool baseline() const { return baseline_; }
	const std::string &no_baseline() const { return no_baseline_; }

	Point measure(Test test, size_t size);

private:
	double figure(const Point &point, uint64_t iterations, double seconds) const;
	uint64_t calibrate(const Point &point, double target, double &seconds);
	uint64_t calibrate_handoff(double target);
	pt2p_context_t *ctx() const { return pair_.ctx(); }
	void line_up();
	uint64_t agree(uint64_t value);
	void combine(Point &point);

	Pair &pair_;
	const Options &options_;
	bool baseline_ = false;
	std::string no_baseline_;
};

} // namespace pt2p::perf
