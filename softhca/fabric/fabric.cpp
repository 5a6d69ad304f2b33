#include "softhca/fabric/fabric.hpp"

#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <sched.h>
#include <stdexcept>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "softhca/fabric/sysfs.hpp"
#include "softhca/kernel/device.hpp"
#include "softhca/kernel/real.hpp"
#include "softhca/time/virtual_time.h"

namespace softhca {

namespace {

constexpr unsigned max_hosts = 1024;

// The file `registry`. A lock on the file guards it; a process that dies releases the lock.
struct Registry {
	uint32_t hosts;
	struct Host {
		uint32_t devices;
		char identity[124];
	} host[max_hosts];
};

[[noreturn]] void fail(const std::string &what) { throw std::runtime_error(what + ": " + std::strerror(errno)); }

// Identifies the host: the host name and the network name space's inode number.
std::string identity()
{
	char name[HOST_NAME_MAX + 1] = "";
	if (gethostname(name, sizeof name - 1) != 0)
		fail("gethostname");
	struct stat netns;
	const unsigned long long inode = stat("/proc/self/ns/net", &netns) == 0 ? netns.st_ino : 0;
	char text[sizeof Registry::Host::identity];
	std::snprintf(text, sizeof text, "%llu %s", inode, name);
	return text;
}

// The number of this host, given to it when its first process comes; `devices` becomes what that process has asked for.
unsigned register_host(const std::string &directory, unsigned &devices)
{
	const std::string path = directory + "/registry";
	const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
	if (fd < 0)
		fail(path);
	int locked;
	while ((locked = flock(fd, LOCK_EX)) != 0 && errno == EINTR)
		;
	if (locked != 0 || ftruncate(fd, sizeof(Registry)) != 0) {
		close(fd);
		fail(path);
	}
	void *memory = real::mmap(nullptr, sizeof(Registry), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (memory == MAP_FAILED) {
		close(fd);
		fail(path);
	}
	auto &registry = *static_cast<Registry *>(memory);
	const std::string me = identity();
	unsigned host = 0;
	while (host < registry.hosts && me != registry.host[host].identity)
		++host;
	if (host == registry.hosts && host < max_hosts) {
		me.copy(registry.host[host].identity, sizeof registry.host[host].identity - 1);
		registry.host[host].devices = devices;
		++registry.hosts;
	}
	if (host < max_hosts)
		devices = registry.host[host].devices;
	real::munmap(memory, sizeof(Registry));
	close(fd); // releases the lock
	if (host >= max_hosts)
		throw std::runtime_error(path + ": a fabric has at most " + std::to_string(max_hosts) + " hosts");
	return host;
}

unsigned device_count()
{
	const char *text = std::getenv("SOFTHCA_DEVICES");
	if (!text || !*text)
		return 1;
	char *end;
	const unsigned long n = std::strtoul(text, &end, 10);
	const unsigned most = time_is_virtual() ? max_devices : max_live_devices;
	if (*end || n < 1 || n > most)
		throw std::runtime_error("SOFTHCA_DEVICES is " + std::string(text) + ", allowed: 1 to " + std::to_string(most));
	return static_cast<unsigned>(n);
}

} // namespace

Fabric::Fabric(const char *directory)
    : directory_(directory), devices_(device_count()), host_(register_host(directory, devices_)),
      sysfs_(std::string(directory) + "/host" + std::to_string(host_))
{
	make_sysfs(sysfs_, host_, devices_);
}

const Fabric *Fabric::get()
{
	// Never destroyed: other libraries call in until the very end of the process.
	static const Fabric *const fabric = []() -> const Fabric * {
		const char *directory = std::getenv("SOFTHCA_FABRIC");
		if (!directory || !*directory)
			return nullptr;
		try {
			return new Fabric(directory);
		} catch (const std::exception &e) {
			std::fprintf(stderr, "softhca: no device in this process: %s\n", e.what());
			return nullptr;
		}
	}();
	return fabric;
}

} // namespace softhca
