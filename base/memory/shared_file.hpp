// Files in memory that processes share, and their mappings. A peer finds such a file by process and descriptor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "base/config/choices.hpp"

namespace pt2p {

class FileDescriptor {
public:
	explicit FileDescriptor(int fd = -1) : fd_(fd) {}
	FileDescriptor(FileDescriptor &&other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
	FileDescriptor &operator=(FileDescriptor &&other) noexcept
	{
		std::swap(fd_, other.fd_);
		return *this;
	}
	~FileDescriptor();
	int get() const { return fd_; }
	explicit operator bool() const { return fd_ >= 0; }

private:
	int fd_;
};

// Maps part of a file; unmaps when destroyed.
class Mapping {
public:
	Mapping() = default;
	Mapping(int fd, size_t offset, size_t bytes); // throws Error(PT2P_ERR_SHARED_MEMORY)
	Mapping(Mapping &&other) noexcept { swap(other); }
	Mapping &operator=(Mapping &&other) noexcept
	{
		swap(other);
		return *this;
	}
	~Mapping();
	void *memory() const { return memory_; }

private:
	void swap(Mapping &other) noexcept
	{
		std::swap(memory_, other.memory_);
		std::swap(bytes_, other.bytes_);
	}
	void *memory_ = nullptr;
	size_t bytes_ = 0;
};

// An empty file where PT2P_SHM_BACKING says. Throws Error(PT2P_ERR_SHARED_MEMORY).
FileDescriptor make_shared_file(choice::shm_backing backing, const char *name);

// Clock ticks since boot at which a process started; 0 when there is no such process. Throws Error(PT2P_ERR_SYSTEM)
// when that cannot be found out.
uint64_t process_start_time(uint32_t pid);
// Whether a process that started at that time has not ended. Throws as process_start_time.
bool process_lives(uint32_t pid, uint64_t start_time);

// The file that process `pid` has open as `fd`, of at least `bytes` bytes. Its contents tell the caller whether it is
// the file that was meant. Throws Error:
//   PT2P_ERR_PEER_LOST       the process that started at that time is gone
//   PT2P_ERR_PROTOCOL        the file is another user's, or shorter
//   PT2P_ERR_SYSTEM          this process lacks something
//   PT2P_ERR_SHARED_MEMORY   else
FileDescriptor open_file_of(uint32_t pid, uint64_t start_time, int fd, size_t bytes);

// The remedy when a system call has failed because this process lacks something; empty for other errors.
std::string remedy_of(int error);

// Takes memory for the pages of a shared mapping, and maps them. Returns 0 or an errno: EINVAL from kernels before
// 5.14, which cannot.
int populate(void *memory, size_t bytes);
// Whether the file system of the file may run out of room before the machine's memory does.
bool has_limit(int fd);

// Reserves bytes of the file; throws Error(PT2P_ERR_SHARED_MEMORY) with the bytes needed and available.
void reserve(int fd, size_t offset, size_t bytes, const char *what);

} // namespace pt2p
