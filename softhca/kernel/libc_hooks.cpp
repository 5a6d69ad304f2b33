// The functions of libc that this library interposes. Each checks first, cheaply, whether the call is about one of its
// devices, and passes everything else to the real function.
//
// A program that bypasses these symbols (a static libc, a system call of its own) does not see the devices.
#undef _FORTIFY_SOURCE // its inline versions would collide with the definitions here
#include <cerrno>
#include <cstdarg>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "softhca/exact/exact.hpp"
#include "softhca/kernel/context.hpp"
#include "softhca/kernel/real.hpp"
#include "softhca/nic/scheduler.hpp"
#include "softhca/process.hpp"

namespace softhca {

namespace {

template <class F>
F *next(const char *name)
{
	return reinterpret_cast<F *>(dlsym(RTLD_NEXT, name));
}
// The function that this library interposes; looked up once.
#define REAL(name)                                                                                                     \
	([] {                                                                                                              \
		static auto *const f = next<decltype(::name)>(#name);                                                          \
		return f;                                                                                                      \
	}())

// The device that a path names; -1 for any other path.
int device_of(const char *path)
{
	static constexpr char prefix[] = "/dev/infiniband/uverbs";
	if (!path || std::strncmp(path, prefix, sizeof prefix - 1) != 0)
		return -1;
	char *end;
	const long n = std::strtol(path + sizeof prefix - 1, &end, 10);
	const Fabric *fabric = Fabric::get();
	return fabric && *end == 0 && end != path + sizeof prefix - 1 && n >= 0 && n < static_cast<long>(fabric->devices())
	           ? static_cast<int>(n)
	           : -1;
}

void describe(unsigned device, struct stat *status)
{
	std::memset(status, 0, sizeof *status);
	status->st_mode = S_IFCHR | 0666;
	status->st_rdev = makedev(cdev_major, cdev_first_minor + device);
	status->st_nlink = 1;
	status->st_blksize = 4096;
}

mode_t mode_of(int flags, va_list list) { return flags & (O_CREAT | __O_TMPFILE) ? va_arg(list, mode_t) : 0; }

int open_device(int device, int flags)
{
	return Context::open(process_nic(), *Fabric::get(), static_cast<unsigned>(device), flags & O_CLOEXEC);
}

int file_status(int fd, struct stat *status)
{
	if (const auto context = Context::find(fd)) {
		describe(context->device(), status);
		return 0;
	}
	return REAL(fstat)(fd, status);
}

// libibverbs reads the tree under SYSFS_PATH. A tree that the user has named has precedence.
[[gnu::constructor]] void announce()
{
	if (const Fabric *fabric = Fabric::get())
		setenv("SYSFS_PATH", fabric->sysfs().c_str(), 0);
}

} // namespace

namespace real {

int close(int fd) { return REAL(close)(fd); }
int fstat(int fd, struct stat *status) { return REAL(fstat)(fd, status); }
void *mmap(void *address, size_t bytes, int protection, int flags, int fd, off_t offset)
{
	return REAL(mmap)(address, bytes, protection, flags, fd, offset);
}
int munmap(void *address, size_t bytes) { return REAL(munmap)(address, bytes); }

} // namespace real

} // namespace softhca

using namespace softhca;

extern "C" {

// Defines a function of the open family. The last arguments are the names of its parameters.
#define DEFINE_OPEN(name, parameters, ...)                                                                             \
	int name parameters                                                                                                \
	{                                                                                                                  \
		if (const int device = device_of(path); device >= 0)                                                           \
			return open_device(device, flags);                                                                         \
		va_list list;                                                                                                  \
		va_start(list, flags);                                                                                         \
		const mode_t mode = mode_of(flags, list);                                                                      \
		va_end(list);                                                                                                  \
		return REAL(name)(__VA_ARGS__, mode);                                                                          \
	}
DEFINE_OPEN(open, (const char *path, int flags, ...), path, flags)
DEFINE_OPEN(open64, (const char *path, int flags, ...), path, flags)
DEFINE_OPEN(openat, (int directory, const char *path, int flags, ...), directory, path, flags)
DEFINE_OPEN(openat64, (int directory, const char *path, int flags, ...), directory, path, flags)
#undef DEFINE_OPEN

int stat(const char *path, struct stat *status) noexcept
{
	if (const int device = device_of(path); device >= 0) {
		describe(static_cast<unsigned>(device), status);
		return 0;
	}
	return REAL(stat)(path, status);
}

int access(const char *path, int mode) noexcept
{
	return device_of(path) >= 0 && !(mode & X_OK) ? 0 : REAL(access)(path, mode);
}

int stat64(const char *path, struct stat64 *status) noexcept
{
	static_assert(sizeof(struct stat) == sizeof(struct stat64));
	return stat(path, reinterpret_cast<struct stat *>(status));
}

// None of these calls another by its name: another library may have interposed it, and call the next of these.
int fstat(int fd, struct stat *status) noexcept { return file_status(fd, status); }
int fstat64(int fd, struct stat64 *status) noexcept { return file_status(fd, reinterpret_cast<struct stat *>(status)); }

// fstat in programs that were linked with a C library before 2.33; ThreadSanitizer turns every fstat into this.
int __fxstat(int, int fd, struct stat *status) noexcept { return file_status(fd, status); }
int __fxstat64(int, int fd, struct stat64 *status) noexcept
{
	return file_status(fd, reinterpret_cast<struct stat *>(status));
}

int close(int fd)
{
	Context::closing(fd);
	return REAL(close)(fd);
}

int ioctl(int fd, unsigned long request, ...) noexcept
{
	va_list list;
	va_start(list, request);
	void *argument = va_arg(list, void *);
	va_end(list);
	if (request == RDMA_VERBS_IOCTL)
		if (const auto context = Context::find(fd)) {
			const int error = context->ioctl(*static_cast<ib_uverbs_ioctl_hdr *>(argument));
			if (!error)
				return 0;
			errno = error;
			return -1;
		}
	return REAL(ioctl)(fd, request, argument);
}

// Exact mode is told when pages of a command file are mapped and unmapped. A library that interposes these functions
// (UCX does) hides that; the next command of the file finds such pages.
void *mmap(void *address, size_t bytes, int protection, int flags, int fd, off_t offset) noexcept
{
	void *memory = real::mmap(address, bytes, protection, flags, fd, offset);
	const bool of_device = exact::wanted() && offset >= static_cast<off_t>(dm_first_offset),
	           shared = time_is_virtual() && flags & MAP_SHARED && protection & PROT_WRITE;
	if (memory == MAP_FAILED || fd < 0 || !(of_device || shared))
		return memory;
	if (const auto context = Context::find(fd); !context && shared)
		process_scheduler().shared(memory, bytes);
	else if (context && of_device)
		exact::mapped(*context, memory, bytes, static_cast<uint64_t>(offset));
	return memory;
}

void *mmap64(void *address, size_t bytes, int protection, int flags, int fd, off64_t offset) noexcept
{
	return mmap(address, bytes, protection, flags, fd, offset);
}

int munmap(void *address, size_t bytes) noexcept
{
	if (exact::wanted())
		exact::unmapped(address, bytes);
	if (time_is_virtual())
		process_scheduler().unmapped(address, bytes);
	return real::munmap(address, bytes);
}

// Hides the kernel's own RDMA devices: without netlink, libibverbs reads SYSFS_PATH.
int socket(int domain, int type, int protocol) noexcept
{
	if (domain == AF_NETLINK && protocol == NETLINK_RDMA && Fabric::get()) {
		errno = EPROTONOSUPPORT;
		return -1;
	}
	return REAL(socket)(domain, type, protocol);
}

} // extern "C"
