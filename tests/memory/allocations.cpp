// SPDX-License-Identifier: BSD-3-Clause
// Calls allocate nothing once there have been as many at once before: neither at the caller nor at the server, whatever
// the length, with and without lanes, deadlines, callbacks, and as notices. To a rank itself, and to another one over
// shared memory or what PT2P_TRANSPORTS says.
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <vector>

#include <pt2p.h>

// Where this program lies, the library in it included.
extern char __executable_start, etext;

namespace {

std::atomic<bool> counting{false};
std::atomic<unsigned long> allocations{0};
// Beside a device in software, which allocates in its own functions, only allocations of this program count.
bool own_only = false;

void count(const void *caller)
{
	const auto at = reinterpret_cast<uintptr_t>(caller);
	const bool own = at >= reinterpret_cast<uintptr_t>(&__executable_start) && at < reinterpret_cast<uintptr_t>(&etext);
	if (counting && (own || !own_only))
		++allocations;
}

} // namespace

// The C library's own, which is replaced here.
extern "C" {
void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
void *__libc_memalign(size_t, size_t);

void *malloc(size_t bytes)
{
	count(__builtin_return_address(0));
	return __libc_malloc(bytes);
}
void *calloc(size_t n, size_t bytes)
{
	count(__builtin_return_address(0));
	return __libc_calloc(n, bytes);
}
void *realloc(void *p, size_t bytes)
{
	count(__builtin_return_address(0));
	return __libc_realloc(p, bytes);
}
void *aligned_alloc(size_t alignment, size_t bytes)
{
	count(__builtin_return_address(0));
	return __libc_memalign(alignment, bytes);
}
}

[[gnu::noinline]] void *operator new(size_t bytes)
{
	count(__builtin_return_address(0));
	void *p = __libc_malloc(bytes);
	if (!p)
		throw std::bad_alloc();
	return p;
}
[[gnu::noinline]] void operator delete(void *p) noexcept { free(p); }
[[gnu::noinline]] void operator delete(void *p, size_t) noexcept { free(p); }

namespace {

int failures = 0;

void must(pt2p_status_t status, const char *what)
{
	if (status == PT2P_OK)
		return;
	counting = false;
	printf("FAIL: %s: %s\n", what, pt2p_strerror(status));
	exit(1);
}

constexpr uint32_t within = 1, lane = 2;
constexpr size_t at_once = 64, longest = 60000;
size_t handled = 0;

void echo(pt2p_context_t *ctx, pt2p_call_t *call, const void *input, size_t length, void *)
{
	++handled;
	pt2p_call_info_t info;
	must(pt2p_call_query(ctx, call, &info), "pt2p_call_query");
	if (!info.notice)
		must(pt2p_reply(ctx, call, length, input, length), "pt2p_reply");
}

struct Pattern {
	const char *name;
	uint32_t service;
	int64_t deadline;
	bool callback, notice;
};

struct Job {
	std::vector<pt2p_context_t *> ctx;
	pt2p_service_t *services[2];
	std::vector<unsigned char> in = std::vector<unsigned char>(at_once * longest),
	                           out = std::vector<unsigned char>(longest, 3);
	size_t ended = 0;

	explicit Job(int ranks) : ctx(static_cast<size_t>(ranks))
	{
		must(pt2p_init_inprocess(ranks, PT2P_INPROCESS_COOPERATIVE, nullptr, ctx.data()), "pt2p_init_inprocess");
		pt2p_service_options_t options = PT2P_SERVICE_OPTIONS_INIT;
		must(pt2p_service_open(ctx.back(), within, echo, nullptr, &options, &services[0]), "pt2p_service_open");
		options.lanes = 1;
		must(pt2p_service_open(ctx.back(), lane, echo, nullptr, &options, &services[1]), "pt2p_service_open");
	}
	~Job()
	{
		for (pt2p_context_t *c : ctx)
			must(pt2p_finalize(c), "pt2p_finalize");
	}
	void turn()
	{
		for (pt2p_context_t *c : ctx)
			must(pt2p_progress(c), "pt2p_progress");
		must(pt2p_serve(ctx.back(), services[1], 0, at_once, 0, nullptr), "pt2p_serve");
	}
	// `count` calls together.
	void round(const Pattern &p, size_t count, size_t length)
	{
		const int to = static_cast<int>(ctx.size()) - 1;
		pt2p_request_t *requests[at_once];
		pt2p_call_options_t options = PT2P_CALL_OPTIONS_INIT;
		options.deadline = p.deadline;
		if (p.callback)
			options.done = [](pt2p_context_t *, const pt2p_result_t *result, void *argument) {
				must(static_cast<pt2p_status_t>(result->status), "a call");
				++static_cast<Job *>(argument)->ended;
			};
		options.argument = this;
		ended = handled = 0;
		for (size_t i = 0; i < count; ++i)
			if (p.notice)
				must(pt2p_notify(ctx[0], to, p.service, out.data(), length, &options), "pt2p_notify");
			else
				must(pt2p_icall(ctx[0], to, p.service, out.data(), length, &in[i * longest], length, &options,
				                &requests[i]),
				     "pt2p_icall");
		if (p.notice)
			// A long one is a call, whose reply nobody waits for: it takes some more turns.
			for (int more = 0; handled < count || more < (own_only ? 300 : 20); more += handled == count)
				turn();
		else if (p.callback)
			while (ended < count)
				turn();
		else
			for (size_t i = 0; i < count; ++i)
				for (int done = 0; !done; turn())
					must(pt2p_test(ctx[0], requests[i], &done, nullptr), "pt2p_test");
	}
};

} // namespace

int main()
{
	const char *transports = getenv("PT2P_TRANSPORTS");
	own_only = transports != nullptr;
	// How many messages wait for a device at once depends on time: there may be more now and then than before, and on a
	// busy machine many more, once.
	constexpr unsigned long few = 10;
	const unsigned attempts = own_only ? 4 : 1;
	constexpr int64_t minute = 60'000'000'000;
	const Pattern patterns[] = {
	    {"within progress", within, 0, false, false},
	    {"in a lane", lane, 0, false, false},
	    {"with a deadline", within, minute, false, false},
	    {"with a callback", within, 0, true, false},
	    {"notices", within, 0, false, true},
	};
	for (const int ranks : {1, 2}) {
		Job job(ranks);
		for (const Pattern &p : patterns)
			for (const size_t length : {size_t{0}, size_t{32}, size_t{4096}, longest})
				for (const size_t count : {size_t{1}, at_once}) {
					const size_t rounds = 1000 / count + 1;
					for (size_t i = 0; i < 30; ++i)
						job.round(p, count, length);
					bool good = false;
					for (unsigned attempt = 0; attempt < attempts && !good; ++attempt) {
						allocations = 0;
						counting = true;
						for (size_t i = 0; i < rounds; ++i)
							job.round(p, count, length);
						counting = false;
						good = allocations <= (own_only ? few : 0);
					}
					if (good)
						continue;
					printf("FAIL: %s, %s, %zu bytes, %zu at once: %lu allocations in %zu calls\n",
					       ranks == 1   ? "self"
					       : transports ? transports
					                    : "shm",
					       p.name, length, count, allocations.load(), rounds * count);
					++failures;
				}
	}
	if (!failures)
		printf("calls allocate nothing after warm-up\n");
	// An allocation is seen.
	counting = true;
	allocations = 0;
	delete new std::string(1000, 'x');
	counting = false;
	if (!allocations) {
		printf("FAIL: an allocation was not counted\n");
		++failures;
	}
	return failures ? 1 : 0;
}
