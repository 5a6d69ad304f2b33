// SPDX-License-Identifier: BSD-3-Clause
// The bare cache-line hand-off between two processes: the floor below which no message can go.
#include <cerrno>
#include <chrono>
#include <cstring>
#include <new>

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tools/perf/perf.hpp"

namespace pt2p::perf {

namespace {

constexpr uint32_t kPollsBeforeYield = 1u << 13; // far beyond a round trip: never reached while both sides run
constexpr double kPatience = 10;

inline void pause_cpu()
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

} // namespace

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

Handoff::~Handoff()
{
	close_fd();
	if (lines_)
		munmap(lines_, 2 * sizeof(Line));
}

std::string Handoff::map()
{
	void *p = mmap(nullptr, 2 * sizeof(Line), PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
	if (p == MAP_FAILED)
		return std::string("mmap: ") + strerror(errno);
	lines_ = static_cast<Line *>(p);
	return "";
}

std::string Handoff::make(int &pid, int &fd)
{
	fd_ = memfd_create("pt2p_perf", MFD_CLOEXEC);
	if (fd_ < 0)
		return std::string("memfd_create: ") + strerror(errno);
	if (ftruncate(fd_, 2 * sizeof(Line)) != 0)
		return std::string("ftruncate: ") + strerror(errno);
	pid = getpid();
	fd = fd_;
	return map();
}

std::string Handoff::open(int pid, int fd)
{
	const std::string path = "/proc/" + std::to_string(pid) + "/fd/" + std::to_string(fd);
	fd_ = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
	if (fd_ < 0)
		return "the peer's shared lines cannot be opened (" + path + "): " + strerror(errno);
	const std::string failure = map();
	close_fd();
	return failure;
}

void Handoff::close_fd()
{
	if (fd_ >= 0)
		close(fd_);
	fd_ = -1;
}

template <bool pause>
inline void Handoff::await(const Line &line, uint64_t flag)
{
	double since = 0;
	for (uint32_t polls = 0; line.flag.load(std::memory_order_acquire) != flag;) {
		if constexpr (pause)
			pause_cpu();
		if (++polls == kPollsBeforeYield) {
			// The peer may need this very core to answer, or may be gone.
			polls = 0;
			sched_yield();
			if (since == 0)
				since = now();
			else if (now() - since > kPatience)
				throw Failure{"the peer stopped answering in the bare hand-off"};
		}
	}
}

template <bool pause>
double Handoff::lead_with(uint64_t round_trips)
{
	Line &out = lines_[0];
	const Line &in = lines_[1];
	uint64_t flag = sequence_;
	const double start = now();
	for (uint64_t i = 0; i < round_trips; ++i) {
		out.payload.store(~++flag, std::memory_order_relaxed);
		out.flag.store(flag, std::memory_order_release);
		await<pause>(in, flag);
		if (in.payload.load(std::memory_order_relaxed) != ~flag)
			throw Failure{"a payload of the bare hand-off arrived wrong"};
	}
	sequence_ = flag;
	return now() - start;
}

template <bool pause>
void Handoff::follow_with(uint64_t round_trips)
{
	const Line &in = lines_[0];
	Line &out = lines_[1];
	uint64_t flag = sequence_;
	for (uint64_t i = 0; i < round_trips; ++i) {
		await<pause>(in, ++flag);
		out.payload.store(in.payload.load(std::memory_order_relaxed), std::memory_order_relaxed);
		out.flag.store(flag, std::memory_order_release);
	}
	sequence_ = flag;
}

double Handoff::lead(bool pause, uint64_t round_trips)
{
	return pause ? lead_with<true>(round_trips) : lead_with<false>(round_trips);
}

void Handoff::follow(bool pause, uint64_t round_trips)
{
	if (pause)
		follow_with<true>(round_trips);
	else
		follow_with<false>(round_trips);
}

} // namespace pt2p::perf
