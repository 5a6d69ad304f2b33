// Memory whose stores are trapped, for tests.
#pragma once

#include <catch2/catch.hpp>

#include <cerrno>
#include <mutex>
#include <sys/mman.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "softhca/exact/traps.hpp"

namespace trapped {

using namespace softhca;

constexpr size_t page_bytes = 4096;

using Stores = std::vector<std::pair<size_t, size_t>>; // offset and length

inline Stores repeat(size_t count, size_t from, long distance, size_t bytes)
{
	Stores stores;
	for (size_t i = 0; i < count; ++i)
		stores.emplace_back(from + static_cast<size_t>(distance) * i, bytes);
	return stores;
}

// Some memory, mapped twice.
class Memory {
public:
	explicit Memory(size_t count = 1) : bytes(count * page_bytes)
	{
		const int fd = memfd_create("traps", MFD_CLOEXEC);
		REQUIRE(fd >= 0);
		REQUIRE(ftruncate(fd, static_cast<off_t>(bytes)) == 0);
		void *const first = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		void *const second = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		close(fd);
		REQUIRE(first != MAP_FAILED);
		REQUIRE(second != MAP_FAILED);
		page = static_cast<uint8_t *>(first);
		alias = static_cast<uint8_t *>(second);
	}
	~Memory()
	{
		munmap(page, bytes);
		munmap(alias, bytes);
	}
	Memory(const Memory &) = delete;
	Memory &operator=(const Memory &) = delete;

	const size_t bytes;
	uint8_t *page, *alias;
};

// And all of it trapped.
class Trapped : public Memory {
public:
	explicit Trapped(size_t count = 1) : Memory(count) { REQUIRE(trap_stores(page, bytes, alias, seen, this)); }
	~Trapped() { release_stores(page); }

	Stores take()
	{
		const std::lock_guard guard(mutex_);
		return std::exchange(stores_, {});
	}

private:
	static void seen(void *argument, size_t offset, size_t bytes)
	{
		Trapped &self = *static_cast<Trapped *>(argument);
		const std::lock_guard guard(self.mutex_);
		self.stores_.emplace_back(offset, bytes);
		errno = EBADMSG; // which the program must not see
	}

	std::mutex mutex_;
	Stores stores_;
};

} // namespace trapped
