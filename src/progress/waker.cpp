#include "progress/waker.hpp"

#include <cerrno>
#include <climits>
#include <csignal>
#include <linux/futex.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <system_error>
#include <unistd.h>

#include "base/report/report.hpp"

namespace pt2p {

namespace {

void futex_wake(uint32_t *word) { syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0); }

} // namespace

std::unique_ptr<Waker> Waker::make(int fd, uint32_t *word, std::string &why_not)
{
	const int stop_fd = eventfd(0, EFD_CLOEXEC);
	if (stop_fd < 0) {
		why_not = "eventfd: " + errno_text(errno);
		return nullptr;
	}
	std::unique_ptr<Waker> waker(new Waker(fd, word, stop_fd));
	// Signals are for the program's threads.
	sigset_t all, old;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	try {
		waker->thread_ = std::thread([w = waker.get()] { w->run(); });
	} catch (const std::system_error &e) {
		why_not = std::string("a thread: ") + e.what();
	}
	pthread_sigmask(SIG_SETMASK, &old, nullptr);
	return waker->thread_.joinable() ? std::move(waker) : nullptr;
}

Waker::~Waker()
{
	// The flag first: the thread may be about to clear the word that it waits on.
	stopping_.store(true);
	const uint64_t one = 1;
	(void)!write(stop_fd_, &one, sizeof one);
	__atomic_store_n(&watching_, 1, __ATOMIC_SEQ_CST);
	futex_wake(&watching_);
	if (thread_.joinable())
		thread_.join();
	close(stop_fd_);
}

void Waker::watch()
{
	if (__atomic_exchange_n(&watching_, 1, __ATOMIC_SEQ_CST) == 0)
		futex_wake(&watching_);
}

void Waker::run()
{
	for (;;) {
		while (!__atomic_load_n(&watching_, __ATOMIC_SEQ_CST) && !stopping_.load())
			syscall(SYS_futex, &watching_, FUTEX_WAIT, 0, nullptr, nullptr, 0);
		pollfd fds[] = {{fd_, POLLIN, 0}, {stop_fd_, POLLIN, 0}};
		if (poll(fds, 2, -1) < 0 && errno != EINTR)
			return;
		if (stopping_.load())
			return;
		if (!fds[0].revents)
			continue;
		// Before the word changes: a sleeper that wakes and sleeps again calls watch() again.
		__atomic_store_n(&watching_, 0, __ATOMIC_SEQ_CST);
		__atomic_fetch_add(word_, 1, __ATOMIC_SEQ_CST);
		futex_wake(word_);
	}
}

} // namespace pt2p
