// What two contexts of open jobs tell each other over a stream socket before they are peers, and while they are.
//
//   dialing context                    context that was dialed
//   HELLO            -->
//                    <--               HELLO               over TCP: with a proof of the shared secret
//   INTRODUCTION     -->                                   over TCP: encrypted, with a proof
//                    <--               INTRODUCTION        the same
//   READY            -->
//   ...
//   GOODBYE          <-->              GOODBYE             leaves in order
//
// REFUSAL, a reason, ends the exchange at any point before READY. The dialing context allots a number to the peer once
// it has seen its HELLO, the other once it has the INTRODUCTION. The other sends nothing by transports before READY, so
// that it is known where its messages arrive.
//
// Over a Unix socket the kernel tells the user at the other end, and nothing is proved or encrypted. Over TCP all that
// is proved and encrypted takes keys that are derived from the shared secret and both HELLOs, so nothing that was
// recorded is of use later. The introduction has the secrets of the context.
#pragma once

#include <cstdint>
#include <string>

#include "base/job/secret.hpp"

namespace pt2p::open_job {

enum class Frame : uint32_t { hello = 1, introduction, ready, goodbye, refusal };

struct FrameHead {
	uint32_t bytes; // behind the head
	Frame kind;
};
constexpr uint32_t max_frame = 65536;

struct Id {
	uint64_t words[2];
	auto operator<=>(const Id &) const = default;
};
Id random_id();

struct Hello {
	static constexpr uint64_t expected_magic = UINT64_C(0x7074'3270'6f70'656e); // "pt2popen"
	static constexpr uint32_t expected_version = 1;
	uint64_t magic = expected_magic;
	uint32_t version = expected_version;
	uint32_t proves = 0; // whether there is a proof
	Id id{};             // of the context, random
	Id nonce{};
	uint64_t proof = 0;
};

// The address of the sender as text and its blob follow.
struct Introduction {
	int32_t number = 0; // of the receiver, at the sender
	uint32_t address_bytes = 0;
};

enum class Reason : uint32_t { user = 1, secret, no_secret, no_number, version, leaving };
const char *text_of(Reason reason);

// The keys of one connection over TCP.
class Keys {
public:
	Keys() = default;
	// The HELLO of the dialing context, and of the other; a proof in it does not count.
	Keys(const Secret &shared, Hello dialing, Hello dialed);

	uint64_t proof_of_dialed() const; // in its HELLO
	// Encrypts what the dialing context sends, or the other, and adds a proof. Once for each.
	void seal(bool dialing, std::string &bytes) const;
	// The reverse; false: the sender does not know the secret.
	bool unseal(bool dialing, std::string &bytes) const;

private:
	Secret derive(uint64_t purpose) const;
	void encrypt(bool dialing, std::string &bytes) const;

	Secret shared_{};
	Hello hellos_[2];
};

// The secret in a file. Throws Error(PT2P_ERR_TUNABLE): it cannot be read, is too short, or others may read it.
Secret read_shared_secret(const std::string &path);

} // namespace pt2p::open_job
