// Programs that poll: on an oversubscribed host, ranks let each other run.
#include "tests/api/job.hpp"

#include <atomic>
#include <thread>
#include <utility>

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

// sched_setattr(2)
struct Attributes {
	uint32_t size, policy;
	uint64_t flags;
	int32_t nice;
	uint32_t priority;
	uint64_t time_slice, deadline, period; // ns
};

// Of this thread; 0: the kernel tells of none.
uint64_t time_slice()
{
	Attributes attributes{};
	syscall(SYS_sched_getattr, 0, &attributes, sizeof attributes, 0);
	return attributes.time_slice;
}

void set_time_slice(uint64_t length)
{
	Attributes attributes{};
	syscall(SYS_sched_getattr, 0, &attributes, sizeof attributes, 0);
	attributes.time_slice = length;
	syscall(SYS_sched_setattr, 0, &attributes, 0);
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

TEST_CASE("a thread that yields in a call asks for short time slices, and keeps shorter ones")
{
	static constexpr uint64_t before = 2000000; // GENERATE captures nothing
	const auto [wanted, expected] = GENERATE(values<std::pair<std::string, uint64_t>>({{"", 100000},
	                                                                                   {"PT2P_TIME_SLICE=1ms", 1000000},
	                                                                                   {"PT2P_TIME_SLICE=50ms", before},
	                                                                                   {"PT2P_TIME_SLICE=0", before}}));
	CAPTURE(wanted);
	const int ranks = too_many_ranks();
	const char *tunables[] = {wanted.empty() ? nullptr : wanted.c_str(), nullptr};
	uint64_t at_first = 0, after = 0;
	std::thread rank([&] {
		set_time_slice(before);
		at_first = time_slice();
		pt2p_options_t options = PT2P_OPTIONS_INIT;
		options.tunables = tunables;
		std::vector<pt2p_context_t *> contexts(static_cast<size_t>(ranks));
		if (pt2p_init_inprocess(ranks, PT2P_INPROCESS_THREADS, &options, contexts.data()) != PT2P_OK)
			return;
		for (int i = 0; i < 100; ++i)
			pt2p_progress(contexts[0]);
		after = time_slice();
		for (pt2p_context_t *ctx : contexts)
			pt2p_finalize(ctx);
	});
	rank.join();
	if (at_first == before)
		CHECK(after == expected);
	else
		WARN("skipped: the kernel has no time slices to ask for (before Linux 6.12)");
}
