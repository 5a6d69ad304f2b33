// SPDX-License-Identifier: BSD-3-Clause
// The launcher is killed, or PMIx_Finalize does not return.
#include "tests/fault/cases.hpp"
#include "tests/fault/rank.hpp"

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <string>
#include <thread>
#include <unistd.h>

namespace {

bool pmix_is_stuck = false;

} // namespace

// Replaces that of PMIx: in one case it does not return.
extern "C" int PMIx_Finalize(const void *info, size_t count);
extern "C" int PMIx_Finalize(const void *info, size_t count)
{
	while (pmix_is_stuck)
		pause();
	const auto real = reinterpret_cast<decltype(&PMIx_Finalize)>(dlsym(RTLD_NEXT, "PMIx_Finalize"));
	return real ? real(info, count) : -1;
}

namespace fault {

// The launcher is killed. Ranks go on with each other and finalize. Their output is lost, so each leaves a file.
int orphaned(const std::string &file)
{
	join();
	must(pt2p_barrier(ctx), "pt2p_barrier:");
	if (me == 0)
		kill(getppid(), SIGKILL);
	// In this wait the launcher is asked for news, and the library reports its end on standard error.
	std::this_thread::sleep_for(std::chrono::milliseconds(100));
	int value = me;
	if (me == 1)
		std::this_thread::sleep_for(std::chrono::milliseconds(1500));
	must(pt2p_sendrecv(ctx, &value, sizeof value, (me + 1) % ranks, tag_eager, &value, sizeof value,
	                   (me + ranks - 1) % ranks, tag_eager, PT2P_TAG_EXACT, nullptr),
	     "pt2p_sendrecv:");
	must(pt2p_barrier(ctx), "pt2p_barrier:");
	const double start = now();
	const pt2p_status_t status = pt2p_finalize(ctx);
	if (status == PT2P_OK && now() - start < soon)
		fclose(fopen((file + "." + std::to_string(me)).c_str(), "w"));
	return 0;
}

namespace {

// The nearest ancestor of this process that is the launcher.
pid_t launcher()
{
	for (pid_t pid = getppid(); pid > 1;) {
		char name[64] = "";
		int parent = 0;
		FILE *stat = fopen(("/proc/" + std::to_string(pid) + "/stat").c_str(), "r");
		if (!stat || fscanf(stat, "%*d (%63[^)]) %*c %d", name, &parent) != 2)
			fail("cannot find the launcher");
		fclose(stat);
		if (!strncmp(name, "mpirun", 6) || !strcmp(name, "orterun"))
			return pid;
		pid = parent;
	}
	fail("there is no launcher");
}

} // namespace

// The launcher is killed before one rank has begun, while the others are in their first call. No process may stay.
int orphaned_early(const std::string &file, const std::string &call)
{
	constexpr int launched = 4;
	const int rank = atoi(getenv("PMIX_RANK"));
	if (rank == victim) {
		printf("pid %ld\n", static_cast<long>(getpid()));
		fflush(stdout);
		for (int r = 0; r < launched; ++r)
			if (r != victim)
				wait_for_mark(file + ".joined", r);
		std::this_thread::sleep_for(std::chrono::milliseconds(100)); // they are in their calls
		kill(launcher(), SIGKILL);
		std::this_thread::sleep_for(std::chrono::milliseconds(200));
		if (pt2p_init(nullptr, &ctx) != PT2P_ERR_LAUNCHER)
			return 1;
	} else {
		join();
		leave_mark(file + ".joined", rank);
		char byte;
		const double start = now();
		pt2p_status_t status = PT2P_OK;
		if (call == "probe")
			status = pt2p_probe(ctx, victim, tag_never, PT2P_TAG_EXACT, nullptr);
		else if (call == "recv_any")
			status = pt2p_recv(ctx, &byte, 1, PT2P_ANY_SOURCE, tag_never, PT2P_TAG_EXACT, nullptr);
		else if (me == victim + 1)
			status = pt2p_barrier(ctx);
		// This rank has sent to these in the barrier. They leave in order, and it does not wait for them.
		while (call == "barrier" && me != victim + 1 && now() - start < 1.2)
			pt2p_progress(ctx);
		pt2p_finalize(ctx);
		if ((status == PT2P_OK && (call != "barrier" || me == victim + 1)) || now() - start > soon)
			return 1;
	}
	fclose(fopen((file + "." + std::to_string(rank)).c_str(), "w"));
	return 0;
}

// A barrier and pt2p_finalize, with a PMIx that does not return.
int finalize_stuck()
{
	join();
	pmix_is_stuck = true;
	must(pt2p_barrier(ctx), "pt2p_barrier:");
	const double start = now();
	const pt2p_status_t status = pt2p_finalize(ctx);
	printf("finalize of %d: %d%s\n", me, static_cast<int>(status), now() - start < soon ? "" : ", late");
	pt2p_context_t *again;
	if (pt2p_init(nullptr, &again) != PT2P_ERR_LAUNCHER)
		fail("pt2p_init after it");
	return 0;
}

} // namespace fault
