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
#include "softhca/nic/nic.hpp"
#include "softhca/kernel/real.hpp"

namespace softhca {

namespace {

// The descriptors of this process. Looked at in every close(), hence the counter before the lock.
struct Opened {
	struct Entry {
		std::shared_ptr<Context> context;
		dev_t device;
		ino_t inode;
	};
	std::mutex mutex;
	std::map<int, Entry> entries;
	std::atomic<unsigned> count = 0;
};
Opened &opened()
{
	static Opened &o = *new Opened; // never destroyed, see Fabric::get
	return o;
}

} // namespace

EventPipe::EventPipe()
{
	int fds[2];
	if (pipe2(fds, O_CLOEXEC) != 0)
		return;
	read_fd_ = fds[0];
	write_fd_ = fds[1];
	// The device never waits for a reader.
	fcntl(write_fd_, F_SETFL, O_NONBLOCK);
}

EventPipe::~EventPipe()
{
	if (write_fd_ >= 0)
		real::close(write_fd_);
}

uint32_t EventPipe::remove(uint64_t owner, size_t bytes)
{
	// A description of our own, which does not block; the program's may.
	const int fd = ::open(("/proc/self/fd/" + std::to_string(read_fd_)).c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		return 0;
	std::vector<uint8_t> others, record(bytes);
	uint32_t removed = 0;
	while (read(fd, record.data(), bytes) == static_cast<ssize_t>(bytes)) {
		uint64_t whose;
		std::memcpy(&whose, record.data(), sizeof whose);
		if (whose == owner)
			++removed;
		else
			others.insert(others.end(), record.begin(), record.end());
	}
	real::close(fd);
	for (size_t at = 0; at < others.size(); at += bytes)
		put(&others[at], bytes);
	return removed;
}

Context::~Context()
{
	const std::lock_guard guard(Nic::get().mutex);
	Nic &nic = Nic::get();
	nic.remove(*this);
	if (nic.model())
		nic.model()->forget(*this);
	exact::forget_pages(*this);
	qps_.for_each([this](Qp &qp) { remove_qp(qp); });
	cqs_.for_each([](Cq &cq) { Nic::get().forget(cq); });
	if (dm_memory_)
		munmap(dm_memory_, max_dm_bytes);
}

bool Context::report(Event event, uint64_t element)
{
	const ib_uverbs_async_event_desc record{element, static_cast<uint32_t>(event), 0};
	return async_ && async_->put(&record, sizeof record);
}

uint64_t Context::take_consumed()
{
	uint64_t n = 0;
	cqs_.for_each([&](Cq &cq) { n += cq.take_consumed(); });
	return n;
}

void Context::forked() { new (&opened().mutex) std::mutex; }

int Context::open(const Fabric &fabric, unsigned device, bool close_on_exec)
{
	if (device >= fabric.devices()) {
		errno = ENOENT;
		return -1;
	}
	const int fd = memfd_create("softhca", close_on_exec ? MFD_CLOEXEC : 0);
	if (fd < 0)
		return -1;
	struct stat status;
	if (ftruncate(fd, static_cast<off_t>(uar_first_offset + most_uars * uar_bytes)) != 0 ||
	    real::fstat(fd, &status) != 0) {
		const int error = errno;
		real::close(fd);
		errno = error;
		return -1;
	}
	const std::shared_ptr<Context> context(new Context(fabric, device, fd, status.st_ino));
	{
		const std::lock_guard nic_guard(Nic::get().mutex);
		Nic::get().add(*context);
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
	std::shared_ptr<Context> last; // freed when the lock has been given back
	const std::lock_guard guard(o.mutex);
	if (const auto found = o.entries.find(fd); found != o.entries.end()) {
		last = std::move(found->second.context);
		o.entries.erase(found);
		o.count = static_cast<unsigned>(o.entries.size());
		return;
	}
	const std::lock_guard nic_guard(Nic::get().mutex);
	for (const auto &[other, entry] : o.entries)
		entry.context->drop_events(fd);
}

// The user closes an event file: nobody will read what is put there.
void Context::drop_events(int fd)
{
	channels_.erase(fd);
	if (async_ && async_->user_fd() == fd)
		async_.reset();
}

} // namespace softhca
