// Programs that poll: on an oversubscribed host, ranks let each other run.
#include "tests/api/job.hpp"

#include <atomic>

#include <sys/syscall.h>
#include <unistd.h>

namespace {

std::atomic<unsigned> yields;

// How many ranks oversubscribe this host.
int too_many_ranks()
{
	for (int size = 2;; size *= 2) {
		const Job job(size, PT2P_THREAD_SINGLE, PT2P_INPROCESS_THREADS);
		pt2p_info_t info;
		REQUIRE(pt2p_query(job[0], &info) == PT2P_OK);
		if (info.oversubscribed)
			return size;
	}
}

// A call that finds nothing.
void poll(pt2p_context_t *ctx, const std::string &call, pt2p_request_t *request)
{
	int found = 1;
	size_t index;
	if (call == "progress")
		REQUIRE(pt2p_progress(ctx) == PT2P_OK);
	else if (call == "test")
		REQUIRE(pt2p_test(ctx, request, &found, nullptr) == PT2P_OK);
	else if (call == "testany")
		REQUIRE(pt2p_testany(ctx, 1, &request, &index, nullptr) == PT2P_OK);
	else
		REQUIRE(pt2p_iprobe(ctx, 0, 1, PT2P_TAG_EXACT, &found, nullptr) == PT2P_OK);
}

} // namespace

extern "C" int sched_yield() noexcept
{
	++yields;
	return static_cast<int>(syscall(SYS_sched_yield));
}

TEST_CASE("calls that find nothing yield from time to time on an oversubscribed host")
{
	const std::string call = GENERATE("progress", "test", "testany", "iprobe");
	const bool oversubscribed = GENERATE(true, false);
	const bool cooperative = GENERATE(true, false);
	CAPTURE(call, oversubscribed, cooperative);
	const Job job(oversubscribed ? too_many_ranks() : 1, PT2P_THREAD_SINGLE,
	              cooperative ? PT2P_INPROCESS_COOPERATIVE : PT2P_INPROCESS_THREADS);
	pt2p_context_t *ctx = job[0];
	uint64_t word = 0;
	pt2p_request_t *request = nullptr;
	REQUIRE(pt2p_irecv(ctx, &word, sizeof word, 0, 2, PT2P_TAG_EXACT, &request) == PT2P_OK);
	for (int i = 0; i < 100; ++i)
		pt2p_progress(ctx);
	const unsigned before = yields;
	for (int i = 0; i < 1000; ++i)
		poll(ctx, call, request);
	const unsigned n = yields - before;
	CAPTURE(n);
	if (oversubscribed && !cooperative) { // in a cooperative job one thread drives all ranks
		CHECK(n >= 30);
		CHECK(n <= 100);
	} else {
		CHECK(n == 0);
	}
	REQUIRE(pt2p_send(ctx, &word, sizeof word, 0, 2) == PT2P_OK);
	CHECK(pt2p_wait(ctx, request, nullptr) == PT2P_OK);
}
