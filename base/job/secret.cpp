#include "base/job/secret.hpp"

#include <bit>
#include <cerrno>
#include <cstring>
#include <endian.h>
#include <sys/random.h>

#include "base/report/report.hpp"

namespace pt2p {

Secret random_secret()
{
	Secret secret;
	ssize_t got;
	do // a signal may interrupt it
		got = getrandom(&secret, sizeof secret, 0);
	while (got < 0 && errno == EINTR);
	if (got != static_cast<ssize_t>(sizeof secret)) // as many are given at once or none
		throw Error(PT2P_ERR_SYSTEM, format("getrandom: %s", errno_text(errno).c_str()));
	return secret;
}

namespace {

// The four words that the paper calls v0 ... v3.
struct State {
	uint64_t a, b, c, d;

	void round()
	{
		a += b;
		c += d;
		b = std::rotl(b, 13) ^ a;
		d = std::rotl(d, 16) ^ c;
		a = std::rotl(a, 32);
		c += b;
		a += d;
		b = std::rotl(b, 17) ^ c;
		d = std::rotl(d, 21) ^ a;
		c = std::rotl(c, 32);
	}
	void take(uint64_t word)
	{
		d ^= word;
		round();
		round();
		a ^= word;
	}
};

} // namespace

uint64_t proof_of(const Secret &secret, const void *bytes, size_t length)
{
	const auto *at = static_cast<const unsigned char *>(bytes);
	const uint64_t k0 = le64toh(secret.words[0]), k1 = le64toh(secret.words[1]);
	State s{k0 ^ 0x736f6d6570736575, k1 ^ 0x646f72616e646f6d, k0 ^ 0x6c7967656e657261, k1 ^ 0x7465646279746573};
	size_t left = length;
	for (; left >= 8; left -= 8, at += 8) {
		uint64_t word;
		std::memcpy(&word, at, 8);
		s.take(le64toh(word));
	}
	// The rest, and the length in the highest byte.
	uint64_t last = 0;
	if (left)
		std::memcpy(&last, at, left);
	s.take(le64toh(last) | uint64_t{length} << 56);
	s.c ^= 0xff;
	for (int i = 0; i < 4; ++i)
		s.round();
	return s.a ^ s.b ^ s.c ^ s.d;
}

} // namespace pt2p
