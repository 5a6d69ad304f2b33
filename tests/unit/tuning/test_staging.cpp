// The choice between device memory and a buffer, on made-up latencies.
#include <catch2/catch.hpp>

#include "transports/verbs/tuning/staging.hpp"

using namespace pt2p::tune;

namespace {

constexpr unsigned bound = 3263; // messages of a class: the bound of staging.hpp

// Messages of one class. `full`: device memory has no room, so all go through buffers.
void send(StagingTuner &tuner, unsigned count, int64_t device, int64_t buffer, bool scarce = false, bool full = false)
{
	while (count--) {
		const auto next = tuner.next(scarce);
		const Staging where = full ? Staging::buffer : next.what;
		tuner.sent(where, next.sample);
		if (next.sample)
			tuner.see(where, where == Staging::device_memory ? device : buffer);
	}
}

} // namespace

TEST_CASE("a message belongs to the class of its length")
{
	Stagings all;
	CHECK(&all.of(17) == &all.at(0));
	CHECK(&all.of(128) == &all.at(0));
	CHECK(&all.of(129) == &all.at(1));
	CHECK(&all.of(256) == &all.at(1));
	CHECK(&all.of(65536 + 16) == &all.at(Stagings::classes - 1));
	CHECK(&all.of(size_t{1} << 30) == &all.at(Stagings::classes - 1));
	for (size_t i = 0; i < Stagings::classes; ++i)
		CHECK(&all.of(Stagings::max_bytes(i)) == &all.at(i));
}

TEST_CASE("device memory is chosen until a buffer proves to be quicker, and back")
{
	StagingTuner tuner;
	CHECK(tuner.chosen() == Staging::device_memory);
	send(tuner, 10'000, 1000, 2000);
	CHECK(tuner.changes() == 0);
	CHECK(tuner.messages(Staging::buffer) <= 10'000 / (251 * 4) + 3);
	send(tuner, bound, 2000, 1000);
	CHECK(tuner.chosen() == Staging::buffer);
	send(tuner, bound, 1000, 2000);
	CHECK(tuner.chosen() == Staging::device_memory);
	CHECK(tuner.changes() == 2);
	CHECK(tuner.messages(Staging::buffer) + tuner.messages(Staging::device_memory) == 10'000 + 2 * bound);
}

TEST_CASE("device memory is not tried while half of it is taken, and stays chosen where it was")
{
	StagingTuner tuner;
	send(tuner, bound, 2000, 1000);
	REQUIRE(tuner.chosen() == Staging::buffer);
	const uint64_t before = tuner.messages(Staging::device_memory);
	send(tuner, 10'000, 500, 1000, true);
	CHECK(tuner.chosen() == Staging::buffer);
	CHECK(tuner.messages(Staging::device_memory) == before);
	send(tuner, bound, 500, 1000);
	REQUIRE(tuner.chosen() == Staging::device_memory);
	send(tuner, 10'000, 500, 1000, true);
	CHECK(tuner.chosen() == Staging::device_memory);
}

TEST_CASE("messages that find device memory full do not count as samples of it")
{
	StagingTuner tuner;
	send(tuner, 10'000, 2000, 1000, true, true);
	CHECK(tuner.chosen() == Staging::device_memory);
	CHECK(tuner.latency_of(Staging::device_memory) == 0);
	CHECK(tuner.latency_of(Staging::buffer) == 1000);
}
