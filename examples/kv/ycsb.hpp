// SPDX-License-Identifier: BSD-3-Clause
//
// Load as YCSB makes it (Cooper et al., SoCC 2010): keys, lengths of values, and values that say which key they belong
// to.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <span>

namespace ycsb {

class Random { // xorshift64*
public:
	explicit Random(uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15u | 1) {}
	uint64_t operator()()
	{
		state_ ^= state_ >> 12;
		state_ ^= state_ << 25;
		state_ ^= state_ >> 27;
		return state_ * 0x2545f4914f6cdd1du;
	}
	uint64_t below(uint64_t bound) { return static_cast<uint64_t>(fraction() * static_cast<double>(bound)); }
	double fraction() { return static_cast<double>((*this)() >> 11) * 0x1p-53; } // [0, 1)

private:
	uint64_t state_;
};

inline uint64_t hash(uint64_t value) // FNV-1a, byte by byte
{
	uint64_t h = 0xcbf29ce484222325u;
	for (int i = 0; i < 8; ++i, value >>= 8)
		h = (h ^ (value & 0xff)) * 0x100000001b3u;
	return h;
}

// Items 0 ... items-1 with probabilities in proportion to 1/(item+1)^theta, by the method of Gray et al. (SIGMOD 1994).
// It is exact for the first two.
class Zipf {
public:
	explicit Zipf(uint64_t items, double theta = 0.99) : Zipf(items, theta, zeta(items, theta)) {}
	// zeta: of all items, for who knows it.
	Zipf(uint64_t items, double theta, double zeta)
	    : items_(static_cast<double>(items)), zeta_(zeta), zeta_2_(1 + std::pow(0.5, theta)), alpha_(1 / (1 - theta)),
	      eta_((1 - std::pow(2 / items_, 1 - theta)) / (1 - zeta_2_ / zeta))
	{
	}
	uint64_t operator()(Random &random) const
	{
		const double u = random.fraction(), uz = u * zeta_;
		if (uz < 1)
			return 0;
		if (uz < zeta_2_)
			return 1;
		const double item = items_ * std::pow(eta_ * u - eta_ + 1, alpha_);
		return static_cast<uint64_t>(std::min(item, items_ - 1));
	}
	static double zeta(uint64_t items, double theta)
	{
		const uint64_t first = std::min<uint64_t>(items, 10'000);
		double sum = 0;
		for (uint64_t i = 1; i <= first; ++i)
			sum += std::pow(static_cast<double>(i), -theta);
		// The others by the formula of Euler and Maclaurin; both terms are 0 when there are none.
		const double from = static_cast<double>(first), to = static_cast<double>(items);
		sum += (std::pow(to, 1 - theta) - std::pow(from, 1 - theta)) / (1 - theta);
		sum += (std::pow(to, -theta) - std::pow(from, -theta)) / 2;
		return sum;
	}

private:
	double items_, zeta_, zeta_2_, alpha_, eta_;
};

// Lengths as of short texts: 1 ... 899 bytes, 43 in the mean. A geometric distribution has about as many above 512
// bytes as were counted among such texts, some seven of a million.
inline size_t text_length(Random &random)
{
	return std::min<size_t>(899, 1 + static_cast<size_t>(-42.5 * std::log(1 - random.fraction())));
}

inline constexpr size_t key_length = 16;

// Writes the key of an item: neighbours in popularity are no neighbours in the store.
inline void write_key(uint64_t item, std::span<char, key_length> key)
{
	uint64_t h = item * 0x9e3779b97f4a7c15u; // one to one, so keys of different items differ
	h = (h ^ h >> 29) * 0xbf58476d1ce4e5b9u;
	h ^= h >> 32;
	for (char &digit : key) {
		digit = "0123456789abcdef"[h & 15];
		h >>= 4;
	}
}

// A value: a seed in its first byte, and what follows from the seed, the key and the length.
template <class F>
void each_value_byte(uint64_t item, uint8_t seed, size_t length, F &&f)
{
	uint64_t word = 0;
	for (size_t i = 1; i < length; ++i, word >>= 8) {
		if (i % 8 == 1) {
			word = (item + (uint64_t(seed) << 56) + (length << 40) + (i << 32)) * 0x9e3779b97f4a7c15u;
			word ^= word >> 32;
		}
		f(i, static_cast<char>(word));
	}
}
inline void write_value(uint64_t item, uint8_t seed, std::span<char> value)
{
	if (!value.empty())
		value[0] = static_cast<char>(seed);
	each_value_byte(item, seed, value.size(), [&](size_t i, char byte) { value[i] = byte; });
}
inline bool right_value(uint64_t item, std::span<const char> value)
{
	bool right = true;
	if (!value.empty())
		each_value_byte(item, static_cast<uint8_t>(value[0]), value.size(),
		                [&](size_t i, char byte) { right &= value[i] == byte; });
	return right;
}

} // namespace ycsb
