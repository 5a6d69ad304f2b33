// Charges the program for its copies of memory. Copies of a size that the compiler knows never get here: they are short
// and part of what posting and polling cost.
#include <cstddef>
#include <cstdint>
#include <dlfcn.h>

#include "softhca/time/virtual_time.h"

// Where the code of this library is.
extern "C" {
[[gnu::visibility("hidden")]] extern const char __ehdr_start, etext;
}

namespace {

struct Costs {
	uint64_t ps_per_kib = 0;
	uintptr_t device = 0, device_bytes = 0; // the code that stands for the device, whose copies are not the program's
};
Costs costs;

bool is_in(const void *place, uintptr_t code, uintptr_t bytes)
{
	return reinterpret_cast<uintptr_t>(place) - code < bytes;
}

inline void charge(size_t bytes, const void *caller)
{
	static const auto own = reinterpret_cast<uintptr_t>(&__ehdr_start),
	                  own_bytes = reinterpret_cast<uintptr_t>(&etext) - own;
	if (costs.ps_per_kib && !is_in(caller, costs.device, costs.device_bytes) && !is_in(caller, own, own_bytes))
		softhca_time_charge(bytes * costs.ps_per_kib / 1024);
}

using Copy = void *(void *, const void *, size_t);
Copy *next(const char *name) { return reinterpret_cast<Copy *>(dlsym(RTLD_NEXT, name)); }

} // namespace

extern "C" {

void softhca_time_copies(uint64_t ps_per_kib, const void *device, const void *device_end)
{
	const auto begin = reinterpret_cast<uintptr_t>(device);
	costs = {ps_per_kib, begin, reinterpret_cast<uintptr_t>(device_end) - begin};
}

void *memcpy(void *__restrict to, const void *__restrict from, size_t bytes) noexcept
{
	static Copy *const real = next("memcpy");
	charge(bytes, __builtin_return_address(0));
	return real(to, from, bytes);
}

void *memmove(void *to, const void *from, size_t bytes) noexcept
{
	static Copy *const real = next("memmove");
	charge(bytes, __builtin_return_address(0));
	return real(to, from, bytes);
}
}
