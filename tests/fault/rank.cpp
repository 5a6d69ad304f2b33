// SPDX-License-Identifier: BSD-3-Clause
#include "tests/fault/rank.hpp"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <unistd.h>

namespace fault {

namespace {

std::string mark_of(const std::string &point, int rank) { return point + "." + std::to_string(rank); }

} // namespace

pt2p_context_t *ctx;
int me, ranks;

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

[[noreturn]] void fail(const char *what, const char *detail)
{
	fprintf(stderr, "FAIL: rank %d: %s %s\n", me, what, detail);
	fflush(nullptr);
	_exit(1);
}

void must(pt2p_status_t status, const char *what)
{
	if (status != PT2P_OK)
		fail(what, pt2p_last_error(ctx));
}

void init_context()
{
	if (pt2p_init(nullptr, &ctx) != PT2P_OK)
		fail("pt2p_init:", pt2p_last_error(nullptr));
	me = pt2p_rank(ctx);
	ranks = pt2p_size(ctx);
}

void join()
{
	init_context();
	printf("pid %ld\n", static_cast<long>(getpid()));
	fflush(stdout);
	if (ranks < 3)
		fail("needs three ranks");
}

void fill(std::vector<unsigned char> &data, unsigned seed)
{
	for (size_t i = 0; i < data.size(); ++i)
		data[i] = static_cast<unsigned char>(i * 31 + i / 251 + seed);
}

void verify(const std::vector<unsigned char> &data, unsigned seed)
{
	for (size_t i = 0; i < data.size(); ++i)
		if (data[i] != static_cast<unsigned char>(i * 31 + i / 251 + seed))
			fail("a payload is wrong");
}

void leave_mark(const std::string &point, int rank) { fclose(fopen(mark_of(point, rank).c_str(), "w")); }

void wait_for_mark(const std::string &point, int rank)
{
	const double start = now();
	while (access(mark_of(point, rank).c_str(), F_OK) != 0) {
		if (now() - start > 3 * soon)
			fail("it took too long until all ranks came to", point.c_str());
		std::this_thread::sleep_for(std::chrono::milliseconds(1));
	}
}

void meet(const std::string &point)
{
	leave_mark(point, me);
	for (int r = 0; r < ranks; ++r)
		wait_for_mark(point, r);
}

} // namespace fault
