// Lets a file descriptor wake a sleeper. Sleepers wait for a futex word. Peers on this host change the word themselves,
// but a device reports arrivals through a descriptor. A thread of the waker sleeps until the descriptor can be read,
// then changes the word. The thread exists from the first sleep on.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>

namespace pt2p {

class Waker {
public:
	// `word` outlives the waker. Null when the process gets no descriptor or no thread for it.
	static std::unique_ptr<Waker> make(int fd, uint32_t *word, std::string &why_not);
	~Waker();
	Waker(const Waker &) = delete;
	Waker &operator=(const Waker &) = delete;

	// Wakes all that sleep on the word the next time that the descriptor can be read, once.
	void watch();

private:
	Waker(int fd, uint32_t *word, int stop_fd) : fd_(fd), word_(word), stop_fd_(stop_fd) {}
	void run();

	const int fd_;
	uint32_t *const word_;
	const int stop_fd_;
	uint32_t watching_ = 0; // futex word
	std::atomic<bool> stopping_ = false;
	std::thread thread_;
};

} // namespace pt2p
