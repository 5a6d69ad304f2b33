#include "harness.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <map>
#include <set>
#include <string>

#include <csignal>
#include <unistd.h>

namespace conformance {

namespace {

std::vector<Case> one_sided_cases()
{
	std::vector<Case> c;
	add_onesided_cases(c);
	add_onesided_order_cases(c);
	return c;
}

std::vector<Case> call_cases()
{
	std::vector<Case> c;
	add_call_cases(c);
	add_call_memory_cases(c);
	add_nested_call_cases(c);
	add_call_race_cases(c);
	add_call_history_cases(c);
	return c;
}

using Names = std::set<std::string>;

Names names_of(const std::vector<Case> &cases)
{
	Names names;
	for (const Case &c : cases)
		names.insert(c.name);
	return names;
}

// Names that stand for many cases.
const std::map<std::string, Names> &groups()
{
	static const std::map<std::string, Names> all = {
	    {"one_sided", names_of(one_sided_cases())},
	    {"calls", names_of(call_cases())},
	    // Much traffic, and the most.
	    {"several", {"both_directions", "random_exact", "barrier", "put_get"}},
	    {"most",
	     {"both_directions", "random_exact", "barrier", "put_get", "any_source", "random_wild", "long_row",
	      "segments_mixed", "many_one_sided"}},
	};
	return all;
}

} // namespace

const std::vector<Case> &all_cases()
{
	static const std::vector<Case> cases = [] {
		std::vector<Case> c;
		add_point_cases(c);
		add_order_cases(c);
		add_request_cases(c);
		add_matched_cases(c);
		add_detached_cases(c);
		add_segment_cases(c);
		add_traffic_cases(c);
		for (const auto &more : {one_sided_cases(), call_cases()})
			c.insert(c.end(), more.begin(), more.end());
		return c;
	}();
	return cases;
}

std::vector<Case> choose_cases(const std::vector<std::string> &names)
{
	if (names.empty())
		return all_cases();
	Names wanted;
	for (const std::string &name : names) {
		if (const auto group = groups().find(name); group != groups().end())
			wanted.insert(group->second.begin(), group->second.end());
		else
			wanted.insert(name);
	}
	std::vector<Case> chosen;
	for (const Case &c : all_cases())
		if (wanted.erase(c.name))
			chosen.push_back(c);
	if (!wanted.empty()) {
		fprintf(stderr, "FAIL: there is no case %s\n", wanted.begin()->c_str());
		exit(2);
	}
	return chosen;
}

namespace {

uint64_t parse_bytes(const char *text)
{
	char *end;
	uint64_t value = strtoull(text, &end, 10);
	switch (*end) {
	case 'g': value <<= 10; [[fallthrough]];
	case 'm': value <<= 10; [[fallthrough]];
	case 'k': value <<= 10; break;
	default: break;
	}
	return value;
}

const char *watched = "";
std::vector<Rank> watched_ranks;

void too_long(int)
{
	// A second signal ends the program, as the dump below may wait for a lock.
	signal(SIGALRM, SIG_DFL);
	alarm(5);
	const char head[] = "FAIL: takes too long: ";
	ssize_t n = write(2, head, sizeof head - 1);
	n = write(2, watched, strlen(watched));
	n = write(2, "\n", 1);
	(void)n;
	for (const Rank &r : watched_ranks)
		pt2p_dump(r.ctx);
	_exit(1);
}

} // namespace

void learn_tunables(Rank &rank, const std::vector<std::string> &tunables)
{
	for (const std::string &t : tunables) {
		const size_t equal = t.find('=');
		if (equal == std::string::npos)
			continue;
		const std::string name = t.substr(0, equal);
		const uint64_t value = parse_bytes(t.c_str() + equal + 1);
		if (name == "PT2P_UNEXPECTED_MAX")
			rank.unexpected_max = value;
		else if (name == "PT2P_SHM_RING_BYTES")
			rank.ring_bytes = value;
		else if (name == "PT2P_SHM_RING_SLOTS")
			rank.ring_slots = value;
		else if (name == "PT2P_CALL_WINDOW")
			rank.call_window = value;
		else if (name == "PT2P_ONE_SIDED")
			rank.one_sided = t.substr(equal + 1);
		else if (name == "PT2P_TRANSPORTS" && t.ends_with(",rc"))
			rank.transport = "rc";
		else if (name == "PT2P_TRANSPORTS" && t.ends_with(",dct"))
			rank.transport = "dct";
		else if (name == "PT2P_TRANSPORTS" && t.ends_with(",device"))
			rank.transport = "device";
		else if (name == "PT2P_RANKS_PER_NODE")
			rank.ranks_per_node = static_cast<int>(value);
	}
}

void watch(const char *what, const std::vector<Rank> &ranks, unsigned seconds)
{
	alarm(0);
	watched = what;
	watched_ranks = ranks;
	signal(SIGALRM, too_long);
	alarm(seconds);
}

void unwatch() { alarm(0); }

void fill(void *data, size_t length, uint64_t seed)
{
	auto *bytes = static_cast<unsigned char *>(data);
	size_t i = 0;
	for (; i + 8 <= length; i += 8) {
		const uint64_t word = mix(seed + i);
		memcpy(bytes + i, &word, 8);
	}
	if (i < length) {
		const uint64_t word = mix(seed + i);
		memcpy(bytes + i, &word, length - i);
	}
}

void check(const void *data, size_t length, uint64_t seed, const char *file, int line)
{
	const auto *bytes = static_cast<const unsigned char *>(data);
	for (size_t i = 0; i < length; i += 8) {
		const uint64_t word = mix(seed + i);
		const size_t n = length - i < 8 ? length - i : 8;
		if (memcmp(bytes + i, &word, n) != 0)
			fail(file, line,
			     "wrong payload in the 8 bytes from " + std::to_string(i) + " of " + std::to_string(length));
	}
}

uint64_t counter(const Rank &rank, const char *name)
{
	for (int i = 0; i < pt2p_counter_count(); ++i)
		if (!strcmp(pt2p_counter_name(i), name)) {
			uint64_t value = 0;
			EXPECT_OK(rank.ctx, pt2p_counter_read(rank.ctx, i, &value));
			return value;
		}
	throw Failure(std::string("no counter ") + name);
}

void sleep_ms(int ms)
{
	timespec t{ms / 1000, ms % 1000 * 1000000L};
	nanosleep(&t, nullptr);
}

} // namespace conformance
