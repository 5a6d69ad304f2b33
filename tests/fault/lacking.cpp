// SPDX-License-Identifier: BSD-3-Clause
// What a rank lacks: system calls that the kernel refuses, memory, descriptors.
#include "tests/fault/cases.hpp"
#include "tests/fault/rank.hpp"

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <fcntl.h>
#include <string>
#include <sys/resource.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace fault {

// Every rank exchanges large messages with its neighbours, and prints how they went.
int exchange()
{
	init_context();
	for (size_t length : {size_t{8}, size_t{9000}, size_t{100000}, size_t{5000001}}) {
		std::vector<unsigned char> out(length), in(length);
		fill(out, static_cast<unsigned>(me));
		const int next = (me + 1) % ranks, before = (me + ranks - 1) % ranks;
		must(pt2p_sendrecv(ctx, out.data(), length, next, tag_large, in.data(), length, before, tag_large,
		                   PT2P_TAG_EXACT, nullptr),
		     "pt2p_sendrecv:");
		verify(in, static_cast<unsigned>(before));
	}
	for (int peer = 0; peer < ranks; ++peer) {
		pt2p_peer_info_t info;
		must(pt2p_peer_query(ctx, peer, &info), "pt2p_peer_query:");
		if (peer != me)
			printf("rank %d to %d: %s\n", me, peer, info.large);
	}
	must(pt2p_barrier(ctx), "pt2p_barrier:");
	return pt2p_finalize(ctx) == PT2P_OK ? 0 : 1;
}

// Prints the status of the first send to the next rank, which reserves memory.
int first_send()
{
	init_context();
	const pt2p_status_t status = pt2p_send(ctx, &me, sizeof me, (me + 1) % ranks, tag_eager);
	printf("first send: %d %s\n", static_cast<int>(status), status == PT2P_OK ? "" : pt2p_last_error(ctx));
	pt2p_finalize(ctx);
	return 0;
}

// Not every rank has room for the rings that a barrier takes. All ranks learn of that in the same barrier. When the
// file `ballast` is given and removed, barriers work again. Ranks meet first, as rings may take the room that a late
// rank needs for its segment, and last, as a late rank misses those that have left. Rank 0 enters its first barrier so
// many seconds late and takes messages until then, and the others do not run far ahead.
int barrier_lacks(const char *ballast, double late)
{
	init_context();
	meet("/dev/shm/started");
	const double start = now();
	while (me == 0 && now() - start < late)
		pt2p_progress(ctx);
	const pt2p_status_t status = pt2p_barrier(ctx);
	printf("barrier of %d: %d %s\n", me, static_cast<int>(status), status == PT2P_OK ? "" : pt2p_last_error(ctx));
	if (me == 0 && ballast)
		unlink(ballast);
	// Each barrier fails on all ranks or on none, so they stay together.
	int more = 0;
	while (pt2p_barrier(ctx) != PT2P_OK && ballast && now() - start < soon)
		++more;
	meet("/dev/shm/done");
	if (now() - start > soon)
		fail("it took too long");
	if (late > 0 && more > 100)
		fail("it ran far ahead of rank 0");
	if (pt2p_finalize(ctx) != PT2P_OK)
		fail("pt2p_finalize:", pt2p_last_error(nullptr));
	printf("end of %d: %d\n", me, more);
	return 0;
}

namespace {

// While this exists, no file can be opened. Open files stay open.
class NoDescriptors {
public:
	NoDescriptors()
	{
		if (getrlimit(RLIMIT_NOFILE, &before_) != 0)
			fail("getrlimit");
		const rlimit none{0, before_.rlim_max};
		setrlimit(RLIMIT_NOFILE, &none);
	}
	~NoDescriptors() { give_back(); }
	void give_back() const { setrlimit(RLIMIT_NOFILE, &before_); }

private:
	rlimit before_;
};

// A call that lacks a descriptor fails with the remedy, and does not count a peer as lost.
void lacks_descriptors(pt2p_status_t status, const char *what)
{
	const std::string text = status == PT2P_OK ? "" : pt2p_last_error(ctx);
	if (status != PT2P_ERR_SYSTEM || text.find("ulimit -n") == std::string::npos)
		fail(what, (std::string(pt2p_strerror(status)) + ": " + text).c_str());
}

} // namespace

// A rank has no descriptors when it sleeps for the first time. The call still completes, and keeps its buffer until
// then.
int descriptors_sleeping()
{
	init_context();
	int value = 1;
	if (me == 0) {
		const NoDescriptors none;
		std::thread back([&] {
			std::this_thread::sleep_for(std::chrono::milliseconds(300));
			none.give_back();
		});
		must(pt2p_recv(ctx, &value, sizeof value, 1, tag_eager, PT2P_TAG_EXACT, nullptr),
		     "a receive without descriptors:");
		back.join();
		if (value != 2)
			fail("a payload is wrong");
	} else {
		std::this_thread::sleep_for(std::chrono::milliseconds(400));
		value = 2;
		must(pt2p_send(ctx, &value, sizeof value, 0, tag_eager), "pt2p_send:");
	}
	must(pt2p_barrier(ctx), "pt2p_barrier:");
	if (pt2p_finalize(ctx) != PT2P_OK)
		fail("pt2p_finalize:", pt2p_last_error(nullptr));
	if (me == 0)
		printf("descriptors: came through\n");
	return 0;
}

// Two ranks that have never talked. Rank 0 connects to rank 1, or has to answer it, while it can open nothing.
int descriptors(bool connecting)
{
	init_context();
	std::vector<unsigned char> data(3u << 20);
	int value = me;
	if (me == 0 && connecting) {
		{
			const NoDescriptors none;
			for (int i = 0; i < 3; ++i)
				lacks_descriptors(pt2p_send(ctx, &value, sizeof value, 1, tag_eager), "a send without descriptors:");
			lacks_descriptors(pt2p_barrier(ctx), "a barrier without descriptors:");
			// Long enough that it checks its peers.
			int flag;
			for (const double end = now() + 0.5; now() < end;)
				must(pt2p_iprobe(ctx, 1, tag_never, PT2P_TAG_EXACT, &flag, nullptr), "pt2p_iprobe:");
		}
		must(pt2p_send(ctx, &value, sizeof value, 1, tag_eager), "a send with descriptors again:");
	} else if (me == 1 && connecting) {
		must(pt2p_recv(ctx, &value, sizeof value, 0, tag_eager, PT2P_TAG_EXACT, nullptr), "pt2p_recv:");
	} else if (me == 0) {
		{
			const NoDescriptors none;
			must(pt2p_recv(ctx, &value, sizeof value, 1, tag_eager, PT2P_TAG_EXACT, nullptr), "a short message:");
			for (int i = 0; i < 3; ++i)
				lacks_descriptors(pt2p_recv(ctx, data.data(), data.size(), 1, tag_large, PT2P_TAG_EXACT, nullptr),
				                  "a receive of a large message without descriptors:");
		}
		must(pt2p_recv(ctx, data.data(), data.size(), 1, tag_large, PT2P_TAG_EXACT, nullptr),
		     "with descriptors again:");
		verify(data, 1);
	} else {
		std::this_thread::sleep_for(std::chrono::milliseconds(400));
		must(pt2p_send(ctx, &value, sizeof value, 0, tag_eager), "pt2p_send:");
		fill(data, 1);
		must(pt2p_send(ctx, data.data(), data.size(), 0, tag_large), "pt2p_send:");
	}
	must(pt2p_barrier(ctx), "pt2p_barrier:");
	if (pt2p_finalize(ctx) != PT2P_OK)
		fail("pt2p_finalize:", pt2p_last_error(nullptr));
	if (me == 0)
		printf("descriptors: came through\n");
	return 0;
}

namespace {

// While this exists, /dev/shm is full.
class FullShm {
public:
	FullShm() : fd_(open("/dev/shm", O_TMPFILE | O_RDWR, 0600))
	{
		const std::vector<char> block(4096);
		while (write(fd_, block.data(), block.size()) > 0)
			;
		if (fd_ < 0 || errno != ENOSPC)
			fail("cannot fill /dev/shm");
	}
	~FullShm() { close(fd_); }

private:
	int fd_;
};

} // namespace

// A first contact that finds no memory can be repeated. A connection that finds none later goes on.
int no_space()
{
	pt2p_context_t *pair[2];
	if (pt2p_init_inprocess(2, PT2P_INPROCESS_COOPERATIVE, nullptr, pair) != PT2P_OK)
		fail("pt2p_init_inprocess:", pt2p_last_error(nullptr));
	ctx = pair[0];
	int value = 7, got = 0;
	{
		const FullShm full;
		for (int i = 0; i < 5; ++i)
			if (pt2p_send(ctx, &value, sizeof value, 1, tag_eager) != PT2P_ERR_SHARED_MEMORY)
				fail("a send without memory:", pt2p_last_error(ctx));
	}
	must(pt2p_send(ctx, &value, sizeof value, 1, tag_eager), "a send with memory again:");
	ctx = pair[1];
	must(pt2p_recv(ctx, &got, sizeof got, 0, tag_eager, PT2P_TAG_EXACT, nullptr), "pt2p_recv:");
	must(pt2p_send(ctx, &value, sizeof value, 0, tag_eager), "a send the other way:");
	must(pt2p_recv(pair[0], &value, sizeof value, 1, tag_eager, PT2P_TAG_EXACT, nullptr), "pt2p_recv:");
	const FullShm full;
	for (const size_t length : {size_t{65536}, size_t{16384}, size_t{30000}, size_t{5000}, size_t{900000}}) {
		constexpr size_t messages = 20;
		std::vector<unsigned char> out(length), in(messages * length);
		std::vector<pt2p_request_t *> sends(messages), receives(messages);
		fill(out, 3);
		for (size_t i = 0; i < messages; ++i)
			must(pt2p_isend(pair[0], out.data(), length, 1, tag_large, &sends[i]), "pt2p_isend:");
		for (size_t i = 0; i < messages; ++i)
			must(pt2p_irecv(pair[1], in.data() + i * length, length, 0, tag_large, PT2P_TAG_EXACT, &receives[i]),
			     "pt2p_irecv:");
		must(pt2p_waitall(pair[1], messages, receives.data(), nullptr), "receives:");
		must(pt2p_waitall(pair[0], messages, sends.data(), nullptr), "sends:");
		for (size_t i = 0; i < messages; ++i)
			verify({in.begin() + static_cast<ptrdiff_t>(i * length),
			        in.begin() + static_cast<ptrdiff_t>((i + 1) * length)},
			       3);
	}
	// From segments, which are packed before the room is known. Backwards, so that no two are adjacent.
	constexpr size_t length = 900000, segment = 100;
	std::vector<unsigned char> out(length), in(length);
	std::vector<pt2p_iovec_t> from, to;
	fill(out, 4);
	for (size_t at = length; at; at -= segment) {
		from.push_back({out.data() + at - segment, segment});
		to.push_back({in.data() + at - segment, segment});
	}
	pt2p_request_t *send, *receive;
	must(pt2p_isendv(pair[1], from.data(), from.size(), 0, tag_large, &send), "pt2p_isendv:");
	must(pt2p_irecvv(pair[0], to.data(), to.size(), 1, tag_large, PT2P_TAG_EXACT, &receive), "pt2p_irecvv:");
	must(pt2p_wait(pair[0], receive, nullptr), "a receive in segments:");
	must(pt2p_wait(pair[1], send, nullptr), "a send from segments:");
	verify(in, 4);
	for (pt2p_context_t *c : pair)
		if (pt2p_finalize(c) != PT2P_OK)
			fail("pt2p_finalize:", pt2p_last_error(nullptr));
	printf("no space: %d came through\n", got);
	return 0;
}

} // namespace fault
