// The secret of a rank, which only its job can read, and proofs of knowing it: whoever has a proof belongs to the job.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pt2p {

struct Secret {
	uint64_t words[2];
};

// A new one in each call, that nobody can guess. Throws Error(PT2P_ERR_SYSTEM): the system has no random numbers.
Secret random_secret();

// A keyed hash of these bytes, which takes the secret to compute: SipHash-2-4 of J.-P. Aumasson and D. J. Bernstein,
// "SipHash: a fast short-input PRF", INDOCRYPT 2012.
uint64_t proof_of(const Secret &secret, const void *bytes, size_t length);

} // namespace pt2p
