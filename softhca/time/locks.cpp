// Locks of threads that are fibres. Who waits gets the lock in the order of arrival. A spin lock that several fibres
// use takes time: its cache line moves to who takes it, and to each that still waits, as all of these look at it again
// (Anderson, The Performance of Spin Lock Alternatives, 1990); threads of one processor share its caches. Such a lock
// is taken and released in the order of time: fibres that are behind go on first.
#undef _FORTIFY_SOURCE
#include <algorithm>
#include <cerrno>
#include <deque>
#include <dlfcn.h>
#include <pthread.h>
#include <unordered_map>

#include "softhca/time/fibres.hpp"

using namespace softhca::time;

namespace {

constexpr uint64_t longest_wait = UINT64_C(1'000'000'000) * ps_per_ns; // to wake up for nothing is allowed

struct Waiter {
	int fibre = number(*running());
	bool has_it = false;
};
struct Queue {
	std::deque<Waiter *> waiting;
	int last = 0; // who has or had a spin lock
	bool held = false;
	unsigned in_a_row = 0; // times that it was that one
};
using Queues = std::unordered_map<const volatile void *, Queue>;
Queues &mutexes()
{
	static Queues &queues = *new Queues; // only of those that somebody waits for
	return queues;
}
Queues &spin_locks()
{
	static Queues &queues = *new Queues; // of those that several fibres have used
	return queues;
}
uint64_t line = 0;            // until a cache line has moved from one processor to another, ps
uint64_t caches = UINT64_MAX; // of the host's processors

void wait_in(Queue &queue)
{
	Waiter self;
	queue.waiting.push_back(&self);
	while (!self.has_it)
		softhca_time_wait(&self, longest_wait);
}

// The first that waits has it from now on.
void hand_over(Queue &queue, uint64_t moves)
{
	Waiter &next = *queue.waiting.front();
	queue.waiting.pop_front();
	queue.last = next.fibre;
	queue.in_a_row = 0;
	next.has_it = true;
	softhca_time_wake(&next, moves * (1 + std::min(uint64_t{queue.waiting.size()}, caches)));
}

// A spin lock that one fibre alone uses needs no queue: the number of that fibre, and whether it has the lock. One that
// several have used is a fibre's alone again when it was the last so many times. The first change of fibres counts for
// nothing, as programs make queues in one thread and use them in another.
constexpr unsigned alone_again = 64;
constexpr int held = 1 << 30, shared = 1 << 29, moved = 1 << 28, owner = moved - 1;

// Null: it is this fibre's alone.
Queue *queue_of(pthread_spinlock_t *lock)
{
	const int user = *lock & owner;
	if (!(*lock & shared)) {
		if (!user || user == number(*running()))
			return nullptr;
		if (!(*lock & held) && (!(*lock & moved) || has_ended(user))) {
			*lock = moved;
			return nullptr;
		}
		Queue &queue = spin_locks()[lock];
		queue.held = *lock & held;
		queue.last = user;
		*lock = *lock | shared;
		return &queue;
	}
	return &spin_locks()[lock];
}

void take(Queue &queue)
{
	const int self = number(*running());
	if (queue.last != self)
		softhca_time_charge(line);
	queue.in_a_row = queue.last == self ? queue.in_a_row + 1 : 0;
	queue.held = true;
	queue.last = self;
}

} // namespace

void softhca_time_locks(uint64_t picoseconds, uint64_t processors)
{
	line = picoseconds;
	caches = processors;
}

uint64_t softhca::time::lock_line() { return line; }

void softhca::time::let_others_catch_up()
{
	if (line)
		softhca_time_sync();
}

extern "C" {

int pthread_mutex_lock(pthread_mutex_t *mutex) noexcept
{
	const int error = pthread_mutex_trylock(mutex);
	if (error != EBUSY)
		return error;
	wait_in(mutexes()[mutex]); // who has it is a fibre that waits for something else
	return 0;
}

int pthread_mutex_unlock(pthread_mutex_t *mutex) noexcept
{
	static auto *const real =
	    reinterpret_cast<decltype(::pthread_mutex_unlock) *>(dlsym(RTLD_NEXT, "pthread_mutex_unlock"));
	const auto found = mutexes().find(mutex);
	if (found == mutexes().end())
		return real(mutex);
	hand_over(found->second, 0);
	if (found->second.waiting.empty())
		mutexes().erase(found);
	return 0;
}

int pthread_spin_init(pthread_spinlock_t *lock, int) noexcept
{
	spin_locks().erase(lock);
	*lock = 0;
	return 0;
}

int pthread_spin_destroy(pthread_spinlock_t *lock) noexcept { return pthread_spin_init(lock, 0); }

int pthread_spin_lock(pthread_spinlock_t *lock) noexcept
{
	Queue *const queue = queue_of(lock);
	if (!queue) {
		*lock = number(*running()) | held | (*lock & moved);
		return 0;
	}
	let_others_catch_up();
	if (queue->held)
		wait_in(*queue);
	else
		take(*queue);
	return 0;
}

int pthread_spin_trylock(pthread_spinlock_t *lock) noexcept
{
	Queue *const queue = queue_of(lock);
	if (queue) {
		let_others_catch_up();
		if (queue->held)
			return EBUSY;
		take(*queue);
		return 0;
	}
	if (*lock & held)
		return EBUSY;
	*lock = number(*running()) | held | (*lock & moved);
	return 0;
}

int pthread_spin_unlock(pthread_spinlock_t *lock) noexcept
{
	if (!(*lock & shared)) {
		*lock = *lock & (owner | moved);
		return 0;
	}
	let_others_catch_up();
	Queue &queue = spin_locks()[lock];
	if (!queue.waiting.empty()) {
		hand_over(queue, line);
	} else if (queue.in_a_row < alone_again) {
		queue.held = false;
	} else {
		*lock = queue.last | moved;
		spin_locks().erase(lock);
	}
	return 0;
}

} // extern "C"
