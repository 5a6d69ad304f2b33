// memcpy for short messages, without a call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace pt2p {

// Copies in pieces that overlap at the end. Meant for up to about a hundred bytes; quickest for 8.
[[gnu::always_inline]] inline void copy_short(void *to, const void *from, size_t n)
{
	auto *t = static_cast<unsigned char *>(to);
	const auto *f = static_cast<const unsigned char *>(from);
	const auto both_ends = [=](auto piece) {
		decltype(piece) head, tail;
		std::memcpy(&head, f, sizeof piece);
		std::memcpy(&tail, f + n - sizeof piece, sizeof piece);
		std::memcpy(t, &head, sizeof piece);
		std::memcpy(t + n - sizeof piece, &tail, sizeof piece);
	};
	struct Sixteen {
		uint64_t low, high;
	};
	if (__builtin_expect(n == 8, 1)) {
		std::memcpy(t, f, 8);
	} else if (n >= 16) {
		for (size_t i = 16; i + 16 < n; i += 16)
			std::memcpy(t + i, f + i, 16);
		both_ends(Sixteen{});
	} else if (n >= 8) {
		both_ends(uint64_t{});
	} else if (n >= 4) {
		both_ends(uint32_t{});
	} else if (n) {
		t[0] = f[0];
		t[n / 2] = f[n / 2];
		t[n - 1] = f[n - 1];
	}
}

} // namespace pt2p
