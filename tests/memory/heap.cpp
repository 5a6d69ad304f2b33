// SPDX-License-Identifier: BSD-3-Clause
#include "tests/memory/heap.hpp"

#include <cstdlib>
#include <new>

#include <malloc.h>

namespace {

size_t bytes_live = 0;

} // namespace

size_t heap::live() { return bytes_live; }

void *operator new(size_t bytes)
{
	void *p = malloc(bytes);
	if (!p)
		throw std::bad_alloc();
	bytes_live += malloc_usable_size(p);
	return p;
}
void *operator new(size_t bytes, std::align_val_t alignment)
{
	void *p = aligned_alloc(static_cast<size_t>(alignment),
	                        (bytes + static_cast<size_t>(alignment) - 1) & ~(static_cast<size_t>(alignment) - 1));
	if (!p)
		throw std::bad_alloc();
	bytes_live += malloc_usable_size(p);
	return p;
}
void operator delete(void *p) noexcept
{
	if (p)
		bytes_live -= malloc_usable_size(p);
	free(p);
}
void operator delete(void *p, size_t) noexcept { operator delete(p); }
void operator delete(void *p, std::align_val_t) noexcept { operator delete(p); }
void operator delete(void *p, size_t, std::align_val_t) noexcept { operator delete(p); }
void *operator new[](size_t bytes) { return operator new(bytes); }
void *operator new[](size_t bytes, std::align_val_t alignment) { return operator new(bytes, alignment); }
void operator delete[](void *p) noexcept { operator delete(p); }
void operator delete[](void *p, size_t) noexcept { operator delete(p); }
void operator delete[](void *p, std::align_val_t) noexcept { operator delete(p); }
void operator delete[](void *p, size_t, std::align_val_t) noexcept { operator delete(p); }
