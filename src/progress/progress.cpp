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
#include "progress/time_slice.hpp"

namespace pt2p {

namespace {

constexpr int64_t nap = 20000000;          // longest sleep, ns: bounds the time until a lost peer is noticed
constexpr int64_t short_nap = 500000;      // the same, for memory that peers change without waking anybody, and ticks
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
      spin_(settings.cores > 0 && !job.step()), careful_(settings.locking),
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
	if (__builtin_expect(poller_.end_long_absence(), 0))
		pass_on();
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
				else if (idle_slowly(backoff))
					sleep();
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

// Parks while another thread polls, and polls for all others while none does. In the end this thread does neither.
void Progress::wait_among_threads(Waiting &self, Backoff &backoff)
{
	struct Role {
		~Role()
		{
			progress.in_turn_of_poller_ = false; // also after an exception
			if (progress.poller_.is(waiting))
				progress.leave();
		}
		Progress &progress;
		Waiting &waiting;
	};
	const Role role{*this, self};
	if (poller_.is(self))
		lock_.expect(false);
	// Where there are fewer cores than waiting threads, each polls in its turns. The one that a message is for is then
	// often the one that finds it.
	for (bool idle_long = false;;) {
		if (!poller_.is(self) && (idle_long || waiting() <= settings_.cores)) {
			if (!poller_.anybody()) {
				poller_.begin(self);
			} else if (poller_.come_back(self, pthread_self())) {
				lock_.expect(false);
			} else if (!park(self)) {
				// It polls in its turns.
			} else if (wait_parked(self)) {
				return;
			} else {
				backoff = {};
				lock_.expect(false);
			}
		}
		idle_long = idle(backoff, poller_.is(self) && waiting() <= settings_.cores);
		if (idle_long && poller_.is(self) && sleep())
			backoff.turns = 0; // more may follow what has arrived
		in_turn_of_poller_ = poller_.is(self);
		const unsigned n = step();
		const bool polls = std::exchange(in_turn_of_poller_, false);
		if (self.done())
			return;
		if (n)
			backoff.turns = 0, backoff.idle_since = 0;
		else if (polls && others_ && !(backoff.spinning && spin_ && backoff.turns % 64))
			wake_finished(); // calls of other threads complete requests, too, and time runs out
	}
}

Progress::Standing Progress::begin_wait(Waiting &self, pthread_t thread)
{
	if (self.done())
		return Standing::over;
	if (poller_.come_back(self, thread)) {
		lock_.expect(true);
		return Standing::unlocked;
	}
	if (waiting() >= settings_.cores)
		return Standing::unlocked;
	if (poller_.anybody())
		return park(self) ? Standing::parked : Standing::unlocked;
	poller_.begin(self);
	lock_.expect(true);
	return Standing::unlocked;
}

void Progress::go_on_waiting(Waiting &self, Standing standing)
{
	if (standing == Standing::over ||
	    (standing == Standing::parked && self.wait(spin_ ? config_.spin_time : 0, poller_.absence(), lock_)))
		return;
	if (standing != Standing::locked)
		lock();
	const Guard guard(*this, std::adopt_lock);
	if (standing == Standing::parked && !take_over(self))
		return pass_on();
	Backoff backoff;
	const Waiter waiter(waiters_);
	if (!poller_.is(self)) {
		step();
		if (self.done())
			return;
	}
	wait_among_threads(self, backoff);
}

// Where another thread has the lock, it parks without having had the lock itself, unless it is the one to poll.
void Progress::wait_unlocked(Waiting &self)
{
	Standing standing = Standing::locked;
	if (!take_lock())
		lock_.combine([&, thread = pthread_self()] {
			const OnBehalf acting(*this, thread);
			standing = begin_wait(self, thread);
		});
	go_on_waiting(self, standing);
}

// A thread that was parked polls now; false if its wait has ended meanwhile.
bool Progress::take_over(Waiting &self)
{
	if (poller_.is(self))
		return true;
	others_ -= poller_.parked();
	const bool waits = poller_.take_over(self);
	others_ += poller_.parked();
	return waits;
}

bool Progress::park(Waiting &self)
{
	if (!self.start)
		self.start = now_ns();
	if (!poller_.park(self))
		return false;
	++others_;
	return true;
}

// True when the wait is over. Where there are more waiting threads than cores, they leave the cores to those that work.
bool Progress::wait_parked(Waiting &self)
{
	--waiters_;
	const bool spins = spin_ && waiting() <= settings_.cores;
	unlock();
	const bool finished = self.wait(spins ? config_.spin_time : 0, poller_.absence(), lock_);
	lock();
	++waiters_;
	return finished || !take_over(self);
}

void Progress::leave()
{
	wake_finished(); // one of those would pass it on at once
	if (poller_.leave())
		lock_.expect(true);
	else
		pass_on();
}

void Progress::pass_on()
{
	wake_finished();
	others_ -= poller_.parked() != 0;
	lock_.expect(poller_.pass_on());
}

void Progress::wake_finished()
{
	others_ -= poller_.parked();
	poller_.wake_finished();
	others_ += poller_.parked();
	if (poller_.end_unwatched_absence())
		pass_on();
}

void Progress::end_batch(unsigned operations)
{
	client_.cork(false);
	reporter_.add(Counter::calls_combined, operations);
	reporter_.add(Counter::calls_combined_batches);
}

void Progress::wake_others()
{
	wake_finished();
	if (sleepers_)
		wake_sleepers();
}

void Progress::yield()
{
	unlock();
	// Since the change "sched/fair: Forfeit vruntime on yield" (Linux 6.19, and in stable releases), a yield costs a
	// whole slice of the thread's share. With the usual slices of some 3 ms, a rank beside programs that compute would
	// get next to nothing.
	if (config_.time_slice)
		ask_for_time_slice(config_.time_slice);
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
	client_.before_sleep();
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
	++sleepers_, ++others_;
	// Under the lock: other threads begin and end such waits.
	const timespec limit{0, memory_waiters_ || !woken_by_all || client_.ticks ? short_nap : nap};
	unlock();
	const bool woken = syscall(SYS_futex, word_, FUTEX_WAIT, seen, &limit, nullptr, 0) == 0 || errno == EAGAIN;
	lock();
	--others_;
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
	check();
	b.last_check = now_ns(); // not `now`: checks can take longer than their period, and other work has to follow them
	if (!config_.stall_time || !b.may_stall)
		return;
	const int64_t start = poller_.oldest(b.start);
	if (start != dumped_)
		next_dump_ = start + config_.stall_time;
	if (now < next_dump_)
		return;
	dump(format("a call has waited for %.1f s", static_cast<double>(now - start) * 1e-9).c_str());
	dumped_ = start;
	next_dump_ = now + (now - start);
}

void Progress::check_now_and_then()
{
	if (!client_.ticks && polls_ % (16 * polls_unchecked))
		return;
	const int64_t now = now_ns();
	if (client_.ticks)
		client_.tick(now);
	if (now - last_check_ < check_period)
		return;
	last_check_ = now;
	check();
}

void Progress::yield_if_idle(unsigned events)
{
	constexpr uint32_t max_idle_polls = 16;
	idle_polls_ = events ? 0 : idle_polls_ + 1;
	if (idle_polls_ < max_idle_polls || job_.step()) // cooperative: the others run in this thread
		return;
	idle_polls_ = 0;
	yield();
}

bool Progress::idle_slowly(Backoff &b)
{
	const int64_t now = now_ns();
	if (!b.start)
		b.start = b.last_check = now;
	if (!b.idle_since)
		b.idle_since = now;
	if (client_.ticks)
		client_.tick(now);
	const bool check_due = now - b.last_check >= check_period;
	if (check_due)
		watch(b, now);
	if (job_.step())
		job_.step()(); // cooperative: the others run in this thread
	if (check_due || job_.step())
		return false; // what is waited for may have completed
	const int64_t idle = now - b.idle_since;
	b.spinning = spin_ && idle < config_.spin_time;
	if (!b.spinning && config_.sleep && b.turns >= min_turns &&
	    idle >= (spin_ ? config_.spin_time : 0) + config_.yield_time)
		return true;
	yield(); // a wait this long can afford it, and a peer may share the core
	return false;
}

} // namespace pt2p
