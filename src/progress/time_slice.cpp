#include "progress/time_slice.hpp"

#include <cerrno>

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace pt2p {

namespace {

// sched_setattr(2), as of its first version; glibc declares it from 2.41 on only.
struct Attributes {
	uint32_t size;
	uint32_t policy;
	uint64_t flags;
	int32_t nice;
	uint32_t priority;
	uint64_t runtime; // of a thread without real-time policy: its time slice
	uint64_t deadline, period;
};

} // namespace

void ask_for_time_slice(int64_t length)
{
	static thread_local int64_t asked_for = 0;
	if (asked_for == length)
		return;
	asked_for = length;
	const int kept = errno;
	Attributes attributes{};
	// Before Linux 6.12 the slice is told as 0, and nothing can be asked for. A shorter one is the program's own
	// choice.
	if (syscall(SYS_sched_getattr, 0, &attributes, sizeof attributes, 0) == 0 && attributes.policy == SCHED_OTHER &&
	    attributes.runtime > static_cast<uint64_t>(length)) {
		attributes.runtime = static_cast<uint64_t>(length);
		syscall(SYS_sched_setattr, 0, &attributes, 0);
	}
	errno = kept;
}

} // namespace pt2p
