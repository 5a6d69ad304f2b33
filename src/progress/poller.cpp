#include "progress/poller.hpp"

#include <algorithm>
#include <new>
#include <utility>

#include "base/clock.hpp"
#include "progress/futex.hpp"

namespace pt2p {

namespace {

// Of one who spins: turns between looks at the clock, and at the absence.
constexpr unsigned turns_between_looks = 64, turns_between_glances = 8;
// Absences are worth it while most are short; now and then one is tried all the same.
constexpr unsigned max_short = 4, min_avoided = 16;

// A parked thread looks whether the absence is long. Time in which somebody has the lock does not count: that may be
// the thread that comes back, and calls are executed.
class Watch {
public:
	Watch(Absence &absence, const CombiningLock &lock) : absence_(absence), lock_(lock) {}
	// True: it was, and this thread has ended it.
	bool ends_it()
	{
		const uint32_t number = absence_.number();
		if (!Absence::lasts(number))
			return false;
		const int64_t now = now_ns();
		if (lock_.is_held())
			held_ = now;
		return absence_.is_long(now) && now - held_ >= Absence::max_time && absence_.end(number);
	}

private:
	Absence &absence_;
	const CombiningLock &lock_;
	int64_t held_ = 0; // when it was seen last
};

} // namespace

bool Waiting::wait(int64_t spin_time, Absence &absence, const CombiningLock &lock)
{
	uint32_t word = word_.load(std::memory_order_acquire);
	if (spin_time) {
		Watch watch(absence, lock);
		const int64_t end = now_ns() + spin_time;
		for (unsigned turn = 1; word == parked; ++turn) {
			if (turn % turns_between_looks == 0 && now_ns() >= end)
				break;
			if (turn % turns_between_glances == 0 && watch.ends_it())
				return false;
			cpu_relax();
			word = word_.load(std::memory_order_acquire);
		}
	}
	if (word == parked && word_.compare_exchange_strong(word, asleep)) {
		// Who leaves looks at the word once it is away, so one of the two sees the other.
		if (absence.end(absence.number()))
			return false;
		word = asleep;
	}
	while (word == asleep) {
		sleep_while(word_, asleep);
		word = word_.load(std::memory_order_acquire);
	}
	return word == finished;
}

bool Waiting::wake(Word word)
{
	const std::atomic<uint32_t> *const address = &word_;
	if (word_.exchange(word, std::memory_order_release) != asleep)
		return true;
	wake_one(address);
	return false;
}

bool Poller::pass_on()
{
	polling_ = nullptr;
	woke_others_ = false;
	if (parked_.empty())
		return false;
	polling_ = parked_.back();
	parked_.pop_back();
	return polling_->wake(Waiting::polls);
}

bool Poller::leave()
{
	const bool alone = !std::exchange(woke_others_, false) && parked_.empty();
	if (alone || all_sleep() || (!short_ && ++avoided_ < min_avoided))
		return false;
	avoided_ = 0;
	leaver_.store(pthread_self(), std::memory_order_relaxed);
	absence_.begin(now_ns());
	polling_ = nullptr;
	away_ = true;
	return !end_unwatched_absence();
}

bool Poller::come_back(Waiting &w, pthread_t thread)
{
	if (!is_away(thread) || !end_absence())
		return false;
	short_ = std::min(short_ + 1, max_short);
	polling_ = &w;
	return true;
}

bool Poller::take_over(Waiting &w)
{
	short_ -= short_ != 0;
	away_ = false;
	polling_ = &w;
	return std::erase(parked_, &w) != 0;
}

bool Poller::end_absence()
{
	if (!absence_.end(absence_.number()))
		return false;
	away_ = false;
	return true;
}

bool Poller::park(Waiting &w) noexcept
try {
	w.prepare();
	parked_.push_back(&w);
	return true;
} catch (const std::bad_alloc &) {
	return false;
}

void Poller::wake_finished()
{
	size_t kept = 0;
	for (Waiting *const w : parked_)
		if (w->done()) {
			w->wake(Waiting::finished);
			woke_others_ = true;
		} else
			parked_[kept++] = w;
	parked_.resize(kept);
}

int64_t Poller::oldest(int64_t start) const
{
	for (const Waiting *w : parked_)
		if (w->start)
			start = std::min(start, w->start);
	return start;
}

} // namespace pt2p
