// The device memory of one opener: which blocks are in use, and this library's mapping of it.
#pragma once

#include <cstdint>
#include <sys/mman.h>
#include <vector>

#include "softhca/kernel/device.hpp"
#include "softhca/kernel/objects.hpp"
#include "softhca/kernel/real.hpp"

namespace softhca {

class DeviceMemory {
public:
	DeviceMemory() = default;
	DeviceMemory(const DeviceMemory &) = delete;
	DeviceMemory &operator=(const DeviceMemory &) = delete;
	~DeviceMemory()
	{
		if (memory_)
			munmap(memory_, max_dm_bytes);
	}

	// Maps it, unless it is mapped, from the command file. False when that fails.
	bool map(int fd)
	{
		if (memory_)
			return true;
		constexpr auto offset = static_cast<off_t>(dm_first_offset);
		void *memory = real::mmap(nullptr, max_dm_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, offset);
		if (memory == MAP_FAILED)
			return false;
		memory_ = static_cast<uint8_t *>(memory);
		return true;
	}
	uint8_t *bytes() const { return memory_; }
	bool contains(const uint8_t *address) const
	{
		return memory_ && address >= memory_ && address < memory_ + max_dm_bytes;
	}

	// The first free range of so many blocks; dm_blocks when there is none.
	size_t find(size_t blocks, size_t alignment) const
	{
		for (size_t at = 0; at + blocks <= dm_blocks; at += alignment) {
			size_t n = 0;
			while (n < blocks && !used_[at + n])
				++n;
			if (n == blocks)
				return at;
		}
		return dm_blocks;
	}
	void mark(const Dm &dm, bool used)
	{
		const size_t end = (dm.offset + dm.length + dm_block_bytes - 1) / dm_block_bytes;
		for (size_t block = dm.offset / dm_block_bytes; block < end; ++block)
			used_[block] = used;
	}

private:
	std::vector<bool> used_ = std::vector<bool>(dm_blocks);
	uint8_t *memory_ = nullptr;
};

} // namespace softhca
