#include "base/memory/shared_file.hpp"

#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <string>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "base/report/report.hpp"

namespace pt2p {

namespace {

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 // Linux 5.14
#endif

std::string place_of(choice::shm_backing backing)
{
	return backing == choice::shm_backing::devshm ? "/dev/shm" : "memory (memfd)";
}

// A field of /proc/PID/stat; "" when there is no such process. Throws Error(PT2P_ERR_SYSTEM) when the file cannot be
// read for another reason, which tells nothing about the process. It takes no memory from the heap: where later objects
// lie, and with that results of softhca's model, would depend on how many digits the process's number has.
std::string process_fact(uint32_t pid, int number)
{
	char path[32], text[1024];
	std::snprintf(path, sizeof path, "/proc/%u/stat", pid);
	const FileDescriptor fd(open(path, O_RDONLY | O_CLOEXEC));
	const ssize_t n = fd ? read(fd.get(), text, sizeof text - 1) : -1;
	if (n < 0 && errno != ENOENT && errno != ESRCH) {
		const int error = errno;
		throw Error(PT2P_ERR_SYSTEM, format("cannot read /proc/%u/stat: %s%s", pid, errno_text(error).c_str(),
		                                    remedy_of(error).c_str()));
	}
	if (n <= 0)
		return "";
	text[n] = 0;
	// The name in field 2 may hold anything, so count from the last parenthesis (proc_pid_stat(5)).
	const char *p = std::strrchr(text, ')');
	for (int field = 2; p && field < number; ++field)
		p = std::strchr(p + 1, ' ');
	return p ? std::string(p + 1, std::strcspn(p + 1, " ")) : "";
}

// How much address space the limit leaves.
std::string address_space_left()
{
	rlimit limit;
	if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
		return "no limit on bytes is set (ulimit -v), one on the number of mappings is (vm.max_map_count)";
	const unsigned long long all = limit.rlim_cur;
	unsigned long long used = 0;
	try {
		used = std::strtoull(process_fact(static_cast<uint32_t>(getpid()), 23).c_str(), nullptr, 10);
	} catch (const Error &) {
		return format("a limit of %llu (ulimit -v)", all);
	}
	return format("%llu bytes available of the limit of %llu (ulimit -v)", all > used ? all - used : 0, all);
}

constexpr size_t large_reservation = size_t{64}
                                     << 20; // bytes: from here on the memory of the machine is looked at first

// Bytes that the machine says it can give without killing a process.
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

} // namespace

std::string remedy_of(int error)
{
	rlimit limit;
	if (error == EMFILE && getrlimit(RLIMIT_NOFILE, &limit) == 0)
		return format(" (this process may have %llu files open: close some, or raise ulimit -n)",
		              static_cast<unsigned long long>(limit.rlim_cur));
	if (error == ENFILE)
		return " (the machine has as many files open as fs.file-max allows)";
	if (error == ENOMEM)
		return " (the machine or the control group is out of memory)";
	return "";
}

FileDescriptor make_shared_file(choice::shm_backing backing, const char *name)
{
	const int fd = backing == choice::shm_backing::devshm ? open("/dev/shm", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600)
	                                                      : memfd_create(name, MFD_CLOEXEC);
	if (fd < 0) {
		const int error = errno;
		throw Error(error == EMFILE || error == ENFILE ? PT2P_ERR_SYSTEM : PT2P_ERR_SHARED_MEMORY,
		            format("cannot make a shared segment in %s: %s%s", place_of(backing).c_str(),
		                   errno_text(error).c_str(), remedy_of(error).c_str()));
	}
	return FileDescriptor(fd);
}

uint64_t process_start_time(uint32_t pid)
{
	const std::string text = process_fact(pid, 22);
	return std::strtoull(text.c_str(), nullptr, 10);
}

bool process_lives(uint32_t pid, uint64_t start_time)
{
	const std::string state = process_fact(pid, 3); // a zombie has ended, although its parent has not waited for it yet
	return !state.empty() && state[0] != 'Z' && state[0] != 'X' && process_start_time(pid) == start_time;
}

Mapping::Mapping(int fd, size_t offset, size_t bytes) : bytes_(bytes)
{
	memory_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, static_cast<off_t>(offset));
	if (memory_ == MAP_FAILED) {
		const int error = errno;
		memory_ = nullptr;
		throw Error(PT2P_ERR_SHARED_MEMORY,
		            format("cannot map a shared segment: %zu bytes of address space needed, %s: %s", bytes,
		                   address_space_left().c_str(), errno_text(error).c_str()));
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
	// A file in memory without a limit of its own takes pages until the machine has none left and kills a process.
	unsigned long long available = bytes >= large_reservation ? memory_left() : ULLONG_MAX;
	if (bytes > available)
		throw Error(PT2P_ERR_SHARED_MEMORY,
		            format("cannot reserve memory for %s: %zu bytes needed, %llu bytes available on "
		                   "this machine",
		                   what, bytes, available));
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
	                                           "available: %s",
	                                           what, bytes, available, errno_text(error).c_str()));
}

int populate(void *memory, size_t bytes)
{
	while (madvise(memory, bytes, MADV_POPULATE_WRITE) != 0)
		if (errno != EINTR)
			return errno;
	return 0;
}

FileDescriptor open_file_of(uint32_t pid, uint64_t start_time, int number, size_t bytes)
{
	FileDescriptor fd(open(format("/proc/%u/fd/%d", pid, number).c_str(), O_RDWR | O_CLOEXEC));
	if (!fd) {
		const int error = errno;
		// What this process lacks tells nothing about the peer.
		if (const std::string remedy = remedy_of(error); !remedy.empty())
			throw Error(PT2P_ERR_SYSTEM, format("cannot open shared memory of process %u: %s%s", pid,
			                                    errno_text(error).c_str(), remedy.c_str()));
		// A process that is ending, or has finalized, has closed the file already.
		if (error == ENOENT || !process_lives(pid, start_time))
			throw Error(PT2P_ERR_PEER_LOST, format("process %u is gone", pid));
		throw Error(PT2P_ERR_SHARED_MEMORY,
		            format("cannot open shared memory of process %u: %s (both ranks must run as the same user, with "
		                   "/proc mounted, and neither may be set-user-id)",
		                   pid, errno_text(error).c_str()));
	}
	struct stat about;
	if (fstat(fd.get(), &about) != 0 || about.st_uid != geteuid() || about.st_size < static_cast<off_t>(bytes))
		throw Error(PT2P_ERR_PROTOCOL,
		            format("descriptor %d of process %u is not the shared memory of %zu bytes or more, of "
		                   "this user, that was published",
		                   number, pid, bytes));
	return fd;
}

} // namespace pt2p
