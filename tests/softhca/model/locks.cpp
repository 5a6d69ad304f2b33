// Locks in virtual time: who waits gets them in the order of arrival, and a spin lock costs a line for who takes it and
// for each that still waits. A lock that one thread uses costs nothing. Run by model.sh.
#include <array>
#include <cstdio>
#include <cstdlib>
#include <pthread.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "softhca/softhca.h"
#include "softhca/time/virtual_time.h"

namespace {

constexpr uint64_t line = 50'000, microsecond = 1'000'000; // ps
constexpr size_t threads = 4;

void expect(bool holds, const char *what)
{
	if (holds)
		return;
	std::printf("locks: %s\n", what);
	std::exit(1);
}

struct Mutex {
	pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	void take() { pthread_mutex_lock(&lock); }
	bool try_take() { return pthread_mutex_trylock(&lock) == 0; }
	void give() { pthread_mutex_unlock(&lock); }
	static constexpr uint64_t moves = 0;
};
struct Spin {
	Spin() { pthread_spin_init(&lock, PTHREAD_PROCESS_PRIVATE); }
	pthread_spinlock_t lock;
	void take() { pthread_spin_lock(&lock); }
	bool try_take() { return pthread_spin_trylock(&lock) == 0; }
	void give() { pthread_spin_unlock(&lock); }
	static constexpr uint64_t moves = line;
};

// The last thread that is made comes first. All wait before the lock is released at 20 us.
template <class Lock>
std::vector<size_t> play()
{
	Lock lock;
	std::vector<size_t> order;
	order.reserve(threads); // copies take time
	std::array<uint64_t, threads> had{};
	const uint64_t begin = softhca_time_now();
	lock.take();
	lock.give();
	expect(softhca_time_now() == begin, "a lock that one thread uses takes time");
	lock.take();
	std::vector<std::thread> all;
	for (size_t i = 0; i < threads; ++i)
		all.emplace_back([&, i] {
			usleep(static_cast<unsigned>(threads - i));
			expect(!lock.try_take(), "a lock that is held is taken");
			lock.take();
			had[i] = softhca_time_now();
			order.push_back(i);
			lock.give();
		});
	usleep(20);
	lock.give();
	for (std::thread &t : all)
		t.join();
	uint64_t at = begin + 20 * microsecond;
	for (size_t i = threads; i--;) {
		at += Lock::moves * (1 + i);
		expect(had[i] == at, "the lock comes at another time");
	}
	return order;
}

// Who comes while another has computed under the lock waits for its end, though that one has not yielded.
void wait_for_computing()
{
	Spin lock;
	const auto compute = [&](uint64_t before) {
		softhca_time_charge(before);
		lock.take();
		softhca_time_charge(10 * microsecond);
		lock.give();
	};
	std::thread neighbour([&] {
		compute(0);
		usleep(1000);
	});
	compute(0);
	usleep(100);
	compute(0); // now both have used it, and are there
	const uint64_t begin = softhca_time_now();
	std::thread first([&] { compute(0); }), second([&] { compute(microsecond); });
	first.join();
	second.join();
	const uint64_t end = softhca_time_now();
	neighbour.join();
	expect(end >= begin + 20 * microsecond, "two threads compute under a lock at the same time");
	expect(end <= begin + 20 * microsecond + 3 * line, "the second waits too long");
}

} // namespace

int main()
{
	softhca_queue_pairs(-1); // the model sets its own costs when it begins
	softhca_time_locks(line, threads);
	const std::vector<size_t> arrived = {3, 2, 1, 0};
	expect(play<Mutex>() == arrived, "a mutex is not given in the order of arrival");
	expect(play<Spin>() == arrived, "a spin lock is not given in the order of arrival");
	wait_for_computing();
	std::puts("locks: all passed");
	return 0;
}
