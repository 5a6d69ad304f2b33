// A small harness: a case is a function of one rank. All ranks of a job run it, in threads, cooperatively or launched.
#pragma once

#include <cstdint>
#include <cstdio>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include <pt2p.h>

namespace conformance {

struct Rank {
	pt2p_context_t *ctx = nullptr;
	int me = 0, size = 1;
	uint64_t unexpected_max = 64u << 20; // tunables that a case has to know
	uint64_t ring_bytes = 128u << 10;
	uint64_t ring_slots = 64;
	uint64_t call_window = 64;
	const char *transport = "shm";  // to other ranks
	std::string one_sided = "auto"; // PT2P_ONE_SIDED
	int ranks_per_node = 0;         // PT2P_RANKS_PER_NODE
	bool cooperative = false;
	std::function<void()> last; // runs when all ranks have finished the second half of a case

	std::vector<pt2p_context_t *> driven_along; // cooperative: the other contexts, which nobody else progresses

	// For loops over calls that do not wait.
	void poll() const
	{
		for (pt2p_context_t *other : driven_along)
			pt2p_progress(other);
	}
	void run_last()
	{
		if (last)
			last();
		last = {};
	}
	int right() const { return (me + 1) % size; }
	bool same_node(int rank) const
	{
		pt2p_peer_info_t info{};
		return pt2p_peer_query(ctx, rank, &info) == PT2P_OK && info.same_node;
	}
	int left() const { return (me + size - 1) % size; }
	// The other rank of a pair. The last rank of an odd job is its own partner.
	int partner() const { return (me ^ 1) < size ? me ^ 1 : me; }
};

// The second half of a case. A cooperative job calls the first halves of all ranks before the second half of any, so a
// case first starts everything without blocking.
using Finish = std::function<void()>;

struct Case {
	const char *name;
	bool cooperative; // the first half never blocks, and the second only needs the others' first halves
	Finish (*run)(Rank &);
};

// Every case, in the order in which they run.
const std::vector<Case> &all_cases();
// The cases with these names, or all without names. Some names stand for many cases: one_sided, calls, and several and
// most, which have much traffic. An unknown name ends the program.
std::vector<Case> choose_cases(const std::vector<std::string> &names);
void add_point_cases(std::vector<Case> &cases);
void add_order_cases(std::vector<Case> &cases);
void add_request_cases(std::vector<Case> &cases);
void add_matched_cases(std::vector<Case> &cases);
void add_detached_cases(std::vector<Case> &cases);
void add_segment_cases(std::vector<Case> &cases);
void add_traffic_cases(std::vector<Case> &cases);
void add_onesided_cases(std::vector<Case> &cases);
void add_onesided_order_cases(std::vector<Case> &cases);
void add_call_cases(std::vector<Case> &cases);
void add_call_memory_cases(std::vector<Case> &cases);
void add_nested_call_cases(std::vector<Case> &cases);
void add_call_race_cases(std::vector<Case> &cases);
void add_call_history_cases(std::vector<Case> &cases);

// Sets the tunables that cases have to know, from "PT2P_NAME=value" strings.
void learn_tunables(Rank &rank, const std::vector<std::string> &tunables);

// Seconds, longer than a case should ever take. tests/common.sh, which runs the cases, gives up only after this.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr unsigned longest_case = 150;
#else
constexpr unsigned longest_case = 60;
#endif

// Ends the program with a message when a case takes longer than `seconds`, and shows what the contexts wait for.
void watch(const char *what, const std::vector<Rank> &ranks, unsigned seconds = longest_case);
void unwatch();

struct Failure : std::runtime_error {
	using std::runtime_error::runtime_error;
};

[[noreturn]] inline void fail(const char *file, int line, const std::string &what)
{
	throw Failure(std::string(file) + ":" + std::to_string(line) + ": " + what);
}

#define EXPECT(condition)                                                                                              \
	do {                                                                                                               \
		if (!(condition))                                                                                              \
			conformance::fail(__FILE__, __LINE__, #condition);                                                         \
	} while (0)

#define EXPECT_EQ(a, b)                                                                                                \
	do {                                                                                                               \
		auto left_ = (a);                                                                                              \
		auto right_ = (b);                                                                                             \
		if (!(left_ == static_cast<decltype(left_)>(right_)))                                                          \
			conformance::fail(__FILE__, __LINE__,                                                                      \
			                  std::string(#a " == " #b ": ") + std::to_string(left_) + " and " +                       \
			                      std::to_string(right_));                                                             \
	} while (0)

#define EXPECT_STATUS(ctx, call, wanted)                                                                               \
	do {                                                                                                               \
		const pt2p_status_t status_ = (call);                                                                          \
		if (status_ != (wanted))                                                                                       \
			conformance::fail(__FILE__, __LINE__,                                                                      \
			                  std::string(#call ": ") + pt2p_strerror(status_) + ", not " + pt2p_strerror(wanted) +    \
			                      ": " + pt2p_last_error(ctx));                                                        \
	} while (0)

#define EXPECT_OK(ctx, call) EXPECT_STATUS(ctx, call, PT2P_OK)

inline uint64_t mix(uint64_t x) // splitmix64
{
	x += UINT64_C(0x9e3779b97f4a7c15);
	x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
	return x ^ (x >> 31);
}

// A small generator with the same sequence everywhere.
struct Random {
	uint64_t state;
	uint64_t next() { return mix(state++); }
	uint64_t below(uint64_t n) { return next() % n; }
};

using Bytes = std::vector<unsigned char>;

// Payload bytes that depend on the seed and on the position, so that a misplaced piece is noticed.
void fill(void *data, size_t length, uint64_t seed);
inline Bytes payload(size_t length, uint64_t seed)
{
	Bytes data(length);
	fill(data.data(), length, seed);
	return data;
}
// Throws with the position of the first wrong byte.
void check(const void *data, size_t length, uint64_t seed, const char *file, int line);
#define EXPECT_PAYLOAD(data, length, seed) conformance::check(data, length, seed, __FILE__, __LINE__)

// One seed for each message of a case.
inline uint64_t seed_of(uint64_t what, int from, int to, uint64_t number)
{
	return mix(what ^ mix(static_cast<uint64_t>(from) << 32 | static_cast<uint64_t>(to)) ^ (number << 1));
}

uint64_t counter(const Rank &rank, const char *name);
void sleep_ms(int ms);

} // namespace conformance
