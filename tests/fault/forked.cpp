// SPDX-License-Identifier: BSD-3-Clause
// Ranks that fork. Their children may not use the library, and do not disturb it.
#include "tests/fault/cases.hpp"
#include "tests/fault/rank.hpp"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace fault {

namespace {

// Every kind of call is refused in a child of a rank. The exit code is the number of the call that is not.
[[noreturn]] void child(pt2p_memory_t *memory, pt2p_remote_t *remote, pt2p_request_t *pending)
{
	int calls = 0;
	const auto refused = [&](pt2p_status_t status) {
		++calls;
		if (status != PT2P_ERR_FORKED || !strstr(pt2p_last_error(ctx), "forked"))
			_exit(calls);
	};
	const int peer = (me + 1) % ranks;
	uint64_t word = 0;
	size_t needed;
	int flag;
	pt2p_request_t *r;
	pt2p_result_t result;
	pt2p_info_t info;
	pt2p_peer_info_t peer_info;
	refused(pt2p_send(ctx, &word, sizeof word, peer, tag_never));
	refused(pt2p_isend(ctx, &word, sizeof word, peer, tag_never, &r));
	refused(pt2p_recv(ctx, &word, sizeof word, peer, tag_never, PT2P_TAG_EXACT, &result));
	refused(pt2p_irecv(ctx, &word, sizeof word, peer, tag_never, PT2P_TAG_EXACT, &r));
	refused(pt2p_iprobe(ctx, peer, tag_never, PT2P_TAG_ANY, &flag, &result));
	refused(pt2p_wait(ctx, pending, &result));
	refused(pt2p_test(ctx, pending, &flag, &result));
	refused(pt2p_cancel(ctx, pending));
	refused(pt2p_barrier(ctx));
	refused(pt2p_progress(ctx));
	refused(pt2p_put(ctx, &word, sizeof word, remote, 0, nullptr));
	refused(pt2p_fetch_add64(ctx, remote, 0, 1, &word, &r));
	refused(pt2p_flush(ctx, peer));
	refused(pt2p_memory_register(ctx, &word, sizeof word, &memory));
	refused(pt2p_memory_release(ctx, memory));
	refused(pt2p_remote_release(ctx, remote));
	refused(pt2p_set_delivery(ctx, peer, PT2P_DELIVERY_SEND));
	refused(pt2p_query(ctx, &info));
	refused(pt2p_peer_query(ctx, peer, &peer_info));
	refused(pt2p_summary(ctx, nullptr, 0, &needed));
	refused(pt2p_finalize(ctx));
	refused(pt2p_finalize(ctx));
	pt2p_context_t *other;
	refused(pt2p_init(nullptr, &other));
	++calls;
	if (pt2p_rank(ctx) != -1)
		_exit(calls);
	// The other ranks wait for the parent in the barrier, however long the child lives.
	std::this_thread::sleep_for(std::chrono::milliseconds(300));
	if (me == 0)
		pt2p_abort(ctx, 99, nullptr); // ends only this process
#ifdef __SANITIZE_ADDRESS__
	_exit(99); // what threads of the parent hold would count as a leak
#endif
	exit(99);
}

void end_of_child(pid_t pid)
{
	int status = 0;
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		fail("no child");
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 99)
		fail("a child ended otherwise: the call that was wrong is number", std::to_string(WEXITSTATUS(status)).c_str());
}

} // namespace

int forked()
{
	join();
	pt2p_memory_t *memory;
	pt2p_remote_t *remote;
	void *address;
	must(pt2p_memory_allocate(ctx, 4096, &memory, &address), "pt2p_memory_allocate:");
	std::vector<unsigned char> blob(PT2P_EXPORT_MAX), theirs(PT2P_EXPORT_MAX);
	size_t needed;
	must(pt2p_memory_export(ctx, memory, blob.data(), blob.size(), &needed), "pt2p_memory_export:");
	const int next = (me + 1) % ranks, previous = (me + ranks - 1) % ranks;
	pt2p_result_t result;
	must(pt2p_sendrecv(ctx, blob.data(), needed, previous, tag_eager, theirs.data(), theirs.size(), next, tag_eager,
	                   PT2P_TAG_EXACT, &result),
	     "pt2p_sendrecv:");
	must(pt2p_memory_import(ctx, next, theirs.data(), result.length, &remote), "pt2p_memory_import:");
	std::vector<unsigned char> large(300000), in(large.size());
	for (unsigned round = 0; round < 2; ++round) {
		pt2p_request_t *pending;
		must(pt2p_irecv(ctx, in.data(), in.size(), previous, tag_large, PT2P_TAG_EXACT, &pending), "pt2p_irecv:");
		must(pt2p_barrier(ctx), "pt2p_barrier:");
		const double start = now();
		// One rank forks in the first round, all do in the second.
		if (me == 0 || round) {
			const pid_t pid = fork();
			if (pid == 0)
				child(memory, remote, pending);
			end_of_child(pid);
		}
		must(pt2p_barrier(ctx), "pt2p_barrier:");
		if (now() - start < 0.25)
			fail("a barrier has not waited for the parent");
		fill(large, round);
		must(pt2p_put(ctx, large.data(), 4096, remote, 0, nullptr), "pt2p_put:");
		must(pt2p_flush(ctx, next), "pt2p_flush:");
		must(pt2p_send(ctx, large.data(), large.size(), next, tag_large), "pt2p_send:");
		must(pt2p_wait(ctx, pending, &result), "pt2p_wait:");
		verify(in, round);
		must(pt2p_barrier(ctx), "pt2p_barrier:");
		if (memcmp(address, large.data(), 4096) != 0)
			fail("what was put is wrong");
		FILE *pipe = popen("echo hello", "r");
		char text[16] = "";
		if (system("true") != 0 || !pipe || !fgets(text, sizeof text, pipe) || pclose(pipe) != 0 ||
		    strcmp(text, "hello\n") != 0)
			fail("system() or popen() fails");
	}
	if (pt2p_finalize(ctx) != PT2P_OK)
		fail("pt2p_finalize:", pt2p_last_error(nullptr));
	printf("parent %d has finalized\n", me);
	return 0;
}

} // namespace fault
