#include "memory/shared_file.hpp"

#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <string>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "report/report.hpp"

namespace pt2p {

namespace {

std::string place_of(int backing) { return backing == 1 ? "/dev/shm" : "memory (memfd)"; }

// A field of /proc/PID/stat, and what follows it; "" when there is no such process.
std::string process_fact(uint32_t pid, int number)
{
	const FileDescriptor fd(open(format("/proc/%u/stat", pid).c_str(), O_RDONLY | O_CLOEXEC));
	char text[1024];
	const ssize_t n = fd ? read(fd.get(), text, sizeof text - 1) : -1;
	if (n <= 0)
		return "";
	text[n] = 0;
	// The name in field 2 may hold anything, so count from the last parenthesis (proc_pid_stat(5)).
	const char *p = std::strrchr(text, ')');
	for (int field = 2; p && field < number; ++field)
		p = std::strchr(p + 1, ' ');
	return p ? p + 1 : "";
}

// What the limit on address space leaves.
std::string address_space_left()
{
	rlimit limit;
	if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
		return "no limit is set (ulimit -v)";
	const unsigned long long all = limit.rlim_cur;
	const unsigned long long used = std::strtoull(process_fact(static_cast<uint32_t>(getpid()), 23).c_str(), nullptr, 10);
	return format("%llu bytes available of the limit of %llu (ulimit -v)", all > used ? all - used : 0, all);
}

constexpr size_t large_reservation = size_t{64} << 20; // bytes: from here on it is worth to look first

// Bytes that the machine can give without killing anybody, as far as it knows.
unsigned long long memory_left()
{
	const FileDescriptor fd(open("/proc/meminfo", O_RDONLY | O_CLOEXEC));
	char text[4096];
	const ssize_t n = fd ? read(fd.get(), text, sizeof text - 1) : -1;
	if (n <= 0)
		return ULLONG_MAX;
	text[n] = 0;
	const auto kilobytes = [&](const char *name) {
		const char *at = std::strstr(text, name);
		return at ? std::strtoull(at + std::strlen(name), nullptr, 10) : 0;
	};
	const unsigned long long left = kilobytes("MemAvailable:") + kilobytes("SwapFree:");
	return left ? left * 1024 : ULLONG_MAX;
}

// Ended, though its parent has not asked yet how.
bool is_zombie(uint32_t pid)
{
	const std::string state = process_fact(pid, 3);
	return !state.empty() && (state[0] == 'Z' || state[0] == 'X');
}

} // namespace

FileDescriptor make_shared_file(int backing, const char *name)
{
	const int fd = backing == 1 ? open("/dev/shm", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600)
	                            : memfd_create(name, MFD_CLOEXEC);
	if (fd < 0)
		throw Error(PT2P_ERR_SHARED_MEMORY,
		            format("cannot make a shared segment in %s: %s", place_of(backing).c_str(), errno_text(errno).c_str()));
	return FileDescriptor(fd);
}

uint64_t process_start_time(uint32_t pid)
{
	const std::string text = process_fact(pid, 22);
	return std::strtoull(text.c_str(), nullptr, 10);
}

Mapping::Mapping(int fd, size_t offset, size_t bytes) : bytes_(bytes)
{
	memory_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, static_cast<off_t>(offset));
	if (memory_ == MAP_FAILED) {
		const int error = errno;
		memory_ = nullptr;
		throw Error(PT2P_ERR_SHARED_MEMORY, format("cannot map a shared segment: %zu bytes of address space needed, %s: %s",
		                                           bytes, address_space_left().c_str(), errno_text(error).c_str()));
	}
}

Mapping::~Mapping()
{
	if (memory_)
		munmap(memory_, bytes_);
}

FileDescriptor::~FileDescriptor()
{
	if (fd_ >= 0)
		close(fd_);
}

bool has_limit(int fd)
{
	struct statvfs fs;
	return fstatvfs(fd, &fs) != 0 || fs.f_blocks;
}

void reserve(int fd, size_t offset, size_t bytes, const char *what)
{
	// A file in memory without a limit of its own takes pages until the machine has none left, and somebody is killed.
	unsigned long long available = bytes >= large_reservation ? memory_left() : ULLONG_MAX;
	if (bytes > available)
		throw Error(PT2P_ERR_SHARED_MEMORY, format("cannot reserve memory for %s: %zu bytes needed, %llu bytes available on "
		                                           "this machine", what, bytes, available));
	int error;
	do // a signal may interrupt it
		error = posix_fallocate(fd, static_cast<off_t>(offset), static_cast<off_t>(bytes));
	while (error == EINTR);
	if (!error)
		return;
	// Memory files report the machine's memory, others their file system's.
	available = 0;
	struct statvfs fs;
	struct sysinfo system;
	if (fstatvfs(fd, &fs) == 0 && fs.f_blocks)
		available = static_cast<unsigned long long>(fs.f_bavail) * fs.f_frsize;
	else if (sysinfo(&system) == 0)
		available = static_cast<unsigned long long>(system.freeram + system.freeswap) * system.mem_unit;
	throw Error(PT2P_ERR_SHARED_MEMORY, format("cannot reserve shared memory for %s: %zu bytes needed, %llu bytes "
	                                           "available: %s", what, bytes, available, errno_text(error).c_str()));
}

FileDescriptor open_file_of(uint32_t pid, uint64_t start_time, int number)
{
	FileDescriptor fd(open(format("/proc/%u/fd/%d", pid, number).c_str(), O_RDWR | O_CLOEXEC));
	const int error = errno;
	// After opening: a process that took over the pid in between does not pass for the peer.
	// One that is just ending, or has finalized, has closed the file already.
	if (process_start_time(pid) != start_time || (!fd && (error == ENOENT || is_zombie(pid))))
		throw Error(PT2P_ERR_PEER_LOST, format("process %u is gone", pid));
	if (!fd)
		throw Error(PT2P_ERR_SHARED_MEMORY,
		            format("cannot open shared memory of process %u: %s (both ranks must run as the same user, with "
		                   "/proc mounted, and neither may be set-user-id)", pid, errno_text(error).c_str()));
	return fd;
}

} // namespace pt2p
