#include "base/job/open/wire.hpp"

#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory/shared_file.hpp"
#include "base/report/report.hpp"

namespace pt2p::open_job {

namespace {

// What keys are for.
enum Purpose : uint64_t {
	hello_proof = 1,
	stream = 2,
	proof = 4
}; // stream and proof: one more for the other direction

} // namespace

Id random_id()
{
	const Secret random = random_secret();
	return {{random.words[0], random.words[1]}};
}

const char *text_of(Reason reason)
{
	switch (reason) {
	case Reason::user: return "it belongs to another user";
	case Reason::secret: return "the two do not have the same secret (PT2P_OPEN_SECRET)";
	case Reason::no_secret: return "it takes peers over TCP only with a secret, and has none (PT2P_OPEN_SECRET)";
	case Reason::no_number: return "all its numbers belong to peers (PT2P_OPEN_PEERS)";
	case Reason::version: return "it runs another version of libpt2p";
	case Reason::leaving: return "it is in pt2p_finalize";
	}
	return "it does not say why";
}

Keys::Keys(const Secret &shared, Hello dialing, Hello dialed) : shared_(shared), hellos_{dialing, dialed}
{
	hellos_[0].proof = hellos_[1].proof = 0;
}

Secret Keys::derive(uint64_t purpose) const
{
	struct {
		uint64_t purpose, half;
		Hello hellos[2];
	} said{purpose, 0, {hellos_[0], hellos_[1]}};
	static_assert(sizeof said == 2 * sizeof(uint64_t) + 2 * sizeof(Hello)); // no padding
	Secret key;
	for (uint64_t &word : key.words) {
		word = proof_of(shared_, &said, sizeof said);
		++said.half;
	}
	return key;
}

uint64_t Keys::proof_of_dialed() const { return derive(hello_proof).words[0]; }

// The keyed hash of a counter is a stream of random words to whoever does not know the key.
void Keys::encrypt(bool dialing, std::string &bytes) const
{
	const Secret key = derive(stream + dialing);
	for (uint64_t at = 0; at < bytes.size(); at += sizeof(uint64_t)) {
		const uint64_t word = proof_of(key, &at, sizeof at);
		for (size_t i = 0; i < sizeof word && at + i < bytes.size(); ++i)
			bytes[at + i] = static_cast<char>(bytes[at + i] ^ static_cast<char>(word >> 8 * i));
	}
}

void Keys::seal(bool dialing, std::string &bytes) const
{
	encrypt(dialing, bytes);
	const uint64_t mark = proof_of(derive(proof + dialing), bytes.data(), bytes.size());
	bytes.append(reinterpret_cast<const char *>(&mark), sizeof mark);
}

bool Keys::unseal(bool dialing, std::string &bytes) const
{
	uint64_t mark;
	if (bytes.size() < sizeof mark)
		return false;
	std::memcpy(&mark, bytes.data() + bytes.size() - sizeof mark, sizeof mark);
	bytes.resize(bytes.size() - sizeof mark);
	if (mark != proof_of(derive(proof + dialing), bytes.data(), bytes.size()))
		return false;
	encrypt(dialing, bytes);
	return true;
}

Secret read_shared_secret(const std::string &path)
{
	constexpr size_t min_bytes = 16, max_bytes = 65536;
	const FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
	struct stat about {};
	if (!file || fstat(file.get(), &about) != 0)
		throw Error(PT2P_ERR_TUNABLE, format("PT2P_OPEN_SECRET is %s: %s", path.c_str(), errno_text(errno).c_str()));
	if (!S_ISREG(about.st_mode))
		throw Error(PT2P_ERR_TUNABLE, format("PT2P_OPEN_SECRET is %s, which is not a file", path.c_str()));
	if (about.st_mode & 077)
		throw Error(PT2P_ERR_TUNABLE,
		            format("PT2P_OPEN_SECRET is %s, which others than its owner may use: chmod 600 it", path.c_str()));
	std::string bytes(max_bytes, '\0');
	const ssize_t n = read(file.get(), bytes.data(), bytes.size());
	if (n < static_cast<ssize_t>(min_bytes))
		throw Error(PT2P_ERR_TUNABLE, format("PT2P_OPEN_SECRET is %s, which has fewer than %zu bytes: write %zu random "
		                                     "bytes to it",
		                                     path.c_str(), min_bytes, 2 * min_bytes));
	Secret secret;
	for (uint64_t half = 0; half < 2; ++half) {
		const Secret fixed{{Hello::expected_magic, half}};
		secret.words[half] = proof_of(fixed, bytes.data(), static_cast<size_t>(n));
	}
	return secret;
}

} // namespace pt2p::open_job
