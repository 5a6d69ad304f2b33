// SPDX-License-Identifier: BSD-3-Clause
// Calls at thread level multiple. Threads of two ranks call each other, while other threads cancel these calls, reply
// to them, serve lanes, and close services and open them again; many calls have a deadline that passes at about the
// time of the reply. Each call ends once, is executed at most once, and its status agrees with what the server has
// counted. In-process, so that ThreadSanitizer sees both sides. Arguments: calls of each thread (default: 2000).
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <pt2p.h>

namespace {

constexpr int ranks = 2;
constexpr size_t callers = 3; // threads of each rank

[[noreturn]] void fail(const pt2p_context_t *ctx, int line, const char *what)
{
	fprintf(stderr, "FAIL: line %d: %s: %s\n", line, what, pt2p_last_error(ctx));
	fflush(nullptr);
	_Exit(1);
}
#define TRUE(condition)                                                                                                \
	do {                                                                                                               \
		if (!(condition))                                                                                              \
			fail(ctx, __LINE__, #condition);                                                                           \
	} while (0)
#define OK(call) TRUE((call) == PT2P_OK)

// Ids of services. The first three differ in who replies: the handler within progress, a thread in pt2p_serve, or
// another thread after a while. The fourth is closed and opened again all the time.
enum Id : uint32_t { at_once = 1, in_lane, later, changing, gather };

struct Head {
	uint64_t thread, number; // of the call
};

constexpr size_t max_words = 3000;
size_t words_of(uint64_t number) { return number % 20 ? number % 40 : max_words; }
uint64_t word(const Head &h, size_t i) { return (h.thread << 40 ^ h.number << 20) + i; }

// What is known of one call.
struct Fate {
	std::atomic<int> executed{0}, ended{0};
	std::atomic<bool> cancelled{false};
	bool has_deadline = false;
	uint32_t service = 0;
	std::atomic<int> status{-1};
	pt2p_request_t *request = nullptr; // for who cancels it
};

struct Side; // of a rank

// Cancels what it is shown.
struct Canceller {
	std::atomic<Fate *> fate{nullptr}; // of the call, whose request is in it
};

struct Opening {
	Side *side = nullptr;
	std::atomic<bool> closed{false};
};

struct Side {
	pt2p_context_t *ctx = nullptr;
	int other = 0;
	std::vector<std::vector<Fate>> fates; // of the calls that this rank makes: by thread, by number
	Side *peer = nullptr;
	std::array<Canceller, callers> cancellers;
	pt2p_service_t *lane = nullptr;
	std::atomic<pt2p_service_t *> changing_lane{nullptr};
	std::deque<Opening> openings;
	std::mutex mutex; // of what follows
	std::deque<pt2p_call_t *> kept;
	std::vector<pt2p_call_t *> gathered;
};

std::atomic<bool> callers_finished{false}, servers_may_end{false};

void execute(pt2p_context_t *ctx, Side &s, const void *input, size_t length, Head &head)
{
	TRUE(length >= sizeof head);
	std::memcpy(&head, input, sizeof head);
	TRUE(length == sizeof head + words_of(head.number) * 8);
	const auto *words = static_cast<const uint64_t *>(input) + 2;
	for (size_t i = 0; i < words_of(head.number); ++i)
		TRUE(words[i] == word(head, i));
	TRUE(++s.peer->fates.at(head.thread).at(head.number).executed == 1);
}

void reply_at_once(pt2p_context_t *ctx, pt2p_call_t *call, const void *input, size_t length, void *argument)
{
	Head head;
	execute(ctx, *static_cast<Side *>(argument), input, length, head);
	OK(pt2p_reply(ctx, call, head.number, input, length));
}

void reply_while_open(pt2p_context_t *ctx, pt2p_call_t *call, const void *input, size_t length, void *argument)
{
	auto &opening = *static_cast<Opening *>(argument);
	TRUE(!opening.closed);
	reply_at_once(ctx, call, input, length, opening.side);
	TRUE(!opening.closed);
}

void keep(pt2p_context_t *ctx, pt2p_call_t *call, const void *input, size_t length, void *argument)
{
	auto &s = *static_cast<Side *>(argument);
	Head head;
	execute(ctx, s, input, length, head);
	const std::lock_guard<std::mutex> guard(s.mutex);
	s.kept.push_back(call);
}

// Replies to all once as many are here as the input says.
void wait_for_all(pt2p_context_t *ctx, pt2p_call_t *call, const void *input, size_t, void *argument)
{
	auto &s = *static_cast<Side *>(argument);
	uint64_t count;
	std::memcpy(&count, input, sizeof count);
	s.gathered.push_back(call);
	if (s.gathered.size() < count)
		return;
	for (pt2p_call_t *c : s.gathered)
		OK(pt2p_reply(ctx, c, 0, nullptr, 0));
	s.gathered.clear();
}

// ---- threads of a server --------------------------------------------------------------------------------------------

void serve(Side &s)
{
	pt2p_context_t *ctx = s.ctx;
	while (!servers_may_end) {
		OK(pt2p_serve(ctx, s.lane, 0, 4, 500000, nullptr));
		if (pt2p_service_t *service = s.changing_lane) {
			const pt2p_status_t status = pt2p_serve(ctx, service, 0, 4, 100000, nullptr);
			TRUE(status == PT2P_OK || status == PT2P_ERR_ARGUMENT); // closed meanwhile
		}
	}
}

// Replies to what the handler has kept, after a while.
void reply_later(Side &s, unsigned seed)
{
	pt2p_context_t *ctx = s.ctx;
	std::mt19937 random(seed);
	for (bool last = false; !last;) {
		last = servers_may_end; // some callers wait no more, so there may still be calls without a reply
		std::deque<pt2p_call_t *> calls;
		if (random() % 4 == 0)
			std::this_thread::sleep_for(std::chrono::microseconds(random() % 200));
		{
			const std::lock_guard<std::mutex> guard(s.mutex);
			calls.swap(s.kept);
		}
		for (pt2p_call_t *call : calls) {
			const void *input = nullptr;
			Head head;
			OK(pt2p_call_keep(ctx, call, &input));
			std::memcpy(&head, input, sizeof head);
			pt2p_call_info_t info;
			OK(pt2p_call_query(ctx, call, &info));
			TRUE(info.caller == s.other && info.service == later);
			OK(pt2p_reply(ctx, call, head.number, input, sizeof head + words_of(head.number) * 8));
			TRUE(pt2p_reply(ctx, call, 0, nullptr, 0) == PT2P_ERR_CALL);
		}
		if (calls.empty())
			OK(pt2p_progress(ctx));
	}
}

// Opens a service and closes it, with and without lanes.
void close_and_open(Side &s)
{
	pt2p_context_t *ctx = s.ctx;
	for (unsigned round = 0; !callers_finished; ++round) {
		s.openings.emplace_back();
		Opening &opening = s.openings.back();
		opening.side = &s;
		pt2p_service_options_t options = PT2P_SERVICE_OPTIONS_INIT;
		options.lanes = round % 2;
		pt2p_service_t *service = nullptr, *twice = nullptr;
		OK(pt2p_service_open(ctx, changing, reply_while_open, &opening, &options, &service));
		TRUE(pt2p_service_open(ctx, changing, reply_while_open, &opening, &options, &twice) == PT2P_ERR_ARGUMENT);
		if (options.lanes)
			s.changing_lane = service;
		std::this_thread::sleep_for(std::chrono::microseconds(300));
		s.changing_lane = nullptr;
		OK(pt2p_service_close(ctx, service));
		opening.closed = true;
		TRUE(pt2p_service_close(ctx, service) == PT2P_ERR_ARGUMENT);
	}
}

// ---- threads of a caller --------------------------------------------------------------------------------------------

struct Call {
	Head head{};
	Fate *fate = nullptr;
	pt2p_request_t *request = nullptr;
	std::vector<uint64_t> input, reply;
};

void end(pt2p_context_t *ctx, const Call &c, pt2p_status_t status, const pt2p_result_t &result)
{
	Fate &f = *c.fate;
	TRUE(f.ended == 0);
	f.status = status;
	TRUE(result.status == status);
	if (status == PT2P_OK) {
		TRUE(result.tag == c.head.number && result.length == c.input.size() * 8);
		TRUE(c.reply == c.input);
	} else {
		TRUE((status == PT2P_ERR_CANCELLED && f.cancelled) || (status == PT2P_ERR_DEADLINE && f.has_deadline) ||
		     (status == PT2P_ERR_NO_SERVICE && f.service == changing));
	}
	TRUE(++f.ended == 1); // last: then its memory is given back
}

void start(Side &s, Call &c, std::mt19937 &random, pt2p_callback_t done = nullptr)
{
	pt2p_context_t *ctx = s.ctx;
	Fate &f = *c.fate;
	const size_t words = 2 + words_of(c.head.number);
	c.input.resize(words);
	c.reply.assign(words, 0);
	c.input[0] = c.head.thread;
	c.input[1] = c.head.number;
	for (size_t i = 2; i < words; ++i)
		c.input[i] = word(c.head, i - 2);
	f.service = static_cast<uint32_t>(at_once + random() % 4);
	pt2p_call_options_t options = PT2P_CALL_OPTIONS_INIT;
	f.has_deadline = random() % 3 == 0;
	if (f.has_deadline)
		options.deadline = static_cast<int64_t>(1000 + random() % (random() % 2 ? 20000 : 500000)); // ns
	options.done = done;
	options.argument = &c;
	OK(pt2p_icall(ctx, s.other, f.service, c.input.data(), words * 8, c.reply.data(), words * 8, &options,
	              done ? nullptr : &c.request));
}

void ended(pt2p_context_t *ctx, const pt2p_result_t *result, void *argument)
{
	end(ctx, *static_cast<Call *>(argument), static_cast<pt2p_status_t>(result->status), *result);
}

void call(Side &s, size_t thread)
{
	pt2p_context_t *ctx = s.ctx;
	std::mt19937 random(static_cast<unsigned>(thread + callers * static_cast<size_t>(s.other)));
	std::deque<Call> open, called_back;
	Canceller &canceller = s.cancellers[thread];
	std::vector<Fate> &fates = s.fates[thread];
	size_t most = 4;
	for (uint64_t next = 0; next < fates.size() || !open.empty();) {
		if (random() % 50 == 0)
			most = random() % 3 ? 1 + random() % 4 : 100;
		if (next < fates.size() && open.size() < most) {
			const bool callback = random() % 8 == 0;
			std::deque<Call> &list = callback ? called_back : open;
			list.emplace_back();
			Call &c = list.back();
			c.head = {thread, next};
			c.fate = &fates[next++];
			start(s, c, random, callback ? ended : nullptr);
			if (!callback && random() % 2) { // another thread cancels it
				c.fate->request = c.request;
				canceller.fate = c.fate;
			} else if (!callback && random() % 4 == 0) {
				c.fate->cancelled = true;
				OK(pt2p_cancel(ctx, c.request));
			}
			if (called_back.size() > 200) {
				while (!called_back.front().fate->ended)
					OK(pt2p_progress(ctx));
				called_back.pop_front();
			}
			continue;
		}
		Call c = std::move(open.front());
		open.pop_front();
		pt2p_result_t result{};
		int done = 0;
		const pt2p_request_t *const handle = c.request;
		if (random() % 2) {
			const pt2p_status_t status = pt2p_wait(ctx, c.request, &result);
			end(ctx, c, status, result);
			TRUE(pt2p_test(ctx, const_cast<pt2p_request_t *>(handle), &done, nullptr) == PT2P_ERR_REQUEST);
			continue;
		}
		const pt2p_status_t status = pt2p_test(ctx, c.request, &done, &result);
		if (done)
			end(ctx, c, status, result);
		else
			open.push_back(std::move(c));
	}
	for (const Call &c : called_back)
		while (!c.fate->ended)
			OK(pt2p_progress(ctx));
}

void cancel(Side &s, size_t thread)
{
	pt2p_context_t *ctx = s.ctx;
	Canceller &c = s.cancellers[thread];
	while (!callers_finished) {
		Fate *fate = c.fate.exchange(nullptr);
		if (!fate) {
			std::this_thread::yield();
			continue;
		}
		fate->cancelled = true;
		const pt2p_status_t status = pt2p_cancel(ctx, fate->request);
		TRUE(status == PT2P_OK || status == PT2P_ERR_REQUEST);
	}
}

// As many calls as the window allows can be at the other rank together: no slot has been lost.
void use_all_slots(Side &s, uint64_t window)
{
	pt2p_context_t *ctx = s.ctx;
	std::vector<pt2p_request_t *> requests(window);
	for (pt2p_request_t *&r : requests)
		OK(pt2p_icall(ctx, s.other, gather, &window, sizeof window, nullptr, 0, nullptr, &r));
	OK(pt2p_waitall(ctx, window, requests.data(), nullptr));
}

// ---- a job ----------------------------------------------------------------------------------------------------------

void check(const Side &s, uint64_t (&seen)[5])
{
	const pt2p_context_t *ctx = s.ctx;
	for (const auto &list : s.fates)
		for (const Fate &f : list) {
			TRUE(f.ended == 1);
			switch (f.status.load()) {
			case PT2P_OK:
				TRUE(f.executed == 1);
				++seen[0];
				seen[4] += f.cancelled;
				break;
			case PT2P_ERR_CANCELLED:
				TRUE(f.executed == 0);
				++seen[1];
				break;
			case PT2P_ERR_NO_SERVICE:
				TRUE(f.executed == 0);
				++seen[2];
				break;
			default: TRUE(f.executed <= 1); ++seen[3];
			}
		}
}

void run(const std::vector<const char *> &tunables, uint64_t window, size_t calls)
{
	std::string name = "defaults";
	for (const char *t : tunables)
		if (t)
			name = name == "defaults" ? t : name + " " + t;
	callers_finished = servers_may_end = false;
	pt2p_options_t options = PT2P_OPTIONS_INIT;
	options.thread_level = PT2P_THREAD_MULTIPLE;
	options.tunables = tunables.data();
	pt2p_context_t *ctx = nullptr, *contexts[ranks];
	OK(pt2p_init_inprocess(ranks, PT2P_INPROCESS_THREADS, &options, contexts));
	auto sides = std::make_unique<std::array<Side, ranks>>();
	for (int i = 0; i < ranks; ++i) {
		Side &s = (*sides)[static_cast<size_t>(i)];
		s.ctx = contexts[i];
		s.other = 1 - i;
		s.peer = &(*sides)[static_cast<size_t>(1 - i)];
		for (size_t t = 0; t < callers; ++t)
			s.fates.emplace_back(calls);
		pt2p_service_t *service;
		pt2p_service_options_t lanes = PT2P_SERVICE_OPTIONS_INIT;
		lanes.lanes = 1;
		OK(pt2p_service_open(s.ctx, at_once, reply_at_once, &s, nullptr, &service));
		OK(pt2p_service_open(s.ctx, in_lane, reply_at_once, &s, &lanes, &s.lane));
		OK(pt2p_service_open(s.ctx, later, keep, &s, nullptr, &service));
		OK(pt2p_service_open(s.ctx, gather, wait_for_all, &s, nullptr, &service));
	}
	std::vector<std::thread> threads, others, closers;
	for (Side &s : *sides) {
		for (int i = 0; i < 2; ++i)
			closers.emplace_back(serve, std::ref(s));
		closers.emplace_back(reply_later, std::ref(s), static_cast<unsigned>(s.other));
		others.emplace_back(close_and_open, std::ref(s));
		for (size_t t = 0; t < callers; ++t) {
			threads.emplace_back(call, std::ref(s), t);
			others.emplace_back(cancel, std::ref(s), t);
		}
	}
	for (std::thread &t : threads)
		t.join();
	callers_finished = true;
	for (std::thread &t : others)
		t.join();
	threads.clear();
	for (Side &s : *sides)
		threads.emplace_back(use_all_slots, std::ref(s), window);
	for (std::thread &t : threads)
		t.join();
	servers_may_end = true;
	for (std::thread &t : closers)
		t.join();
	uint64_t seen[5] = {};
	for (const Side &s : *sides)
		check(s, seen);
	printf("%s: %llu calls replied to (%llu of them cancelled too late), %llu cancelled, %llu found no service, %llu "
	       "late\n",
	       name.c_str(), static_cast<unsigned long long>(seen[0]), static_cast<unsigned long long>(seen[4]),
	       static_cast<unsigned long long>(seen[1]), static_cast<unsigned long long>(seen[2]),
	       static_cast<unsigned long long>(seen[3]));
	fflush(stdout);
	for (const uint64_t count : seen)
		TRUE(calls < 500 || count > 0);
	threads.clear();
	for (pt2p_context_t *c : contexts)
		threads.emplace_back([c] {
			if (pt2p_finalize(c) != PT2P_OK)
				fail(nullptr, __LINE__, "pt2p_finalize");
		});
	for (std::thread &t : threads)
		t.join();
}

} // namespace

int main(int argc, char **argv)
{
	const size_t calls = argc > 1 ? strtoul(argv[1], nullptr, 10) : 2000;
	run({nullptr}, 64, calls);
	run({"PT2P_CALL_WINDOW=2", "PT2P_SHM_RING_SLOTS=8", "PT2P_SHM_RING_BYTES=4096", nullptr}, 2, calls);
	run({"PT2P_PROGRESS_THREAD=1", nullptr}, 64, calls);
	run({"PT2P_SPIN_TIME=0", "PT2P_YIELD_TIME=0", nullptr}, 64, calls);
	// Each thread seems to have a core: one polls for all.
	setenv("HWLOC_SYNTHETIC", "core:64 pu:1", 1);
	run({nullptr}, 64, calls);
	return 0;
}
