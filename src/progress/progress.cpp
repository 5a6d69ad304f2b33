#include "progress/progress.hpp"

#include <cerrno>
#include <climits>
#include <csignal>
#include <ctime>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <utility>

#include "base/config/config.hpp"
#include "base/job/job.hpp"
#include "base/report/report.hpp"

namespace pt2p {

namespace {

constexpr int64_t nap = 20000000;          // longest sleep, ns: bounds the time until a lost peer is noticed
constexpr int64_t short_nap = 500000;      // the same, for memory that peers change without waking anybody
constexpr int64_t check_period = 10000000; // ns
// Turns before a sleep. Where ranks share processors, one yield can take longer than PT2P_YIELD_TIME. What the others
// have sent meanwhile, and what a device does next, shows within these turns.
constexpr uint32_t min_turns = 16;

// State outside contexts, because a signal handler has no access to any.
std::atomic<uint32_t> dump_requests{0};

void request_dump(int) { dump_requests.fetch_add(1, std::memory_order_relaxed); }

} // namespace

Progress::Progress(const Config &config, Reporter &reporter, Job &job, ProgressClient &client, Settings settings)
    : config_(config), reporter_(reporter), job_(job), client_(client), settings_(settings),
      spin_(!settings.oversubscribed && !job.step()), careful_(settings.locking),
      word_(reinterpret_cast<uint32_t *>(&own_word_))
{
	dumps_seen_ = dump_requests.load(std::memory_order_relaxed);
	if (config.dump_signal) {
		struct sigaction action {};
		action.sa_handler = request_dump;
		action.sa_flags = SA_RESTART;
		if (sigaction(static_cast<int>(config.dump_signal), &action, nullptr) != 0)
			throw Error(PT2P_ERR_TUNABLE,
			            format("PT2P_DUMP_SIGNAL=%d: that signal cannot be caught: %s; PT2P_DUMP_SIGNAL=10 "
			                   "(SIGUSR1) would do",
			                   static_cast<int>(config.dump_signal), errno_text(errno).c_str()));
	}
}

Progress::~Progress() { stop_thread(); }

void Progress::add(Transport &transport)
{
	transports_.push_back(&transport);
	if (transport.table().progress)
		polled_.push_back({transport.table().progress, &transport});
	if (uint32_t *word = transport.wake_word())
		word_ = word;
}

void Progress::lock_when_free()
{
	wanting_.fetch_add(1, std::memory_order_relaxed);
	lock_.lock();
	wanting_.fetch_sub(1, std::memory_order_relaxed);
}

void Progress::start_thread()
{
	if (!settings_.thread || job_.step())
		return;
	thread_ = std::thread([this] {
		Guard guard(*this);
		while (!stopping_) {
			// A waiting thread does the work itself.
			if (waiters_) {
				unlock();
				timespec pause{0, 500000};
				nanosleep(&pause, nullptr);
				lock();
				continue;
			}
			Backoff backoff;
			backoff.spinning = false;
			backoff.may_stall = false;
			while (!stopping_ && !waiters_) {
				in_thread_ = true;
				if (step())
					backoff.idle_since = 0;
				in_thread_ = false;
				// A lock goes to who comes first, and this thread would come first again and again.
				if (wanting_.load(std::memory_order_relaxed))
					give_way();
				else
					idle_slowly(backoff);
			}
		}
	});
}

// Lets a call of the program have the lock. Not for ever: one call may follow another, and peers wait for this thread.
void Progress::give_way()
{
	constexpr unsigned longest = 100;
	unlock();
	for (unsigned i = 0; i < longest && wanting_.load(std::memory_order_relaxed); ++i)
		sched_yield();
	lock();
}

void Progress::stop_thread()
{
	if (!thread_.joinable())
		return;
	{
		Guard guard(*this);
		stopping_ = true;
		wake_sleepers();
	}
	thread_.join();
}

void Progress::wake_sleepers()
{
	__atomic_fetch_add(word_, 1, __ATOMIC_SEQ_CST);
	syscall(SYS_futex, word_, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void Progress::yield()
{
	unlock();
	sched_yield();
	lock();
}

// False: the process lacks resources for that now. A waiting call goes on all the same, because what it has started
// uses the program's buffers.
bool Progress::watch_descriptor(int fd)
{
	if (!waker_) {
		std::string why_not;
		waker_ = Waker::make(fd, word_, why_not);
		if (!waker_) {
			if (!std::exchange(missed_waker_, true))
				reporter_.log(LogLevel::info,
				              "nothing wakes a call that sleeps when a device has news, so it looks every %lld us: %s",
				              static_cast<long long>(short_nap / 1000), why_not.c_str());
			return false;
		}
	}
	waker_->watch();
	return true;
}

bool Progress::sleep()
{
	const uint32_t seen = __atomic_load_n(word_, __ATOMIC_SEQ_CST);
	// In reverse order: shared memory has the most to do before it can sleep, and need not do it when another cannot
	// sleep.
	for (auto t = transports_.rbegin(); t != transports_.rend(); ++t)
		if ((*t)->table().progress && !(*t)->arm()) {
			if (!sleepers_)
				for (Transport *armed : transports_)
					armed->disarm();
			yield();
			return true;
		}
	bool woken_by_all = true;
	for (Transport *t : transports_)
		if (const int fd = t->wake_fd(); fd >= 0) {
			woken_by_all = watch_descriptor(fd);
			break; // transports with a descriptor share it
		}
	reporter_.add(Counter::sleeps);
	++sleepers_;
	// Under the lock: other threads begin and end such waits.
	const timespec limit{0, memory_waiters_ || !woken_by_all ? short_nap : nap};
	unlock();
	const bool woken = syscall(SYS_futex, word_, FUTEX_WAIT, seen, &limit, nullptr, 0) == 0 || errno == EAGAIN;
	lock();
	if (--sleepers_ == 0)
		for (Transport *t : transports_)
			t->disarm();
	return woken;
}

void Progress::check()
{
	client_.check();
	const uint32_t requests = dump_requests.load(std::memory_order_relaxed);
	if (requests != dumps_seen_) {
		dumps_seen_ = requests;
		dump("on a signal");
	}
}

void Progress::watch(Backoff &b, int64_t now)
{
	b.last_check = now;
	check();
	if (!config_.stall_time || !b.may_stall)
		return;
	if (!b.next_dump)
		b.next_dump = b.start + config_.stall_time;
	if (now >= b.next_dump) {
		dump(format("a call has waited for %.1f s", static_cast<double>(now - b.start) * 1e-9).c_str());
		b.next_dump = now + (now - b.start);
	}
}

void Progress::check_now_and_then()
{
	const int64_t now = now_ns();
	if (now - last_check_ < check_period)
		return;
	last_check_ = now;
	check();
}

void Progress::idle_slowly(Backoff &b)
{
	const int64_t now = now_ns();
	if (!b.start)
		b.start = b.last_check = now;
	if (!b.idle_since)
		b.idle_since = now;
	if (now - b.last_check >= check_period) {
		watch(b, now);
		return; // the checks may have completed what is waited for
	}
	if (job_.step()) {
		// Cooperative: the others run in this thread.
		job_.step()();
		return;
	}
	const int64_t idle = now - b.idle_since;
	b.spinning = spin_ && idle < config_.spin_time;
	if (b.spinning)
		yield(); // a wait this long can afford it, and a peer may share the core
	else if (!config_.sleep || b.turns < min_turns || idle < (spin_ ? config_.spin_time : 0) + config_.yield_time)
		yield();
	else if (sleep())
		b.turns = 0; // more may follow what has arrived
}

} // namespace pt2p
