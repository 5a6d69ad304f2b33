// Lets a file descriptor wake a sleeper: sleepers wait for a futex word, which peers on this host change themselves, but a
// device reports what has come through a descriptor. A thread that does nothing else sleeps until the descriptor can be
// read, then changes the word. It exists from the first sleep on.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>

namespace pt2p {

class Waker {
public:
	// `word` outlives it.
	Waker(int fd, uint32_t *word);
	~Waker();
	Waker(const Waker &) = delete;
	Waker &operator=(const Waker &) = delete;

	// The next time that the descriptor can be read wakes whoever sleeps on the word, once.
	void watch();

private:
	void run();

	const int fd_;
	uint32_t *const word_;
	int stop_fd_;
	uint32_t watching_ = 0; // futex word
	std::atomic<bool> stopping_ = false;
	std::thread thread_;
};

} // namespace pt2p
