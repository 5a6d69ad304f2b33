// What verbs_load is asked for: its command line, and what follows from that.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <map>
#include <string>

namespace verbs_load {

inline constexpr const char *usage = R"(usage: verbs_load [option=value ...]
  op=read|write|send|atomic  transport=rc|ud|dc  bytes=32  inline=0|1
  pattern=out|in|all   machine 0 loads the others, the others load machine 0, or each loads all others
  machines=2 threads=1 devices, and threads that post on each that loads
  qps=1                queue pairs (DC: initiators) of each thread; RC: the k-th goes to the k-th other machine, round and round
  choose=turn|random   which queue pair is next
  target=same|turn|random|any  DC, UD: which machine is next; any: the thread's own too
  window=1             operations outstanding of each thread; with period > 1 those of WRITE and SEND are bounded by it alone
  share=nothing|context|queue  threads of a machine: one context of verbs, or one queue pair, with its lock (RC; who polls counts for all)
  burst=0|1            a window is posted when all of the last one has ended (0: one work request when one has ended)
  work=0               ns that the program itself needs for each operation, in virtual time
  postlist=1           work requests for each doorbell
  period=1             each so-manieth work request of a queue pair is signalled
  spread=0             atomic operations: of each thread on a word of its own (0: all on one word)
  depth=16             READs and atomics outstanding of a queue pair
  receivers=1          op=send: threads of each machine that take messages
  ops=20000            operations that are measured, after a quarter as many that are not
  check=0|1            check that the right bytes came to the right place
  header=0|1           print names of columns first
)";

[[noreturn]] inline void fail(const std::string &why)
{
	std::fprintf(stderr, "verbs_load: %s\n", why.c_str());
	std::exit(1);
}

struct Options {
	std::map<std::string, std::string> values = {
	    {"op", "read"},     {"transport", "rc"},  {"bytes", "32"},    {"inline", "0"}, {"pattern", "out"},
	    {"machines", "2"},  {"threads", "1"},     {"qps", "1"},       {"window", "1"}, {"postlist", "1"},
	    {"period", "1"},    {"choose", "turn"},   {"target", "turn"}, {"spread", "0"}, {"depth", "16"},
	    {"receivers", "1"}, {"ops", "20000"},     {"check", "0"},     {"header", "0"}, {"burst", "0"},
	    {"work", "0"},      {"share", "nothing"},
	};
	Options(int argc, char **argv)
	{
		for (int i = 1; i < argc; ++i) {
			const std::string text = argv[i];
			const size_t equals = text.find('=');
			const auto found = values.find(text.substr(0, equals));
			if (equals == std::string::npos || found == values.end()) {
				std::fputs(usage, stderr);
				std::exit(2);
			}
			found->second = text.substr(equals + 1);
		}
	}
	// Whether it says what is loaded, and not what is done about it.
	static bool is_of_load(const std::string &name) { return name != "header" && name != "check"; }
	unsigned number(const char *name, unsigned least = 0) const
	{
		char *end;
		const unsigned long n = std::strtoul(values.at(name).c_str(), &end, 10);
		if (*end || values.at(name).empty() || n < least)
			fail(std::string(name) + " is to be a number, at least " + std::to_string(least));
		return static_cast<unsigned>(n);
	}
	unsigned one_of(const char *name, std::initializer_list<const char *> words) const
	{
		unsigned i = 0;
		for (const char *word : words) {
			if (values.at(name) == word)
				return i;
			++i;
		}
		fail(std::string(name) + " cannot be " + values.at(name));
	}
};

enum Operation : unsigned { op_read, op_write, op_send, op_atomic };
enum Transport : unsigned { rc, ud, dc };
enum Pattern : unsigned { out, in, all };
enum Share : unsigned { shares_nothing, shares_context, shares_queue };
enum Target : unsigned { same, in_turn, at_random, any };

struct Plan {
	explicit Plan(const Options &o)
	    : op(o.one_of("op", {"read", "write", "send", "atomic"})), transport(o.one_of("transport", {"rc", "ud", "dc"})),
	      pattern(o.one_of("pattern", {"out", "in", "all"})),
	      target(o.one_of("target", {"same", "turn", "random", "any"})), bytes(o.number("bytes")),
	      machines(o.number("machines", 2)), threads(o.number("threads", 1)), qps(o.number("qps", 1)),
	      window(o.number("window", 1)), postlist(o.number("postlist", 1)), period(o.number("period", 1)),
	      depth(o.number("depth", 1)), receivers(o.number("receivers", 1)), ops(o.number("ops", 1)),
	      work(o.number("work")), in_line(o.one_of("inline", {"0", "1"})),
	      random_qp(o.one_of("choose", {"turn", "random"})), spread(o.one_of("spread", {"0", "1"})),
	      share(o.one_of("share", {"nothing", "context", "queue"})), check(o.one_of("check", {"0", "1"})),
	      burst(o.one_of("burst", {"0", "1"}))
	{
		if (op == op_atomic)
			bytes = 8;
		if (transport == ud && op != op_send)
			fail("datagrams can only be sent");
		if (postlist > window || (period > 1 && postlist > period))
			fail("a list of work requests is to fit the window and the signal period");
		if (share == shares_queue && (transport != rc || pattern == all || period > 1))
			fail("a shared queue pair is RC, in one direction, and all its work requests are signalled");
		if (burst && (postlist > 1 || period > 1))
			fail("in bursts, each work request has its doorbell and is signalled");
		if (op == op_read && period > 1 && bytes == 0)
			fail("a READ of nothing that is not signalled cannot be seen to end");
	}
	bool loads(unsigned machine) const { return pattern == all || (pattern == out) == (machine == 0); }
	bool serves(unsigned machine) const { return pattern == all || (pattern == in) == (machine == 0); }
	// Datagrams can be lost: what one machine is sent counts when it comes.
	bool counts_received() const { return transport == ud && pattern == in; }
	unsigned slots() const
	{
		return op == op_read || op == op_atomic || period == 1 ? window : window + 2 * period * qps;
	}

	unsigned op, transport, pattern, target, bytes, machines, threads, qps, window, postlist, period, depth, receivers,
	    ops, work;
	bool in_line, random_qp, spread;
	unsigned share;
	bool check, burst;
};

} // namespace verbs_load
