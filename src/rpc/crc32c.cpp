#include "rpc/crc32c.hpp"

#include <array>
#include <cstring>

namespace pt2p::rpc {

namespace {

constexpr std::array<uint32_t, 256> make_table()
{
	std::array<uint32_t, 256> table{};
	for (uint32_t byte = 0; byte < 256; ++byte) {
		uint32_t crc = byte;
		for (int bit = 0; bit < 8; ++bit)
			crc = crc >> 1 ^ (crc & 1 ? UINT32_C(0x82f63b78) : 0);
		table[byte] = crc;
	}
	return table;
}

constexpr std::array<uint32_t, 256> table = make_table();

#if defined(__x86_64__)
[[gnu::target("sse4.2")]] uint32_t by_instruction(uint32_t crc, const unsigned char *at, size_t length)
{
	uint64_t wide = crc;
	for (; length >= 8; at += 8, length -= 8) {
		uint64_t word;
		std::memcpy(&word, at, sizeof word);
		wide = __builtin_ia32_crc32di(wide, word);
	}
	crc = static_cast<uint32_t>(wide);
	for (; length; ++at, --length)
		crc = __builtin_ia32_crc32qi(crc, *at);
	return crc;
}
#endif

} // namespace

uint32_t crc32c_portable(uint32_t before, const void *data, size_t length)
{
	const auto *at = static_cast<const unsigned char *>(data);
	uint32_t crc = ~before;
	for (; length; ++at, --length)
		crc = crc >> 8 ^ table[(crc ^ *at) & 0xff];
	return ~crc;
}

uint32_t crc32c(uint32_t before, const void *data, size_t length)
{
#if defined(__x86_64__)
	if (__builtin_cpu_supports("sse4.2"))
		return ~by_instruction(~before, static_cast<const unsigned char *>(data), length);
#endif
	return crc32c_portable(before, data, length);
}

} // namespace pt2p::rpc
