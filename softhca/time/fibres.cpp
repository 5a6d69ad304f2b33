#include "softhca/time/fibres.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cxxabi.h>
#include <queue>
#include <sys/mman.h>
#include <sys/time.h>
#include <ucontext.h>
#include <unistd.h>
#include <unordered_map>
#include <utility>
#include <vector>

namespace softhca::time {

struct Fibre {
	ucontext_t context;
	void *stack = nullptr; // null: the program's own
	void *(*start)(void *) = nullptr;
	void *argument = nullptr, *result = nullptr;
	const void *waits_for = nullptr;
	uint64_t ticket = 0; // of the event that lets it go on; others are stale
	bool ended = false, released = false;
	// What belongs to a thread.
	int error = 0;
	unsigned char exceptions[2 * sizeof(void *)] = {};
};

namespace {

constexpr size_t stack_bytes = 1 << 20, guard_bytes = 4096;

struct Event {
	uint64_t time, order;
	void (*call)(void *object, uint64_t argument);
	void *object;
	uint64_t argument;

	bool operator<(const Event &other) const { return time != other.time ? time > other.time : order > other.order; }
};

struct World {
	uint64_t now = beginning, orders = 0, tickets = 0;
	std::priority_queue<Event> events;
	std::unordered_map<const void *, std::vector<Fibre *>> waiting;
	Fibre first;
	Fibre *current = &first, *last = nullptr; // last: who ran before, and has ended
};
World &world()
{
	static World &w = *new World;
	return w;
}

// Stands for "let the fibre go on"; run() knows it.
void go_on(void *, uint64_t) {}

void let_go_on(Fibre &fibre, uint64_t time)
{
	fibre.ticket = ++world().tickets;
	softhca_time_at(time, go_on, &fibre, fibre.ticket);
}

void free_last()
{
	World &w = world();
	if (Fibre *fibre = std::exchange(w.last, nullptr)) {
		munmap(fibre->stack, stack_bytes);
		fibre->stack = nullptr;
		if (fibre->released)
			delete fibre;
	}
}

void change_to(Fibre &next)
{
	World &w = world();
	Fibre &self = *w.current;
	self.error = errno;
	std::memcpy(self.exceptions, abi::__cxa_get_globals(), sizeof self.exceptions);
	w.current = &next;
	std::memcpy(abi::__cxa_get_globals(), next.exceptions, sizeof next.exceptions);
	swapcontext(&self.context, &next.context);
	errno = self.error;
	free_last();
}

// Everything in its turn, until the running fibre has its own.
void run()
{
	World &w = world();
	for (;;) {
		if (w.events.empty()) {
			std::fprintf(stderr, "softhca: every thread waits for another: nothing can happen any more\n");
			std::abort();
		}
		const Event event = w.events.top();
		w.events.pop();
		if (event.call != go_on) {
			w.now = event.time;
			event.call(event.object, event.argument);
			continue;
		}
		Fibre &fibre = *static_cast<Fibre *>(event.object);
		if (fibre.ticket != event.argument)
			continue;
		w.now = event.time;
		if (&fibre != w.current)
			change_to(fibre);
		return;
	}
}

// A thread that computes, or waits for memory to change without any call, holds up everything: that is told, once.
void watch(int)
{
	static uint64_t last;
	static bool told;
	static constexpr char text[] =
	    "softhca: a thread has been running for 5 s without a call in which time passes (a poll of a "
	    "completion queue, a yield, a sleep, a lock): nothing else happens meanwhile\n";
	const uint64_t orders = world().orders;
	if (orders == std::exchange(last, orders) && !std::exchange(told, true)) [[maybe_unused]]
		const ssize_t n = write(STDERR_FILENO, text, sizeof text - 1);
}

void begin_to_watch()
{
	struct sigaction action = {};
	action.sa_handler = watch;
	action.sa_flags = SA_RESTART;
	sigaction(SIGVTALRM, &action, nullptr); // goes by the processor's time
	const itimerval every = {{5, 0}, {5, 0}};
	setitimer(ITIMER_VIRTUAL, &every, nullptr);
}

void begin()
{
	free_last();
	Fibre &self = *world().current;
	end(self.start(self.argument));
}

void forget(const void *place, Fibre *fibre)
{
	auto &all = world().waiting;
	const auto found = all.find(place);
	if (found == all.end())
		return;
	std::erase(found->second, fibre);
	if (found->second.empty())
		all.erase(found);
}

} // namespace

Fibre *make(void *(*start)(void *), void *argument)
{
	static const bool watched = (begin_to_watch(), true);
	static_cast<void>(watched);
	void *stack =
	    mmap(nullptr, stack_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
	if (stack == MAP_FAILED)
		return nullptr;
	mprotect(stack, guard_bytes, PROT_NONE);
	Fibre *fibre = new Fibre;
	fibre->stack = stack;
	fibre->start = start;
	fibre->argument = argument;
	getcontext(&fibre->context);
	fibre->context.uc_stack = {stack, 0, stack_bytes};
	fibre->context.uc_link = nullptr;
	makecontext(&fibre->context, begin, 0);
	let_go_on(*fibre, world().now);
	return fibre;
}

Fibre *running() { return world().current; }

void end(void *result)
{
	World &w = world();
	Fibre &self = *w.current;
	self.result = result;
	self.ended = true;
	softhca_time_wake(&self, 0);
	w.last = &self;
	run();
	std::abort(); // it never gets its turn again
}

bool ended(const Fibre &fibre) { return fibre.ended; }

void *release(Fibre &fibre)
{
	fibre.released = true;
	if (!fibre.ended || fibre.stack)
		return fibre.result; // freed when another runs
	void *result = fibre.result;
	delete &fibre;
	return result;
}

void sleep_until(uint64_t time)
{
	let_go_on(*running(), std::max(time, world().now));
	run();
}

void look_again(unsigned &times)
{
	constexpr uint64_t first = 100 * ps_per_ns, longest = 20'000 * ps_per_ns;
	sleep_until(world().now + std::min(first << std::min(times++, 16u), longest));
}

} // namespace softhca::time

using namespace softhca::time;

uint64_t softhca_time_now() { return world().now; }

void softhca_time_charge(uint64_t picoseconds) { world().now += picoseconds; }

void softhca_time_at(uint64_t time, void (*call)(void *, uint64_t), void *object, uint64_t argument)
{
	World &w = world();
	w.events.push({std::max(time, w.now), ++w.orders, call, object, argument});
}

void softhca_time_sync() { sleep_until(world().now); }

void softhca_time_wait(const void *place, uint64_t most)
{
	World &w = world();
	Fibre &self = *w.current;
	self.waits_for = place;
	w.waiting[place].push_back(&self);
	sleep_until(w.now + most);
	if (self.waits_for)
		forget(place, &self);
	self.waits_for = nullptr;
}

void softhca_time_wake(const void *place, uint64_t later)
{
	World &w = world();
	const auto found = w.waiting.find(place);
	if (found == w.waiting.end())
		return;
	const std::vector<Fibre *> fibres = std::move(found->second);
	w.waiting.erase(found);
	for (Fibre *fibre : fibres) {
		fibre->waits_for = nullptr;
		let_go_on(*fibre, w.now + later);
	}
}
