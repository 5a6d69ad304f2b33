// Tells when processes end: by pidfds in one epoll.
#pragma once

#include <cerrno>
#include <cstdint>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <utility>

#include "base/memory/shared_file.hpp"
#include "base/report/report.hpp"

namespace pt2p::shm {

class ProcessWatch {
public:
	// Throws Error(PT2P_ERR_SYSTEM).
	ProcessWatch() : epoll_(epoll_create1(EPOLL_CLOEXEC))
	{
		if (!epoll_) {
			const int error = errno;
			throw Error(PT2P_ERR_SYSTEM,
			            format("epoll_create1: %s%s", errno_text(error).c_str(), remedy_of(error).c_str()));
		}
	}

	// Watches a process, known by `index`. Without a descriptor for that, `process` stays closed. False: the process
	// has ended. Throws Error(PT2P_ERR_SYSTEM) when that cannot be found out for now.
	bool add(uint32_t index, pid_t pid, uint64_t start_time, FileDescriptor &process)
	{
		FileDescriptor opened(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
		const bool gone = !opened && errno == ESRCH;
		// The pid could have been reused before it was opened.
		if (gone || !process_lives(static_cast<uint32_t>(pid), start_time))
			return false;
		epoll_event e{};
		e.events = EPOLLIN;
		e.data.u32 = index;
		if (opened && epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, opened.get(), &e) == 0)
			process = std::move(opened);
		return true;
	}
	void remove(const FileDescriptor &process) { epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, process.get(), nullptr); }
	// Calls `function` with the index of some processes that have ended. It must remove each of them.
	template <class F>
	void for_each_ended(F &&function)
	{
		epoll_event events[16];
		const int n = epoll_wait(epoll_.get(), events, 16, 0);
		for (int i = 0; i < n; ++i)
			function(events[i].data.u32);
	}

private:
	FileDescriptor epoll_;
};

} // namespace pt2p::shm
