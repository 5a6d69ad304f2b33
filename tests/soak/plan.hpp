// SPDX-License-Identifier: BSD-3-Clause
// The plan of a soak run. Everything follows from the seed, so all ranks know the plan without talking.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace soak {

inline uint64_t mix(uint64_t x) // splitmix64
{
	x += UINT64_C(0x9e3779b97f4a7c15);
	x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
	return x ^ (x >> 31);
}

struct Random {
	uint64_t state;
	uint64_t next() { return mix(state += UINT64_C(0x9e3779b97f4a7c15)); }
	uint64_t below(uint64_t n) { return next() % n; }
	bool one_in(uint64_t n) { return below(n) == 0; }
	template <class T>
	void shuffle(std::vector<T> &list)
	{
		for (size_t i = list.size(); i > 1; --i)
			std::swap(list[i - 1], list[below(i)]);
	}
};

// How a message is received. Each kind has its own tag space.
enum class Kind : uint8_t {
	any,    // from any source, with a mask that leaves out the number and the sending thread
	from,   // from a named source, with the same mask
	exact,  // with its own tag, posted in any order, cancelled and posted again
	same,   // with a tag that many share: only the order tells them apart
	probed, // found by a probe
};
constexpr int kinds = 5;

struct Message {
	Kind kind;
	uint8_t source, source_thread, dest, dest_thread;
	uint32_t number; // within its stream: the messages with the same values of all of the above
	uint8_t episode;
};

enum class Mode { threads, cooperative, launched };

struct Plan {
	uint64_t seed = 0;
	Mode mode = Mode::threads;
	int ranks = 2, threads = 1; // threads of a rank
	bool device = false;        // on softhca
	bool exact = false;         // every doorbell trapped
	std::vector<std::string> tunables;
	std::string fault;      // for softhca --fault
	std::string late_fault; // set when the job has started
	bool breaks = false;    // faults break connections, so atomic operations may fail
	int victim = -1;        // the rank that is killed
	int kill_from = 0;      // 0: when all have talked to all, 1: at pt2p_init, 2: at its end
	unsigned kill_us = 0;   // so much later
	int joins = 1;          // how often the job is entered
	int episodes = 1;
	unsigned messages = 0;               // of a thread in an episode
	size_t longest = 0, longest_any = 0; // bytes
	bool memory = false;                 // one-sided operations as well
	unsigned operations = 0;             // of a thread in an episode
	bool preposted = false, barriers = false, set_delivery = false;
	unsigned bound = 0; // seconds after which a run counts as hung

	// Of the message: what it carries and under which tag.
	size_t length(const Message &m) const;
	size_t capacity(const Message &m) const;                              // of the receive of one of kind exact or same
	uint64_t payload(const Message &m) const { return mix(key(m) ^ 77); } // seed of its bytes
	// All messages of each episode. Those of a stream are in the order of their numbers, which continue over the
	// episodes.
	std::vector<std::vector<Message>> messages_of_all_episodes() const;

	std::string text() const; // one line
	std::vector<std::string> command(const char *program, const std::vector<std::string> &arguments) const;

private:
	uint64_t key(const Message &m) const;
};

// Whether its receive takes several messages.
constexpr bool is_wild(Kind kind) { return kind == Kind::any || kind == Kind::from; }
constexpr uint64_t tag_of(const Message &m)
{
	const uint64_t low = m.kind == Kind::same ? m.number % 2 : m.number;
	const uint64_t episode = is_wild(m.kind) ? m.episode : 0;
	return static_cast<uint64_t>(m.kind) << 60 | static_cast<uint64_t>(m.source_thread) << 56 |
	       static_cast<uint64_t>(m.dest_thread) << 52 | episode << 48 | low;
}
constexpr uint64_t mask_of_kind = UINT64_C(0xf0f) << 52; // and receiving thread
// A wild receive takes messages of its episode only. If lanes that are ahead used up such receives, two lanes that wait
// for their sends would wait for each other.
constexpr uint64_t mask_of(Kind kind) { return is_wild(kind) ? mask_of_kind | UINT64_C(0xf) << 48 : mask_of_kind; }

// Makes the plan for a seed. A change is NAME=VALUE, where NAME is a member above or a tunable, or without=WORD,... for
// what is left out: kill, start-kill (before all have talked to all), refuse, rings, break, fault, route, memory,
// launched. A change that makes no sense ends the program.
Plan make_plan(uint64_t seed, const std::vector<std::string> &changes);

} // namespace soak
