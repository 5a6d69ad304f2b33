#include "progress/poller.hpp"

#include <algorithm>

#include "base/clock.hpp"
#include "progress/futex.hpp"

namespace pt2p {

namespace {

constexpr unsigned turns_between_looks = 64; // of one who spins, at the clock

} // namespace

bool Waiting::wait(int64_t spin_time)
{
	uint32_t word = word_.load(std::memory_order_acquire);
	if (spin_time) {
		const int64_t end = now_ns() + spin_time;
		for (unsigned turn = 1; word == parked; ++turn) {
			if (turn % turns_between_looks == 0 && now_ns() >= end)
				break;
			cpu_relax();
			word = word_.load(std::memory_order_acquire);
		}
	}
	if (word == parked && word_.compare_exchange_strong(word, asleep, std::memory_order_acquire))
		word = asleep;
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
	if (parked_.empty())
		return false;
	// The one that has come last is the likeliest to be still awake.
	polling_ = parked_.back();
	parked_.pop_back();
	return polling_->wake(Waiting::polls);
}

void Poller::wake_finished()
{
	size_t kept = 0;
	for (Waiting *const w : parked_)
		if (w->done())
			w->wake(Waiting::finished);
		else
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
