// SPDX-License-Identifier: BSD-3-Clause
// How a waiting call spends its time.
#include <catch2/catch.hpp>

#include <chrono>
#include <thread>

#include "base/config/config.hpp"
#include "base/job/job.hpp"
#include "base/report/report.hpp"
#include "progress/progress.hpp"

using namespace pt2p;

namespace {

// Its checks take longer than the time between two of them, as they do with many receives on a slow machine.
struct SlowChecks final : ProgressClient {
	unsigned drive() override { return 0; }
	void check() override { std::this_thread::sleep_for(std::chrono::milliseconds(15)); }
};

} // namespace

TEST_CASE("slow checks do not keep a waiting call from driving the other contexts of a cooperative job", "[progress]")
{
	Config config;
	Reporter reporter;
	int steps = 0;
	const auto jobs = make_inprocess_jobs(2, config, [&](int) { ++steps; });
	SlowChecks client;
	Progress progress(config, reporter, *jobs[0], client, {});
	int looks = 0;
	progress.wait([&] {
		std::this_thread::sleep_for(std::chrono::milliseconds(1));
		return ++looks == 40;
	});
	CHECK(steps >= 30);
}
