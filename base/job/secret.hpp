// The secret of a rank, which it publishes to its job and nobody else can read, and proofs of knowing it: who shows one is of
// the job.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pt2p {

struct Secret {
	uint64_t words[2];
};

// Another one in each call, that nobody can guess. Throws Error(PT2P_ERR_SYSTEM): the system has no random numbers.
Secret random_secret();

// What only who knows the secret can tell of these bytes: SipHash-2-4 of J.-P. Aumasson and D. J. Bernstein, "SipHash: a fast
// short-input PRF", INDOCRYPT 2012.
uint64_t proof_of(const Secret &secret, const void *bytes, size_t length);

} // namespace pt2p
