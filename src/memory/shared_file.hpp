// Files in memory that processes share, and their mappings. A peer finds such a file by process and descriptor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

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
FileDescriptor make_shared_file(int backing, const char *name);

// Clock ticks since boot at which a process started; 0 when there is no such process.
uint64_t process_start_time(uint32_t pid);

// The file that process `pid`, started at that time, has open as `fd`. Throws Error(PT2P_ERR_SHARED_MEMORY), or
// Error(PT2P_ERR_PEER_LOST) when that process is gone.
FileDescriptor open_file_of(uint32_t pid, uint64_t start_time, int fd);

// Whether the file system of the file may run out of room before the machine's memory does.
bool has_limit(int fd);

// Reserves bytes of the file; throws Error(PT2P_ERR_SHARED_MEMORY) with the bytes needed and available.
void reserve(int fd, size_t offset, size_t bytes, const char *what);

} // namespace pt2p
