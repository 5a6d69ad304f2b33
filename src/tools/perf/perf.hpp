// SPDX-License-Identifier: BSD-3-Clause
// What the parts of pt2p_perf share: a pair of ranks that measures, and what the command line asks for.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <pt2p.h>

namespace pt2p::perf {

enum class Test : uint32_t { lat, bw, bibw, rate, echo, call, callrate, windows };

const char *test_name(Test test);
// Whether it measures a latency: there is no window.
constexpr bool one_at_a_time(Test test) { return test == Test::lat || test == Test::call || test == Test::windows; }
constexpr bool is_call(Test test) { return test == Test::call || test == Test::callrate || test == Test::windows; }

struct Options {
	std::vector<Test> tests;
	std::vector<size_t> sizes; // empty: those that suit each test
	size_t window = 64;
	uint64_t iterations = 0; // 0: as many as fit in `time`
	int repetitions = 0;     // 0: as many as give a steady median
	double time = 0.2;       // seconds for each point
	bool check = false;
	bool spoil = false;
	bool json = false;
	bool baseline = false;
	bool demo = false;
	bool routes = false;
	bool one_server = false; // the last rank serves the calls of all others
	bool help = false;
	std::string trace;  // file to write; empty: none
	std::string draw;   // file to read instead of measuring; empty: none
	std::string output; // file for the picture; empty: named after that one
};

// Returns what is wrong with the command line, or "".
std::string parse_options(int argc, char **argv, Options &options);
const char *usage_text();

// A failure that ends the program, with its explanation.
struct Failure {
	std::string text;
};

// Throws what pt2p_last_error says unless the status is PT2P_OK.
void must(pt2p_context_t *ctx, const char *what, pt2p_status_t status);

// A counter of this rank; throws Failure.
uint64_t counter(pt2p_context_t *ctx, const char *name);

// A trace as an SVG picture; throws Failure.
std::string drawing(const std::string &trace);

double now();
double median(std::vector<double> values);

// The bare hand-off: two cache lines that two processes share, one for each direction, with payload and flag together.
class Handoff {
public:
	Handoff() = default;
	Handoff(const Handoff &) = delete;
	Handoff &operator=(const Handoff &) = delete;
	~Handoff();

	// One side makes the lines and tells the other where they are. Both return "" or why it cannot be done.
	std::string make(int &pid, int &fd);
	std::string open(int pid, int fd);
	void close_fd();
	bool ready() const { return lines_ != nullptr; }

	// Seconds for this many round trips, `pause` between polls or none.
	double lead(bool pause, uint64_t round_trips);
	void follow(bool pause, uint64_t round_trips);

private:
	struct alignas(128) Line {
		std::atomic<uint64_t> payload;
		std::atomic<uint64_t> flag;
	};

	std::string map();
	template <bool pause>
	void await(const Line &line, uint64_t flag);
	template <bool pause>
	double lead_with(uint64_t round_trips);
	template <bool pause>
	void follow_with(uint64_t round_trips);

	Line *lines_ = nullptr;
	int fd_ = -1;
	uint64_t sequence_ = 0;
};

// Two ranks that measure together, or one rank that talks to itself. The leader decides and keeps the time; its peer
// serves the leader's commands. With --one-server the last rank is the peer of all others, which lead.
class Pair {
public:
	Pair(pt2p_context_t *ctx, const Options &options);

	int rank() const { return rank_; }
	int size() const { return size_; }
	int peer() const { return peer_; }
	int pairs() const { return pairs_; }
	bool alone() const { return size_ == 1; }
	bool one_server() const { return one_server_; }
	bool leads() const { return rank_ < pairs_; }
	bool idle() const { return !leads() && rank_ >= 2 * pairs_; }
	pt2p_context_t *ctx() const { return ctx_; }

	// Seconds for one burst: round trips of lat, windows of the others.
	double burst(Test test, size_t size, size_t window, uint64_t iterations);
	// Sets up the hand-off; returns "" or why there is none.
	std::string prepare_handoff();
	double handoff_burst(bool pause, uint64_t round_trips);
	void dismiss();

	// The other side: serves until dismissed.
	void serve();

	// With --check the window is limited by the memory that its buffers take.
	size_t usable_window(size_t size, size_t window) const;

private:
	struct Command {
		uint32_t kind;
		uint32_t test;
		uint64_t size;
		uint64_t window;
		uint64_t iterations;
	};
	struct Free {
		void operator()(void *p) const { free(p); }
	};
	using Buffer = std::unique_ptr<unsigned char, Free>;

	void command(const Command &c);
	void reserve(Test test, size_t size, size_t window);
	double lead(Test test, size_t size, size_t window, uint64_t iterations);
	void follow(Test test, size_t size, size_t window, uint64_t iterations);
	double talk_to_self(Test test, size_t size, size_t window, uint64_t iterations);
	double both_ways(size_t size, size_t window, uint64_t iterations);
	double get_echoes(size_t size, size_t window, uint64_t iterations);
	void give_echoes(size_t size, size_t window, uint64_t iterations);
	double make_calls(Test test, size_t size, size_t window, uint64_t iterations);
	void serve_calls(int caller);
	void post(size_t size, size_t window, size_t first_request);
	void send_window(size_t size, size_t window, uint64_t iteration);
	void wait_window(size_t count);
	void verify_window(size_t size, size_t window, size_t first_request, uint64_t iteration);
	void fill(unsigned char *buffer, size_t size, uint64_t iteration, uint64_t slot);
	void verify(const unsigned char *buffer, size_t size, uint64_t iteration, uint64_t slot,
	            const pt2p_result_t &result, int writer, uint64_t tag);
	void verify_replies(size_t size, size_t window, uint64_t iteration);
	void signal(int to, uint64_t tag);
	void await(int from, uint64_t tag);

	pt2p_context_t *ctx_;
	int rank_, size_, pairs_, peer_;
	bool check_, spoil_, one_server_;
	uint64_t bursts_ = 0; // both sides count them: part of the payload's pattern
	size_t stride_ = 0;   // distance of the buffers of a window: 0 when they may share one
	size_t out_size_ = 0, in_size_ = 0;
	Buffer out_, in_;
	std::vector<pt2p_request_t *> requests_;
	std::vector<pt2p_result_t> results_;
	std::map<int, uint64_t> served_; // calls of each caller
	uint64_t called_ = 0;            // calls that this rank has made
	Handoff handoff_;
};

} // namespace pt2p::perf
