// Programs that poll: ranks that share CPUs let each other run.
#include <catch2/catch.hpp>

#include <atomic>
#include <string>
#include <sys/syscall.h>
#include <unistd.h>
#include <vector>

#include <pt2p.h>

namespace {

std::atomic<unsigned> yields;

struct Ranks {
	Ranks(int count, pt2p_inprocess_mode_t mode) : ctx(static_cast<size_t>(count))
	{
		REQUIRE(pt2p_init_inprocess(count, mode, nullptr, ctx.data()) == PT2P_OK);
	}
	~Ranks()
	{
		for (pt2p_context_t *c : ctx)
			pt2p_finalize(c);
	}
	std::vector<pt2p_context_t *> ctx;
};

// More ranks than there are CPUs for.
int crowd()
{
	for (int count = 2;; count *= 2) {
		const Ranks ranks(count, PT2P_INPROCESS_THREADS);
		pt2p_info_t info;
		REQUIRE(pt2p_query(ranks.ctx[0], &info) == PT2P_OK);
		if (info.oversubscribed)
			return count;
	}
}

// A call that finds nothing.
void look(pt2p_context_t *ctx, const std::string &call, pt2p_request_t *request)
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

TEST_CASE("calls that find nothing yield from time to time where there are more ranks than CPUs")
{
	const std::string call = GENERATE("progress", "test", "testany", "iprobe");
	const bool crowded = GENERATE(true, false);
	const bool cooperative = GENERATE(true, false);
	CAPTURE(call, crowded, cooperative);
	const Ranks ranks(crowded ? crowd() : 1, cooperative ? PT2P_INPROCESS_COOPERATIVE : PT2P_INPROCESS_THREADS);
	pt2p_context_t *ctx = ranks.ctx[0];
	uint64_t word = 0;
	pt2p_request_t *request = nullptr;
	REQUIRE(pt2p_irecv(ctx, &word, sizeof word, 0, 2, PT2P_TAG_EXACT, &request) == PT2P_OK);
	for (int i = 0; i < 100; ++i)
		pt2p_progress(ctx);
	const unsigned before = yields;
	for (int i = 0; i < 1000; ++i)
		look(ctx, call, request);
	const unsigned n = yields - before;
	CAPTURE(n);
	if (crowded && !cooperative) { // in a cooperative job one thread drives all ranks
		CHECK(n >= 30);
		CHECK(n <= 100);
	} else {
		CHECK(n == 0);
	}
	REQUIRE(pt2p_send(ctx, &word, sizeof word, 0, 2) == PT2P_OK);
	CHECK(pt2p_wait(ctx, request, nullptr) == PT2P_OK);
}
