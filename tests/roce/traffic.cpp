// SPDX-License-Identifier: BSD-3-Clause
// traffic FILE: two ranks exchange messages and check every byte until the file exists. Meanwhile `guest` pulls the
// cable. Then rank 1 kills itself, and rank 0, which waits for it, has to notice.
#include <pt2p.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <unistd.h>
#include <vector>

namespace {

constexpr uint64_t tag = 1, tag_never = 2;
constexpr double soon = 30; // seconds; the machine is slow, and the launcher's message goes through several processes

pt2p_context_t *ctx;
int me;

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

[[noreturn]] void fail(const char *what, const char *detail = "")
{
	fprintf(stderr, "FAIL: rank %d: %s %s\n", me, what, detail);
	fflush(nullptr);
	_exit(1);
}

unsigned char byte_of(int rank, unsigned round, size_t i)
{
	return static_cast<unsigned char>(static_cast<unsigned>(rank) * 101 + round * 7 + i * 31 + i / 251);
}

// One exchange. Rank 0's first byte says whether there is another one. Returns that on both ranks.
bool exchange(unsigned round, bool more)
{
	static std::vector<unsigned char> out, in;
	const size_t length = round % 3 == 0 ? 40 : round % 3 == 1 ? 3000 : 60000;
	out.resize(length);
	in.assign(length, 0);
	for (size_t i = 1; i < length; ++i)
		out[i] = byte_of(me, round, i);
	out[0] = more;
	if (pt2p_sendrecv(ctx, out.data(), length, 1 - me, tag, in.data(), length, 1 - me, tag, PT2P_TAG_EXACT, nullptr) !=
	    PT2P_OK)
		fail("pt2p_sendrecv:", pt2p_last_error(ctx));
	for (size_t i = 1; i < length; ++i)
		if (in[i] != byte_of(1 - me, round, i))
			fail("a payload is wrong");
	return me == 0 ? more : in[0] != 0;
}

} // namespace

int main(int argc, char **argv)
{
	if (argc != 2)
		fail("usage: traffic FILE");
	if (pt2p_init(nullptr, &ctx) != PT2P_OK)
		fail("pt2p_init:", pt2p_last_error(nullptr));
	me = pt2p_rank(ctx);
	if (pt2p_size(ctx) != 2)
		fail("needs two ranks");
	exchange(0, true); // connects
	if (me == 0) {
		printf("started\n");
		fflush(stdout);
	}
	double longest = 0, last = now();
	unsigned round = 1;
	while (exchange(round, me == 0 && access(argv[1], F_OK) != 0)) {
		const double t = now();
		longest = t - last > longest ? t - last : longest;
		last = t;
		++round;
	}
	if (me == 1)
		kill(getpid(), SIGKILL);
	printf("%u exchanges, the longest took %.1f s\n", round, longest);
	fflush(stdout);
	char byte;
	const double start = now();
	const pt2p_status_t status = pt2p_recv(ctx, &byte, 1, 1, tag_never, PT2P_TAG_EXACT, nullptr);
	if (status != PT2P_ERR_PEER_LOST)
		fail("the wait for a killed rank ends otherwise:", pt2p_strerror(status));
	if (now() - start > soon)
		fail("the loss was noticed late");
	printf("noticed after %.1f s: %s\n", now() - start, pt2p_last_error(ctx));
	if (pt2p_finalize(ctx) != PT2P_OK)
		fail("pt2p_finalize:", pt2p_last_error(nullptr));
	return 0;
}
