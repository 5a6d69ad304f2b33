// Thread level multiple. Several threads of each rank send, receive, probe, wait for any and cancel at the same time.
// Several take the messages of one thread by matched probes. At the same time there are callbacks, lists, one-sided
// operations, calls, cancelled receives and barriers. In-process, so that ThreadSanitizer sees both sides.
// Arguments: seconds (default: 4).
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <pt2p.h>

namespace {

constexpr int ranks = 2, threads_each = 3;
std::atomic<bool> stop{false}, stopped{false};
std::atomic<uint64_t> messages{0};

[[noreturn]] void fail(const pt2p_context_t *ctx, int line, const char *what)
{
	fprintf(stderr, "FAIL: line %d: %s: %s\n", line, what, pt2p_last_error(ctx));
	fflush(nullptr);
	_Exit(1);
}
#define OK(call)                                                                                                       \
	do {                                                                                                               \
		if ((call) != PT2P_OK)                                                                                         \
			fail(ctx, __LINE__, #call);                                                                                \
	} while (0)
#define TRUE(condition)                                                                                                \
	do {                                                                                                               \
		if (!(condition))                                                                                              \
			fail(ctx, __LINE__, #condition);                                                                           \
	} while (0)

uint64_t word(uint64_t tag, uint64_t number, size_t i) { return (tag << 40 ^ number << 20) + i; }

// Thread t of one rank and thread t of the other exchange messages with tag t, of eager and of rendezvous sizes. The
// last message says that it is the last, so that no thread is left waiting.
void exchange(pt2p_context_t *ctx, int t)
{
	const int other = 1 - pt2p_rank(ctx);
	const auto tag = static_cast<uint64_t>(t);
	const size_t words[] = {1, 10, 500, 3000, 20000};
	std::vector<uint64_t> out(20000), in(20000);
	for (uint64_t number = 0;; ++number) {
		const size_t n = words[number % 5];
		for (size_t i = 0; i < n; ++i)
			out[i] = word(tag, number, i);
		// Rank 0 decides when it ends.
		const bool last = pt2p_rank(ctx) == 0 && stop.load();
		out[0] = last;
		pt2p_request_t *requests[2] = {};
		OK(pt2p_irecv(ctx, in.data(), n * 8, other, tag, PT2P_TAG_EXACT, &requests[0]));
		OK(pt2p_isend(ctx, out.data(), n * 8, other, tag, &requests[1]));
		pt2p_result_t results[2];
		switch (number % 4) {
		case 0: OK(pt2p_waitall(ctx, 2, requests, results)); break;
		case 1:
			for (int k = 0; k < 2; ++k) {
				size_t index = 0;
				pt2p_result_t r;
				OK(pt2p_waitany(ctx, 2, requests, &index, &r));
				TRUE(index < 2);
				results[index] = r;
			}
			break;
		case 2:
			OK(pt2p_wait(ctx, requests[0], &results[0]));
			OK(pt2p_wait(ctx, requests[1], nullptr));
			break;
		default:
			for (int done = 0; !done;)
				OK(pt2p_testall(ctx, 2, requests, &done, results));
		}
		TRUE(results[0].length == n * 8);
		TRUE(results[0].tag == tag);
		for (size_t i = 1; i < n; ++i)
			TRUE(in[i] == word(tag, number, i));
		messages.fetch_add(1, std::memory_order_relaxed);
		if (last || in[0])
			return;
	}
}

constexpr uint64_t tag_shared = 2000;
constexpr int probers = 2; // of each rank
std::atomic<uint64_t> shared_sent{0}, shared_sum{0}, taken{0}, taken_sum{0};

// Sends numbered messages that all probers of the other rank compete for. The last ones end the probers. Every second
// one is synchronous, and completes only when a prober has got it.
void feed(pt2p_context_t *ctx)
{
	const int other = 1 - pt2p_rank(ctx);
	const size_t words[] = {2, 100, 13, 3000, 2};
	std::vector<uint64_t> out(3000);
	int left = probers;
	for (uint64_t number = 1; left > 0; ++number) {
		const bool last = stop.load();
		const size_t n = words[number % 5];
		for (size_t i = 0; i < n; ++i)
			out[i] = word(tag_shared, number, i);
		out[0] = number;
		out[1] = last;
		left -= last;
		pt2p_request_t *req;
		if (number % 3 == 0) {
			OK(pt2p_ssend(ctx, out.data(), n * 8, other, tag_shared));
		} else {
			OK((number % 2 ? pt2p_issend : pt2p_isend)(ctx, out.data(), n * 8, other, tag_shared, &req));
			OK(pt2p_wait(ctx, req, nullptr));
		}
		++shared_sent;
		shared_sum += number;
	}
}

// Takes messages, which no other prober may get.
void take(pt2p_context_t *ctx, int which)
{
	std::vector<uint64_t> in;
	for (uint64_t turn = 0;; ++turn) {
		pt2p_message_t *m = nullptr;
		pt2p_result_t seen{}, result{};
		const int source = turn % 2 ? PT2P_ANY_SOURCE : 1 - pt2p_rank(ctx);
		if (turn % 3 == 0 && which)
			OK(pt2p_mprobe(ctx, source, tag_shared, PT2P_TAG_EXACT, &m, &seen));
		else
			OK(pt2p_improbe(ctx, source, tag_shared, PT2P_TAG_EXACT, &m, &seen));
		if (!m) {
			std::this_thread::sleep_for(std::chrono::microseconds(100));
			continue;
		}
		in.assign(seen.length / 8, 0);
		if (turn % 5 < 2) {
			OK(pt2p_mrecv(ctx, in.data(), seen.length, m, &result));
		} else {
			pt2p_request_t *req = nullptr;
			OK(pt2p_imrecv(ctx, in.data(), seen.length, m, &req));
			OK(pt2p_wait(ctx, req, &result));
		}
		TRUE(result.length == seen.length);
		TRUE(pt2p_mrecv(ctx, in.data(), seen.length, m, nullptr) == PT2P_ERR_REQUEST);
		for (size_t i = 2; i < in.size(); ++i)
			TRUE(in[i] == word(tag_shared, in[0], i));
		++taken;
		taken_sum += in[0];
		if (in[1])
			return;
	}
}

// Queries, cancels, and sends messages to its own rank until the end.
void disturb(pt2p_context_t *ctx)
{
	const int me = pt2p_rank(ctx);
	char small[8];
	std::string text(4096, 0);
	for (uint64_t n = 0; !stop.load(); ++n) {
		pt2p_request_t *req = nullptr;
		OK(pt2p_irecv(ctx, small, sizeof small, 1 - me, 1000, PT2P_TAG_EXACT, &req));
		OK(pt2p_cancel(ctx, req));
		TRUE(pt2p_wait(ctx, req, nullptr) == PT2P_ERR_CANCELLED);
		TRUE(strlen(pt2p_last_error(ctx)) > 0);
		int found = 1;
		OK(pt2p_iprobe(ctx, 1 - me, 1001, PT2P_TAG_EXACT, &found, nullptr));
		TRUE(!found);
		uint64_t got = 0;
		OK(pt2p_irecv(ctx, &got, sizeof got, me, 1002, PT2P_TAG_EXACT, &req));
		OK(pt2p_send(ctx, &n, sizeof n, me, 1002));
		OK(pt2p_wait(ctx, req, nullptr));
		TRUE(got == n);
		TRUE(pt2p_send(ctx, nullptr, 1, 99, 0) == PT2P_ERR_RANK);
		uint64_t value;
		OK(pt2p_counter_read(ctx, static_cast<int>(n % static_cast<uint64_t>(pt2p_counter_count())), &value));
		pt2p_peer_info_t peer;
		OK(pt2p_peer_query(ctx, 1 - me, &peer));
		OK(pt2p_summary(ctx, text.data(), text.size(), nullptr));
		OK(pt2p_progress(ctx));
		if (n % 16 == 0)
			std::this_thread::sleep_for(std::chrono::microseconds(200));
	}
}

// Each callback starts the next operation, on the thread that happens to call it, while others wait: messages to this
// rank itself, of two segments, short and long.
struct Relay {
	pt2p_context_t *ctx = nullptr;
	uint64_t number = 0, calls = 0;
	std::vector<uint64_t> out = std::vector<uint64_t>(8000), in = std::vector<uint64_t>(8000);
	std::atomic<bool> over{false}, inside{false};

	void begin(pt2p_context_t *c)
	{
		ctx = c;
		next();
	}
	// Both callbacks of an operation have to be called before the next one is started.
	void next()
	{
		++number;
		const size_t n = number % 8 ? 20 : 8000;
		out[0] = out[n - 1] = number;
		const int me = pt2p_rank(ctx);
		const pt2p_iovec_t from[] = {{out.data(), 80}, {out.data() + 10, (n - 10) * 8}},
		                   to[] = {{in.data(), 40}, {in.data() + 5, (n - 5) * 8}};
		pt2p_request_t *req = nullptr;
		OK(pt2p_irecvv(ctx, to, 2, me, 1005, PT2P_TAG_EXACT, &req));
		OK(pt2p_request_callback(ctx, req, called, this));
		OK(pt2p_isendv(ctx, from, 2, me, 1005, &req));
		OK(pt2p_request_callback(ctx, req, called, this));
	}
	static void called(pt2p_context_t *ctx, const pt2p_result_t *result, void *argument)
	{
		auto *self = static_cast<Relay *>(argument);
		TRUE(!self->inside.exchange(true)); // one at a time
		TRUE(result->status == PT2P_OK);
		TRUE(pt2p_progress(ctx) == PT2P_ERR_IN_HANDLER);
		if (++self->calls == 2 * self->number) {
			const size_t n = self->number % 8 ? 20 : 8000;
			TRUE(self->in[0] == self->number && self->in[n - 1] == self->number);
			if (stop.load())
				self->over = true;
			else
				self->next();
		}
		self->inside = false;
	}
};

// Threads that wait for some of a list.
void take_some(pt2p_context_t *ctx, int t)
{
	const int me = pt2p_rank(ctx);
	const auto tag = static_cast<uint64_t>(2000 + t);
	constexpr size_t count = 16;
	while (!stop.load()) {
		uint64_t out[count], in[count];
		pt2p_request_t *requests[count];
		for (size_t i = 0; i < count; ++i)
			OK(pt2p_irecv(ctx, &in[i], 8, me, tag, PT2P_TAG_EXACT, &requests[i]));
		for (size_t i = 0; i < count; ++i) {
			out[i] = i;
			pt2p_request_t *req = nullptr;
			OK(pt2p_isend(ctx, &out[i], 8, me, tag, &req));
			OK(pt2p_request_free(ctx, req));
		}
		for (size_t done = 0, completed = 0, indices[count]; done < count; done += completed) {
			OK(pt2p_waitsome(ctx, count, requests, &completed, indices, nullptr));
			TRUE(completed > 0);
		}
		for (size_t i = 0; i < count; ++i)
			TRUE(in[i] == i);
		std::this_thread::sleep_for(std::chrono::microseconds(300));
	}
}

// Memory of each rank that the threads of the other access: a word that all add to, and some words for each thread.
struct Reached {
	pt2p_memory_t *memory = nullptr;
	void *words = nullptr;
	pt2p_remote_t *remote = nullptr; // of the other rank
	std::atomic<uint64_t> added{0};
};
constexpr int reachers = 2; // of each rank
constexpr size_t words_each = 1024;

void reach(pt2p_context_t *ctx, Reached &r, int t)
{
	const int other = 1 - pt2p_rank(ctx);
	const uint64_t first = (1 + static_cast<uint64_t>(t) * words_each) * 8;
	std::vector<uint64_t> out(words_each), in(words_each);
	for (uint64_t number = 1; !stop.load(); ++number) {
		const size_t n = number % 4 ? 3 : words_each;
		for (size_t i = 0; i < n; ++i)
			out[i] = word(static_cast<uint64_t>(t), number, i);
		pt2p_request_t *requests[2] = {};
		OK(pt2p_put(ctx, out.data(), n * 8, r.remote, first, number % 3 ? &requests[0] : nullptr));
		uint64_t before = 0;
		OK(pt2p_fetch_add64(ctx, r.remote, 0, 1, &before, &requests[1]));
		++r.added;
		if (number % 3 == 1)
			OK(pt2p_request_free(ctx, std::exchange(requests[0], nullptr)));
		for (size_t left = 1 + (requests[0] != nullptr), completed = 0, indices[2]; left; left -= completed)
			OK(pt2p_waitsome(ctx, 2, requests, &completed, indices, nullptr));
		OK(pt2p_flush(ctx, other));
		OK(pt2p_get(ctx, in.data(), n * 8, r.remote, first, &requests[0]));
		OK(pt2p_wait(ctx, requests[0], nullptr));
		for (size_t i = 0; i < n; ++i)
			TRUE(in[i] == out[i]);
		uint64_t was = 0;
		OK(pt2p_compare_swap64(ctx, r.remote, first, out[0], 0, &was, &requests[0]));
		OK(pt2p_wait(ctx, requests[0], nullptr));
		TRUE(was == out[0]);
		if (number % 8 == 0)
			OK(pt2p_flush_all(ctx));
	}
}

// Receives that are cancelled while their message may be coming, and barriers. Rank 0 decides when it ends.
void withdraw(pt2p_context_t *ctx)
{
	const int other = 1 - pt2p_rank(ctx);
	bool last = false;
	for (uint64_t number = 1; !last; ++number) {
		uint64_t out[2] = {number, pt2p_rank(ctx) == 0 && stop.load()}, in[2] = {};
		pt2p_request_t *send, *receive;
		pt2p_status_t status = PT2P_ERR_CANCELLED;
		OK((number % 2 ? pt2p_issend : pt2p_isend)(ctx, out, sizeof out, other, 3000, &send));
		for (int tries = 0; status == PT2P_ERR_CANCELLED; ++tries) {
			OK(pt2p_irecv(ctx, in, sizeof in, tries % 2 ? other : PT2P_ANY_SOURCE, 3000, PT2P_TAG_EXACT, &receive));
			if (tries < 3)
				OK(pt2p_cancel(ctx, receive));
			status = pt2p_wait(ctx, receive, nullptr);
		}
		OK(status);
		OK(pt2p_wait(ctx, send, nullptr));
		TRUE(in[0] == number);
		last = out[1] || in[1];
		if (number % 2 == 0)
			OK(pt2p_barrier(ctx));
	}
}

// Threads of one rank call the other's services: one within progress, whose calls are replied to by another thread, and
// one with a lane that two threads serve. Some calls have deadlines that are too short, and some are cancelled. Some
// lend windows, whose bytes the server moves from one to the other.
struct Called {
	pt2p_service_t *inner = nullptr, *lane = nullptr;
	std::mutex mutex;
	std::vector<pt2p_call_t *> kept;
	std::atomic<uint64_t> served{0}, ended{0}, late{0}, cancelled{0};
	std::atomic<bool> closing{false};
};

void open_services(pt2p_context_t *ctx, Called &c)
{
	const auto keep = [](pt2p_context_t *, pt2p_call_t *call, const void *, size_t, void *argument) {
		auto &called = *static_cast<Called *>(argument);
		const std::lock_guard<std::mutex> guard(called.mutex);
		called.kept.push_back(call);
	};
	const auto answer = [](pt2p_context_t *context, pt2p_call_t *call, const void *input, size_t length,
	                       void *argument) {
		static_cast<Called *>(argument)->served++;
		pt2p_call_info_t info;
		if (pt2p_call_query(context, call, &info) != PT2P_OK)
			fail(context, __LINE__, "pt2p_call_query");
		std::vector<unsigned char> moved(info.give);
		pt2p_request_t *pull = nullptr;
		// The caller may have given up.
		pt2p_status_t status = PT2P_OK;
		if (info.give)
			status = pt2p_call_pull(context, call, moved.data(), 0, moved.size(), &pull);
		if (pull)
			status = pt2p_wait(context, pull, nullptr);
		void *room = nullptr; // for what moves until the reply has left
		if (info.give && status == PT2P_OK)
			status = pt2p_reply_room(context, call, moved.size(), &room);
		if (room) {
			std::copy(moved.begin(), moved.end(), static_cast<unsigned char *>(room));
			status = pt2p_call_push(context, call, room, 0, moved.size(), &pull);
			if (status == PT2P_OK)
				status = pt2p_wait(context, pull, nullptr);
		}
		if (status != PT2P_OK && status != PT2P_ERR_DEADLINE)
			fail(context, __LINE__, "pt2p_call_pull or _push");
		if (pt2p_reply(context, call, length, input, length) != PT2P_OK)
			fail(context, __LINE__, "pt2p_reply");
	};
	pt2p_service_options_t options = PT2P_SERVICE_OPTIONS_INIT;
	OK(pt2p_service_open(ctx, 1, keep, &c, nullptr, &c.inner));
	options.lanes = 1;
	OK(pt2p_service_open(ctx, 2, answer, &c, &options, &c.lane));
}

void serve(pt2p_context_t *ctx, Called &c)
{
	while (!c.closing.load()) {
		OK(pt2p_serve(ctx, c.lane, 0, 4, 1000000, nullptr));
		std::vector<pt2p_call_t *> kept;
		{
			const std::lock_guard<std::mutex> guard(c.mutex);
			kept.swap(c.kept);
		}
		for (pt2p_call_t *call : kept) {
			const void *input = nullptr;
			pt2p_call_info_t info;
			OK(pt2p_call_query(ctx, call, &info));
			OK(pt2p_call_keep(ctx, call, &input));
			OK(pt2p_reply(ctx, call, 8, input, 8));
			c.served++;
		}
	}
}

void call(pt2p_context_t *ctx, Called &c, int t)
{
	const int other = 1 - pt2p_rank(ctx);
	std::vector<unsigned char> given(30000), taken(given.size());
	for (uint64_t number = 0; !stop.load(); ++number) {
		uint64_t out[50], in[50] = {};
		for (size_t i = 0; i < 50; ++i)
			out[i] = word(static_cast<uint64_t>(t), number, i);
		const uint32_t service = 1 + number % 2;
		const size_t bytes = service == 1 ? 8 : number % 51 * 8;
		pt2p_call_options_t options = PT2P_CALL_OPTIONS_INIT;
		options.deadline = number % 7 ? 0 : 20000; // ns
		const bool lends = service == 2 && number % 3 == 0;
		if (lends) {
			std::fill(given.begin(), given.end(), static_cast<unsigned char>(number + static_cast<uint64_t>(t)));
			std::fill(taken.begin(), taken.end(), 0);
			options.give = {given.data(), given.size()};
			options.take = {taken.data(), taken.size()};
		}
		pt2p_request_t *req;
		OK(pt2p_icall(ctx, other, service, out, bytes, in, sizeof in, &options, &req));
		if (number % 5 == 0)
			OK(pt2p_cancel(ctx, req));
		pt2p_result_t result;
		const pt2p_status_t status = pt2p_wait(ctx, req, &result);
		++c.ended;
		if (status == PT2P_ERR_DEADLINE && options.deadline) {
			++c.late;
		} else if (status == PT2P_ERR_CANCELLED && number % 5 == 0) {
			++c.cancelled;
		} else {
			OK(status);
			TRUE(result.length == bytes && result.tag == bytes && !std::memcmp(in, out, bytes));
			TRUE(!lends || given == taken);
		}
	}
}

// Allocates memory on each rank, which the other one imports.
void share_memory(pt2p_context_t *const *contexts, Reached *reached)
{
	for (int i = 0; i < ranks; ++i) {
		pt2p_context_t *ctx = contexts[i];
		char bytes[PT2P_EXPORT_MAX];
		size_t needed = 0;
		OK(pt2p_memory_allocate(ctx, (1 + reachers * words_each) * 8, &reached[i].memory, &reached[i].words));
		OK(pt2p_memory_export(ctx, reached[i].memory, bytes, sizeof bytes, &needed));
		OK(pt2p_memory_import(contexts[1 - i], i, bytes, needed, &reached[1 - i].remote));
	}
}

void start_threads(std::vector<std::thread> &threads, pt2p_context_t *c, Reached &reached)
{
	threads.emplace_back(take_some, c, 0);
	for (int t = 0; t < threads_each; ++t)
		threads.emplace_back(exchange, c, t);
	threads.emplace_back(disturb, c);
	threads.emplace_back(feed, c);
	for (int t = 0; t < probers; ++t)
		threads.emplace_back(take, c, t);
	threads.emplace_back(withdraw, c);
	for (int t = 0; t < reachers; ++t)
		threads.emplace_back(reach, c, std::ref(reached), t);
}

// Checks the sum of what was added to each rank's memory.
void check_sums(pt2p_context_t *const *contexts, const Reached *reached)
{
	for (int i = 0; i < ranks; ++i) {
		pt2p_context_t *ctx = contexts[i];
		uint64_t sum = 0;
		pt2p_request_t *req;
		std::thread owner([&] { // it may have to execute the operation
			while (!stopped.load())
				OK(pt2p_progress(contexts[1 - i]));
		});
		OK(pt2p_fetch_add64(ctx, reached[i].remote, 0, 0, &sum, &req));
		OK(pt2p_wait(ctx, req, nullptr));
		stopped = true;
		owner.join();
		stopped = false;
		TRUE(sum == reached[i].added);
		TRUE(sum > 2);
	}
}

void run(const std::vector<const char *> &tunables, double seconds)
{
	printf("%s\n", tunables[0] ? tunables[0] : "defaults");
	fflush(stdout);
	stop = false;
	messages = shared_sent = shared_sum = taken = taken_sum = 0;
	pt2p_options_t options = PT2P_OPTIONS_INIT;
	options.thread_level = PT2P_THREAD_MULTIPLE;
	options.tunables = tunables.data();
	pt2p_context_t *ctx = nullptr, *contexts[ranks];
	OK(pt2p_init_inprocess(ranks, PT2P_INPROCESS_THREADS, &options, contexts));
	Reached reached[ranks];
	share_memory(contexts, reached);
	std::vector<std::thread> threads;
	Relay relays[ranks];
	for (int i = 0; i < ranks; ++i)
		relays[i].begin(contexts[i]);
	for (int i = 0; i < ranks; ++i)
		start_threads(threads, contexts[i], reached[i]);
	Called called[ranks];
	std::vector<std::thread> servers;
	for (int i = 0; i < ranks; ++i)
		open_services(contexts[i], called[i]);
	for (int i = 0; i < ranks; ++i)
		for (int t = 0; t < 2; ++t) {
			servers.emplace_back(serve, contexts[i], std::ref(called[i]));
			threads.emplace_back(call, contexts[i], std::ref(called[i]), t);
		}
	// Longer where the machine is slow: a run that has done little has tried little.
	const auto begin = std::chrono::steady_clock::now();
	for (double time = 0;
	     time < seconds ||
	     (time < 60 && !(messages > 20 && taken > 2 * probers && called[0].ended > 10 && called[1].ended > 10));
	     time = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count())
		std::this_thread::sleep_for(std::chrono::milliseconds(20));
	stop = true;
	for (std::thread &t : threads)
		t.join();
	for (Called &c : called)
		c.closing = true;
	for (std::thread &t : servers)
		t.join();
	for (int i = 0; i < ranks; ++i) {
		OK(pt2p_service_close(contexts[i], called[i].lane));
		const Called &c = called[i], &server = called[1 - i];
		TRUE(c.ended > 10);
		TRUE(server.served + c.late + c.cancelled >= c.ended && server.served <= c.ended); // at most once
	}
	for (Relay &r : relays) {
		while (!r.over.load())
			OK(pt2p_progress(r.ctx));
		TRUE(r.number > 10);
	}
	check_sums(contexts, reached);
	for (pt2p_context_t *c : contexts)
		OK(pt2p_finalize(c));
	printf("%llu messages, %llu taken by probes\n", static_cast<unsigned long long>(messages.load()),
	       static_cast<unsigned long long>(taken.load()));
	TRUE(messages > 20);
	TRUE(taken > 2 * probers);
	TRUE(taken == shared_sent); // each once, and none twice
	TRUE(taken_sum == shared_sum);
}

} // namespace

int main(int argc, char **argv)
{
	const double seconds = (argc > 1 ? atof(argv[1]) : 4) / 5;
	run({nullptr}, seconds);
	run({"PT2P_SHM_SINGLE_COPY=0", "PT2P_SHM_RING_SLOTS=8", "PT2P_SHM_RING_BYTES=4096", nullptr}, seconds);
	run({"PT2P_PROGRESS_THREAD=1", nullptr}, seconds);
	run({"PT2P_SPIN_TIME=0", "PT2P_YIELD_TIME=0", "PT2P_EAGER_MAX=0", nullptr}, seconds);
	// Each thread seems to have a core: one polls for all.
	setenv("HWLOC_SYNTHETIC", "core:64 pu:1", 1);
	run({nullptr}, seconds);
	return 0;
}
