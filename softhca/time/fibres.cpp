#include "softhca/time/fibres.hpp"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cxxabi.h>
#include <initializer_list>
#include <queue>
#include <sys/mman.h>
#include <sys/time.h>
#include <unistd.h>
#include <unordered_map>
#include <utility>
#include <vector>

#include "softhca/time/continuation.hpp"
#include "softhca/time/turns.hpp"

namespace softhca::time {

namespace {

// Memory that fibres share.
struct Memory {
	uint64_t stores = 0;  // stretches of fibres that have stored there
	uint64_t visible = 0; // when the others see the last of these
};

} // namespace

struct Fibre : Turn { // it goes on at that time
	Continuation continuation;
	void *stack = nullptr; // null: the program's own
	void *(*start)(void *) = nullptr;
	void *argument = nullptr, *result = nullptr;
	Memory *memory = nullptr; // that it shares with others; null: none
	uint64_t later = 0;       // they see what it has stored
	uint64_t seen = 0;        // stores there, when it has polled last
	bool woken = false;       // since it has begun to wait
	bool polls = false;       // it waits for what a poll would find
	bool ended = false, released = false;
	int number = 1;
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

	template <class Other>
	bool is_after(const Other &other) const
	{
		return time != other.time ? time > other.time : order > other.order;
	}
	bool operator<(const Event &other) const { return is_after(other); } // the first is at the top
};

struct World {
	uint64_t now = beginning, orders = 0;
	std::priority_queue<Event> events;
	Turns<Fibre> fibres;
	std::unordered_map<const void *, std::vector<Fibre *>> waiting;
	std::unordered_map<const void *, Memory> memories; // by name
	Fibre first;
	Fibre *current = &first, *last = nullptr; // last: who ran before, and has ended
	std::vector<bool> ended = {true, false};  // by number
	void (*shown)() = nullptr;                // the running fibre has stored into memory that it shares
};
World &world()
{
	static World &w = *new World;
	return w;
}

void let_go_on(Fibre &fibre, uint64_t time)
{
	World &w = world();
	w.fibres.put(fibre, std::max(time, w.now), ++w.orders);
}

void free_if_done(Fibre *fibre)
{
	if (fibre->ended && fibre->released && !fibre->stack)
		delete fibre;
}

void free_last()
{
	World &w = world();
	if (Fibre *fibre = std::exchange(w.last, nullptr)) {
		munmap(fibre->stack, stack_bytes);
		fibre->stack = nullptr;
		free_if_done(fibre);
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
	self.continuation.change_to(next.continuation);
	errno = self.error;
	free_last();
}

// Everything in its turn, until the running fibre has its own.
void run()
{
	World &w = world();
	for (;;) {
		Fibre *const fibre = w.fibres.first();
		if (w.events.empty() && !fibre) {
			std::fprintf(stderr, "softhca: every thread waits for another: nothing can happen any more\n");
			std::abort();
		}
		if (fibre && (w.events.empty() || w.events.top().is_after(*fibre))) {
			w.fibres.take_first();
			w.now = fibre->time;
			if (fibre != w.current)
				change_to(*fibre);
			return;
		}
		const Event event = w.events.top();
		w.events.pop();
		w.now = event.time;
		event.call(event.object, event.argument);
	}
}

// A thread that computes, or waits for memory to change without any call, stops everything: a message says so, once.
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

// Something has happened to `place`. A fibre that is woken for the first time goes on at `time`, even if it would have
// gone on earlier by itself. In all other cases it goes on at `time` only if that is earlier. Returns how many were
// woken, at most so many.
unsigned tell(const void *place, uint64_t time, bool wakes, unsigned most = UINT_MAX)
{
	unsigned n = 0;
	const auto found = world().waiting.find(place);
	if (found == world().waiting.end())
		return n;
	for (Fibre *fibre : found->second) {
		if (n == most)
			break;
		const bool first = wakes && !std::exchange(fibre->woken, true);
		n += first;
		if (first || time < fibre->time)
			let_go_on(*fibre, time);
	}
	return n;
}

// The fibre yields: its stores are news for those that poll the same memory.
void show(Fibre &fibre)
{
	World &w = world();
	void (*const shown)() = std::exchange(w.shown, nullptr);
	if (!shown)
		return;
	shown();
	Memory *const memory = fibre.memory;
	if (!memory)
		return;
	fibre.seen += fibre.seen == memory->stores;
	++memory->stores;
	memory->visible = std::max(memory->visible, w.now + fibre.later);
	tell(memory, w.now + fibre.later, false);
}

void wait_for(std::initializer_list<const void *> places, uint64_t most)
{
	World &w = world();
	Fibre &self = *w.current;
	show(self);
	for (const void *place : places)
		w.waiting[place].push_back(&self);
	self.woken = false;
	let_go_on(self, w.now + most);
	run();
	for (const void *place : places) {
		const auto found = w.waiting.find(place);
		std::erase(found->second, &self);
		if (found->second.empty())
			w.waiting.erase(found);
	}
}

} // namespace

Fibre *make(void *(*start)(void *), void *argument)
{
	static const bool watched = (begin_to_watch(), true);
	static_cast<void>(watched);
	void *stack = mmap(nullptr, stack_bytes, PROT_READ | PROT_WRITE,
	                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
	if (stack == MAP_FAILED)
		return nullptr;
	mprotect(stack, guard_bytes, PROT_NONE);
	Fibre *fibre = new Fibre;
	fibre->stack = stack;
	fibre->start = start;
	fibre->argument = argument;
	fibre->number = static_cast<int>(world().ended.size());
	world().ended.push_back(false);
	fibre->continuation.begin(stack, stack_bytes, begin);
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
	w.ended[static_cast<size_t>(self.number)] = true;
	softhca_time_wake(&self, 0);
	show(self);
	w.last = &self;
	run();
	std::abort(); // it never gets its turn again
}

bool ended(const Fibre &fibre) { return fibre.ended; }

int number(const Fibre &fibre) { return fibre.number; }

bool has_ended(int number) { return world().ended[static_cast<size_t>(number)]; }

void *release(Fibre &fibre)
{
	fibre.released = true;
	void *result = fibre.result;
	free_if_done(&fibre);
	return result;
}

void sleep_until(uint64_t time)
{
	show(*running());
	let_go_on(*running(), std::max(time, world().now));
	run();
}

void end_poll(Fibre &fibre)
{
	if (fibre.polls && fibre.time > world().now)
		let_go_on(fibre, world().now);
}

unsigned wake(const void *place, uint64_t later, unsigned most) { return tell(place, world().now + later, true, most); }

void look_again(unsigned &times)
{
	constexpr uint64_t first = 100 * ps_per_ns, longest = 20'000 * ps_per_ns;
	sleep_until(world().now + std::min(first << std::min(times++, 16u), longest));
}

} // namespace softhca::time

using namespace softhca::time;

uint64_t softhca_time_now() { return world().now; }

int softhca_time_thread() { return number(*running()); }

void softhca_time_charge(uint64_t picoseconds) { world().now += picoseconds; }

void softhca_time_at(uint64_t time, void (*call)(void *, uint64_t), void *object, uint64_t argument)
{
	World &w = world();
	w.events.push({std::max(time, w.now), ++w.orders, call, object, argument});
}

void softhca_time_sync() { sleep_until(world().now); }

void softhca_time_wait(const void *place, uint64_t most) { wait_for({place}, most); }

void softhca_time_share(const void *memory, uint64_t later)
{
	Fibre &self = *running();
	self.memory = memory ? &world().memories.try_emplace(memory).first->second : nullptr;
	self.later = later;
}

void softhca_time_stored(void (*shown)()) { world().shown = shown; }

void softhca_time_poll(const void *place, uint64_t most)
{
	Fibre &self = *running();
	struct Polls {
		explicit Polls(Fibre &fibre) : fibre(fibre) { fibre.polls = true; }
		~Polls() { fibre.polls = false; }
		Fibre &fibre;
	};
	const Polls polls(self);
	if (!self.memory)
		return wait_for({place}, most);
	show(self);
	// It may have found something there since its last poll, and have more to do than to wait.
	if (std::exchange(self.seen, self.memory->stores) == self.memory->stores)
		return wait_for({place, self.memory}, most);
	// A store that another makes at the same time is not to be seen too early either. There may be one after the other,
	// hence the bound.
	for (int twice = 2; twice && self.memory->visible > world().now; --twice)
		sleep_until(self.memory->visible);
}

void softhca_time_compute(uint64_t picoseconds)
{
	if (running()->memory)
		sleep_until(world().now + picoseconds);
	else
		softhca_time_charge(picoseconds);
}

void softhca_time_wake(const void *place, uint64_t later) { tell(place, world().now + later, true); }
