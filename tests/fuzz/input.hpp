// The fuzzer's input, taken apart from its beginning. There are zeros after its end.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

struct Input {
	const uint8_t *data;
	size_t size;
	bool empty() const { return size == 0; }
	// Little endian.
	uint64_t number(size_t bytes)
	{
		uint64_t n = 0;
		bytes = std::min(bytes, size);
		std::memcpy(&n, data, bytes);
		data += bytes;
		size -= bytes;
		return n;
	}
	uint8_t byte() { return static_cast<uint8_t>(number(1)); }
};
