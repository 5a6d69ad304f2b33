// How long messages through shared memory go through the ring: the law, and what follows from it.
#include <catch2/catch.hpp>

#include <cstdint>
#include <cstring>
#include <vector>

#include "pt2p.h"
#include "transports/shm/pace.hpp"

using pt2p::shm::Pace;

namespace {

constexpr size_t kib = 1024, length = 16 * kib;

// Writes messages that take so long, ns for a KiB; how often quick() changed.
int write(Pace &pace, int messages, int64_t ns)
{
	int changes = 0;
	for (int i = 0; i < messages; ++i)
		if (pace.wants(length))
			changes += pace.add(length, ns * 16);
	return changes;
}

uint64_t announced(pt2p_context_t *ctx)
{
	for (int i = 0; i < pt2p_counter_count(); ++i)
		if (!std::strcmp(pt2p_counter_name(i), "rendezvous_sent")) {
			uint64_t value = 0;
			REQUIRE(pt2p_counter_read(ctx, i, &value) == PT2P_OK);
			return value;
		}
	FAIL("no such counter");
	return 0;
}

// How many messages of that length are announced, of `count` that are under way together.
uint64_t announced_of(const char *tunable, size_t bytes, size_t count)
{
	const char *tunables[] = {tunable, nullptr};
	pt2p_options_t options = PT2P_OPTIONS_INIT;
	options.tunables = tunables;
	pt2p_context_t *ctx[2];
	REQUIRE(pt2p_init_inprocess(2, PT2P_INPROCESS_COOPERATIVE, &options, ctx) == PT2P_OK);
	const std::vector<unsigned char> out(bytes, 7);
	std::vector<unsigned char> in(bytes * count);
	std::vector<pt2p_request_t *> sends(count), receives(count);
	for (size_t i = 0; i < count; ++i) {
		REQUIRE(pt2p_irecv(ctx[1], &in[i * bytes], bytes, 0, 1, PT2P_TAG_EXACT, &receives[i]) == PT2P_OK);
		REQUIRE(pt2p_isend(ctx[0], out.data(), bytes, 1, 1, &sends[i]) == PT2P_OK);
	}
	REQUIRE(pt2p_waitall(ctx[1], count, receives.data(), nullptr) == PT2P_OK);
	REQUIRE(pt2p_waitall(ctx[0], count, sends.data(), nullptr) == PT2P_OK);
	CHECK(in == std::vector<unsigned char>(bytes * count, 7));
	const uint64_t n = announced(ctx[0]);
	CHECK(pt2p_finalize(ctx[0]) == PT2P_OK);
	CHECK(pt2p_finalize(ctx[1]) == PT2P_OK);
	return n;
}

} // namespace

TEST_CASE("pace: a ring is quick until its writer has measured that it is not")
{
	Pace pace;
	CHECK(write(pace, 15, 1000) == 0);
	CHECK(pace.quick());
	CHECK(write(pace, 1, 1000) == 1);
	CHECK_FALSE(pace.quick());
}

TEST_CASE("pace: messages that are short are not timed, and few of the others once it is known")
{
	Pace pace;
	CHECK_FALSE(pace.wants(kib));
	write(pace, 100, 50);
	int timed = 0;
	for (int i = 0; i < 800; ++i)
		timed += pace.wants(length);
	CHECK(timed == 100);
	CHECK_FALSE(pace.wants(kib));
}

TEST_CASE("pace: what is measured now and then by accident does not count")
{
	Pace pace;
	for (int i = 0; i < 1000; ++i) {
		write(pace, 8, i % 4 ? 60 : 100000); // page faults
		CHECK(pace.quick());
	}
}

TEST_CASE("pace: a ring that has become slow is left, and one that has become quick is used again")
{
	Pace pace;
	write(pace, 100, 60);
	CHECK(pace.quick());
	CHECK(write(pace, 1000, 200) == 1);
	CHECK_FALSE(pace.quick());
	CHECK(write(pace, 1000, 119) == 0); // near the threshold nothing changes
	CHECK(write(pace, 1000, 60) == 1);
	CHECK(write(pace, 1000, 121) == 0);
	CHECK(pace.quick());
}

TEST_CASE("pace: a trial ends with what it finds")
{
	Pace pace;
	write(pace, 100, 300);
	CHECK_FALSE(pace.quick());
	pace.retry();
	CHECK(pace.quick());
	CHECK(write(pace, 8, 300) == 1);
	CHECK_FALSE(pace.quick());
	pace.retry();
	CHECK(write(pace, 1000, 60) == 0);
	CHECK(pace.quick());
}

TEST_CASE("long messages go through the ring where nothing else is better")
{
	// No single copy: up to four times PT2P_EAGER_MAX.
	CHECK(announced_of("PT2P_SHM_SINGLE_COPY=0", 65536, 1) == 0);
	CHECK(announced_of("PT2P_SHM_SINGLE_COPY=0", 65537, 1) == 1);
	// Those that there is no room for are announced: a quarter of the ring each, and never more than that in it.
	const uint64_t n = announced_of("PT2P_SHM_SINGLE_COPY=0", 65536, 20);
	CHECK(n > 0);
	CHECK(n < 20);
	// Within a process one copy is always better.
	CHECK(announced_of("PT2P_SHM_SINGLE_COPY=1", 16384, 1) == 0);
	CHECK(announced_of("PT2P_SHM_SINGLE_COPY=1", 16385, 1) == 1);
}
