#include "ofi/waiting.hpp"

#include <cerrno>

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "ofi/completion.hpp"
#include "ofi/fabric.hpp"

namespace pt2p_ofi {

WaitDescriptor::~WaitDescriptor()
{
	if (fd_ >= 0)
		close(fd_);
}

int WaitDescriptor::open()
{
	fd_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	return fd_ < 0 ? -errno : 0;
}

void WaitDescriptor::signal()
{
	const uint64_t one = 1;
	if (used_ && !signalled_ && fd_ >= 0)
		signalled_ = write(fd_, &one, sizeof one) == sizeof one;
}

void WaitDescriptor::take_signal()
{
	uint64_t count;
	signalled_ = read(fd_, &count, sizeof count) != sizeof count;
}

bool WaitDescriptor::wait(int timeout) const
{
	pollfd p{fd_, POLLIN, 0};
	return poll(&p, 1, timeout) > 0;
}

bool is_offered(fi_wait_obj object, fi_log_subsys subsystem)
{
	switch (object) {
	case FI_WAIT_NONE:
	case FI_WAIT_UNSPEC:
	case FI_WAIT_FD:
	case FI_WAIT_YIELD: return true;
	default:
		PT2P_OFI_WARN(subsystem, "wait object %d is not offered; FI_WAIT_FD, FI_WAIT_UNSPEC and FI_WAIT_YIELD are\n",
		              static_cast<int>(object));
		return false;
	}
}

int control_wait(WaitDescriptor &wait, int command, void *argument)
{
	switch (command) {
	case FI_GETWAIT:
		if (!wait.is_open())
			return -FI_ENOSYS;
		*static_cast<int *>(argument) = wait.give();
		return 0;
	case FI_GETWAITOBJ: *static_cast<fi_wait_obj *>(argument) = wait.is_open() ? FI_WAIT_FD : FI_WAIT_NONE; return 0;
	default: return -FI_ENOSYS;
	}
}

int try_wait(fid *object)
{
	const auto try_one = [](auto &o, auto &&has_something) {
		if (!o.may_wait)
			return -FI_EINVAL;
		o.reporters.progress();
		const Locked locked(o.lock);
		if (has_something(o))
			return -FI_EAGAIN;
		o.wait.prepare();
		return 0;
	};
	switch (object->fclass) {
	case FI_CLASS_CQ: return try_one(*object_of<Cq>(object), [](const Cq &cq) { return !cq.empty() || cq.woken; });
	case FI_CLASS_CNTR:
		return try_one(*object_of<Counter>(object), [](const Counter &c) { return c.value + c.errors != c.seen; });
	case FI_CLASS_EQ: return try_wait_events(object);
	default: return -FI_EINVAL;
	}
}

} // namespace pt2p_ofi
