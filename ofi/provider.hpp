// What all parts of the libfabric provider share. The provider stands on the public interface of libpt2p alone.
//
// Each object that a program gets from libfabric begins with its fid, so a fid leads to its object by a cast.
#pragma once

#include <cstdint>
#include <mutex>
#include <type_traits>

#include <rdma/fabric.h>
#include <rdma/fi_errno.h>
#include <rdma/providers/fi_log.h>
#include <rdma/providers/fi_prov.h>

#include "pt2p.h"

namespace pt2p_ofi {

extern fi_provider provider;

constexpr uint32_t provider_version = FI_VERSION(PT2P_VERSION_MAJOR, PT2P_VERSION_MINOR);

// An entry of a table of functions that is not offered: converts to a function of any type that says so.
struct NotOffered {
	template <class R, class... A>
	using Function = R (*)(A...);
	template <class R, class... A>
	constexpr operator Function<R, A...>() const
	{
		return [](A...) -> R { return static_cast<R>(-FI_ENOSYS); };
	}
};
constexpr NotOffered not_offered;

// The object that begins with this fid.
template <class T, class F>
T *object_of(F *fid)
{
	return reinterpret_cast<T *>(fid);
}

// The functions that all kinds of objects have.
constexpr fi_ops object_ops(int (*close)(fid *), int (*bind)(fid *, fid *, uint64_t) = not_offered,
                            int (*control)(fid *, int, void *) = not_offered)
{
	return {.size = sizeof(fi_ops),
	        .close = close,
	        .bind = bind,
	        .control = control,
	        .ops_open = not_offered,
	        .tostr = not_offered,
	        .ops_set = not_offered};
}

// A lock that costs a comparison where one thread works on an object at a time.
class Lock {
public:
	void lock() noexcept
	{
		if (__builtin_expect(on_, 0))
			lock_mutex();
	}
	void unlock() noexcept
	{
		if (__builtin_expect(on_, 0))
			unlock_mutex();
	}
	// Before any other thread works on the object. Later calls write nothing, as others read it then.
	void enable()
	{
		if (!on_)
			on_ = true;
	}
	bool enabled() const { return on_; }

private:
	// Their code is out of the way.
	[[gnu::noinline, gnu::cold]] void lock_mutex() noexcept { mutex_.lock(); }
	[[gnu::noinline, gnu::cold]] void unlock_mutex() noexcept { mutex_.unlock(); }

	bool on_ = false;
	std::mutex mutex_;
};
using Locked = std::lock_guard<Lock>;

// The error of libfabric for a status: positive.
int errno_of(pt2p_status_t status);
// Logs why a call of libpt2p has failed, and returns the negative error.
int failed(pt2p_status_t status, const pt2p_context_t *ctx, fi_log_subsys subsystem);

// For functions that explain an error: copies the text if there is a buffer, and returns it.
const char *copy_text(const char *text, char *buffer, size_t length);

// From one function for all objects: no exception crosses the boundary.
template <class F>
int guarded(F &&function) noexcept
{
	try {
		return function();
	} catch (...) {
		return -FI_ENOMEM;
	}
}

#define PT2P_OFI_WARN(subsystem, ...) FI_WARN(&pt2p_ofi::provider, subsystem, __VA_ARGS__)
#define PT2P_OFI_INFO(subsystem, ...) FI_INFO(&pt2p_ofi::provider, subsystem, __VA_ARGS__)

int getinfo(uint32_t version, const char *node, const char *service, uint64_t flags, const fi_info *hints,
            fi_info **info);
int open_fabric(fi_fabric_attr *attributes, fid_fabric **fabric, void *context);

} // namespace pt2p_ofi
