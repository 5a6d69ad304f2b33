// Copies short payload without a call.
#pragma once

#include <cstddef>
#include <cstring>

namespace pt2p {

// As memcpy; most are of 8 bytes.
inline void copy_short(unsigned char *to, const void *from, size_t length)
{
	const auto *bytes = static_cast<const unsigned char *>(from);
	if (__builtin_expect(length == 8, 1)) {
		std::memcpy(to, bytes, 8);
	} else if (length > 8) {
		size_t at = 0;
		do
			std::memcpy(to + at, bytes + at, 8);
		while ((at += 8) + 8 <= length);
		std::memcpy(to + length - 8, bytes + length - 8, 8);
	} else if (length >= 4) {
		std::memcpy(to, bytes, 4);
		std::memcpy(to + length - 4, bytes + length - 4, 4);
	} else {
		for (size_t i = 0; i < length; ++i)
			to[i] = bytes[i];
	}
}

} // namespace pt2p
