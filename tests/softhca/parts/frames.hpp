// What tests of the wire have in common: a directory, processes, frames that can be checked.
#pragma once

#include <catch2/catch.hpp>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <functional>
#include <random>
#include <sched.h>
#include <span>
#include <string>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

#include "softhca/wire/wire.hpp"

namespace frames {

using namespace softhca;
using namespace std::chrono_literals;
using Room = Wire::Room;

// A fabric's directory, and a limit on the time that a test may take in it.
struct Directory {
	Directory()
	{
		std::string name = (access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp") + std::string("/wire-test.XXXXXX");
		REQUIRE(mkdtemp(name.data()));
		path = name;
		alarm(120);
	}
	~Directory()
	{
		alarm(0);
		std::filesystem::remove_all(path);
	}
	std::string path;
};

// A process that runs a function, whose result is its exit code.
class Child {
public:
	explicit Child(const std::function<int()> &function) : pid_(fork())
	{
		REQUIRE(pid_ >= 0);
		if (pid_ == 0) {
			alarm(120);
			int code = 99;
			try {
				code = function();
			} catch (...) {
			}
			_exit(code);
		}
	}
	~Child()
	{
		if (pid_ > 0)
			kill();
	}
	Child(const Child &) = delete;
	Child &operator=(const Child &) = delete;

	void signal(int number) const { ::kill(pid_, number); }
	int wait()
	{
		int status = 0;
		waitpid(std::exchange(pid_, -1), &status, 0);
		return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
	}
	void kill()
	{
		signal(SIGKILL);
		wait();
	}
	void wait_until_stopped() const
	{
		int status;
		waitpid(pid_, &status, WUNTRACED);
	}

private:
	pid_t pid_;
};

// A number in shared memory, by which processes tell each other things outside of the wire.
template <class T>
struct Shared {
	Shared() : at(static_cast<T *>(mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)))
	{
		REQUIRE(at != MAP_FAILED);
	}
	~Shared() { munmap(at, sizeof(T)); }
	Shared(const Shared &) = delete;
	Shared &operator=(const Shared &) = delete;
	T *operator->() const { return at; }
	T &operator*() const { return *at; }
	T *at;
};
using Number = Shared<std::atomic<uint64_t>>;

inline void await(const Number &number, uint64_t value)
{
	while (*number < value)
		sched_yield();
}

// A frame that can be checked: who, which, a sum, then bytes that follow from both.
struct Head {
	uint32_t sender, number;
	uint64_t sum;
};

inline void fill(uint8_t *frame, size_t bytes, uint32_t sender, uint32_t number)
{
	uint64_t sum = bytes;
	for (size_t i = sizeof(Head); i < bytes; ++i) {
		frame[i] = static_cast<uint8_t>(sender * 31 + number + i * 7);
		sum = sum * 3 + frame[i];
	}
	const Head head{sender, number, sum};
	std::memcpy(frame, &head, sizeof head);
}

inline bool intact(std::span<const uint8_t> frame, Head &head)
{
	if (frame.size() < sizeof head)
		return false;
	std::memcpy(&head, frame.data(), sizeof head);
	uint64_t sum = frame.size();
	for (size_t i = sizeof head; i < frame.size(); ++i)
		sum = sum * 3 + frame[i];
	return sum == head.sum;
}

// Sends one frame, waiting for room; false when nobody is there.
inline bool send(Wire &wire, unsigned slot, size_t bytes, uint32_t sender, uint32_t number)
{
	uint8_t *frame;
	Room room;
	while ((room = wire.begin(slot, bytes, frame)) == Room::full)
		sched_yield();
	if (room == Room::nobody)
		return false;
	fill(frame, bytes, sender, number);
	wire.end();
	return true;
}

// Takes one frame, waiting for it.
inline Head receive(Wire &wire)
{
	Head head{};
	for (std::span<const uint8_t> frame; (frame = wire.front()).empty();)
		wire.sleep(1ms, true);
	REQUIRE(intact(wire.front(), head));
	wire.pop();
	return head;
}

inline size_t random_size(std::mt19937 &random)
{
	// Mostly small ones.
	const size_t most = random() % 8 ? 256 : max_frame_bytes;
	return sizeof(Head) + random() % (most - sizeof(Head) + 1);
}

using Clock = std::chrono::steady_clock;

// A file that is scribbled over.
struct Scribble {
	explicit Scribble(const std::string &path)
	{
		const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
		REQUIRE(fd >= 0);
		bytes = static_cast<size_t>(lseek(fd, 0, SEEK_END));
		at = static_cast<uint8_t *>(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
		close(fd);
		REQUIRE(static_cast<void *>(at) != MAP_FAILED);
	}
	~Scribble() { munmap(at, bytes); }
	Scribble(const Scribble &) = delete;
	Scribble &operator=(const Scribble &) = delete;
	void put(size_t offset, uint64_t value) const
	{
		std::atomic_ref(*reinterpret_cast<uint64_t *>(at + offset)) = value;
	}
	uint8_t *at;
	size_t bytes;
};

template <class F>
std::chrono::nanoseconds time_of(F f)
{
	const auto start = Clock::now();
	f();
	return Clock::now() - start;
}

} // namespace frames
