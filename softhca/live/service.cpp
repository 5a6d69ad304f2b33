#include "softhca/live/service.hpp"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <pthread.h>
#include <sched.h>
#include <sys/prctl.h>

#include "softhca/exact/exact.hpp"
#include "softhca/nic/nic.hpp"
#include "softhca/process.hpp"

namespace softhca::live {

namespace {

using namespace std::chrono_literals;
using std::chrono::nanoseconds;

// Empty polls of this thread in a row.
thread_local unsigned idle __attribute__((tls_model("initial-exec"))) = 0;

// After work, more will soon come: for so long the thread yields and does not sleep.
constexpr Time linger = 50'000;
// A yield that takes so long shows contention for the processor, which is assumed to last for a while.
constexpr Time contention = 300'000, contention_lasts = 20'000'000;
// How long the thread sleeps: short after work, then growing.
constexpr nanoseconds min_pause = 20us, max_pause = 1ms, with_assistance = 1ms, without_work = 100ms;

} // namespace

void *Service::run(void *service)
{
	prctl(PR_SET_NAME, "softhca");
	prctl(PR_SET_TIMERSLACK, 1000); // the default would triple the shortest sleep
	static_cast<Service *>(service)->serve();
}

void Service::serve()
{
	nanoseconds pause = min_pause;
	uint64_t last = 0; // empty polls in the last round
	Time last_did = 0, contention_until = 0;
	for (;;) {
		const uint64_t before = empty_polls_.load(std::memory_order_relaxed);
		bool did, used;
		Time deadline, now;
		Wire *wire;
		{
			const std::lock_guard guard(nic_.mutex);
			did = nic_.scheduler().progress();
			used = nic_.used();
			deadline = nic_.next_deadline();
			now = nic_.now();
			wire = nic_.wire();
		}
		if (did) {
			pause = min_pause;
			last_did = now;
			continue;
		}
		const bool assisted = before != last && polling_;
		last = before;
		if (!assisted && now - last_did < linger && now >= contention_until) {
			sched_yield();
			// A thread that yields to one that never yields waits for the end of a time slice. One that sleeps runs at
			// once.
			if (const Time then = read_clock(); then - now > contention)
				contention_until = then + contention_lasts;
			continue;
		}
		nanoseconds limit = !used ? without_work : assisted ? with_assistance : exact::wanted() ? without_work : pause;
		if (deadline)
			limit = std::min(limit, nanoseconds(std::max<Time>(deadline > now ? deadline - now : 0, 20'000)));
		deaf_ = assisted;
		wire->sleep(limit, !assisted);
		deaf_ = false;
		pause = std::min(pause * 5 / 4, max_pause);
	}
}

bool Service::help()
{
	if (!nic_.mutex.try_lock())
		return false;
	const bool did = nic_.scheduler().progress();
	nic_.mutex.unlock();
	return did;
}

void Service::found() { idle = 0; }

bool Service::polled_in_vain()
{
	// Long enough for a quick answer, short enough for threads that wait for this processor.
	constexpr unsigned patience = 4;
	empty_polls_.store(empty_polls_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
	if (help()) {
		idle = 0;
		return true;
	}
	if (++idle >= patience) {
		polling_.store(true, std::memory_order_relaxed);
		sched_yield();
	}
	return false;
}

void Service::going_to_sleep()
{
	help();
	// It polls once more before it sleeps: that does not count as polling.
	idle = 0;
	polling_ = false;
	if (deaf_.exchange(false))
		nic_.wire()->wake();
}

void Service::start()
{
	if (started_)
		return;
	follow_forks();
	// Signals are for the program's threads.
	sigset_t all, old;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	pthread_t thread;
	const int error = pthread_create(&thread, nullptr, run, this);
	pthread_sigmask(SIG_SETMASK, &old, nullptr);
	if (error) {
		std::fprintf(stderr, "softhca: no thread, the device moves only while completion queues are polled: %s\n",
		             std::strerror(error));
		return;
	}
	pthread_detach(thread);
	started_ = true;
}

} // namespace softhca::live
