// Who may use a segment. Its owner publishes a random secret through the job, so only ranks of this job have it. Nothing
// in a segment is the secret itself: its header and each ring carry a proof, a keyed hash of who shows it, so whoever reads
// a segment learns no proof but those that are there.
#pragma once

#include <bit>
#include <cstdint>

namespace pt2p::shm {

struct Secret {
	uint64_t low = 0, high = 0;

	// A fresh one; throws Error(PT2P_ERR_SYSTEM).
	static Secret make();
	// What local rank `who` shows of it; `owner` for the segment itself. Never 0.
	uint64_t proof(uint64_t who) const;
};

constexpr uint64_t owner = UINT64_MAX;

// SipHash-2-4 (Aumasson, Bernstein, "SipHash: a fast short-input PRF", INDOCRYPT 2012) of one 64-bit word.
constexpr uint64_t siphash(uint64_t key_low, uint64_t key_high, uint64_t word)
{
	uint64_t v[4] = {key_low ^ UINT64_C(0x736f6d6570736575), key_high ^ UINT64_C(0x646f72616e646f6d),
	                 key_low ^ UINT64_C(0x6c7967656e657261), key_high ^ UINT64_C(0x7465646279746573)};
	const auto half_round = [&v](int a, int b, int left_b, int c, int d, int left_d) {
		v[a] += v[b];
		v[c] += v[d];
		v[b] = std::rotl(v[b], left_b) ^ v[a];
		v[d] = std::rotl(v[d], left_d) ^ v[c];
		v[a] = std::rotl(v[a], 32);
	};
	const auto rounds = [&](int n) {
		for (; n; --n) {
			half_round(0, 1, 13, 2, 3, 16);
			half_round(2, 1, 17, 0, 3, 21);
		}
	};
	const uint64_t end = UINT64_C(8) << 56; // the length, with no byte left over
	for (const uint64_t block : {word, end}) {
		v[3] ^= block;
		rounds(2);
		v[0] ^= block;
	}
	v[2] ^= 0xff;
	rounds(4);
	return v[0] ^ v[1] ^ v[2] ^ v[3];
}

inline uint64_t Secret::proof(uint64_t who) const
{
	const uint64_t hash = siphash(low, high, who);
	return hash ? hash : 1;
}

} // namespace pt2p::shm
