#include "softhca/kernel/context.hpp"

#include <atomic>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <new>
#include <rdma/ib_user_verbs.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "softhca/exact/exact.hpp"
#include "softhca/kernel/commands/commands.hpp"
#include "softhca/kernel/event_pipe.hpp"
#include "softhca/kernel/real.hpp"
#include "softhca/nic/nic.hpp"

namespace softhca {

namespace {

// The descriptors of this process. Every close() looks here, hence the counter before the lock.
struct Opened {
	struct Entry {
		std::shared_ptr<Context> context;
		dev_t device;
		ino_t inode;
	};
	std::mutex mutex;
	std::unordered_map<int, Entry> entries;
	std::atomic<unsigned> count = 0;
};
Opened &opened()
{
	static Opened &o = *new Opened; // never destroyed, see Fabric::get
	return o;
}

} // namespace

Context::~Context()
{
	const std::lock_guard guard(nic_.mutex);
	nic_.remove(*this);
	exact::forget_pages(*this);
	objects.qps.for_each([](Qp &qp) { commands::remove_qp(qp); });
	objects.cqs.for_each([this](Cq &cq) { nic_.forget(cq); });
}

bool Context::report(Event event, uint64_t element)
{
	const ib_uverbs_async_event_desc record{element, static_cast<uint32_t>(event), 0};
	return objects.async && objects.async->put(&record, sizeof record);
}

uint64_t Context::take_consumed()
{
	uint64_t n = 0;
	objects.cqs.for_each([&](Cq &cq) { n += cq.take_consumed(); });
	return n;
}

void Context::forked() { new (&opened().mutex) std::mutex; }

int Context::open(Nic &nic, const Fabric &fabric, unsigned device, bool close_on_exec)
{
	if (device >= fabric.devices()) {
		errno = ENOENT;
		return -1;
	}
	const int fd = memfd_create("softhca", close_on_exec ? MFD_CLOEXEC : 0);
	if (fd < 0)
		return -1;
	struct stat status;
	if (ftruncate(fd, static_cast<off_t>(uar_first_offset + max_uars * uar_bytes)) != 0 ||
	    real::fstat(fd, &status) != 0) {
		const int error = errno;
		real::close(fd);
		errno = error;
		return -1;
	}
	const std::shared_ptr<Context> context(new Context(nic, fabric, device, fd, status.st_ino));
	{
		const std::lock_guard nic_guard(nic.mutex);
		nic.devices.add(*context);
	}
	Opened &o = opened();
	const std::lock_guard guard(o.mutex);
	o.entries[fd] = {context, status.st_dev, status.st_ino};
	o.count = static_cast<unsigned>(o.entries.size());
	return fd;
}

std::shared_ptr<Context> Context::find(int fd)
{
	Opened &o = opened();
	if (!o.count)
		return nullptr;
	const std::lock_guard guard(o.mutex);
	if (const auto found = o.entries.find(fd); found != o.entries.end())
		return found->second.context;
	// A copy made by dup() is the same file.
	struct stat status;
	if (real::fstat(fd, &status) != 0)
		return nullptr;
	for (const auto &[other, entry] : o.entries)
		if (entry.inode == status.st_ino && entry.device == status.st_dev) {
			const Opened::Entry copy = entry;
			o.entries[fd] = copy;
			o.count = static_cast<unsigned>(o.entries.size());
			return copy.context;
		}
	return nullptr;
}

void Context::closing(int fd)
{
	Opened &o = opened();
	if (!o.count)
		return;
	std::shared_ptr<Context> last; // freed after the lock is released
	const std::lock_guard guard(o.mutex);
	if (const auto found = o.entries.find(fd); found != o.entries.end()) {
		last = std::move(found->second.context);
		o.entries.erase(found);
		o.count = static_cast<unsigned>(o.entries.size());
		return;
	}
	// This thread may have the device's lock: a sanitizer that reports an error of the device closes files.
	if (!EventPipe::close_user_end(fd))
		return;
	for (const auto &[other, entry] : o.entries) {
		const std::lock_guard nic_guard(entry.context->nic().mutex);
		entry.context->drop_events(fd);
	}
}

// The user closes an event file: nobody will read its events.
void Context::drop_events(int fd)
{
	objects.channels.erase(fd);
	if (objects.async && objects.async->user_fd() == fd)
		objects.async.reset();
}

} // namespace softhca
