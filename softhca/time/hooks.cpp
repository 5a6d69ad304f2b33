// The functions of libc that take time, tell the time, or make threads.
#undef _FORTIFY_SOURCE
#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdarg>
#include <ctime>
#include <dlfcn.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include "softhca/time/fibres.hpp"

using namespace softhca::time;

namespace {

template <class F>
F *next(const char *name)
{
	return reinterpret_cast<F *>(dlsym(RTLD_NEXT, name));
}
#define REAL(name)                                                                                                     \
	([] {                                                                                                              \
		static auto *const f = next<decltype(::name)>(#name);                                                          \
		return f;                                                                                                      \
	}())

// What reading the clock, and a call that yields, cost the processor.
constexpr uint64_t look_at_clock = 20 * ps_per_ns, give_way = 200 * ps_per_ns;
// A thread that does nothing but look at the clock spins between its looks.
constexpr uint64_t spin = 200 * ps_per_ns;
// What waking a thread that sleeps costs who wakes it, and until that one runs. Assumed.
constexpr uint64_t wake_other = 500 * ps_per_ns, wake_up = 2000 * ps_per_ns;

constexpr uint64_t ns_per_s = 1'000'000'000;
constexpr uint64_t day_of_beginning = UINT64_C(1'700'000'000) * ns_per_s; // what the calendar says, less the clock

uint64_t in_ps(const timespec &t)
{
	return (static_cast<uint64_t>(t.tv_sec) * ns_per_s + static_cast<uint64_t>(t.tv_nsec)) * ps_per_ns;
}
bool is_calendar(clockid_t clock)
{
	return clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE || clock == CLOCK_TAI;
}
uint64_t in_ps(clockid_t clock, const timespec &t)
{
	const uint64_t time = in_ps(t), less = is_calendar(clock) ? day_of_beginning * ps_per_ns : 0;
	return time > less ? time - less : 0;
}
timespec as_timespec(uint64_t ns) { return {static_cast<time_t>(ns / ns_per_s), static_cast<long>(ns % ns_per_s)}; }

// Releases the lock until somebody signals.
int wait_for(pthread_cond_t *condition, pthread_mutex_t *mutex, uint64_t until)
{
	constexpr uint64_t longest = ns_per_s * ps_per_ns; // to wake up for nothing is allowed
	pthread_mutex_unlock(mutex);
	const uint64_t now = softhca_time_now();
	softhca_time_wait(condition, std::min(until > now ? until - now : 0, longest));
	pthread_mutex_lock(mutex);
	return softhca_time_now() >= until ? ETIMEDOUT : 0;
}

// Polls until there is something, or the time is over; returns what look() has returned last.
template <class Look>
int look_until(int milliseconds, const Look &look)
{
	const uint64_t until = milliseconds < 0
	                           ? UINT64_MAX
	                           : softhca_time_now() + static_cast<uint64_t>(milliseconds) * 1'000'000 * ps_per_ns;
	unsigned times = 0;
	for (;;) {
		const int n = look();
		if (n || softhca_time_now() >= until)
			return n;
		look_again(times);
	}
}

} // namespace

extern "C" {

int clock_gettime(clockid_t clock, timespec *t) noexcept
{
	static uint64_t last; // time after a look
	static unsigned in_a_row;
	in_a_row = softhca_time_now() == last ? in_a_row + 1 : 0;
	softhca_time_charge(look_at_clock);
	if (in_a_row > 1) {
		softhca_time_charge(spin);
		softhca_time_sync();
	}
	last = softhca_time_now();
	*t = as_timespec(softhca_time_now() / ps_per_ns + (is_calendar(clock) ? day_of_beginning : 0));
	return 0;
}

int gettimeofday(timeval *t, void *) noexcept
{
	timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	*t = {now.tv_sec, now.tv_nsec / 1000};
	return 0;
}

time_t time(time_t *t) noexcept
{
	timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	if (t)
		*t = now.tv_sec;
	return now.tv_sec;
}

int sched_yield() noexcept
{
	softhca_time_charge(give_way);
	softhca_time_sync();
	return 0;
}

int nanosleep(const timespec *t, timespec *)
{
	sleep_until(softhca_time_now() + in_ps(*t));
	return 0;
}

int clock_nanosleep(clockid_t clock, int flags, const timespec *t, timespec *)
{
	sleep_until(flags & TIMER_ABSTIME ? in_ps(clock, *t) : softhca_time_now() + in_ps(*t));
	return 0;
}

int usleep(useconds_t us)
{
	sleep_until(softhca_time_now() + uint64_t{us} * 1000 * ps_per_ns);
	return 0;
}

unsigned sleep(unsigned s)
{
	sleep_until(softhca_time_now() + uint64_t{s} * ns_per_s * ps_per_ns);
	return 0;
}

int pthread_create(pthread_t *thread, const pthread_attr_t *, void *(*start)(void *), void *argument) noexcept
{
	Fibre *fibre = make(start, argument);
	if (!fibre)
		return EAGAIN;
	*thread = reinterpret_cast<pthread_t>(fibre);
	return 0;
}

int pthread_join(pthread_t thread, void **result)
{
	auto &fibre = *reinterpret_cast<Fibre *>(thread);
	while (!ended(fibre))
		softhca_time_wait(&fibre, ns_per_s * ps_per_ns);
	void *value = release(fibre);
	if (result)
		*result = value;
	return 0;
}

int pthread_detach(pthread_t thread) noexcept
{
	release(*reinterpret_cast<Fibre *>(thread));
	return 0;
}

void pthread_exit(void *result) { end(result); }

pthread_t pthread_self() noexcept
{
	// The first fibre is the thread in which all run.
	return number(*running()) == 1 ? REAL(pthread_self)() : reinterpret_cast<pthread_t>(running());
}

// Names and places of threads: a fibre has none.
int pthread_setname_np(pthread_t, const char *) noexcept { return 0; }
int pthread_setaffinity_np(pthread_t, size_t, const cpu_set_t *) noexcept { return 0; }

int pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *mutex)
{
	wait_for(condition, mutex, UINT64_MAX);
	return 0;
}

int pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *mutex, const timespec *until)
{
	// Which clock is an attribute of the condition: a time before the calendar's beginning is one of the other clock.
	const uint64_t time = in_ps(*until), calendar = day_of_beginning * ps_per_ns;
	return wait_for(condition, mutex, time >= calendar ? time - calendar : time);
}

int pthread_cond_clockwait(pthread_cond_t *condition, pthread_mutex_t *mutex, clockid_t clock, const timespec *until)
{
	return wait_for(condition, mutex, in_ps(clock, *until));
}

int pthread_cond_signal(pthread_cond_t *condition) noexcept
{
	softhca_time_wake(condition, 0);
	return 0;
}

int pthread_cond_broadcast(pthread_cond_t *condition) noexcept { return pthread_cond_signal(condition); }

int poll(pollfd *files, nfds_t count, int milliseconds)
{
	return look_until(milliseconds, [&] { return REAL(poll)(files, count, 0); });
}

int epoll_wait(int set, epoll_event *events, int most, int milliseconds)
{
	return look_until(milliseconds, [&] { return REAL(epoll_wait)(set, events, most, 0); });
}

long syscall(long number, ...) noexcept
{
	va_list list;
	va_start(list, number);
	long a[6];
	for (long &argument : a)
		argument = va_arg(list, long);
	va_end(list);
	if (number == SYS_futex) {
		const int operation = static_cast<int>(a[1]) & FUTEX_CMD_MASK;
		if (operation == FUTEX_WAKE) {
			const unsigned woken =
			    wake(reinterpret_cast<const void *>(a[0]), wake_up, static_cast<unsigned>(std::max(a[2], 0L)));
			if (woken)
				softhca_time_charge(wake_other);
			return woken;
		}
		if (operation == FUTEX_WAIT || operation == FUTEX_WAIT_BITSET) {
			auto *word = reinterpret_cast<uint32_t *>(a[0]);
			if (__atomic_load_n(word, __ATOMIC_SEQ_CST) != static_cast<uint32_t>(a[2])) {
				errno = EAGAIN;
				return -1;
			}
			const auto *t = reinterpret_cast<const timespec *>(a[3]);
			const uint64_t now = softhca_time_now();
			const uint64_t most = !t                        ? UINT64_C(1) << 40
			                      : operation == FUTEX_WAIT ? in_ps(*t)
			                                                : std::max(in_ps(*t), now) - now;
			softhca_time_wait(word, most);
			if (!t || softhca_time_now() < now + most)
				return 0;
			errno = ETIMEDOUT;
			return -1;
		}
	}
	return REAL(syscall)(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

} // extern "C"
