// SPDX-License-Identifier: BSD-3-Clause
// A process that does not know the secret of a shared segment gets no message in, and is not taken for the peer.
#include <catch2/catch.hpp>

#include <sys/wait.h>
#include <unistd.h>

#include "api/context.hpp"
#include "transports/shm/shm.hpp"

using namespace pt2p;
using namespace pt2p::shm;

namespace {

ShmTransport *shm_of(pt2p_context_t *ctx)
{
	for (auto &transport : ctx->router->transports())
		if (auto *shm = dynamic_cast<ShmTransport *>(transport.get()))
			return shm;
	return nullptr;
}

// Opens the segment of the calling process in another process. Returns that process's exit code; 0: it is let in.
int opened_elsewhere(const Address &address)
{
	const pid_t child = fork();
	if (child == 0) {
		try {
			PeerSegment segment(address);
			uint32_t room;
			segment.open_ring(1, room);
			_exit(0);
		} catch (const Error &e) {
			_exit(static_cast<int>(e.status()));
		}
	}
	int status = -1;
	REQUIRE(waitpid(child, &status, 0) == child);
	REQUIRE(WIFEXITED(status));
	return WEXITSTATUS(status);
}

} // namespace

TEST_CASE("an unauthorized process that writes into a segment is refused, and the rank in whose name it writes is not")
{
	pt2p_context_t *ctx[2];
	REQUIRE(pt2p_init_inprocess(2, PT2P_INPROCESS_COOPERATIVE, nullptr, ctx) == PT2P_OK);
	SegmentHeader *h = shm_of(ctx[1])->header();
	Address address;
	REQUIRE(Address::unpack(shm_of(ctx[1])->address(), address));

	// Everything that rank 0 would do, except for the proof.
	Writer writer;
	writer.open(Ring::at(reinterpret_cast<unsigned char *>(h) + header_bytes(2), address.shape.slots),
	            address.shape.slots, address.shape.data_bytes, address.shape.room);
	const int forged = 13, real = 7;
	REQUIRE(writer.write(wire::id_eager, 1, &forged, sizeof forged, 0));
	Secret guess = address.secret;
	guess.words[1] ^= 1;
	const uint16_t open = Entry::open;
	for (const uint64_t shown :
	     {entry_of(guess, 0, open), entry_of(address.secret, 1, open),
	      entry_of(address.secret, 0, 1) | UINT64_C(1) << 63, owner_proof(address.secret), UINT64_C(1)}) {
		const uint64_t before = ctx[1]->reporter.read(Counter::auth_refused);
		directory(h)[0].store(shown);
		doorbells(h, 2)[0].fetch_or(1);
		h->doorbell_summary.fetch_or(1);
		REQUIRE(pt2p_progress(ctx[1]) == PT2P_OK);
		int flag = 1;
		REQUIRE(pt2p_iprobe(ctx[1], PT2P_ANY_SOURCE, 0, 0, &flag, nullptr) == PT2P_OK);
		CHECK(flag == 0);
		CHECK(ctx[1]->reporter.read(Counter::auth_refused) == before + 1);
		CHECK(directory(h)[0].load() == 0);
	}

	int got = 0;
	REQUIRE(pt2p_send(ctx[0], &real, sizeof real, 1, 1) == PT2P_OK);
	REQUIRE(pt2p_recv(ctx[1], &got, sizeof got, 0, 1, PT2P_TAG_EXACT, nullptr) == PT2P_OK);
	CHECK(got == real);
	for (pt2p_context_t *c : ctx)
		CHECK(pt2p_finalize(c) == PT2P_OK);
}

TEST_CASE("a segment that does not carry the published secret, or is another user's, is not the peer's")
{
	const Config config;
	const OwnSegment segment(config, random_secret(), 2, -1);
	Address address;
	address.pid = static_cast<uint32_t>(getpid());
	address.fd = segment.fd();
	address.start_time = process_start_time(address.pid);
	address.base = reinterpret_cast<uint64_t>(segment.header());
	address.secret = segment.secret();
	address.shape = segment.shape();
	CHECK(opened_elsewhere(address) == PT2P_OK);

	Address other = address;
	other.secret.words[0] ^= 1;
	CHECK(opened_elsewhere(other) == PT2P_ERR_PROTOCOL);
	CHECK_THROWS_AS(PeerSegment(other), Error); // in the same process, too

	// A file too short for a header must not be looked into.
	const FileDescriptor empty = make_shared_file(choice::shm_backing::memfd, "empty");
	other = address;
	other.fd = empty.get();
	CHECK(opened_elsewhere(other) == PT2P_ERR_PROTOCOL);

	other = address;
	other.fd = 9999; // closed: it has left, or is just ending
	CHECK(opened_elsewhere(other) == PT2P_ERR_PEER_LOST);
	other.start_time += 1;
	CHECK(opened_elsewhere(other) == PT2P_ERR_PEER_LOST);

	if (geteuid() == 0 && fchown(segment.fd(), 12345, 12345) == 0)
		CHECK(opened_elsewhere(address) == PT2P_ERR_PROTOCOL);
}
