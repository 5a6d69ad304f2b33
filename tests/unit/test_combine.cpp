// SPDX-License-Identifier: BSD-3-Clause
// The lock in front of which calls combine, and the threads that wait for one that polls.
#include <catch2/catch.hpp>

#include <atomic>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

#include "progress/combine.hpp"

using namespace pt2p;

namespace {

void pause(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

// As a call does it: takes the lock if that is free, else leaves the work to who holds it.
template <class F>
void call(CombiningLock &lock, F &&function)
{
	if (!lock.try_lock())
		return lock.combine(function);
	function();
	lock.unlock();
}

void join(std::vector<std::thread> &threads)
{
	for (std::thread &t : threads)
		t.join();
}

} // namespace

TEST_CASE("every operation is executed once, and one at a time", "[combine]")
{
	constexpr int threads_used = 8, each = 20000;
	CombiningLock lock;
	int inside = 0, overlaps = 0;
	long total = 0;
	const auto work = [&] {
		overlaps += inside++;
		++total;
		--inside;
	};
	std::vector<std::thread> threads;
	for (int t = 0; t < threads_used; ++t)
		threads.emplace_back([&, t] {
			for (int i = 0; i < each; ++i) {
				if ((i + t) % 3) {
					call(lock, work);
				} else {
					lock.lock();
					work();
					lock.unlock();
				}
				if (i % 1000 == t) { // the lock is held for long: others go to sleep
					lock.lock();
					std::this_thread::sleep_for(std::chrono::microseconds(200));
					lock.unlock();
				}
			}
		});
	join(threads);
	CHECK(total == long{threads_used} * each);
	CHECK(overlaps == 0);
}

TEST_CASE("the thread that holds the lock executes what others have queued, in order", "[combine]")
{
	struct Batches final : BatchObserver {
		void begin_batch() override { open = true; }
		void end_batch(unsigned operations) override
		{
			open = false;
			sizes.push_back(operations);
		}
		bool open = false;
		std::vector<unsigned> sizes;
	} batches;
	CombiningLock lock(&batches);
	std::vector<std::thread> threads;
	std::vector<int> order;
	std::vector<std::thread::id> executed_by;
	std::atomic<int> begun{0};
	lock.lock();
	for (int t = 0; t < 4; ++t) {
		threads.emplace_back([&, t] {
			++begun;
			call(lock, [&] {
				order.push_back(batches.open ? t : -1);
				executed_by.push_back(std::this_thread::get_id());
			});
		});
		while (begun <= t)
			std::this_thread::yield();
		pause(20); // it sleeps by now
	}
	CHECK(order.empty());
	lock.unlock();
	join(threads);
	CHECK(order == std::vector<int>{0, 1, 2, 3});
	CHECK(batches.sizes == std::vector<unsigned>{4}); // one doorbell for all
	CHECK(executed_by == std::vector<std::thread::id>(4, std::this_thread::get_id()));
	CHECK(lock.try_lock());
	lock.unlock();
}

TEST_CASE("between two polls, calls leave their operations to the thread that polls", "[combine]")
{
	CombiningLock lock;
	std::thread::id executed_by;
	std::atomic<int> locked{0};
	lock.lock();
	CHECK_FALSE(lock.pause());
	std::thread calls([&] { call(lock, [&] { executed_by = std::this_thread::get_id(); }); });
	pause(20); // it sleeps by now
	CHECK(lock.pause());
	CHECK(executed_by == std::this_thread::get_id());
	calls.join();
	std::thread needs_it([&] {
		lock.lock();
		++locked;
		lock.unlock();
	});
	while (!locked)
		lock.pause();
	needs_it.join();
	lock.unlock();
}

TEST_CASE("calls leave their operations to a thread that is expected, but not for ever", "[combine]")
{
	CombiningLock lock;
	lock.lock();
	lock.expect(true);
	lock.unlock();
	CHECK_FALSE(lock.try_lock());
	int executed = 0;
	call(lock, [&] { ++executed; }); // nobody comes
	CHECK(executed == 1);
	CHECK(lock.try_lock()); // nobody is expected any more
	lock.unlock();
}

TEST_CASE("what an operation throws reaches its own caller", "[combine]")
{
	CombiningLock lock;
	lock.lock();
	bool caught = false;
	std::thread other([&] {
		try {
			call(lock, [] { throw std::runtime_error("lacks memory"); });
		} catch (const std::runtime_error &) {
			caught = true;
		}
	});
	pause(20);
	lock.unlock();
	other.join();
	CHECK(caught);
}

// Operations that follow one another without end would keep the thread that executes them for ever.
TEST_CASE("a call returns although others go on queueing operations", "[combine]")
{
	CombiningLock lock;
	std::atomic<bool> stop{false};
	std::atomic<long> executed{0};
	std::vector<std::thread> threads;
	for (int t = 0; t < 4; ++t)
		threads.emplace_back([&] {
			while (!stop)
				lock.combine([&] { ++executed; });
		});
	for (int i = 0; i < 2000; ++i)
		lock.combine([&] { ++executed; });
	stop = true;
	join(threads);
	CHECK(executed >= 2000);
}
