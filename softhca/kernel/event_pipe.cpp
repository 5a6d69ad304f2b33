#include "softhca/kernel/event_pipe.hpp"

#include <array>
#include <atomic>
#include <cstring>
#include <fcntl.h>
#include <string>
#include <vector>

#include "softhca/kernel/real.hpp"

namespace softhca {

namespace {

constexpr int max_noted = 4096;                     // descriptors; a larger one may always be a user's end
std::array<std::atomic<bool>, max_noted> user_ends; // by descriptor

} // namespace

EventPipe::EventPipe()
{
	int fds[2];
	if (pipe2(fds, O_CLOEXEC) != 0)
		return;
	read_fd_ = fds[0];
	write_fd_ = fds[1];
	if (read_fd_ < max_noted)
		user_ends[static_cast<size_t>(read_fd_)] = true;
	// The device never waits for a reader.
	fcntl(write_fd_, F_SETFL, O_NONBLOCK);
}

EventPipe::~EventPipe()
{
	if (write_fd_ >= 0)
		real::close(write_fd_);
}

bool EventPipe::close_user_end(int fd)
{
	return fd >= max_noted || (fd >= 0 && user_ends[static_cast<size_t>(fd)].exchange(false));
}

uint32_t EventPipe::remove(uint64_t owner, size_t bytes)
{
	// A file description of its own, which does not block; the program's may.
	const int fd = ::open(("/proc/self/fd/" + std::to_string(read_fd_)).c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		return 0;
	std::vector<uint8_t> others, record(bytes);
	uint32_t removed = 0;
	while (read(fd, record.data(), bytes) == static_cast<ssize_t>(bytes)) {
		uint64_t whose;
		std::memcpy(&whose, record.data(), sizeof whose);
		if (whose == owner)
			++removed;
		else
			others.insert(others.end(), record.begin(), record.end());
	}
	real::close(fd);
	for (size_t at = 0; at < others.size(); at += bytes)
		put(&others[at], bytes);
	return removed;
}

} // namespace softhca
