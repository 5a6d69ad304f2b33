// The thread that polls for others, and its absences.
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <thread>
#include <vector>

#include "base/clock.hpp"
#include "progress/poller.hpp"

using namespace pt2p;

namespace {

// A wait with a test that the case sets.
struct Wait {
	bool over = false;
	struct Test {
		bool &over;
		bool operator()() const { return over; }
	} test{over};
	Waiting waiting{test};
};

void wait_until_long(const Absence &absence)
{
	while (!absence.is_long(now_ns()))
		;
}

// `polling` polls, and leaves while `parked` waits.
void leave(Poller &poller, Wait &polling, Wait &parked)
{
	poller.begin(polling.waiting);
	REQUIRE(poller.park(parked.waiting));
	REQUIRE(poller.leave());
}

// Parks in a thread that sleeps at once, until it is to poll.
class Sleeper {
public:
	explicit Sleeper(Poller &poller) : poller_(poller)
	{
		REQUIRE(poller.park(wait_.waiting));
		thread_ = std::thread([this] { over_ = wait_.waiting.wait(0, poller_.absence(), lock_); });
		while (wait_.waiting.is_awake())
			std::this_thread::yield();
	}
	void check_polls()
	{
		thread_.join();
		CHECK(!over_);
		CHECK(poller_.is(wait_.waiting));
	}

private:
	Poller &poller_;
	const CombiningLock lock_;
	Wait wait_;
	bool over_ = true;
	std::thread thread_;
};

} // namespace

TEST_CASE("parked threads go on when their tests are true, and take over the polling", "[poller]")
{
	CombiningLock lock;
	Poller poller;
	std::atomic<bool> ready[3]{};
	int finished = 0, polled = 0;
	const auto test_of = [&](int t) { return [&, t] { return ready[t].load(); }; };
	auto first_test = test_of(0);
	Waiting first(first_test);
	lock.lock();
	poller.begin(first);
	std::vector<std::thread> threads;
	std::atomic<int> parked{0};
	for (int t = 1; t < 3; ++t)
		threads.emplace_back([&, t] {
			auto test = test_of(t);
			Waiting self(test);
			lock.lock();
			parked += poller.park(self);
			lock.unlock();
			const bool done = self.wait(t == 1 ? 1000 : 0, poller.absence(), lock);
			lock.lock();
			++(done ? finished : polled);
			if (poller.is(self))
				poller.pass_on();
			lock.unlock();
		});
	lock.unlock();
	while (parked < 2)
		std::this_thread::yield();
	std::this_thread::sleep_for(std::chrono::milliseconds(20)); // both sleep
	lock.lock();
	poller.wake_finished();
	CHECK(poller.parked() == 2);
	ready[1] = true;
	poller.wake_finished();
	lock.unlock();
	threads[0].join();
	CHECK(finished == 1);
	CHECK(polled == 0);
	lock.lock();
	CHECK(poller.is(first));
	poller.pass_on();
	lock.unlock();
	threads[1].join();
	CHECK(finished == 1);
	CHECK(polled == 1);
	CHECK_FALSE(poller.anybody());
}

TEST_CASE("a thread that leaves the polling may come back to it", "[poller]")
{
	Poller poller;
	Wait first, parked, second;
	leave(poller, first, parked);
	CHECK(poller.anybody());
	CHECK(!poller.is(first.waiting));
	CHECK(poller.is_away(pthread_self()));
	bool others_are = true;
	std::thread([&] {
		Wait other;
		others_are = poller.is_away(pthread_self()) || poller.come_back(other.waiting, pthread_self());
	}).join();
	CHECK(!others_are);
	CHECK(poller.come_back(second.waiting, pthread_self()));
	CHECK(poller.is(second.waiting));
	CHECK(!poller.is_away(pthread_self()));
	CHECK(!poller.come_back(second.waiting, pthread_self()));
	CHECK(poller.parked() == 1);
}

TEST_CASE("a parked thread that is awake takes over after a long absence", "[poller]")
{
	Poller poller;
	const CombiningLock lock;
	Wait first, parked, second;
	leave(poller, first, parked);
	REQUIRE(!parked.waiting.wait(1000000000, poller.absence(), lock));
	CHECK(poller.absence().is_long(now_ns()));
	CHECK(!poller.is_away(pthread_self()));
	CHECK(poller.anybody());
	CHECK(!poller.come_back(second.waiting, pthread_self()));
	CHECK(!poller.end_long_absence()); // somebody is about to poll
	CHECK(poller.take_over(parked.waiting));
	CHECK(poller.is(parked.waiting));
	CHECK(poller.parked() == 0);
}

TEST_CASE("time in which the lock is held does not make an absence long", "[poller]")
{
	Poller poller;
	CombiningLock lock;
	Wait first, parked;
	leave(poller, first, parked);
	wait_until_long(poller.absence());
	lock.lock();
	bool over = false;
	std::thread waits([&] { over = parked.waiting.wait(1000000000, poller.absence(), lock); });
	std::this_thread::sleep_for(std::chrono::milliseconds(5));
	CHECK(poller.is_away(pthread_self()));
	parked.over = true;
	poller.wake_finished();
	waits.join();
	lock.unlock();
	CHECK(over);
	CHECK(poller.is_away(pthread_self()));
}

TEST_CASE("a thread whose wait is over as it takes over has to pass the polling on", "[poller]")
{
	Poller poller;
	Wait first, parked, other;
	leave(poller, first, parked);
	CHECK(poller.park(other.waiting));
	REQUIRE(poller.absence().end(poller.absence().number()));
	parked.over = true;
	poller.wake_finished();
	CHECK(!poller.take_over(parked.waiting));
	CHECK(poller.is(parked.waiting));
	CHECK(poller.pass_on());
	CHECK(poller.is(other.waiting));
	CHECK(!other.waiting.wait(0, poller.absence(), CombiningLock()));
}

TEST_CASE("a thread is not away where all that wait are asleep", "[poller]")
{
	Poller poller;
	Wait first;
	poller.begin(first.waiting);
	Sleeper sleeper(poller);
	CHECK(!poller.leave());
	CHECK(!poller.pass_on());
	sleeper.check_polls();
}

TEST_CASE("a thread that is about to sleep ends the absence", "[poller]")
{
	Poller poller;
	Wait first, parked;
	leave(poller, first, parked);
	CHECK(!parked.waiting.wait(0, poller.absence(), CombiningLock()));
	CHECK(poller.take_over(parked.waiting));
}

TEST_CASE("the last awake thread ends the absence of others when its wait is over", "[poller]")
{
	Poller poller;
	Wait first, parked;
	poller.begin(first.waiting);
	Sleeper sleeper(poller);
	REQUIRE(poller.park(parked.waiting));
	REQUIRE(poller.leave());
	CHECK(!poller.end_unwatched_absence());
	parked.over = true;
	poller.wake_finished();
	CHECK(poller.end_unwatched_absence());
	CHECK(!poller.anybody());
	CHECK(!poller.pass_on());
	sleeper.check_polls();
}

TEST_CASE("a thread that has polled for itself alone leaves nothing behind", "[poller]")
{
	Poller poller;
	Wait alone;
	poller.begin(alone.waiting);
	CHECK(!poller.leave());
	CHECK(!poller.pass_on());
	CHECK(!poller.anybody());
}

TEST_CASE("whoever has the lock ends an absence in which nobody waits", "[poller]")
{
	Poller poller;
	Wait first, parked;
	poller.begin(first.waiting);
	REQUIRE(poller.park(parked.waiting));
	parked.over = true;
	poller.wake_finished();
	REQUIRE(poller.leave()); // the other one may be back soon, too
	wait_until_long(poller.absence());
	CHECK(poller.end_long_absence());
	CHECK(!poller.anybody());
}

TEST_CASE("threads whose absences are long stay away no more, but for a try now and then", "[poller]")
{
	Poller poller;
	Wait first, parked;
	const auto leaves = [&] {
		poller.begin(first.waiting);
		REQUIRE(poller.park(parked.waiting));
		const bool left = poller.leave();
		if (left) {
			REQUIRE(poller.absence().end(poller.absence().number()));
			CHECK(poller.take_over(parked.waiting));
		}
		CHECK(poller.pass_on() == !left);
		if (!left)
			CHECK(!poller.pass_on());
		return left;
	};
	const auto count = [&](int times) {
		int n = 0;
		for (int i = 0; i < times; ++i)
			n += leaves();
		return n;
	};
	CHECK(count(2) == 2);
	CHECK(count(160) == 10);
}
